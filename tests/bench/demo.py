# SPDX-License-Identifier: LGPL-2.1-or-later
"""The demo of scripts/run: a small image tree behind a slow source, read through real mounts for a
few epochs of a modelled training, by LRU, by SHADE's own procedure and by shadefs. Files, mounts,
scores, orders and times are real; the loss of a sample and the time that a batch takes to compute
are modelled."""
import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import lab
from torch_order import randperm

BATCH = 64
WORKERS, BATCHES_AHEAD = 4, 8  # as a DataLoader with four workers does by default
COMPUTE_S = 0.012              # for a batch
CACHE_SHARE = 0.2
DELAY_US, BANDWIDTH = 4000, "120M"


class Training:
    """One mount, what trains on it, and the package `shade` between them."""

    def __init__(self, bench, source, names, size, way):
        import shade  # pylint: disable=import-outside-toplevel # from the build
        from shade._pace import Pace  # pylint: disable=import-outside-toplevel
        self.lab, self.names, self.way = bench, names, way
        # Mounted once: its own scan of the tree is no part of an epoch.
        self.mount = lab.Shade(bench, source, capacity=int(size * CACHE_SHARE),
                               policy=way["policy"])
        self.hints = shade.Mount(self.mount.path)
        self.hints.register(names)
        # One ahead where it is told: then who stays is known exactly.
        self.scorer = shade.Scorer(len(names), seed=1, lookahead=int(way["announce"]),
                                   backend="cpu", capacity=int(len(names) * CACHE_SHARE),
                                   **way["sampler"])
        self.scorer.batch(BATCH)
        self.losses = lab.Losses(len(names))
        self.pace, self.rate = Pace(), 0.0
        self.pace.sample_bytes = size / len(names)
        self.announced = -1

    def begin(self, epoch):
        """The ids that it reads. What is announced is what shade.Sampler announces, and mode auto is
        told what was measured."""
        self.measure()
        self.scorer.begin(epoch, self.hints.resident(len(self.names)))
        self.hints.epoch(epoch)
        auto = self.way["sampler"]["mode"] == "auto"
        last = epoch if auto and not epoch else epoch + 1  # it draws nothing ahead the first time
        while self.way["announce"] and self.announced < last:
            self.announced += 1
            self.hints.order(self.announced, self.scorer.order(self.announced))
        self.pace.begin(self.mount.path)
        return self.scorer.order(epoch)

    def measure(self):
        """Tells what the last epoch was like."""
        span = self.pace.span(0)
        if span is not None:
            self.rate = self.scorer.rate(self.rate, span)
            self.scorer.measured([span._replace(rate=self.rate)])

    def arrived(self, asked):
        self.pace.arrived(asked, time.monotonic())

    def epoch_ended(self):
        self.pace.end()

    def read_batch(self, ids):
        for number in ids:
            with open(os.path.join(self.mount.path, self.names[number]), "rb") as file:
                file.read()
        return ids

    def learn(self, ids):
        """The model's part: some time, and a loss for each sample."""
        time.sleep(COMPUTE_S * len(ids) / BATCH)
        scores = self.scorer.update(ids, [self.losses.visit(number) for number in ids])
        if self.way["score"]:
            self.hints.scores(ids, scores)

    def epoch(self, number):
        """Figures of one epoch."""
        order = self.begin(number)
        before = self.mount.stats()
        start = time.monotonic()
        batches = [order[at:at + BATCH] for at in range(0, len(order), BATCH)]
        pool = ThreadPoolExecutor(WORKERS)
        try:
            waiting = []
            while batches or waiting:
                while batches and len(waiting) < BATCHES_AHEAD:
                    waiting.append(pool.submit(self.read_batch, batches.pop(0)))
                asked = time.monotonic()
                ids = waiting.pop(0).result()
                self.arrived(asked)
                self.learn(ids)
        finally:
            pool.shutdown(cancel_futures=True)
        seconds = time.monotonic() - start
        self.epoch_ended()
        after = self.mount.stats()
        change = {key: after[key] - before[key] for key in
                  ("accesses", "hits", "hits_prefetched", "backend_bytes", "misses")}
        reads = change["hits"] + change["misses"]
        return {"s": seconds, "hit ratio": change["hits"] / max(reads, 1),
                "prefetched": change["hits_prefetched"] / max(reads, 1),
                "coverage": len(set(order)) / len(self.names),
                "source MB": change["backend_bytes"] / 1e6}

    def end(self):
        self.hints.close()
        self.mount.end()


