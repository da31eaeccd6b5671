# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench control: how long it takes to hand over an epoch's scores and orders of a data set
like ImageNet, through write() to .shade/control of a mount with that many samples, as binary
records and as text."""
import random
import time

import control_records
import lab

LIMIT_S = 1.0


def messages(files):
    """What is written: {name: function of the round that gives the bytes}."""
    ids = list(range(files))
    random.Random(1).shuffle(ids)
    values = [2.3 + number % 64 / 16 for number in ids]
    scores = control_records.scores(ids, values)
    score_lines = "".join(f"score {number} {value:.4f}\n"
                          for number, value in zip(ids, values)).encode()
    id_text = " ".join(map(str, ids))

    def order_lines(epoch):
        return f"order {epoch} begin\norder {epoch} {id_text}\norder {epoch} end\n".encode()

    return {"scores, binary": lambda epoch: scores,
            "order, binary": lambda epoch: control_records.order(epoch, ids),
            "scores, text": lambda epoch: score_lines,
            "order, text": order_lines}


def send(mount, data):
    """Seconds from the first byte to the answer that it was taken."""
    start = time.perf_counter()
    with control_records.Control(mount.path) as control:
        control.write(data)
    return time.perf_counter() - start


def measure(report, options, mount, name, files):
    epoch = 0
    times = {kind: [] for kind in messages(1)}
    made = messages(files)
    for _ in range(options.rounds or (1 if options.quick else 5)):
        for kind, make in made.items():
            times[kind].append(send(mount, make(epoch)))
            epoch += kind.startswith("order")
            with control_records.Control(mount.path) as control:
                control.write(control_records.epoch_begins(epoch))
    stats = mount.stats()
    if stats["scored"] != files:
        raise SystemExit(f"{stats['scored']:.0f} of {files} samples have a score")
    for kind, seconds in times.items():
        report.target(f"{name}: {kind}, {files} entries", lab.median(seconds), LIMIT_S, unit="s")
    return [{"path": name, "what": kind, "s": lab.median(seconds), "spread": lab.spread(seconds),
             "million/s": files / lab.median(seconds) / 1e6, "MB": len(made[kind](0)) / 1e6}
            for kind, seconds in times.items()]


def main():
    options, bench, report = lab.begin("control")
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    files = 5000 if options.quick else 1_280_000
    report.say(f"making {files} files")
    tree = bench.make_tree(bench.ram, 1000, files, 0)
    rows = []
    for mode in modes:
        report.say(f"shadefs, {mode}")
        mount = lab.Shade(bench, tree, mode=mode)
        rows += measure(report, options, mount, f"shadefs, {mode}", files)
        mount.end()
    rows += [{"path": f"shadefs, {mode}", "why not": why} for mode, why in reasons.items()]
    report.table(f"{files} samples, through write()", rows)
    report.end()


main()
