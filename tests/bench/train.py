# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench train: what a real training gains. The same small network learns the same images
from a slow source in fixed times, by plain reading and through mounts, each way a process of its
own (train_loop.py) with equally much memory for data. What is compared is test accuracy.

Results go below BUILD/train: a JSON file for each run, results.json, table.md and plots."""
import json
import os
import shutil
import subprocess
import sys
import time

import lab
import limits
import train_data
import train_report

PYTHON = "/usr/bin/python3"  # which has the system's packages
FILE_BYTES = 24 << 10
CACHE_SHARE = 0.2
WORKERS = 4
# How a way reads and draws: the mount's options (None: no mount), the sampler's (None: the
# DataLoader's own shuffling), whether losses are weighted, whether the mount learns no orders
# (quiet), and whether torch's DistributedSampler shuffles, in which nothing is changed.
WAYS = {
    "plain": {"mount": None, "sampler": None},
    "lru": {"mount": {"policy": "lru"}, "sampler": None},
    "minio": {"mount": {"policy": "minio"}, "sampler": None},
    "shade": {"mount": {"policy": "app"}, "quiet": True,
              "sampler": {"mode": "paper", "rep": 3, "lookahead": 0}},
    "known": {"mount": {}, "sampler": {"mode": "uniform"}},
    "unmodified": {"mount": {}, "sampler": None, "distributed": True},
    "pads": {"mount": {}, "sampler": {"mode": "pads"}},
    "pads-weights": {"mount": {}, "sampler": {"mode": "pads"}, "weights": True},
    "echo2": {"mount": {}, "sampler": {"mode": "echo", "uses": 2}},
    "echo4": {"mount": {}, "sampler": {"mode": "echo", "uses": 4}},
    "echo8": {"mount": {}, "sampler": {"mode": "echo", "uses": 8}},
    "icache": {"mount": {"policy": "icache"},
               "sampler": {"mode": "iis", "substitute": 1, "lookahead": 0}},
    "prune": {"mount": {}, "sampler": {"mode": "prune"}, "weights": True},
    "auto": {"mount": {}, "sampler": {"mode": "auto"}},
}
PARTS = ("bandwidth", "latency", "fast", "steps")  # three sources, and equally many steps
MAIN_WAYS = ("plain", "lru", "shade", "known", "echo4", "auto")
# delay_us: of each file. The kernel keeps names for a minute, as with other remote file systems.
SOURCES = {
    "bandwidth": {"delay_us": 2000, "bandwidth": 10_000_000},
    "latency": {"delay_us": 20_000},
    "fast": {},
}


class Plan:
    """How large everything is, and what runs."""

    def __init__(self, options):
        self.kind = "quick" if options.quick else "full" if options.full else "default"
        self.images = {"quick": 400, "default": 6000, "full": 12_000}[self.kind]
        self.budgets = {"quick": [1.0, 3.0], "default": [25.0, 75.0],
                        "full": [60.0, 180.0]}[self.kind]
        if options.budgets:
            self.budgets = sorted(float(word) for word in options.budgets.split(","))
        self.test = {"quick": 500, "default": 5000, "full": 10_000}[self.kind]
        self.copies = {"quick": 2, "default": 8, "full": 12}[self.kind]
        self.fast_s = {"quick": 1.0, "default": 8.0, "full": 30.0}[self.kind]
        self.fast_turns = {"quick": 1, "default": 4, "full": 5}[self.kind]
        if options.rounds:
            self.fast_turns = options.rounds
        self.mode = options.mode.replace("all", "auto")
        self.seeds = options.seeds
        self.ways = self.chosen(options.only)
        self.only = bool(options.only)
        self.parts = self.chosen_parts(options)

    def chosen_parts(self, options):
        """Without --parts all; with --only those that all ways have, and in a test not latency."""
        parts = PARTS[:2] if options.only else PARTS
        if options.parts:
            parts = options.parts.split(",")
        unknown = [name for name in parts if name not in PARTS]
        if unknown:
            raise SystemExit(f"scripts/bench train: there is no part {unknown[0]}; there are "
                             f"{', '.join(PARTS)}")
        return [name for name in parts if name != "latency" or self.kind != "quick"]

    def chosen(self, only):
        names = only.split(",") if only else \
            ["plain", "lru", "echo4", "auto"] if self.kind == "quick" else list(WAYS)
        unknown = [name for name in names if name not in WAYS]
        if unknown:
            raise SystemExit(f"scripts/bench train: there is no way {unknown[0]}; there are "
                             f"{', '.join(WAYS)}")
        return names

    def seeds_of(self, way):
        if self.seeds:
            return self.seeds
        return 3 if self.kind == "full" and way in MAIN_WAYS else 1

    def slow_runs(self):
        """(source, way, budget, seed), in the sequence in which they run: all ways once before
        any has its second turn, so that what else the machine does hits all alike."""
        runs = []
        for seed in range(max(self.seeds_of(way) for way in self.ways)):
            for budget in reversed(self.budgets):
                runs += [("bandwidth", way, budget, seed) for way in self.ways
                         if seed < self.seeds_of(way) and self.has_budget(way, budget)]
            runs += [("latency", way, budget, seed) for budget in self.latency_budgets()
                     for way in self.ways if way in self.latency_ways()
                     and seed < self.seeds_of(way)]
        return [run for run in runs if run[0] in self.parts]

    def has_budget(self, way, budget):
        """By default only the main ways have the long budgets, too."""
        return self.kind == "full" or self.only or way in MAIN_WAYS or budget == self.budgets[0]

    def latency_budgets(self):
        return self.budgets if self.kind == "full" else self.budgets[:1]

    def latency_ways(self):
        return WAYS if self.kind == "full" or self.only else ("plain", "lru", "known", "auto")


def out_folder(bench, quick):
    """Apart, since a test must not replace what somebody measured."""
    return os.path.join(bench.build, "train-quick" if quick else "train")


class Bench:
    """Runs trainings, and keeps what they tell."""

    def __init__(self, bench, report, plan):
        self.lab, self.report, self.plan = bench, report, plan
        self.out = out_folder(bench, plan.kind == "quick")
        self.runs, self.refused = [], {}
        self.tree = os.path.join(bench.ram, "images")
        train_data.write_tree(os.path.join(self.tree, "train"), plan.images, FILE_BYTES)
        self.capacity = int(plan.images * FILE_BYTES * CACHE_SHARE)
        shutil.rmtree(os.path.join(self.out, "runs"), ignore_errors=True)
        os.makedirs(os.path.join(self.out, "runs"))

    def run(self, source, way, seed, budget=None, steps=None, name=None, copies=1):
        """One training. Its record, or None where the way cannot be run."""
        if way in self.refused:
            return None
        length = f"{steps} steps" if steps else f"{budget:g} s"
        self.report.say(f"{source}, {way}, {length}, seed {seed}")
        name = name or f"{source}-{way}-{budget:g}s-seed{seed}"
        path = os.path.join(self.out, "runs", name + ".json")
        words = ["--seed", seed, "--workers", WORKERS, "--copies", copies, "--test",
                 self.plan.test, "--out", path]
        words += ["--steps", steps] if steps else ["--budget", budget]
        begin = time.monotonic()
        try:
            more = self.train(source, WAYS[way], [str(word) for word in words])
        except lab.Unavailable as reason:
            self.refused[way] = str(reason)
            self.report.say(f"  not measured: {reason}")
            return None
        with open(path) as file:
            record = json.load(file)
        record.update(more, source=source, way=way, seed=seed, budget=budget, fixed_steps=steps,
                      name=name, took_s=time.monotonic() - begin)
        record["step_count"] = len(record.pop("steps"))
        self.report.say(f"  accuracy {record['curve'][-1]['accuracy']:.3f}, "
                        f"{record['samples_s']:.0f} samples/s, stall {record['stall']:.2f}")
        return record

    def train(self, source, way, words):
        """Mounts what the way needs, and runs the training there. What only we know of it."""
        plain = way["mount"] is None
        settings = dict(SOURCES[source], timeout=60)
        if plain:
            # Pages stay as long as there is room, which the cgroup limits.
            settings.update(direct_io=0, keep_cache=1)
        slow = lab.Slow(self.lab, self.tree, **settings)
        limit = mount = None
        try:
            if plain:
                limit = limits.PageCache(self.lab, self.capacity)
            else:
                mount = lab.Shade(self.lab, slow.path, capacity=self.capacity,
                                  mode=self.plan.mode, **way["mount"])
                words += ["--mount", mount.path]
            if way["sampler"]:
                words += ["--sampler", json.dumps(way["sampler"])]
            words += ["--" + name for name in ("weights", "quiet", "distributed")
                      if way.get(name)]
            root = mount.path if mount else slow.path
            self.call([os.path.join(root, "train"), "--source", slow.path, *words], limit)
            return {"page_cache_bytes": limit.most} if limit else {"mode": mount.stats()["mode"]}
        finally:
            for server in (limit, mount, slow):
                if server:
                    server.end()

    def call(self, words, limit):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_loop.py")
        command = [PYTHON, script, *words]
        lab.run_loop(self.lab, limit.command(command) if limit else command,
                     limit.begin if limit else None)

    def slow_sources(self):
        for source, way, budget, seed in self.plan.slow_runs():
            self.runs.append(self.run(source, way, seed, budget,
                                      copies=self.plan.copies))
        self.runs = [run for run in self.runs if run]

    def fast_source(self):
        """samples/s by way, in turns."""
        rates = {"plain": [], "auto": []}
        for turn in range(self.plan.fast_turns):
            for way in rates:
                run = self.run("fast", way, turn, self.plan.fast_s)
                if run:
                    rates[way].append(run["samples_s"])
        return rates

    def equal_steps(self):
        """Accuracy by way, each after as many steps as auto has in the long budget."""
        done = [run["step_count"] for run in self.runs
                if (run["source"], run["way"], run["budget"]) ==
                ("bandwidth", "auto", self.plan.budgets[-1])]
        if not done:
            return {}
        found = {}
        for way, source in (("plain", "fast"), ("auto", "bandwidth")):
            for seed in range(self.plan.seeds_of(way)):
                run = self.run(source, way, seed, steps=done[0],
                               name=f"steps-{way}-seed{seed}")
                if run:
                    found.setdefault(way, []).append(run["curve"][-1]["accuracy"])
        return {"steps": done[0], "accuracy": found}


def options_of(parser):
    parser.add_argument("--full", action="store_true",
                        help="the study itself: all ways, three seeds; hours")
    parser.add_argument("--only", metavar="WAY,...", help="these ways: " + ", ".join(WAYS))
    parser.add_argument("--seeds", type=int, help="how often each way is run")
    parser.add_argument("--budgets", metavar="S,S", help="seconds that trainings have")
    parser.add_argument("--parts", metavar="PART,...", help="of " + ", ".join(PARTS))
    parser.add_argument("--plot", action="store_true",
                        help="tables and plots of the last run again; trains nothing")


def check_parts():
    """Goes on as the system's Python, if another one has begun this."""
    if os.path.realpath(sys.executable) != os.path.realpath(PYTHON) and os.path.exists(PYTHON):
        os.execv(PYTHON, [PYTHON, *sys.argv])
    if not train_data.present():
        lab.skip("dataset-fashion-mnist is not installed (scripts/deps train)")
    done = subprocess.run([PYTHON, "-c", "import torch, torchvision, PIL"], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        lab.skip(f"{PYTHON}: {done.stderr.strip().splitlines()[-1]} (scripts/deps train)")


def measure(bench, report, plan):
    """Everything that was found, for train_report."""
    work = Bench(bench, report, plan)
    work.slow_sources()
    results = {
        "kind": plan.kind, "images": plan.images, "file_bytes": FILE_BYTES,
        "cache_share": CACHE_SHARE, "capacity": work.capacity, "workers": WORKERS,
        "budgets": plan.budgets, "test": plan.test, "sources": SOURCES, "runs": work.runs,
        "fast": work.fast_source() if "fast" in plan.parts else {},
        "steps": work.equal_steps() if "steps" in plan.parts else {}, "refused": work.refused}
    with open(os.path.join(work.out, "results.json"), "w") as file:
        json.dump(results, file)
    return results


def main():
    check_parts()
    options, bench, report = lab.begin("train", options_of)
    begin = time.monotonic()
    out = out_folder(bench, options.quick)
    if options.plot:
        with open(os.path.join(out, "results.json")) as file:
            results = json.load(file)
    else:
        results = measure(bench, report, Plan(options))
        report.say(f"it took {(time.monotonic() - begin) / 60:.1f} minutes")
    train_report.tell(report, results, out)
    report.end()


if __name__ == "__main__":
    sys.exit(main())