class Unmodified(Training):
    """A training that tells nothing: torch's DistributedSampler with its usual seed, one rank. It never
    opens .shade/control, so nobody has claimed what it reads."""

    def __init__(self, bench, source, names, size, way):  # pylint: disable=super-init-not-called
        self.lab, self.names, self.way = bench, names, way
        self.mount = lab.Shade(bench, source, capacity=int(size * CACHE_SHARE), policy=way["policy"])

    def begin(self, epoch):
        return randperm(len(self.names), epoch)

    def arrived(self, asked):
        pass

    def epoch_ended(self):
        pass

    def learn(self, ids):
        time.sleep(COMPUTE_S * len(ids) / BATCH)

    def end(self):
        self.mount.end()


# What the mount does, what the sampler draws, and what the mount is told. A name says which options
# that is.
WAYS = {
    "LRU, each sample once": {
        "policy": "lru", "sampler": {"mode": "uniform"}, "announce": False, "score": False},
    "unmodified DistributedSampler": {"policy": "shade", "unmodified": True},
    "SHADE's own procedure, rep 3": {
        "policy": "app", "sampler": {"mode": "paper", "rep": 3}, "announce": False, "score": True},
    "shadefs, each sample once": {
        "policy": "shade", "sampler": {"mode": "uniform"}, "announce": True, "score": True},
    "shadefs, auto (default)": {
        "policy": "shade", "sampler": {"mode": "auto"}, "announce": True, "score": True},
    "shadefs, pads, rep 1": {
        "policy": "shade", "sampler": {"mode": "pads"}, "announce": True, "score": True},
    "shadefs, pads, rep 3": {
        "policy": "shade", "sampler": {"mode": "pads", "rep": 3}, "announce": True, "score": True},
    "shadefs, echo, 4 uses": {
        "policy": "shade", "sampler": {"mode": "echo"}, "announce": True, "score": True},
}


def average(rows, key):
    return sum(row[key] for row in rows) / len(rows)


def run_way(bench, slow, names, size, epochs, name):
    print(f"\n{name}", flush=True)
    kind = Unmodified if WAYS[name].get("unmodified") else Training
    training = kind(bench, slow.path, names, size, WAYS[name])
    rows = []
    for number in range(epochs):
        rows.append(training.epoch(number))
        print(f"  epoch {number}: hit ratio {rows[-1]['hit ratio']:.2f}, coverage "
              f"{rows[-1]['coverage']:.2f}, {rows[-1]['s']:.2f} s", flush=True)
    mode = training.mount.stats()["mode"]
    training.end()
    warm = rows[epochs // 2:]
    return mode, {"": name, "hit ratio": average(warm, "hit ratio"),
                  "prefetched": average(warm, "prefetched"), "coverage": average(warm, "coverage"),
                  "source MB": average(warm, "source MB"), "s / epoch": average(warm, "s")}


def main():
    parser = argparse.ArgumentParser(prog="scripts/run")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it works")
    options = parser.parse_args()
    if not os.path.exists("/dev/fuse"):
        lab.skip("there is no /dev/fuse here")
    sys.path.insert(0, os.path.join(os.path.abspath(options.build), "python"))
    files, epochs = (300, 2) if options.quick else (2000, 6)
    bench = lab.Lab(options.build)
    report = lab.Report("demo", False)
    tree = bench.make_tree(bench.ram, 10, files, 20_000, 110_000)
    paths = lab.files_below(tree)
    names = [os.path.relpath(path, tree) for path in paths]
    size = sum(os.path.getsize(path) for path in paths)
    slow = lab.Slow(bench, tree, delay_us=DELAY_US, bandwidth=BANDWIDTH)
    print(f"{files} files, {size / 1e6:.0f} MB, behind a source with {DELAY_US / 1000:.0f} ms a "
          f"file and {BANDWIDTH}B/s; a cache of {CACHE_SHARE:.0%}; {WORKERS} loader workers; "
          f"{COMPUTE_S * 1000:.0f} ms for a batch of {BATCH}")
    rows = []
    for name in WAYS:
        mode, row = run_way(bench, slow, names, size, epochs, name)
        rows.append(row)
    for row in rows:
        row["speed"] = rows[0]["s / epoch"] / row["s / epoch"]
    report.table(f"means of the last {epochs - epochs // 2} epochs of {epochs}, mode {mode}", rows)
    print("\nprefetched: the part of the hit ratio that was fetched ahead of a known order\n"
          "coverage: distinct samples read in an epoch, of all; a hit ratio without it says "
          "little\nspeed: of LRU's")


if __name__ == "__main__":
    sys.exit(main())
