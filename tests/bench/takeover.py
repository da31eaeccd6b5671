# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench takeover: how long readers wait if the daemon is killed, at 10,000 files, at 100,000
and at a million, all of which the kernel knows and has in its cache: until a file in memory is read,
until one that is not is there, and until .shade/stats answers."""
import os
import signal
import threading
import time

import lab

SIZE = 100  # bytes, without a page at the source: in the mount's cache each takes a page
PAGE = 4096
LIMIT_MS = 1000
LASTING_S = 1.5  # a daemon that dies sooner counts as one that cannot serve


def more(parser):
    parser.add_argument("--files", type=int, help="only so many")


def make_files(bench, files):
    tree = bench.make_tree(bench.ram, max(10, files // 1000), files, 0)
    paths = lab.files_below(tree)
    for path in paths:
        os.truncate(path, SIZE)
    return tree, [os.path.relpath(path, tree) for path in paths]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def control(mount, text):
    fd = os.open(os.path.join(mount.path, ".shade", "control"), os.O_RDWR)
    try:
        os.write(fd, text.encode())
        answer = os.read(fd, 4096).decode()
    finally:
        os.close(fd)
    if not answer.startswith("ok"):
        raise SystemExit(f"{text}: {answer}")


def warm(mount, files):
    control(mount, "warm .\n")
    mount.wait(lambda: not mount.stats()["warm_pending"], lab.ROUND_SECONDS)
    stats = mount.stats()
    if stats["warm_done"] < files:
        raise SystemExit(f"only {stats['warm_done']:.0f} of {files} files are in memory")


def one_death(mount, hit, miss):
    """Milliseconds until each is there."""
    takeovers = mount.stats()["takeovers"]
    results, failures = {}, []

    def stats_answer():
        if mount.stats()["takeovers"] != takeovers + 1:
            raise SystemExit("the dead daemon has answered")

    works = {"hit": lambda: read(hit), "miss": lambda: read(miss), "stats": stats_answer}
    began = threading.Event()

    def run(name, work):
        began.wait()
        try:
            work()
            results[name] = (time.perf_counter() - start) * 1e3
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    threads = [threading.Thread(target=run, args=item) for item in works.items()]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    os.kill(mount.daemon(), signal.SIGKILL)
    began.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def deaths(mount, paths, rounds):
    """[{what: milliseconds}] of several deaths in a row; each meets other files."""
    results = []
    for number in range(rounds):
        hit, miss = (paths[(len(paths) // (rounds + 1) * number + at) % len(paths)]
                     for at in (0, len(paths) // 3))
        control(mount, f"evict {miss}\n")
        read(os.path.join(mount.path, hit))  # a successor has the kernel ask about folders again
        mount.settle()
        time.sleep(LASTING_S)
        results.append(one_death(mount, os.path.join(mount.path, hit),
                                 os.path.join(mount.path, miss)))
    return results


def measure(bench, report, options, mode, tree, paths):
    rounds = options.rounds or (2 if options.quick else 7)
    mount = lab.Shade(bench, tree, mode=mode, capacity=len(paths) * PAGE * 5 // 4 + (64 << 20))
    if not mount.stats()["takeover_possible"]:
        mount.end()
        raise lab.Unavailable("this kernel cannot repeat requests")
    bench.call("bench-list", mount.path)
    warm(mount, len(paths))
    results = deaths(mount, paths, rounds)
    mount.end()
    row = {"path": f"shadefs, {mode}", "files": len(paths)}
    for what in ("hit", "miss", "stats"):
        times = [result[what] for result in results]
        row |= {f"{what} ms": lab.median(times), f"longest {what}": max(times)}
    row["spread of stats"] = lab.spread([result["stats"] for result in results])
    longest = max(row[f"{what} ms"] for what in ("hit", "miss", "stats"))
    report.target(f"{mode}: pause at {len(paths)} files", longest, LIMIT_MS, unit="ms")
    return row


def main():
    options, bench, report = lab.begin("takeover", more)
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    rows = []
    for files in [options.files] if options.files else \
            [1000] if options.quick else [10_000, 100_000, 1_000_000]:
        report.say(f"making {files} files")
        tree, paths = make_files(bench, files)
        for mode in modes:
            report.say(f"{files} files, {mode}")
            try:
                rows.append(measure(bench, report, options, mode, tree, paths))
            except lab.Unavailable as reason:
                rows.append({"path": f"shadefs, {mode}", "why not": str(reason)})
    rows += [{"path": f"shadefs, {mode}", "why not": why} for mode, why in reasons.items()]
    report.table("from the death of the daemon", rows)
    report.end()


main()
