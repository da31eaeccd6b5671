# SPDX-License-Identifier: LGPL-2.1-or-later
"""A page cache of so many bytes for some processes: a memory cgroup that pages are taken from.

The kernel charges a page of a file to the cgroup whose process has it read first. A limit counts
those pages together with everything else that the processes have, which grows and shrinks. So there
is no lasting limit: every few milliseconds this looks how many bytes of files are charged, and has
the kernel reclaim what is above the capacity, by its own choice of pages (LRU, or nearly). Without
swap it can reclaim nothing else. What is above for that moment is the processes' gain."""
import os
import signal
import threading
import time

from lab import Unavailable

TICK_S = 0.02
# By the version of cgroups: which rows of memory.stat have pages of files, and which of these are
# shared memory.
ROWS = {1: ("total_cache", "total_shmem"), 2: ("file", "shmem")}


def find_memory_cgroup():
    """(version, folder) below which a cgroup can be made."""
    with open("/proc/self/cgroup") as file:
        rows = [line.strip().split(":", 2) for line in file]
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            return 1, "/sys/fs/cgroup/memory" + path.rstrip("/")
    # Version 2 allows no processes in a cgroup that has others with controllers, but for the root.
    root = "/sys/fs/cgroup"
    try:
        with open(os.path.join(root, "cgroup.subtree_control"), "r+") as file:
            if "memory" not in file.read().split():
                file.write("+memory")
    except OSError as failure:
        raise Unavailable(f"there is no memory cgroup to limit the page cache with: "
                          f"{failure.strerror}") from None
    return 2, root


class PageCache:
    """A cgroup whose page cache has `capacity` bytes. Processes begin in it with command()."""

    def __init__(self, lab, capacity):
        self.lab, self.capacity = lab, capacity
        self.ending = threading.Event()
        self.thread = None
        self.baseline = 0    # pages that are no data: of programs
        self.most = 0        # bytes of data that were in the cache at a time
        self.version, parent = find_memory_cgroup()
        self.path = os.path.join(parent, f"shade-bench-{os.getpid()}-{id(self):x}")
        try:
            os.mkdir(self.path)
        except OSError as failure:
            raise Unavailable(f"cannot make a memory cgroup: {failure.strerror}") from None
        lab.running.append(self)

    def command(self, words):
        """The command that runs `words` in the cgroup."""
        procs = os.path.join(self.path, "cgroup.procs")
        return ["sh", "-c", f'echo $$ >"{procs}" && exec "$@"', "sh", *words]

    def files(self):
        """Bytes of pages of files."""
        with open(os.path.join(self.path, "memory.stat")) as file:
            stat = dict(line.split() for line in file)
        pages, shared = ROWS[self.version]
        return int(stat[pages]) - int(stat[shared])

    def write(self, name, value):
        try:
            with open(os.path.join(self.path, name), "w") as file:
                file.write(str(value))
        except OSError:
            pass  # not everything could be taken away; the next time does it

    def begin(self):
        """From now on pages of files are data, and limited."""
        self.baseline = self.files()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def trim(self):
        excess = self.files() - self.baseline - self.capacity
        self.most = max(self.most, excess + self.capacity)
        if excess <= 0:
            return
        if self.version == 2:
            self.write("memory.reclaim", excess)
            return
        # A limit is in force only when the kernel has reclaimed so much, and then goes at once.
        with open(os.path.join(self.path, "memory.usage_in_bytes")) as file:
            self.write("memory.limit_in_bytes", int(file.read()) - excess)
        self.write("memory.limit_in_bytes", -1)

    def follow(self):
        while not self.ending.wait(TICK_S):
            self.trim()

    def end(self):
        self.ending.set()
        if self.thread:
            self.thread.join()
        if self in self.lab.running:
            self.lab.running.remove(self)
        for _ in range(100):
            self.kill_rest()
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.05)  # processes that have just ended are listed for a moment

    def kill_rest(self):
        """Workers of a training that was ended from outside."""
        with open(os.path.join(self.path, "cgroup.procs")) as file:
            for word in file:
                try:
                    os.kill(int(word), signal.SIGKILL)
                except ProcessLookupError:
                    pass
