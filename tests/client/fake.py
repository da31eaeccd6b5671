# SPDX-License-Identifier: LGPL-2.1-or-later
"""What tests of shadectl share: a mount that answers as told (fakefs.c), and saying what went
wrong. Programs that use it are called with shadectl and fakefs."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SHADECTL, FAKEFS = (os.path.abspath(path) for path in sys.argv[1:3])
failures = 0
# Being stopped must not leave a mount behind.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

STATS = {
    "mode": "portable", "policy": "shade", "capacity_bytes": 8 << 30, "resident_bytes": 2 << 30,
    "resident_samples": 20000, "inflight_bytes": 1 << 20, "samples": 1281167, "scan_complete": 1,
    "accesses": 1000, "hits": 750, "hits_prefetched": 100, "misses": 250, "coalesced": 0,
    "admissions": 200, "bypasses": 50, "evictions": 10, "reclaimed": 0, "backend_reads": 250,
    "backend_bytes": 25000000, "fetch_errors": 0, "waiting_ms": 0, "uses": 0, "stale_drops": 0, "names_left_out": 0, "epoch": 7,
    "order_ahead": 1234567, "coverage": 0.51, "warm_pending": 0, "warm_done": 5,
    "warm_refused": 1, "warm_failed": 2, "warm_pending_bytes": 0, "warm_done_bytes": 5000,
    "warm_refused_bytes": 1000, "a_key_of_the_future": "what is this",
}


def check(holds, what):
    """Counts a failure, and says what failed."""
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what, flush=True)


def finish():
    print("failures:", failures)
    sys.exit(1 if failures else 0)


def run(*arguments, stdin=None, cwd=None, env=None, user=None, program=SHADECTL):
    """The finished process of one call; names may have any bytes."""
    return subprocess.run([program, *arguments], input=stdin, capture_output=True, timeout=60,
                          encoding="utf-8", errors="surrogateescape", cwd=cwd, user=user,
                          env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})})


def works(done, stdout=None):
    """Exit 0, nothing on standard error, and that output."""
    check(done.returncode == 0 and not done.stderr,
          f"{done.args[1:]}: exit {done.returncode}, {done.stderr!r}")
    if stdout is not None:
        check(done.stdout == stdout, f"{done.args[1:]}: printed {done.stdout!r}, not {stdout!r}")


def refuses(done, code, *words, sentences=1):
    """That exit code and one sentence that has the words."""
    check(done.returncode == code, f"{done.args[1:]}: exit {done.returncode}, not {code}")
    lines = done.stderr.splitlines()
    check(len(lines) == sentences and all(line.startswith("shadectl: ") for line in lines),
          f"{done.args[1:]}: said {done.stderr!r}")
    for word in words:
        check(word in done.stderr, f"{done.args[1:]}: '{word}' is not in {done.stderr!r}")


def mounts():
    with open("/proc/self/mountinfo") as file:
        return [line.split()[4].replace("\\040", " ") for line in file]


class Fake:
    """A mount of fakefs over a tree of a few files, gone at the end whatever happens."""

    def __init__(self, name="mnt"):
        # Without symbolic links, to compare names.
        self.top = os.path.realpath(tempfile.mkdtemp(prefix="shadectl."))
        self.state = os.path.join(self.top, "state")
        self.mnt = os.path.join(self.top, name)
        self.servers = []
        for path in (self.mnt, os.path.join(self.state, ".shade"),
                     os.path.join(self.state, "train/a b"), os.path.join(self.state, "7")):
            os.makedirs(path)
        for path in ("train/1.bin", "train/a b/2.bin", "val.bin"):
            self.put(path, "x" * 5000)
        self.put(".shade/control", "")
        self.put(".shade/config", "source /data/image net # from the command line\n"
                                  "capacity 8G # option\n")
        self.put(".shade/order", "".join(f"{number}\n" for number in range(9, 5000)))
        self.put(".shade/scores", "")
        self.stats()

    def __enter__(self):
        try:
            self.serve(self.state, self.mnt)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for point in sorted((point for point in mounts() if point.startswith(self.top)),
                            key=len, reverse=True):
            subprocess.run(["umount", "-l", point] if os.getuid() == 0
                           else ["fusermount3", "-uz", point], check=False, capture_output=True)
        for server in self.servers:
            if server.poll() is None:
                server.terminate()
            server.wait(10)
        shutil.rmtree(self.top, ignore_errors=True)

    def serve(self, state, point, *options):
        """Mounts, or ends the program with 77 if that is not possible here."""
        count = mounts().count(point)
        server = subprocess.Popen([FAKEFS, state, point, *(options or ["-osubtype=shadefs"])],
                                  stderr=subprocess.PIPE, text=True)
        self.servers.append(server)
        if self.wait_for(point, server, count):
            return server
        print("skipped: cannot mount FUSE here:", server.stderr.read() if server.poll() else "")
        sys.exit(77)

    @staticmethod
    def wait_for(point, server, count=0):
        """Whether it has mounted."""
        for _ in range(500):
            if mounts().count(point) > count:
                return True
            if server.poll() is not None:
                break
            time.sleep(0.01)
        return False

    def run_as_nobody(self, *arguments, **how):
        """The same for a user who owns nothing; None if that is not possible here."""
        if os.getuid():
            print("not root: a check as another user is skipped")
            return None
        # Where shadectl was built may be closed to others.
        program = os.path.join(self.top, "shadectl")
        shutil.copy(SHADECTL, program)
        os.chmod(self.top, 0o777)
        try:
            return run(*arguments, user=65534, program=program, **how)
        except PermissionError as error:
            print("a check as another user is skipped:", error)
            return None

    def put(self, path, text):
        """Changes a file at once: a reader sees the old or the new."""
        path = os.path.join(self.state, path)
        with open(path + "~", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.rename(path + "~", path)

    def stats(self, _without=(), _next=False, **changes):
        """Sets the stats, now or with the next command."""
        keys = {**STATS, **changes}
        self.put("../state.next" if _next else ".shade/stats",
                 "".join(f"{key} {value}\n" for key, value in keys.items()
                         if key not in _without))

    def rules(self, *rules):
        with open(self.state + ".rules", "w") as file:
            for text, error, answer in rules:
                file.write(f"{text}\t{error}\t{answer}\n")

    def take(self, what="log"):
        """What was sent since the last time: the commands, or handle and size of each write."""
        path = f"{self.state}.{what}"
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            text = file.read()
        os.unlink(path)
        return text

    def sends(self, commands, *arguments, **how):
        """A call that must work, say nothing and send that."""
        works(run(*arguments, **how), "")
        log = self.take()
        check(log == commands, f"{arguments}: sent {log[:300]!r}, not {commands[:300]!r}")
