# SPDX-License-Identifier: LGPL-2.1-or-later
"""Four machines: network and mount namespaces, each with a mount of one slow source and a rank of a
training over gloo. What the source is asked for is what the simulator says."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile

from harness import HERE, MODE, SHADEFS, Slow, need, run_tests, scratch, skip, wait_until

need("PIL", "torch", "torchvision", "shade")
SIM = sys.argv[3]
FILES, SIZE, CLASSES = 1600, 8192, 4
NODES, BATCH, BLOCK = 4, 10, 50
INFLIGHT = 1 << 20
PREFETCH = 8 * SIZE  # what is fetched ahead takes room from what is kept


def make_images():
    """Files of equal size, of classes that can be told apart."""
    from PIL import Image
    root = tempfile.mkdtemp(prefix="images-", dir=scratch)
    chance = random.Random(5)
    for number in range(FILES):
        kind = number * CLASSES // FILES
        folder = os.path.join(root, "train", f"class{kind}")
        os.makedirs(folder, exist_ok=True)
        pixels = bytes(min(255, chance.randrange(240) + 9 * (at // 48 == kind))
                       for at in range(8 * 8 * 3))
        path = os.path.join(folder, f"{number:05}.png")
        Image.frombytes("RGB", (8, 8), pixels).save(path)
        os.truncate(path, SIZE)
    return root


class Node:
    """A machine: a process that does nothing, in namespaces of its own."""

    def __init__(self, number, hub):
        self.name = f"{hub}-{number}"
        self.address = f"10.213.0.{number + 1}"
        for words in (("netns", "add", self.name),
                      ("link", "add", f"p{number}", "netns", hub, "type", "veth", "peer", "name",
                       "eth0", "netns", self.name),
                      ("-n", hub, "link", "set", f"p{number}", "master", "bridge", "up"),
                      ("-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0"),
                      ("-n", self.name, "link", "set", "eth0", "up"),
                      ("-n", self.name, "link", "set", "lo", "up")):
            subprocess.run(["ip", *words], check=True)
        self.anchor = subprocess.Popen(["ip", "netns", "exec", self.name, "sleep", "600"])
        wait_until(lambda: os.readlink(f"/proc/{self.anchor.pid}/ns/mnt") !=
                   os.readlink("/proc/self/ns/mnt"), "it has namespaces of its own")

    def command(self, *words):
        return ["nsenter", "-t", str(self.anchor.pid), "-m", "-n", "--", *words]

    def remove(self):
        self.anchor.kill()
        self.anchor.wait()
        subprocess.run(["ip", "netns", "delete", self.name])


class Cluster:
    """Machines on one network."""

    def __init__(self):
        self.hub = f"shade-{os.getpid()}"
        self.nodes = []
        subprocess.run(["ip", "netns", "add", self.hub], check=True)
        subprocess.run(["ip", "-n", self.hub, "link", "add", "bridge", "up", "type", "bridge"],
                       check=True)
        try:
            for number in range(NODES):
                self.nodes.append(Node(number, self.hub))
        except BaseException:
            self.remove()
            raise

    def remove(self):
        for node in self.nodes:
            node.remove()
        subprocess.run(["ip", "netns", "delete", self.hub])


def mount_command(source, point, share):
    capacity = int(FILES * share) * SIZE + INFLIGHT
    options = {"mode": MODE, "capacity": capacity, "inflight": INFLIGHT, "prefetch": PREFETCH}
    return [os.path.abspath(SHADEFS), "-o", ",".join(f"{name}={value}" for name, value in
                                                     options.items()), source, point]


def train(share, restart_at=None, hook=(), **config):
    """Runs a training with a rank on each node. What each rank wrote."""
    slow = Slow(images, delay_us=200)
    cluster = Cluster()  # whose machines see it, since it is there already
    point = tempfile.mkdtemp(prefix="point-", dir=scratch)
    command = mount_command(slow.path, point, share)
    out = tempfile.mktemp(dir=scratch)
    config = {"world": NODES, "address": f"tcp://{cluster.nodes[0].address}:29477",
              "mount": point, "batch": BATCH, "slowfs": slow.path, "out": out, **config}
    if restart_at:
        config["restart"] = {"at": restart_at, "command": command}
    with open(out, "w") as file:
        json.dump(config, file)
    ranks = []
    try:
        for node in cluster.nodes:
            subprocess.run(node.command(*command), check=True, stdout=subprocess.DEVNULL)
        for rank, node in enumerate(cluster.nodes):
            ranks.append(subprocess.Popen(
                node.command(sys.executable, *hook, os.path.join(HERE, "node_rank.py"), out,
                             str(rank)),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"}, start_new_session=True))
        said = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
        for node in cluster.nodes:
            subprocess.run(node.command("umount", "-R", point))
        cluster.remove()
    slow.end()
    assert not any(rank.returncode for rank in ranks), said
    results = []
    for rank in range(NODES):
        with open(f"{out}.{rank}") as file:
            results.append(json.load(file))
    return results


def per_epoch(result):
    return [(after - before) / FILES
            for before, after in zip(result["opens"], result["opens"][1:])]


def simulated(epochs, share, *options):
    """What the simulator says that the source is asked for, by epoch."""
    done = subprocess.run([SIM, "run", "--samples", str(FILES), "--epochs", str(epochs),
                           "--capacity", f"{share * 100}%", "--nodes", str(NODES), "--batch",
                           str(BATCH), "--block", str(BLOCK), "--lookahead", "1", "--by-epoch",
                           "--json", *options], check=True, capture_output=True, text=True)
    row = json.loads(done.stdout)[0]
    return [1 - row[str(epoch)]["hit_ratio"] for epoch in range(epochs)]


def agree(results):
    for result in results:
        assert result["digests"] == results[0]["digests"], "they drew the same"
        assert result["read"] == results[0]["read"], "they read equally many"
        assert sum(other["read"][0] for other in results) == FILES


def the_source_is_asked_for_what_fits_nowhere():
    """A fifth of the data fits into each of four machines. One of them restarts."""
    epochs, restart = 6, 4
    results = train(0.2, (restart, 1), epochs=epochs,
                    sampler={"mode": "uniform", "seed": 2, "block": BLOCK})
    agree(results)
    found = per_epoch(results[0])
    wanted = simulated(epochs, 0.2, "--sampler", "uniform", "--seed", "2", "--restart", str(restart))
    print("   of the source, by epoch:", *(f"{share:.3f}" for share in found))
    print("   as simulated:           ", *(f"{share:.3f}" for share in wanted))
    for epoch in range(1, restart):
        assert abs(found[epoch] - wanted[epoch]) <= 0.03, f"epoch {epoch}"
    assert found[restart] <= wanted[restart] + 0.03, "more than one node's part was lost"
    assert max(found[2:restart]) <= 0.25
    assert found[restart + 1] <= 0.28, "an epoch later it is as before"
    accuracies.append(results[0]["accuracy"])


def the_accuracy_is_that_of_any_sampler():
    results = train(0.2, epochs=6, sampler=None)
    found = per_epoch(results[0])
    print("   DistributedSampler, of the source by epoch:", *(f"{share:.3f}" for share in found))
    assert found[-1] > 0.5, "each rank reads what another one has"
    print(f"   accuracy {accuracies[0]:.3f}, with DistributedSampler {results[0]['accuracy']:.3f}")
    assert accuracies[0] > results[0]["accuracy"] - 0.05
    assert accuracies[0] > 0.5, "it has learnt"


def an_unmodified_training_gains_as_much():
    """With DistributedSampler, below the hook."""
    results = train(0.2, epochs=4, sampler=None,
                    hook=("-m", "shade", "run", "--mode", "uniform", "--seed", "2"))
    found = per_epoch(results[0])
    print("   below the hook, of the source by epoch:", *(f"{share:.3f}" for share in found))
    assert max(found[2:]) <= 0.25, found


if os.geteuid() != 0:
    skip("namespaces need root")
accuracies = []
images = make_images()
run_tests([the_source_is_asked_for_what_fits_nowhere, the_accuracy_is_that_of_any_sampler,
           an_unmodified_training_gains_as_much])
