# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tables, targets and table.md of scripts/bench train, from its results alone."""
import os
import statistics

import train_plot

TITLES = {
    "plain": "plain, page cache of that size",
    "lru": "shadefs as an LRU cache",
    "minio": "minio (CoorDL)",
    "shade": "SHADE (paper, rep 3, app)",
    "known": "uniform, order known",
    "unmodified": "unmodified DistributedSampler",
    "pads": "pads",
    "pads-weights": "pads, weighted losses",
    "echo2": "echo, 2 uses",
    "echo4": "echo, 4 uses",
    "echo8": "echo, 8 uses",
    "icache": "iCACHE (iis, substitutes, icache)",
    "prune": "prune, weighted losses",
    "auto": "auto",
}
SOURCES = {"bandwidth": "a source limited by bandwidth", "latency": "a source limited by latency",
           "fast": "a fast source"}
NOISE = 0.3      # points of accuracy
FAST_LOSS = 0.02
THIRD = 1 / 3


def of(results, source, way, budget=None):
    return [run for run in results["runs"] if run["source"] == source and run["way"] == way
            and budget in (None, run["budget"])]


def final(run):
    return run["curve"][-1]["accuracy"]


def mean(values):
    return statistics.fmean(values) if values else None


def accuracy(results, source, way, budget):
    """The mean over the seeds, in percent, or None."""
    runs = of(results, source, way, budget)
    return 100 * mean([final(run) for run in runs]) if runs else None


def warm_mean(run, key):
    """Over the epochs after the first, or over all if there is no other."""
    epochs = run["epochs"][1:] or run["epochs"]
    weights = sum(epoch["samples"] for epoch in epochs)
    return sum(epoch[key] * epoch["samples"] for epoch in epochs) / max(1, weights)


def row_of(results, source, way):
    row = {"": TITLES[way]}
    for budget in results["budgets"]:
        runs = of(results, source, way, budget)
        if not runs:
            continue
        row[f"% in {budget:g} s"] = round(100 * mean([final(run) for run in runs]), 2)
        if len(runs) > 1:
            row[f"+- {budget:g} s"] = round(
                100 * statistics.stdev([final(run) for run in runs]), 2)
    longest = [run for run in of(results, source, way)
               if run["budget"] == max(other["budget"] for other in of(results, source, way))]
    row["of s"] = longest[0]["budget"]
    row["samples/s"] = mean([run["samples_s"] for run in longest])
    row["stall"] = mean([run["stall"] for run in longest])
    row["source MB"] = mean([run["source_bytes"] for run in longest]) / 1e6
    row["hit ratio"] = mean([warm_mean(run, "hit_ratio") for run in longest])
    row["coverage"] = mean([warm_mean(run, "coverage") for run in longest])
    row["seen"] = mean([run["distinct"] for run in longest])
    row["uses"] = mean([run["epochs"][-1].get("uses", 1.0) for run in longest])
    return row


def rows_of(results, source):
    rows = [row_of(results, source, way) for way in TITLES if of(results, source, way)]
    if source == "bandwidth":
        rows += [{"": TITLES[way], "why not": reason}
                 for way, reason in results["refused"].items()]
    return rows


def fast_ratio(results, way):
    """The median of the turns' own ratios to plain."""
    turns = zip(results["fast"].get(way, []), results["fast"].get("plain", []))
    ratios = [rate / plain for rate, plain in turns]
    return statistics.median(ratios) if ratios else None


def fast_rows(results):
    return [{"": TITLES[way], "samples/s": statistics.median(rates),
             "/ plain": fast_ratio(results, way), "least": min(rates), "most": max(rates)}
            for way, rates in results["fast"].items() if rates]


def steps_rows(results):
    found = results["steps"].get("accuracy", {})
    return [{"": {"plain": "uniform"}.get(way, TITLES[way]), "steps": results["steps"]["steps"],
             "%": round(100 * mean(values), 2)} for way, values in found.items()]


# --- goals ------------------------------------------------------------------------------------

def reach(results, way, key, wanted):
    """The first s, or source_bytes, at which trainings by this way had so many percent, in
    whichever budget; None: in none. Between the points of a curve it is a straight line."""
    found = []
    for budget in results["budgets"]:
        curve = train_plot.mean_curve(of(results, "bandwidth", way, budget), key, 1)
        found.append(train_plot.crossing(curve, wanted))
    return min((x for x in found if x is not None), default=None)


