# SPDX-License-Identifier: LGPL-2.1-or-later
"""Other ways to read a file that is in memory already. Each starts what it needs on a folder and
raises Unavailable with the reason where it cannot."""
import os
import socket
import subprocess
import tempfile

from lab import Mount, Server, Unavailable


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def bindfs(lab, source):
    return Mount(lab, lambda path: ["bindfs", "-f", "--no-allow-other", "-o", "ro,kernel_cache",
                                    source, path])


def rclone(lab, source, most=None):
    """With a cache of `most` bytes, which it looks after every second instead of every minute, and
    without hashing files of the source, which would read each of them twice."""
    cache = tempfile.mkdtemp(prefix="rclone-", dir=lab.ram)
    limit = [] if most is None else ["--vfs-cache-max-size", f"{most}B",
                                     "--vfs-cache-poll-interval", "1s",
                                     "--vfs-fast-fingerprint"]
    return Mount(lab, lambda path: ["rclone", "mount", source, path, "--config", "/dev/null",
                                    "--read-only", "--vfs-cache-mode", "full", "--dir-cache-time",
                                    "1h", "--cache-dir", cache, *limit])


def start_sshd(lab):
    """An ssh server of our own on loopback, with keys of its own: (port, folder of the keys)."""
    keys = tempfile.mkdtemp(prefix="ssh-", dir=lab.disk)
    for name in ("host", "user"):
        try:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{keys}/{name}"],
                           check=True)
        except FileNotFoundError:
            raise Unavailable("ssh-keygen is not installed") from None
    port = free_port()
    with open(f"{keys}/config", "w") as config:
        config.write(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys}/host\n"
                     f"PidFile none\nAuthorizedKeysFile {keys}/user.pub\nStrictModes no\n"
                     "UsePAM yes\nPermitRootLogin yes\nPasswordAuthentication no\n"
                     "Subsystem sftp internal-sftp\n")
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", f"{keys}/config"]
    if os.geteuid() == 0:
        # As root it wants /run/sshd: in a /run that only it sees.
        command = ["unshare", "-m", "sh", "-c",
                   'mount -t tmpfs none /run && mkdir /run/sshd && exec "$@"', "sh", *command]
    if not os.path.exists("/usr/sbin/sshd"):
        raise Unavailable("sshd is not installed")
    Server(lab, command).wait(lambda: answers(port))
    return port, keys


def sshfs(lab, source):
    port, keys = start_sshd(lab)
    options = (f"ro,kernel_cache,port={port},IdentityFile={keys}/user,"
               f"UserKnownHostsFile={keys}/known,StrictHostKeyChecking=accept-new,BatchMode=yes")
    return Mount(lab, lambda path: ["sshfs", "-f", "-o", options, f"127.0.0.1:{source}", path])


class Redis(Server):
    """SHADE's data path: a server on loopback, and a client that asks and then gets."""

    def __init__(self, lab):
        try:
            import redis  # pylint: disable=import-outside-toplevel
        except ImportError:
            raise Unavailable("python3-redis is not installed") from None
        self.port = free_port()
        folder = tempfile.mkdtemp(prefix="redis-", dir=lab.ram)
        super().__init__(lab, ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                               "--save", "", "--appendonly", "no", "--dir", folder])
        self.wait(lambda: answers(self.port))
        self.connect = lambda: redis.Redis(host="127.0.0.1", port=self.port)

    def fill(self, paths):
        client = self.connect()
        for path in paths:
            with open(path, "rb") as file:
                client.set(path, file.read())


MOUNTS = {
    "bindfs, kernel_cache": bindfs,
    "rclone, full VFS cache": rclone,
    "sshfs, kernel_cache": sshfs,
}
