# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plots of scripts/bench train, as SVG and PNG, from its results alone. matplotlib draws them;
draw() raises ImportError where it is not installed."""
import os
import statistics

# Few ways that say it all; the others are in the overview.
HEADLINE = ("plain", "lru", "shade", "known", "auto")
COLORS = {"plain": "#6e6e6e", "lru": "#a9805b", "minio": "#b9a27c", "shade": "#e09f1f",
          "known": "#2f7fc1", "pads": "#7fb6dc", "pads-weights": "#a5cde6", "echo2": "#8fcfb4",
          "echo4": "#3aa27a", "echo8": "#1f6e51", "icache": "#8a6fb8",
          "prune": "#b8863b", "auto": "#c8322b"}
SHORT = {"plain": "plain", "lru": "LRU", "minio": "minio", "shade": "SHADE",
         "known": "uniform, order known", "pads": "pads", "pads-weights": "pads, weighted",
         "echo2": "echo 2", "echo4": "echo 4", "echo8": "echo 8", "icache": "iCACHE",
         "prune": "prune", "auto": "shadefs auto"}
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 11, "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": "#888888", "axes.labelcolor": "#333333",
    "axes.titlesize": 13, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.grid": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.8, "axes.axisbelow": True,
    "xtick.color": "#555555", "ytick.color": "#555555", "figure.facecolor": "white",
    "svg.hashsalt": "shadefs", "legend.frameon": False,
}


def of(results, source, way, budget):
    return [run for run in results["runs"] if run["source"] == source and run["way"] == way
            and run["budget"] == budget]


def mean_curve(runs, key, scale):
    """[(x, mean %, least %, most %)], with as many points as all seeds have."""
    points = []
    for row in zip(*(run["curve"] for run in runs)):
        values = [100 * point["accuracy"] for point in row]
        points.append((statistics.fmean(point[key] for point in row) / scale,
                       statistics.fmean(values), min(values), max(values)))
    return points


def curves_of(results, source, ways, budget, key, scale):
    return {way: mean_curve(of(results, source, way, budget), key, scale) for way in ways
            if of(results, source, way, budget)}


def spread_out(heights, gap):
    """Where labels go that should stand at these heights, at least `gap` apart."""
    ranked = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for _ in range(200):
        for low, high in zip(ranked, ranked[1:]):
            missing = gap - (placed[high] - placed[low])
            if missing > 1e-6:
                placed[low] -= missing / 2
                placed[high] += missing / 2
    return placed


def limits_of(curves):
    """Heights that show what differs: the steep beginning is cut off."""
    ends = [points[-1][1] for points in curves.values()]
    early = [points[min(1, len(points) - 1)][1] for points in curves.values()]
    top = max(point[3] for points in curves.values() for point in points)
    low = max(min(early), min(ends) - 12)
    return low - 0.5, top + 0.06 * (top - low) + 0.3


def draw_curves(axes, curves, label_ends=True):
    for way, points in curves.items():
        x, y, least, most = zip(*points)
        wide = 3.2 if way == "auto" else 1.9
        axes.plot(x, y, color=COLORS[way], linewidth=wide, zorder=3 + (way == "auto"),
                  solid_capstyle="round", linestyle=(0, (4, 2)) if way == "lru" else "-")
        axes.plot(x[-1:], y[-1:], "o", color=COLORS[way], markersize=7 if way == "auto" else 5,
                  zorder=5)
        if any(high - low > 1e-9 for low, high in zip(least, most)):
            axes.fill_between(x, least, most, color=COLORS[way], alpha=0.12, linewidth=0)
    low, high = limits_of(curves)
    axes.set_ylim(low, high)
    if label_ends:
        label(axes, curves, high - low)


def label(axes, curves, height):
    """Names at the ends of the curves, in a margin at the right."""
    names = list(curves)
    ends = [curves[way][-1][1] for way in names]
    right = max(points[-1][0] for points in curves.values())
    axes.set_xlim(0, right * 1.005)
    for way, end, place in zip(names, ends, spread_out(ends, height * 0.062)):
        axes.annotate(f"{SHORT[way]}  {end:.1f} %", (curves[way][-1][0], end),
                      xytext=(right * 1.035, place), textcoords="data", va="center",
                      color=COLORS[way], fontsize=11, annotation_clip=False,
                      fontweight="bold" if way == "auto" else "normal",
                      arrowprops={"arrowstyle": "-", "color": COLORS[way], "linewidth": 0.7,
                                  "shrinkA": 1, "shrinkB": 4})


def crossing(points, height):
    """The first x at which the line is there, or None."""
    if points and points[0][1] >= height:
        return points[0][0]
    for (x0, y0, *_), (x1, y1, *_) in zip(points, points[1:]):
        if y1 >= height:
            return x0 + (x1 - x0) * (height - y0) / (y1 - y0)
    return None


def draw_ends(axes, ends):
    """Where trainings with less time ended: hollow."""
    for way, points in ends.items():
        for x, y, *_ in points:
            axes.plot(x, y, "o", color=COLORS[way], markerfacecolor="white", markeredgewidth=1.8,
                      markersize=8 if way == "auto" else 6.5, zorder=5)


def mark_reach(axes, curves, ends, unit):
    """How much sooner auto is where plain ends."""
    if "plain" not in curves or "auto" not in curves:
        return
    end, height = curves["plain"][-1][:2]
    found = [crossing(curves["auto"], height),
             *(point[0] for point in ends.get("auto", []) if point[1] >= height)]
    reached = min((x for x in found if x), default=None)
    if not reached or reached >= end:
        return
    axes.annotate("", (reached, height), (end, height), zorder=4,
                  arrowprops={"arrowstyle": "->", "color": "#333333", "linewidth": 1.3,
                              "linestyle": (0, (3, 2)), "shrinkA": 5, "shrinkB": 3})
    from matplotlib import patheffects  # pylint: disable=import-outside-toplevel
    low, high = axes.get_ylim()
    axes.text((reached + end) / 2, height + 0.015 * (high - low),
              f"plain's accuracy, {end / reached:.1f} times sooner" if unit == "s" else
              f"plain's accuracy, with {100 * reached / end:.0f} % of its bytes", ha="center",
              va="bottom", color="#333333", fontsize=10.5, zorder=6,
              path_effects=[patheffects.withStroke(linewidth=4, foreground="white")])


def conditions(results):
    source = results["sources"]["bandwidth"]
    return (f"{results['images']:,} Fashion-MNIST images of {results['file_bytes'] >> 10} KB, "
            f"source {source['bandwidth'] / 1e6:g} MB/s and {source['delay_us'] / 1000:g} ms a "
            f"file, memory for {100 * results['cache_share']:g} % of the data")


def headline(plots, results, source="bandwidth", ways=HEADLINE, key="s"):
    budget = max((run["budget"] for run in results["runs"] if run["source"] == source), default=0)
    scale = 1 if key == "s" else 1e6
    curves = curves_of(results, source, ways, budget, key, scale)
    if not curves:
        return None
    figure, axes = plots.subplots(figsize=(9, 5))
    figure.subplots_adjust(left=0.085, right=0.72, top=0.82, bottom=0.125)
    ends = {way: [mean_curve(of(results, source, way, other), key, scale)[-1]
                  for other in results["budgets"]
                  if other < budget and of(results, source, way, other)] for way in curves}
    draw_curves(axes, curves)
    draw_ends(axes, ends)
    mark_reach(axes, curves, ends, "s" if key == "s" else "MB")
    axes.set_xlabel("seconds of training" if key == "s" else "MB read from the source")
    axes.set_ylabel("test accuracy, %")
    what = "in the same time" if key == "s" else "from the same bytes"
    axes.set_title(f"What a training learns {what}, with the same memory", pad=38)
    text = conditions(results) if source == "bandwidth" else \
        f"source limited by latency, {results['sources']['latency']['delay_us'] / 1000:g} ms a file"
    if any(ends.values()):
        text += "\n● ○ the time was up, and the learning rate at its end"
    axes.text(0, 1.025, text, transform=axes.transAxes, fontsize=9, color="#666666")
    return figure


def overview(plots, results):
    """Every way, in every budget."""
    ways = [way for way in COLORS if any(of(results, "bandwidth", way, budget)
                                         for budget in results["budgets"])]
    figure, axes = plots.subplots(figsize=(9, 1.6 + 0.42 * len(ways)))
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.23, right=0.96, top=1 - 0.75 / height, bottom=0.65 / height)
    for at, way in enumerate(reversed(ways)):
        found = [(budget, [100 * run["curve"][-1]["accuracy"]
                           for run in of(results, "bandwidth", way, budget)])
                 for budget in results["budgets"]]
        found = [(budget, values) for budget, values in found if values]
        means = [statistics.fmean(values) for _, values in found]
        axes.plot(means, [at] * len(means), color=COLORS[way], linewidth=2, alpha=0.45)
        for number, (budget, values) in enumerate(found):
            filled = budget == results["budgets"][-1]
            axes.plot(values, [at] * len(values), "|", color=COLORS[way], markersize=9, alpha=0.6)
            axes.plot(means[number], at, "o", color=COLORS[way], markersize=9,
                      markerfacecolor=COLORS[way] if filled else "white", markeredgewidth=2)
            axes.annotate(f"{means[number]:.1f}", (means[number], at), xytext=(0, 8),
                          textcoords="offset points", ha="center", fontsize=9, color="#444444")
    axes.set_yticks(range(len(ways)), [SHORT[way] for way in reversed(ways)])
    axes.grid(axis="y", visible=False)
    axes.set_ylim(-0.6, len(ways) - 0.2)
    axes.set_xlabel("test accuracy, %")
    axes.set_title("Accuracy when the time is up", pad=22)
    names = ", ".join(f"{'●' if budget == results['budgets'][-1] else '○'} after {budget:g} s"
                      for budget in results["budgets"])
    axes.annotate(names + "; learning rate annealed over that time", (0, 1), xytext=(0, 6),
                  xycoords="axes fraction", textcoords="offset points", fontsize=9.5,
                  color="#666666")
    return figure


def longest_runs(results, source):
    """The runs of each way in its longest budget."""
    found = {}
    for way in COLORS:
        for budget in results["budgets"]:
            found[way] = of(results, source, way, budget) or found.get(way, [])
    return {way: runs for way, runs in found.items() if runs}


def stalls(plots, results):
    """How long trainings waited for data."""
    sources = [source for source in ("bandwidth", "latency") if longest_runs(results, source)]
    figure, panels = plots.subplots(1, len(sources), figsize=(9, 4.6), squeeze=False,
                                    gridspec_kw={"wspace": 0.55})
    figure.subplots_adjust(left=0.2, right=0.96, top=0.82, bottom=0.12)
    most = max(len(longest_runs(results, source)) for source in sources)
    for axes, source in zip(panels[0], sources):
        runs = longest_runs(results, source)
        ways = list(reversed(runs))
        shares = [100 * statistics.fmean(run["stall"] for run in runs[way]) for way in ways]
        axes.barh([SHORT[way] for way in ways], shares, height=0.62,
                  color=[COLORS[way] for way in ways])
        for at, share in enumerate(shares):
            axes.text(share + 1.5, at, f"{share:.0f} %", va="center", fontsize=9.5,
                      color="#444444")
        axes.set_xlim(0, 112)
        axes.set_ylim(len(ways) - most - 0.6, len(ways) - 0.4)
        axes.set_xticks(range(0, 101, 25))
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("% of the time")
        axes.text(0, 1.02, f"source limited by {source}", transform=axes.transAxes, fontsize=10,
                  color="#666666")
    figure.text(0.02, 0.93, "How long the training waits for data", fontsize=13,
                fontweight="bold")
    return figure


def epochs(plots, results, ways=("plain", "lru", "minio", "shade", "known", "echo4", "auto")):
    """Hit ratio and coverage, epoch by epoch."""
    runs = {way: found[0]["epochs"] for way, found in longest_runs(results, "bandwidth").items()
            if way in ways}
    figure, panels = plots.subplots(1, 2, figsize=(9, 4.6), sharex=True)
    figure.subplots_adjust(left=0.075, right=0.98, top=0.83, bottom=0.24, wspace=0.16)
    for axes, key, title in zip(panels, ("hit_ratio", "coverage"),
                                ("hit ratio", "coverage: the share of the data an epoch reads")):
        for way, rows in runs.items():
            rows = [row for row in rows if row["complete"]] or rows
            x, y = range(1, len(rows) + 1), [row[key] for row in rows]
            axes.plot(x, y, color=COLORS[way], linewidth=3 if way == "auto" else 1.9,
                      marker="o", markersize=3.5, label=SHORT[way],
                      linestyle=(0, (4, 2)) if way == "lru" else "-")
        axes.set_ylim(-0.03, 1.05)
        axes.set_xlabel("epoch")
        axes.text(0, 1.03, title, transform=axes.transAxes, fontsize=10, color="#666666")
    most = max((len(rows) for rows in runs.values()), default=1)
    panels[0].set_xlim(0.7, min(most, 20) + 0.3)
    panels[0].xaxis.get_major_locator().set_params(integer=True)
    figure.text(0.02, 0.93, "What the cache does, epoch by epoch", fontsize=13, fontweight="bold")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center",
                  ncol=4, fontsize=9.5, bbox_to_anchor=(0.52, 0.0))
    return figure


def draw(results, out):
    """Writes all of them below `out`. Returns their names."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    names = []
    with matplotlib.rc_context(STYLE):
        figures = {
            "train-headline": headline(pyplot, results),
            "train-time": headline(pyplot, results, ways=tuple(COLORS)),
            "train-bytes": headline(pyplot, results, key="source_bytes"),
            "train-latency": headline(pyplot, results, source="latency", ways=tuple(COLORS)),
        }
        if longest_runs(results, "bandwidth"):
            figures.update({"train-ways": overview(pyplot, results),
                            "train-stall": stalls(pyplot, results),
                            "train-epochs": epochs(pyplot, results)})
        for name, figure in figures.items():
            if figure is None:
                continue
            figure.savefig(os.path.join(out, name + ".svg"), metadata={"Date": None})
            figure.savefig(os.path.join(out, name + ".png"), dpi=130)
            pyplot.close(figure)
            names.append(name)
    return names
