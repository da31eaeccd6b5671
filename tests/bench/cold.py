# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench cold: everything read once, in no order, by 16 readers, through a fresh mount of
shadefs and straight from the same source. The sources: one with a delay for each file, and a
folder on the disk whose pages were dropped."""
import os

import lab

READERS = 16
FILE_BYTES = 110_000
DELAYS_MS = (2, 10)  # the second is far from what two cores can do
LIMIT = 0.9


def drop_pages(paths):
    """Out of the page cache; whoever else uses the machine keeps theirs."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Source:
    """A folder to read from, and what makes it cold again."""

    def __init__(self, bench, path, files, make_cold=lambda: None):
        self.lab, self.path, self.make_cold = bench, path, make_cold
        self.names = [os.path.relpath(name, path) for name in files]
        self.seed = 0
        self.reads_per_file = None  # of the last time through shadefs

    def read_at(self, root):
        """Bytes a second, after the names were listed, as a loader does."""
        self.seed += 1
        lab.files_below(root)
        paths = [os.path.join(root, name) for name in lab.shuffled(self.names, self.seed)]
        seconds, _, total = self.lab.call("bench-read", "shared", READERS, len(paths),
                                          data=lab.as_input(paths))
        return total / seconds

    def straight(self):
        self.make_cold()
        return self.read_at(self.path)

    def through(self, capacity, mode):
        mount = lab.Shade(self.lab, self.path, capacity=int(capacity), mode=mode)
        try:
            self.make_cold()
            speed = self.read_at(mount.path)
            self.reads_per_file = mount.stats()["backend_reads"] / len(self.names)
            return speed
        finally:
            mount.end()


def slow_source(bench, files, delay_ms):
    behind = bench.make_tree(bench.ram, 10, files, FILE_BYTES)
    # Names and attributes are kept for a while, as clients of remote file systems do.
    slow = lab.Slow(bench, behind, delay_us=1000 * delay_ms, timeout=60)
    return Source(bench, slow.path, [slow.path + path[len(behind):]
                                     for path in lab.files_below(behind)])


def disk_source(bench, files):
    kind = lab.filesystem_type(bench.disk)
    if not kind.startswith("ext"):
        raise lab.Unavailable(f"{bench.disk} is {kind}, not ext4")
    tree = bench.make_tree(bench.disk, 10, files, FILE_BYTES)
    os.sync()
    paths = lab.files_below(tree)
    return Source(bench, tree, paths, lambda: drop_pages(paths))


def measure(report, options, modes, name, source):
    size = len(source.names) * FILE_BYTES
    # An eighth of the capacity is the largest file that is cached; the small one keeps a quarter.
    capacities = {"2 x": 2 * size + (8 << 20), "0.25 x": max(size / 4, 64 * FILE_BYTES)}
    works = {"straight": source.straight}
    for mode in modes:
        for label, capacity in capacities.items():
            works[mode, label] = (lambda m=mode, c=capacity: source.through(c, m))
    report.say(f"{name}: {len(source.names)} files, {size >> 20} MiB")
    values = lab.interleaved(options.rounds or (1 if options.quick else 7), works)
    rows = []
    if source.reads_per_file != 1:
        report.say(f"{name}: {source.reads_per_file:.2f} source reads for a file; one is due")
    for key, speeds in values.items():
        straight = key == "straight"
        share = lab.median([a / b for a, b in zip(speeds, values["straight"])])
        rows.append({"source": name, "path": "straight" if straight else f"shadefs, {key[0]}",
                     "capacity": None if straight else key[1], "MB/s": lab.median(speeds) / 1e6,
                     "files/s": lab.median(speeds) / FILE_BYTES, "spread": lab.spread(speeds),
                     "of straight": share})
        if not straight:
            report.target(f"{key[0]}: cold reads from {name}, capacity {key[1]} the data",
                          share, LIMIT, least=True, unit="x")
    return rows


def main():
    options, bench, report = lab.begin("cold")
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    files = 64 if options.quick else 4000
    rows = []
    sources = {f"slowfs, {delay} ms a file": (slow_source, delay) for delay in DELAYS_MS}
    sources["ext4, pages dropped"] = (disk_source,)
    for name, (make, *how) in sources.items():
        try:
            rows += measure(report, options, modes, name, make(bench, files, *how))
        except lab.Unavailable as reason:
            rows.append({"source": name, "why not": str(reason)})
    rows += [{"source": f"shadefs, {mode}", "why not": why} for mode, why in reasons.items()]
    report.table(f"all of {files} files of {FILE_BYTES // 1000} KB once, in no order, "
                 f"{READERS} readers", rows)
    report.end()


main()
