# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a mount says of itself: where its capacity came from, its counters, its options, and that it
has noticed what the kernel took from it."""
import os
import re

from common import (MODE, SHADEFS, Filesystem, Group, Shade, Slow, make_tree, read, run_tests,
                    running, wait_until)

KEYS = """mode policy capacity_bytes resident_bytes resident_samples inflight_bytes samples
          scan_complete accesses hits hits_prefetched misses coalesced admissions bypasses evictions
          reclaimed backend_reads backend_bytes waits wait_ms waiting_ms limited_ms limited_bytes
          fetch_errors stale_drops young epoch uses order_ahead order_bytes
          coverage""".split()
RAM = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class ShadeIn(Shade):
    def __init__(self, command, source, capacity):
        options = f"mode={MODE}" + (f",capacity={capacity}" if capacity else "")
        Filesystem.__init__(self, lambda path: command(SHADEFS, "-f", "-o", options, source, path),
                            "shadefs")
        wait_until(self.is_ready, "scanned")


def capacity_of(command, source, capacity=None):
    """As the line says, and as it is: bytes, and where they come from."""
    fs = ShadeIn(command, source, capacity)
    line = fs.read_log().splitlines()[0]
    found = re.fullmatch(rf"{source} on {fs.path}: capacity ([\d.]+) (\wiB) \(([\w ]+)\), "
                         rf"policy shade, mode {MODE}", line)
    assert found, line
    actual = fs.stats()["capacity_bytes"]
    assert abs(float(found[1]) - actual / UNITS[found[2]]) <= 0.06, (line, actual)
    config = read(fs.at(".shade", "config")).decode()
    assert f"capacity {actual:.0f} # {found[3]}\n" in config, (line, config)
    fs.end()
    return actual, found[3]


def is_share(found, share, whole):
    return abs(found - whole * share) <= 4096


def where_the_capacity_came_from():
    root, _ = make_tree(1)
    actual, where = capacity_of(lambda *words: words, root, "50M")
    assert (actual, where) == (50 << 20, "option"), (actual, where)
    try:
        group = Group()
    except OSError as reason:
        print("   no memory cgroup can be made:", reason)
        return
    try:
        actual, where = capacity_of(group.command, root)
        if where == "RAM":
            assert is_share(actual, 0.4, RAM), (actual, RAM)
            actual, where = capacity_of(group.command, root, "10%")
            assert where == "RAM" and is_share(actual, 0.1, RAM), (actual, RAM, where)
        else:  # all of this machine is a container that has one
            assert where == "cgroup limit" and actual < 0.4 * RAM, (actual, RAM, where)
        limit = min(1 << 30, RAM // 2)
        group.limit(limit)
        actual, where = capacity_of(group.command, root)
        assert where == "cgroup limit" and is_share(actual, 0.4, limit), (actual, where)
        actual, where = capacity_of(group.command, root, "25%")
        assert where == "cgroup limit" and is_share(actual, 0.25, limit), (actual, where)
        actual, where = capacity_of(group.command, root, "50M")
        assert (actual, where) == (50 << 20, "option"), (actual, where)
    finally:
        for left in list(running):
            left.kill()
            running.remove(left)
        group.remove()


def counters_and_options():
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M", staleness=7)
    for path in contents:
        read(fs.at(path))
    wait_until(lambda: fs.stats()["accesses"] == 20, "counted")
    fs.settle()
    stats = fs.stats()
    assert len(KEYS) == 32 and not set(KEYS) - set(stats), set(KEYS) - set(stats)
    assert (stats["misses"], stats["admissions"], stats["coverage"]) == (20, 20, 1), stats
    assert stats["backend_bytes"] == sum(map(len, contents.values())), stats
    lines = read(fs.at(".shade", "config")).decode().splitlines()
    for line in ("staleness 7 # option", f"capacity {8 << 20} # option", "deadline 30 # default",
                 f"source {root} # command line"):
        assert line in lines, (line, lines)
    fs.end()


def how_long_readers_waited():
    root, contents = make_tree(10)
    slow = Slow(root, delay_us=50000)  # for each file
    fs = Shade(slow.path, capacity="8M")
    for path in contents:
        read(fs.at(path))
    fs.settle()
    first = fs.stats()
    assert first["waits"] >= 10 and first["wait_ms"] >= 400, first
    assert 400 <= first["waiting_ms"] <= min(first["wait_ms"], first["limited_ms"]), first
    assert first["limited_bytes"] == first["backend_bytes"], first
    for path in contents:  # hits
        read(fs.at(path))
    wait_until(lambda: fs.stats()["hits"] == 10, "counted")
    second = fs.stats()
    for key in ("waits", "wait_ms", "waiting_ms", "limited_ms"):
        assert second[key] == first[key], (key, first, second)
    fs.end()
    slow.end()


def what_the_kernel_took():
    root, contents = make_tree(100)
    fs = Shade(root, capacity="8M")

    def read_all():
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path

    read_all()
    fs.settle()
    read_all()  # hits
    before = fs.stats()["reclaimed"]
    with open("/proc/sys/vm/drop_caches", "w") as file:  # names and inodes, with what they hold
        file.write("2")
    read_all()
    wait_until(lambda: fs.stats()["reclaimed"] > before, f"noticed, after {before}")
    fs.settle()
    before = fs.stats()["reclaimed"]
    for path in contents:  # pages alone
        fd = os.open(fs.at(path), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    read_all()
    wait_until(lambda: fs.stats()["reclaimed"] >= before + 0.9 * len(contents),
               f"noticed, after {before}")
    def all_are_back():
        read_all()  # one that was being dropped when it was read comes back with its next use
        fs.settle()
        return fs.stats()["resident_samples"] == len(contents)
    wait_until(all_are_back, "all are resident again")
    assert fs.stats()["fetch_errors"] == 0
    fs.end()


run_tests([where_the_capacity_came_from, counters_and_options, how_long_readers_waited,
           what_the_kernel_took])
