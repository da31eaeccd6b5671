# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench list: a tree of 100,000 files listed through shadefs, the first time and later
ones, and straight from ext4 that is warm; and what a second scan still asks of the source.

Two ways to list: as `ls -lR`, every entry with its attributes, by a loop in C; and as torchvision's
ImageFolder does, names alone, in Python."""
import os
import time

import lab

FIRST_LIMIT, LATER_LIMIT = 3.0, 1.2


def list_like_ls(bench, path):
    seconds, entries, _ = bench.call("bench-list", path)
    return seconds, int(entries)


def list_like_image_folder(_, path):
    """find_classes() and make_dataset() of torchvision, without the dependency."""
    start = time.perf_counter()
    classes = sorted(entry.name for entry in os.scandir(path) if entry.is_dir()) or ["."]
    samples = []
    for number, name in enumerate(classes):
        for folder, _, names in sorted(os.walk(os.path.join(path, name), followlinks=True)):
            for file in sorted(names):
                if file.lower().endswith((".jpg", ".jpeg", ".png")):
                    samples.append((os.path.join(folder, file), number))
    return time.perf_counter() - start, len(samples)


WAYS = {"ls -lR": list_like_ls, "ImageFolder": list_like_image_folder}


def later_times(bench, options, list_tree, places):
    """Listings of all places in turn, warm: {name: [seconds]}."""
    works = {name: (lambda path=path: list_tree(bench, path)[0]) for name, path in places.items()}
    return lab.interleaved(options.rounds or (1 if options.quick else 7), works)


def first_time(bench, list_tree, source, mode, wait_for_scan, entries):
    mount = lab.Shade(bench, source, wait_for_scan=wait_for_scan, mode=mode)
    try:
        seconds, found = list_tree(bench, mount.path)
        if found != entries:
            raise SystemExit(f"{found} entries through the mount, {entries} at the source")
        return seconds
    finally:
        mount.end()


def measure(bench, report, options, modes, shape, source):
    rows = []
    rounds = options.rounds or (1 if options.quick else 5)
    mounts = {mode: lab.Shade(bench, source, mode=mode) for mode in modes}
    for way, list_tree in WAYS.items():
        report.say(f"{shape}, {way}")
        entries = list_tree(bench, source)[1]
        places = {"ext4, warm": source, **{mode: mount.path for mode, mount in mounts.items()}}
        later = later_times(bench, options, list_tree, places)
        base = lab.median(later["ext4, warm"])
        rows.append({"tree": shape, "as": way, "path": "ext4, warm", "s": base,
                     "spread": lab.spread(later["ext4, warm"]), "of ext4": 1.0})
        for mode in modes:
            for when, wait in (("first, while it scans", False), ("first, scanned", True)):
                # Each with its neighbour in time.
                pairs = [(first_time(bench, list_tree, source, mode, wait, entries),
                          list_tree(bench, source)[0]) for _ in range(rounds)]
                times = [pair[0] for pair in pairs]
                ratio = lab.median([a / b for a, b in pairs])
                rows.append({"tree": shape, "as": way, "path": f"shadefs, {mode}: {when}",
                             "s": lab.median(times), "spread": lab.spread(times),
                             "of ext4": ratio})
                report.target(f"{mode}: {shape}, {way}, {when}, of ext4", ratio, FIRST_LIMIT,
                              unit="x")
            ratio = lab.median([a / b for a, b in zip(later[mode], later["ext4, warm"])])
            rows.append({"tree": shape, "as": way, "path": f"shadefs, {mode}: later",
                         "s": lab.median(later[mode]), "spread": lab.spread(later[mode]),
                         "of ext4": ratio})
            report.target(f"{mode}: {shape}, {way}, later, of ext4", ratio, LATER_LIMIT, unit="x")
    for mount in mounts.values():
        mount.end()
    return rows


def source_requests(bench, report, modes, files):
    """What a second ImageFolder scan makes the source do."""
    behind = bench.make_tree(bench.ram, 100, files, 0)
    rows = []
    for mode in modes:
        slow = lab.Slow(bench, behind)
        mount = lab.Shade(bench, slow.path, mode=mode)
        counts = [slow.counts()]
        for _ in range(2):
            list_like_image_folder(bench, mount.path)
            counts.append(slow.counts())
        # Reading the counters is a lookup or so itself: what two readings in a row differ by.
        counts.append(slow.counts())
        asked = [sum(b[key] - a[key] for key in ("lookups", "getattrs", "opens", "reads",
                                                 "readdirs", "readdirplus"))
                 for a, b in zip(counts, counts[1:])]
        rows.append({"path": f"shadefs, {mode}", "files": files, "first scan": asked[0] - asked[2],
                     "second scan": asked[1] - asked[2]})
        report.target(f"{mode}: requests to the source in a second ImageFolder scan",
                      max(0, asked[1] - asked[2]), 0)
        mount.end()
        slow.end()
    return rows


def main():
    options, bench, report = lab.begin("list")
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    files = 500 if options.quick else 100_000
    rows = []
    kind = lab.filesystem_type(bench.disk)
    if kind.startswith("ext"):
        for shape, folders in (("100 folders", 100), ("one folder", 0)):
            tree = bench.make_tree(bench.disk, folders, files, 0)
            rows += measure(bench, report, options, modes, shape, tree)
    else:
        rows.append({"tree": "all", "why not": f"{bench.disk} is {kind}, not ext4"})
    rows += [{"tree": f"shadefs, {mode}", "why not": why} for mode, why in reasons.items()]
    report.table(f"{files} files listed", rows)
    report.table("requests to the source (after the mount's own scan)",
                 source_requests(bench, report, modes, files))
    report.end()


main()
