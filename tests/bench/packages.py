# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench packages: what it gains that unimportant samples come in runs of neighbours at the
source. Epochs of iCACHE's sampling are read with packages and without, from a disk that pays for
seeks, where they should gain, and from sources that do not, where they should cost nothing."""
import math
import os
import random
import sys

import lab

FILE_BYTES = 60_000
FOLDERS = 5
READERS = 4
CACHE_SHARE = 0.2
ALONE = "each for itself"
WAYS = {ALONE: 0, "packages of 16": 16, "packages of 64": 64}
# An eighth of a real disk's times, in which a seek takes as long as passing over 13 files.
SOURCES = {
    "a disk, 2 ms a seek": {"seek_us": 2000, "pass_us": 150},
    "a link, 30 MB/s": {"bandwidth": 30_000_000, "delay_us": 2000},
    "no delay": {},
}
GAIN, COST = 1.15, 0.95  # files a second, against those without packages: at least
CPU = 1.05  # of what they take: at most


def short_epochs():
    """Those that iCACHE's sampling leaves samples out of."""
    epoch = 5
    while True:
        if epoch % 3:
            yield epoch
        epoch += 1


class Way:
    """A mount and a training that reads from it."""

    def __init__(self, bench, source, mode, package):
        import shade  # pylint: disable=import-outside-toplevel
        self.lab, self.source = bench, source
        self.mount = lab.Shade(bench, source.path, mode=mode, capacity=source.capacity)
        self.paths = [self.mount.path + path[len(source.behind):]
                      for path in lab.files_below(source.behind)]
        self.sampler = shade.Sampler(self.paths, self.mount.path, "iis", lookahead=0,
                                     package=package)
        self.epochs = short_epochs()
        self.learn()

    def learn(self):
        """Each sample has a loss from now on."""
        chance = random.Random(5)
        ids = list(range(len(self.paths)))
        chance.shuffle(ids)
        for at in range(0, len(ids), 64):
            batch = ids[at:at + 64]
            scores = self.sampler.scorer.update(
                batch, [math.exp(chance.gauss(0, 1)) for _ in batch])
            self.sampler.mount.scores(batch, scores)

    def read_epoch(self):
        """What it took."""
        self.sampler.set_epoch(next(self.epochs))
        before, cpu_s = self.source.slow.counts(), self.mount.cpu_s()
        paths = [self.paths[index] for index in self.sampler]
        seconds, *_ = self.lab.call("bench-read", "shared", READERS, len(paths),
                                    data=lab.as_input(paths))
        self.mount.settle()
        after = self.source.slow.counts()
        files = after["opens"] - before["opens"]
        return {"seconds": seconds, "files": files, "files/s": files / seconds,
                "seeks": (after["seeks"] - before["seeks"]) / files,
                "cpu": (self.mount.cpu_s() - cpu_s) / len(paths)}


class Source:
    def __init__(self, bench, files, settings):
        self.behind = bench.make_tree(bench.ram, FOLDERS, files, FILE_BYTES)
        self.slow = lab.Slow(bench, self.behind, timeout=60, **settings)
        self.path = self.slow.path
        # An eighth of the capacity is the largest file that is kept.
        self.capacity = max(int(files * FILE_BYTES * CACHE_SHARE), 16 * FILE_BYTES)


def ratios_of(key, epochs, alone):
    return [with_it[key] / without[key] for with_it, without in zip(epochs, alone)]


def row_of(name, way, epochs, alone):
    speeds = [epoch["files/s"] for epoch in epochs]
    ratios = ratios_of("files/s", epochs, alone)
    return {"source": name, "order": way,
            "files an epoch": lab.median([epoch["files"] for epoch in epochs]),
            "seeks a file": lab.median([epoch["seeks"] for epoch in epochs]),
            "CPU us an entry": 1e6 * lab.median([epoch["cpu"] for epoch in epochs]),
            "files/s": lab.median(speeds), "spread": lab.spread(speeds),
            "of alone": lab.median(ratios), "spread of it": lab.spread(ratios)}


def measure(bench, report, options, name, settings):
    files = 300 if options.quick else 2000
    mode = options.mode.replace("all", "auto")
    report.say(f"{name}: {files} files")
    source = Source(bench, files, settings)
    ways = {way: Way(bench, source, mode, package)
            for way, package in list(WAYS.items())[:2 if options.quick else None]}
    epochs = lab.interleaved(options.rounds or (1 if options.quick else 7),
                             {way: work.read_epoch for way, work in ways.items()})
    for work in ways.values():
        work.mount.end()
    source.slow.end()
    alone = epochs.pop(ALONE)
    rows = [row_of(name, ALONE, alone, alone)]
    for way, found in epochs.items():
        rows.append(row_of(name, way, found, alone))
        if settings:
            report.target(f"{way} from {name}, files a second", rows[-1]["of alone"],
                          GAIN if "seek_us" in settings else COST, least=True, unit="x")
        else:  # where the cores are the limit, their time tells
            report.target(f"{way} from {name}, the daemon's CPU time",
                          lab.median(ratios_of("cpu", found, alone)), CPU, unit="x")
    return rows


def main():
    options, bench, report = lab.begin("packages")
    sys.path.insert(0, os.path.join(bench.build, "python"))
    rows = []
    for name, settings in list(SOURCES.items())[:2 if options.quick else None]:
        rows += measure(bench, report, options, name, settings)
    report.table("epochs of iCACHE's sampling, a fifth of the data in memory, "
                 f"{READERS} readers; files and seeks at the source", rows)
    report.end()


main()
