# SPDX-License-Identifier: LGPL-2.1-or-later
"""The kernel takes memory away from the cache."""
import hashlib
import os
import subprocess

from common import Group, Shade, in_threads, make_tree, run_tests, running, skip

# A sanitizer keeps what was freed, which would fill the group.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"


def digests(group, fs, paths):
    """What processes in the group read."""
    done = subprocess.run(group.command("sha256sum", "-b", "--", *(fs.at(path) for path in paths)),
                          capture_output=True, text=True, timeout=120)
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
        group.add(fs.daemon())
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
