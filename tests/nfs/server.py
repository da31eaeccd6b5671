# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real NFS server and what can happen to it, for tests and benchmarks. Everything runs in
namespaces of its own, so that nothing outside sees a port, a mount or a file of /run: call
enter_namespaces() before anything is mounted or started. Servers end with the process that has
started them, whatever happens to it."""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time

PACKAGES = {"ganesha.nfsd": "nfs-ganesha", "rpcbind": "rpcbind", "ip": "iproute2"}
NFS_PORT, MOUNT_PORT = 2049, 20491
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
PR_SET_PDEATHSIG = 1
CLOCK_OF_PROCESS = 2  # what clock_getcpuclockid(3) makes a clock of
libc = ctypes.CDLL(None, use_errno=True)

CORE = """
NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false;
                  Enable_RQUOTA = false; Enable_UDP = false; Protocols = 3, 4;
                  mount_path_pseudo = true; }}
NFSV4 {{ Graceless = true; RecoveryRoot = {state}; Only_Numeric_Owners = true; }}
"""
EXPORT = """
EXPORT {{ Export_Id = {number}; Path = {path}; Pseudo = {pseudo}; Access_Type = RO;
          Squash = {squash}; Attr_Expiration_Time = {expiration}; SecType = sys; Protocols = 3, 4;
          Transports = TCP; FSAL {{ Name = VFS; }} }}
"""


# As many names and attributes as a server has room for; ganesha's own bound is 100,000.
LARGE_CACHE = "MDCACHE { Entries_HWMark = 4000000; }\n"


def missing_packages(programs=PACKAGES):
    """The packages without which there is no server here."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [package for program, package in programs.items()
               if not shutil.which(program, path=path)]
    folders = ("/usr/lib", f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64")
    if not any(os.path.exists(f"{folder}/ganesha/libfsalvfs.so") for folder in folders):
        missing.append("nfs-ganesha-vfs")
    return missing


def enter_namespaces():
    """A network with nothing but loopback, and a /run of our own. OSError if that is refused."""
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def with_us():
    """In a child: it is killed when this thread of ours ends."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(holds, what, process, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode}")
        if time.monotonic() > end:
            raise RuntimeError(f"{what} was not ready after {seconds} s")
        time.sleep(0.01)


def export(path, number=1, pseudo="/export", squash="No_Root_Squash", expiration=0):
    """The text that exports a directory. With another `expiration` than 0 ganesha tells of new
    bytes with old attributes for so many seconds; with -1, for ever."""
    return EXPORT.format(path=path, number=number, pseudo=pseudo, squash=squash,
                         expiration=expiration)


class Ganesha:
    """nfs-ganesha and rpcbind, whose files are in `folder`."""

    def __init__(self, folder, *exports):
        self.folder = folder
        self.process = None
        os.makedirs(f"{folder}/state", exist_ok=True)
        self.rpcbind = self.spawn("rpcbind", "-f", "-w")
        wait_for(lambda: accepts(111), "rpcbind", self.rpcbind)
        self.start(*exports)

    def spawn(self, *command):
        with open(f"{self.folder}/{command[0]}.out", "ab") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    preexec_fn=with_us)

    def start(self, *exports):
        """With these exports, or those that it had."""
        if exports:
            with open(f"{self.folder}/ganesha.conf", "w") as file:
                file.write(CORE.format(port=NFS_PORT, mount_port=MOUNT_PORT,
                                       state=f"{self.folder}/state") + "".join(exports))
        self.process = self.spawn("ganesha.nfsd", "-F", "-f", f"{self.folder}/ganesha.conf",
                                  "-L", f"{self.folder}/ganesha.log",
                                  "-p", f"{self.folder}/ganesha.pid")
        # Its ports are open before it serves.
        wait_for(lambda: accepts(NFS_PORT) and accepts(MOUNT_PORT), "ganesha", self.process)

    def cpu_s(self):
        """Seconds of processor time so far."""
        return time.clock_gettime((~self.process.pid << 3) | CLOCK_OF_PROCESS)

    def kill(self):
        """As when its machine loses power."""
        self.go_on()
        self.process.kill()
        self.process.wait()

    def restart(self, *exports):
        self.kill()
        self.start(*exports)

    def halt(self):
        """Until go_on(). It is over when all threads stand still."""
        def states():
            folder = f"/proc/{self.process.pid}/task"
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/stat") as file:
                    yield file.read().rpartition(")")[2].split()[0]

        self.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: set(states()) == {"T"}, "the halted ganesha", self.process)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        for process in (self.process, self.rpcbind):
            if process.poll() is None:
                process.kill()
                process.wait()

    def log(self):
        with open(f"{self.folder}/ganesha.log", errors="replace") as file:
            return file.read()


class Proxy:
    """proxy.c: a port that leads to the server over a bad network."""

    def __init__(self, program, port=NFS_PORT):
        self.process = subprocess.Popen([program, f"127.0.0.1:{port}"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.port = int(self.process.stdout.readline())

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer and answer != "what?", f"the proxy says {answer!r} to {words}"
        return answer

    def counts(self):
        names = ("connections", "open", "to_server", "to_client", "cuts")
        return dict(zip(names, map(int, self.tell("count").split())))

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
