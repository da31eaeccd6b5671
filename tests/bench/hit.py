# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench hit: what it costs to open, read and close a file that is in memory, by a loop in
C and by Python's open().read(), through shadefs, on tmpfs, which is the limit, and by others."""
import os
import subprocess
import sys
import time

import lab
import peers

SIZES = {"4 KB": 4096, "110 KB": 110_000, "1 MB": 1 << 20}
SET_BYTES = 32 << 20  # of each size: more than the processor's own caches hold
ROUND_S = 0.06        # what one measurement is to take
READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reader.py")
LIMIT = {"portable": {"Python": 2.0}, "native": {"Python": 1.15, "C": 1.15}}


class Place:
    """One way to read the files: a folder, or a Redis with the same names as keys."""

    def __init__(self, bench, name, paths, server=None, port=None):
        self.lab, self.name, self.server, self.port = bench, name, server, port
        self.data = lab.as_input(paths)
        self.files = len(paths)
        self.counts = {}
        self.missed = 0
        self.languages = ["Python"] if port else ["C", "Python"]

    def read(self, language, readers, count):
        """Seconds and bytes of `count` files for each reader."""
        if language == "C":
            done = self.lab.call("bench-read", "each", readers, count, data=self.data)
        else:
            port = [str(self.port)] if self.port else []
            text = subprocess.run([sys.executable, READER, str(readers), str(count), *port],
                                  input=self.data, stdout=subprocess.PIPE, check=True,
                                  timeout=lab.ROUND_SECONDS).stdout
            done = [float(word) for word in text.split()]
        return done[0], done[2]

    def measure(self, language, readers):
        """Microseconds for a file, as one reader sees it."""
        key = (language, readers)
        if key not in self.counts:
            trial = min(self.files, 200)
            seconds = self.read(language, readers, trial)[0]
            self.counts[key] = max(20, int(ROUND_S / seconds * trial))
        count = self.counts[key]
        return self.read(language, readers, count)[0] / count * 1e6

    def warm(self):
        for _ in range(2):
            if not self.port:
                self.read("C", 1, self.files)
            if isinstance(self.server, lab.Shade):
                self.server.settle()

    def misses(self):
        return self.server.stats()["misses"] if isinstance(self.server, lab.Shade) else 0

    def cpu_per_hit_us(self, language, count):
        """Of the server, what it does afterwards included."""
        before = self.server.cpu_s()
        self.read(language, 1, count)
        time.sleep(0.5)
        return (self.server.cpu_s() - before) / count * 1e6


def moved(paths, old, new):
    return [new + path[len(old):] for path in paths]


def open_places(bench, report, modes, size, files, with_peers):
    """All places for files of one size: (places, [(name, reason)])."""
    source = bench.make_tree(bench.ram, 10, files, size)
    paths = lab.files_below(source)
    places, refused = [Place(bench, "tmpfs", paths)], []

    def add(name, start):
        report.say(f"  starting {name}")
        try:
            places.append(start(name))
        except lab.Unavailable as reason:
            refused.append((name, str(reason)))

    def at(name, server):
        return Place(bench, name, moved(paths, source, server.path), server)

    def on_disk(name):
        if not lab.filesystem_type(bench.disk).startswith("ext"):
            raise lab.Unavailable(f"{bench.disk} is {lab.filesystem_type(bench.disk)}")
        tree = bench.make_tree(bench.disk, 10, files, size)
        return Place(bench, name, moved(paths, source, tree))

    def in_redis(name):
        server = peers.Redis(bench)
        server.fill(paths)
        return Place(bench, name, paths, server, server.port)

    for mode in modes:
        add(f"shadefs, {mode}", lambda name, mode=mode: at(
            name, lab.Shade(bench, source, capacity="1G", mode=mode)))
    add("ext4, warm", on_disk)
    if not with_peers:
        return places, refused
    for name, start in peers.MOUNTS.items():
        add(name, lambda name, start=start: at(name, start(bench, source)))
    add("Redis, EXISTS+GET", in_redis)
    return places, refused


