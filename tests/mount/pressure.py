# SPDX-License-Identifier: LGPL-2.1-or-later
"""The kernel takes memory away from the cache."""
import errno
import hashlib
import os
import subprocess
import tempfile

from common import Shade, in_threads, make_tree, run_tests, running, skip, wait_until

# A sanitizer keeps what was freed, which would fill the group.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"


class Group:
    """A memory cgroup, of version 1 or 2, with nothing in it."""

    def __init__(self):
        base, self.limit_name, self.usage_name = self.find()
        self.path = tempfile.mkdtemp(prefix="shade-test-", dir=base)

    @staticmethod
    def find():
        """Where groups can be made, or an exception that says why not."""
        if os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            return "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        with open("/sys/fs/cgroup/cgroup.subtree_control") as file:
            if "memory" not in file.read().split():
                raise OSError(errno.ENOTSUP, "no memory controller")
        return "/sys/fs/cgroup", "memory.max", "memory.current"

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def usage(self):
        with open(os.path.join(self.path, self.usage_name)) as file:
            return int(file.read())

    def add(self, pid):
        self.write("cgroup.procs", pid)

    def limit(self, size):
        """Version 1 refuses what it cannot reclaim at once; it goes on when asked again."""
        def taken():
            try:
                self.write(self.limit_name, size)
                return True
            except OSError as failure:
                assert failure.errno == errno.EBUSY, failure
                return False
        wait_until(taken, "the limit is taken")

    def remove(self):
        def gone():
            try:
                os.rmdir(self.path)
                return True
            except OSError:
                return False
        wait_until(gone, "the group is empty")


def digests(group, fs, paths):
    """What processes in the group read."""
    command = ["sh", "-c", 'echo $$ > "$0" && exec sha256sum -b -- "$@"',
               os.path.join(group.path, "cgroup.procs"), *(fs.at(path) for path in paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return [line.split()[0] for line in done.stdout.splitlines()]


def memory_is_taken_away():
    """The kernel takes resident pages for whoever needs them more: that costs time only."""
    root, contents = make_tree(600, size=100000)
    paths = sorted(contents)
    expected = [hashlib.sha256(contents[path]).hexdigest() for path in paths]
    group = Group()
    try:
        fs = Shade(root, capacity="96M", inflight="8M")
        group.add(fs.process.pid)
        before = group.usage()
        assert digests(group, fs, paths) == expected
        fs.settle()
        stats = fs.stats()
        full = group.usage()
        # Others on this machine may have needed some of it, too.
        assert stats["resident_samples"] >= 540, stats
        assert full - before > stats["resident_bytes"] / 2, "the pages are not the daemon's"
        taken = stats["reclaimed"]
        group.limit(full - (30 << 20))
        for _ in range(3):
            assert digests(group, fs, paths) == expected
        in_threads(4, lambda number: digests(group, fs, paths[number::4]) == expected[number::4]
                   or 1 / 0)
        stats = fs.stats()
        assert stats["reclaimed"] > taken, (taken, stats)
        assert stats["fetch_errors"] == 0, stats
        assert stats["memory_bytes"] <= stats["capacity_bytes"] * 1.01, stats
        fs.end()
    finally:
        for left in list(running):
            left.kill()
            running.remove(left)
        group.remove()


try:
    Group().remove()
except OSError as reason:
    skip(f"no memory cgroup can be made: {reason}")
run_tests([memory_is_taken_away])
