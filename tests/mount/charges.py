# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which memory cgroup is charged for what: docs/memory.md says it, this measures it. Prints a
table; what must hold is asserted."""
import os
import subprocess
import sys
import time

from common import (MODE, SHADEFS, Filesystem, Shade, is_sanitized, make_tree, read, run_tests,
                    skip, wait_until)

HIERARCHIES = (("/sys/fs/cgroup/memory", "cache", "memory.usage_in_bytes", "memory.limit_in_bytes"),
               ("/sys/fs/cgroup", "file", "memory.current", "memory.max"))
groups = []
READ_ALL = """
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in sorted(names):
        with open(os.path.join(folder, name), "rb") as file:
            file.read()
"""


class Group:
    """A memory cgroup, of either version."""

    def __init__(self, name):
        for root, self.key, self.usage, self.knob in HIERARCHIES:
            self.path = f"{root}/shade-test-{os.getpid()}-{name}"
            if os.path.exists(os.path.join(root, "cgroup.procs")):
                os.mkdir(self.path)
                groups.append(self)
                if os.path.exists(os.path.join(self.path, self.knob)):
                    break
        else:
            raise OSError("there is no memory controller for us")
        self.before = 0

    def leave_room(self, room):
        """Besides what it has by now."""
        with open(os.path.join(self.path, self.usage)) as file:
            usage = int(file.read())
        with open(os.path.join(self.path, self.knob), "w") as file:
            file.write(str(usage + room))

    def charged(self):
        """MB of the page cache, since mark()."""
        with open(os.path.join(self.path, "memory.stat")) as file:
            values = dict(line.split() for line in file)
        return int(values[self.key]) / 1e6 - self.before

    def mark(self):
        self.before = 0
        self.before = self.charged()

    def command(self, *words):
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *words]


def end_groups():
    for group in groups:
        for _ in range(100):
            try:
                os.rmdir(group.path)
                break
            except OSError:
                time.sleep(0.05)
    groups.clear()


class ShadeIn(Shade):
    def __init__(self, group, source, **options):
        text = ",".join(f"{name}={value}" for name, value in {"mode": MODE, **options}.items())
        Filesystem.__init__(self, lambda path: group.command(SHADEFS, "-f", "-o", text, source, path),
                            "shadefs")
        wait_until(self.is_ready, "scanned")


def charge(what, fs, daemon, reader, work, due):
    """What it costs whom; the kernel has some seconds until due(daemon, reader) holds, for it
    counts in batches and drops pages a little later than it says."""
    daemon.mark()
    reader.mark()
    work()
    time.sleep(0.5)
    fs.settle()
    end = time.monotonic() + 20
    while not due(*(found := (daemon.charged(), reader.charged()))) and time.monotonic() < end:
        time.sleep(0.05)
    print("   %-44s daemon %6.1f MB, reader %6.1f MB" % (what, *found), flush=True)
    return due(*found)


def who_is_charged():
    root, contents = make_tree(500, size=100000)
    total = sum(map(len, contents.values())) / 1e6
    daemon, reader = Group("daemon"), Group("reader")
    fs = ShadeIn(daemon, root, capacity="256M")

    def read_all(path=fs.path):
        subprocess.run(reader.command(sys.executable, "-c", READ_ALL, path), check=True, timeout=60)

    def warm():
        fs.control("warm .\n")
        wait_until(lambda: fs.stats()["resident_samples"] == len(contents), "warm", 60)

    def evict():
        fs.control("evict .\n")
        wait_until(lambda: fs.stats()["resident_samples"] == 0, "evicted", 60)

    read_all(root)  # the interpreter's own pages
    print(f"   {MODE}: {len(contents)} files, {total:.1f} MB")
    assert charge("warmed", fs, daemon, reader, warm,
                  lambda daemons, readers: total * 0.9 < daemons < total * 1.3
                  and readers < total * 0.1)
    assert charge("read: hits", fs, daemon, reader, read_all,
                  lambda daemons, readers: max(abs(daemons), abs(readers)) < total * 0.1)
    assert charge("evicted", fs, daemon, reader, evict,
                  lambda daemons, readers: daemons < -total * 0.9)

    def all_of_it(daemons, readers):
        return total * 0.9 < daemons + readers < total * 1.3

    if not charge("read: misses, admitted", fs, daemon, reader, read_all, all_of_it):
        evict()  # whoever drops all caches of the machine is not to blame here
        assert charge("read once more", fs, daemon, reader, read_all, all_of_it)
    fs.end()
    end_groups()


def the_kernel_has_no_more_than_the_capacity():
    """By the kernel's own account, not by ours: what passes through leaves, and so do victims."""
    root, contents = make_tree(500, size=100000)
    for policy in ("minio", "lru"):
        daemon, reader = Group("daemon"), Group("reader")
        fs = ShadeIn(daemon, root, capacity="8M", policy=policy)

        def read_all(path=fs.path):
            subprocess.run(reader.command(sys.executable, "-c", READ_ALL, path), check=True,
                           timeout=60)

        read_all(root)  # the interpreter's own pages
        assert charge(f"8.4 MB for {sum(map(len, contents.values())) / 1e6:.1f} MB, {policy}", fs,
                      daemon, reader, read_all,
                      lambda daemons, readers: 3 < daemons + readers < 9), fs.stats()
        fs.end()
        end_groups()


def a_limit_costs_speed_only():
    root, contents = make_tree(500, size=100000)
    # A daemon with a sanitizer would be killed.
    for whose in ("reader",) if is_sanitized() else ("daemon", "reader"):
        daemon, reader = Group("daemon"), Group("reader")
        fs = ShadeIn(daemon, root, capacity="96M", inflight="4M")
        (daemon if whose == "daemon" else reader).leave_room(24 << 20)
        for _ in range(2):
            subprocess.run(reader.command(sys.executable, "-c", READ_ALL, fs.path), check=True,
                           timeout=120)
        wait_until(lambda: fs.stats()["accesses"] == 1000, f"counted: {fs.stats()}")
        stats = fs.stats()
        print("   the %s has room for 24 MiB: of 500 hits of the second pass %d were reclaimed" %
              (whose, stats["reclaimed"]), flush=True)
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        assert stats["fetch_errors"] == 0, stats
        fs.end()
        end_groups()


try:
    Group("probe")
except OSError as failure:
    end_groups()
    skip(f"memory cgroups cannot be made here: {failure}")
end_groups()
try:
    run_tests([who_is_charged, the_kernel_has_no_more_than_the_capacity,
               a_limit_costs_speed_only])
finally:
    end_groups()
