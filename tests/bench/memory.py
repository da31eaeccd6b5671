# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench memory: what the daemon needs for each file that it knows, beside the capacity: its
private memory with a million files, less that with none, when they were scanned, when the kernel
knows them all, and when all have a score and are in two orders."""
import os

import control_records
import lab

LIMIT = 300


def private_bytes(pid):
    """Memory that is the process's own, and what it shares with its supervisor, for a successor.
    Pages of files are not; nor are cached samples, which belong to the kernel."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if "kB" in line}
    if "Pss_Anon" not in sizes:
        return sizes["Private_Dirty"]
    return sizes["Pss_Anon"] + sizes["Pss_Shmem"]


def moments(bench, mount, files):
    """Names of moments and the private bytes at each."""
    pid = mount.daemon()
    yield "scanned", private_bytes(pid)
    bench.call("bench-list", mount.path)
    yield "listed", private_bytes(pid)
    if files:
        with control_records.Control(mount.path) as control:
            control.write(control_records.scores(range(files), [3.5] * files))
            control.write(control_records.order(0, range(files)))
            control.write(control_records.order(1, range(files)))
    yield "scored, two orders announced", private_bytes(pid)


def main():
    options, bench, report = lab.begin("memory")
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    files = 5000 if options.quick else 1_000_000
    report.say(f"making {files} files")
    full = bench.make_tree(bench.ram, 1000, files, 0)
    empty = os.path.join(bench.ram, "empty")
    os.mkdir(empty)
    rows = []
    for mode in modes:
        report.say(f"shadefs, {mode}")
        before = lab.Shade(bench, empty, mode=mode)
        base = dict(moments(bench, before, 0))
        before.end()
        mount = lab.Shade(bench, full, mode=mode)
        for moment, used in moments(bench, mount, files):
            per_file = (used - base[moment]) / files
            rows.append({"path": f"shadefs, {mode}", "when": moment,
                         "MiB without files": base[moment] / 2**20, "MiB": used / 2**20,
                         "bytes a file": per_file})
            report.target(f"{mode}: memory for a file, {moment}", per_file, LIMIT, unit="bytes")
        mount.end()
    rows += [{"path": f"shadefs, {mode}", "why not": why} for mode, why in reasons.items()]
    report.table(f"private memory of the daemon, {files} files in 1000 folders", rows)
    report.end()


main()
