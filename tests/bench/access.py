# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench access: whether the daemon learns of every open, and how soon. Files of 64 bytes,
all in memory, are opened as fast as four readers can; then the accesses that the mount counted are
compared with the opens that there were. Repeats of one file in a row do not occur, as in a
training; each open of a round is of another file."""
import os
import time

import lab

READERS = 4
DELAY_LIMIT_MS = 50
SETTLE_S = 1.0


def counted(mount):
    """Accesses, and those that the mount knows it missed (a counter with `lost` in its name)."""
    stats = mount.stats()
    return stats["accesses"], sum(value for key, value in stats.items() if "lost" in key)


def settle(mount):
    """The accesses when they no longer change."""
    before = counted(mount)
    while True:
        time.sleep(SETTLE_S)
        now = counted(mount)
        if now == before:
            return now
        before = now


def count_round(bench, mount, data, files):
    """Opens a second, and the share of them that were neither counted nor known to be lost."""
    before = settle(mount)
    seconds, opens, _ = bench.call("bench-read", "shared", READERS, files, data=data)
    after = settle(mount)
    seen, lost = after[0] - before[0], after[1] - before[1]
    return opens / seconds, (opens - seen - lost) / opens, lost / opens


def delay_ms(trace, path):
    """From the open of a file to the moment when it is in the trace. The stats would not do: whoever
    opens them has the daemon look at once."""
    start = time.perf_counter()
    with open(path, "rb") as file:
        file.read()
    trace.read(65536)
    return (time.perf_counter() - start) * 1000


def delays_ms(mount, paths):
    with open(os.path.join(mount.path, ".shade", "trace"), "rb", buffering=0) as trace:
        return [delay_ms(trace, path) for path in paths]


def main():
    options, bench, report = lab.begin("access")
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    files = 500 if options.quick else 50_000
    tree = bench.make_tree(bench.ram, 100, files, 64)
    names = [path[len(tree):] for path in lab.files_below(tree)]
    rows = []
    for mode in modes:
        mount = lab.Shade(bench, tree, mode=mode, capacity="1G")
        paths = [mount.path + name for name in names]
        data = lab.as_input(paths)
        bench.call("bench-read", "shared", READERS, files, data=data)
        mount.settle()
        rounds = [count_round(bench, mount, data, files)
                  for _ in range(options.rounds or (1 if options.quick else 5))]
        delays = delays_ms(mount, paths[:5 if options.quick else 100])
        row = {"path": f"shadefs, {mode}", "opens/s": lab.median([r[0] for r in rounds]),
               "unknown": max((r[1] for r in rounds), key=abs),
               "known as lost": max(r[2] for r in rounds),
               "delay ms, median": lab.median(delays), "delay ms, worst": max(delays)}
        rows.append(row)
        report.target(f"{mode}: opens neither counted nor known as lost, at "
                      f"{row['opens/s']:.0f} a second", abs(row["unknown"]), 0)
        report.target(f"{mode}: until an access is known, worst", row["delay ms, worst"],
                      DELAY_LIMIT_MS, unit="ms")
        mount.end()
    rows += [{"path": f"shadefs, {mode}", "why not": why} for mode, why in reasons.items()]
    report.table(f"{files} opens of {files} files in memory, {READERS} readers (shares of opens)",
                 rows)
    report.end()


main()