def measure_size(bench, report, options, modes, reasons, label):
    """Rows of one size, and the values of each (place, language, readers)."""
    files = 16 if options.quick else max(16, SET_BYTES // SIZES[label])
    report.say(f"{label}:")
    places, refused = open_places(bench, report, modes, SIZES[label], files,
                                  not options.without_peers)
    for place in places:
        place.warm()
    works = {}
    for language in ("C", "Python"):
        for readers in (1, 4) if label == "110 KB" else (1,):
            for place in places:
                if language in place.languages:
                    works[place.name, language, readers] = (
                        lambda p=place, l=language, r=readers: p.measure(l, r))
    report.say("  measuring")
    missed = {place.name: place.misses() for place in places}
    values = lab.interleaved(options.rounds or (1 if options.quick else 15), works)
    for place in places:
        missed[place.name] = place.misses() - missed[place.name]
    cpu = measure_cpu(places, options) if label == "110 KB" else {}
    rows = [row_of(place.name, values, cpu, missed) for place in places]
    refused = [(f"shadefs, {mode}", why) for mode, why in reasons.items()] + refused
    rows += [{"path": name, "why not": why} for name, why in refused]
    for place in places:
        if place.server:
            place.server.end()
    return rows, values, cpu


def measure_cpu(places, options):
    """Microseconds of the server's processor time for a hit: {(place, language): value}."""
    return {(place.name, language): place.cpu_per_hit_us(language, 50 if options.quick else 4000)
            for place in places if isinstance(place.server, lab.Shade)
            for language in place.languages}


def row_of(name, values, cpu, missed):
    row = {"path": name}
    for language in ("C", "Python"):
        mine = values.get((name, language, 1))
        row[f"{language} us"] = lab.median(mine) if mine else None
        row[f"{language} spread"] = lab.spread(mine) if mine else None
        row[f"{language} / tmpfs"] = ratio(values, name, language, 1)
        row[f"{language} best"] = best_ratio(values, name, language)
    if any(readers == 4 for _, _, readers in values):
        for language in ("C", "Python"):
            row[f"4 x {language} / tmpfs"] = ratio(values, name, language, 4)
            row[f"4 x {language} scale"] = scale(values, name, language)
        for language in ("C", "Python"):
            row[f"cpu us, {language}"] = cpu.get((name, language))
    if missed[name]:
        row["missed"] = missed[name]
    return row


def ratio(values, name, language, readers):
    """The median of the rounds' own ratios: a round's measurements are neighbours in time."""
    mine, limit = values.get((name, language, readers)), values.get(("tmpfs", language, readers))
    if not mine:
        return None
    return lab.median([a / b for a, b in zip(mine, limit)])


def scale(values, name, language):
    """What four readers read a second, of what one does."""
    if (name, language, 4) not in values:
        return None
    return lab.median([4 * one / four for one, four in
                       zip(values[name, language, 1], values[name, language, 4])])


def best_ratio(values, name, language):
    """Of the fastest rounds: what else the machine does only ever adds."""
    if (name, language, 1) not in values:
        return None
    return min(values[name, language, 1]) / min(values["tmpfs", language, 1])


def set_targets(report, modes, values, cpu, label):
    for mode in modes:
        name = f"shadefs, {mode}"
        for language, limit in LIMIT[mode].items():
            if mode == "native" or label == "110 KB":
                report.target(f"{mode}: {language} hit of {label}, of tmpfs",
                              ratio(values, name, language, 1), limit, unit="x")
        if label != "110 KB":
            continue
        for language in ("C", "Python"):
            report.target(f"{mode}: four {language} readers read, of what one does",
                          scale(values, name, language), 1, least=True, unit="x")
    if label == "110 KB" and len(modes) == 2:
        for language in ("C", "Python"):
            share = (cpu["shadefs, native", language] /
                     max(cpu["shadefs, portable", language], 1e-9))
            report.target(f"native: processor time of the daemon for a {language} hit, "
                          "of portable", share, 0.2, unit="x")


def main():
    options, bench, report = lab.begin("hit", lambda parser: parser.add_argument(
        "--without-peers", action="store_true", help="shadefs, tmpfs and ext4 alone"))
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    for label in SIZES:
        rows, values, cpu = measure_size(bench, report, options, modes, reasons, label)
        report.table(f"open, read and close of a file of {label}, in memory (us: one reader; "
                     "spread: middle half / median; best: / tmpfs, fastest rounds)", rows)
        set_targets(report, modes, values, cpu, label)
    report.end()


main()