def target_reach(report, results):
    longest = results["budgets"][-1]
    wanted = accuracy(results, "bandwidth", "plain", longest)
    if wanted is None or not of(results, "bandwidth", "auto"):
        return
    spent = mean([run["source_bytes"] for run in of(results, "bandwidth", "plain", longest)])
    # The whole, if it is not reached: that misses the goal, and is a number.
    seconds = reach(results, "auto", "s", wanted) or longest
    read = reach(results, "auto", "source_bytes", wanted) or spent
    what = f"auto reaches the {wanted:.1f} % of plain in {longest:g} s: "
    report.target(what + "time, of plain's", round(seconds / longest, 3), THIRD)
    report.target(what + "source bytes, of plain's", round(read / spent, 3), THIRD)


def target_best(report, results):
    for source in ("bandwidth", "latency"):
        for budget in results["budgets"]:
            own = accuracy(results, source, "auto", budget)
            others = {way: accuracy(results, source, way, budget) for way in TITLES
                      if way != "auto"}
            others = {way: value for way, value in others.items() if value is not None}
            if own is None or not others:
                continue
            best = max(others, key=lambda way: others[way])
            report.target(f"{SOURCES[source]}, {budget:g} s: auto, {own:.2f} %, behind the best "
                          f"other way ({TITLES[best]})", round(others[best] - own, 2), NOISE,
                          unit="points")


def targets(report, results):
    target_reach(report, results)
    target_best(report, results)
    found = results["steps"].get("accuracy", {})
    if found.get("plain") and found.get("auto"):
        report.target("auto behind uniform after equally many steps",
                      round(100 * (mean(found["plain"]) - mean(found["auto"])), 2), NOISE,
                      unit="points")
    ratio = fast_ratio(results, "auto")
    if ratio is not None:
        report.target("a fast source: samples/s of auto, of plain's", round(ratio, 3),
                      1 - FAST_LOSS, least=True)
    cached = [run["page_cache_bytes"] for run in results["runs"] if "page_cache_bytes" in run]
    if cached:
        report.target("plain's page cache at its largest, of what the mounts have",
                      round(max(cached) / results["capacity"], 3), 1.05)


# --- text -------------------------------------------------------------------------------------

def describe(results):
    sources = results["sources"]
    return (f"a run of the kind {results['kind']}: {results['images']} images of "
            f"{results['file_bytes'] >> 10} KB "
            f"({results['images'] * results['file_bytes'] / 1e6:.0f} MB), memory for "
            f"{results['cache_share']:.0%} of them, {results['workers']} workers, "
            f"{len({run['seed'] for run in results['runs']})} seed(s); "
            f"accuracy on {results['test']} others; "
            f"bandwidth: {sources['bandwidth']['bandwidth'] / 1e6:g} MB/s and "
            f"{sources['bandwidth']['delay_us'] / 1000:g} ms a file; "
            f"latency: {sources['latency']['delay_us'] / 1000:g} ms a file")


def markdown(title, rows):
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "why not"))
    lines = [f"{title}:", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        if "why not" in row:
            continue
        cells = [row.get(column) for column in columns]
        lines.append("| " + " | ".join(
            "" if cell is None else cell if isinstance(cell, str) else f"{cell:.4g}"
            for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def tables(results):
    """(title, rows)"""
    found = [(SOURCES[source], rows_of(results, source)) for source in ("bandwidth", "latency")]
    found += [("a fast source, in turns", fast_rows(results)),
              ("equally many steps, learning rate by steps", steps_rows(results))]
    return [(title, rows) for title, rows in found if rows]


def tell(report, results, out):
    """Prints it, and writes table.md and the plots."""
    text = describe(results)
    report.say(text)
    parts = [text + "\n"]
    for title, rows in tables(results):
        report.table(title, rows)
        parts.append(markdown(title, rows))
    targets(report, results)
    for target in report.targets:
        parts.append(f"- {'met' if target['met'] else 'NOT MET'}: {target['target']}: "
                     f"{target['value']:g}, {target['kind']} {target['limit']:.3g}")
    with open(os.path.join(out, "table.md"), "w") as file:
        file.write("\n".join(parts) + "\n")
    try:
        train_plot.draw(results, out)
    except ImportError as failure:
        report.say(f"no plots: {failure} (scripts/deps train)")
