# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real redis-servers on loopback, single or as a cluster, with the configuration that is installed.
They end with us, whatever happens to us, and are ended by process id."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

from resp import Client, RedisError, slot_of

SLOTS = 16384
HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGURATION = os.path.join(HERE, "..", "..", "packaging", "redis", "shadefs-redis.conf")
FIRST_PORT = 7001


def missing():
    """Why there can be no engine here, or None."""
    for program, package in (("redis-server", "redis-server"), ("setpriv", "util-linux")):
        if not shutil.which(program):
            return f"{program} is missing: install {package}"
    return None


def wait_for(holds, what, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(0.005)


class Engine:
    """One server. `settings` are as in redis.conf, with _ for -."""

    def __init__(self, below, port=FIRST_PORT, cluster=False, password=None, **settings):
        self.folder = tempfile.mkdtemp(prefix=f"redis-{port}-", dir=below)
        self.port, self.password = port, password
        self.settings = {"port": port, "dir": self.folder, "maxmemory": "256mb",
                         "cluster-enabled": "yes" if cluster else "no",
                         **{name.replace("_", "-"): value for name, value in settings.items()}}
        if password:
            self.settings["requirepass"] = password
        self.name = f"{port:040x}"  # in the cluster
        self.process = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        """Empty, whatever was in it."""
        words = [word for name, value in self.settings.items()
                 for word in (f"--{name}", str(value))]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            # A killed test must leave no server: the kernel ends it with its parent.
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "redis-server",
                                             CONFIGURATION, *words], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        wait_for(self.answers, f"redis-server answers: {self.log()}")
        return self

    def log(self):
        with open(os.path.join(self.folder, "log"), errors="replace") as file:
            return file.read()[-2000:]

    def answers(self):
        assert self.process.poll() is None, self.log()
        try:
            client = Client(self.port, seconds=5)
        except OSError:
            return False
        client.close()
        return True

    def client(self):
        return Client(self.port, password=self.password)

    def call(self, *words):
        client = self.client()
        try:
            return client.call(*words)
        finally:
            client.close()

    def keys(self):
        return self.call("KEYS", "*")

    def info(self, section):
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def pause(self):
        """It hangs: connections are still made, and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)
        def stands():
            with open(f"/proc/{self.process.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "T"
        wait_for(stands, "the server stands still")

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Single:
    """A server that is no cluster, as if it were one of one node."""

    def __init__(self, below, **settings):
        self.nodes = [Engine(below, **settings).start()]

    addresses = property(lambda self: [node.address for node in self.nodes])

    def node_of(self, key):
        return self.nodes[0]

    def keys(self):
        return [key for node in self.nodes for key in node.keys()]

    def call(self, key, *words):
        """A command about a key, where the key is."""
        return self.node_of(key).call(*words)

    def value(self, key):
        return self.call(key, "GET", key)

    def put(self, key, value, seconds=10 ** 6):
        self.call(key, "SET", key, value, "EX", seconds)

    def flush(self):
        for node in self.nodes:
            node.call("FLUSHALL")

    def end(self):
        for node in self.nodes:
            node.kill()
            shutil.rmtree(node.folder, ignore_errors=True)


class Cluster(Single):
    """Servers that share the slots equally. They are told so before they start, in the file where
    each keeps what it knows of the others: that saves the time that a handshake takes."""

    def __init__(self, below, count=3, first_port=FIRST_PORT, **settings):
        self.nodes = [Engine(below, first_port + number, cluster=True, **settings)
                      for number in range(count)]
        self.owner = [number * count // SLOTS for number in range(SLOTS)]
        for node in self.nodes:
            self.write_nodes(node)
            node.start()
        for node in self.nodes:
            wait_for(lambda node=node: self.is_ready(node), "the cluster is up")

    def write_nodes(self, myself):
        """As the node writes it itself; see clusterSaveConfig() in Redis."""
        lines = []
        for number, node in enumerate(self.nodes):
            slots = [slot for slot in range(SLOTS) if self.owner[slot] == number]
            flags = "myself,master" if node is myself else "master"
            lines.append(f"{node.name} {node.address}@{node.port + 10000} {flags} - 0 0 "
                         f"{number + 1} connected {ranges(slots)}")
        lines.append(f"vars currentEpoch {len(self.nodes)} lastVoteEpoch 0")
        with open(os.path.join(myself.folder, "shadefs-nodes.conf"), "w") as file:
            file.write("\n".join(lines) + "\n")

    @staticmethod
    def is_ready(node):
        return b"cluster_state:ok" in node.call("CLUSTER", "INFO")

    def restart(self, node):
        """Ends it at once, and starts it empty."""
        node.kill()
        node.start()

    def node_of(self, key):
        return self.nodes[self.owner[slot_of(key)]]

    def move(self, slot, target):
        """A slot with its keys, as `redis-cli --cluster reshard` does it."""
        source = self.nodes[self.owner[slot]]
        if source is target:
            return
        give, take = source.client(), target.client()
        take.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.name)
        give.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.name)
        while keys := give.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            words = ["AUTH", source.password] if source.password else []
            give.call("MIGRATE", "127.0.0.1", target.port, "", 0, 20000, *words, "KEYS", *keys)
        for client in (take, give):
            client.call("CLUSTER", "SETSLOT", slot, "NODE", target.name)
            client.close()
        self.owner[slot] = self.nodes.index(target)


def ranges(numbers):
    """1 2 3 5 as "1-3 5"."""
    words, begin = [], None
    for number, following in zip(numbers, numbers[1:] + [None]):
        begin = number if begin is None else begin
        if following != number + 1:
            words.append(f"{begin}-{number}" if begin < number else str(number))
            begin = None
    return " ".join(words)


__all__ = ["Client", "Cluster", "Engine", "RedisError", "Single", "missing", "slot_of"]
