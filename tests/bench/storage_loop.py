# SPDX-License-Identifier: LGPL-2.1-or-later
"""A training that computes nothing: workers read whole batches ahead, as those of a DataLoader do,
and a step of the accelerator is a sleep. Prints `ready` when the clock starts, and writes as JSON
how busy the accelerator was."""
import argparse
import json
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import lab

WORKERS, AHEAD = 4, 8  # batches that are read at a time, and that are under way


class Reader:
    """Reads files to the end into a buffer that each thread keeps: nothing is decoded."""

    def __init__(self, largest):
        self.own, self.largest = threading.local(), largest

    def batch(self, paths):
        if not hasattr(self.own, "buffer"):
            self.own.buffer = bytearray(self.largest)
        total = 0
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                while count := file.readinto(self.own.buffer):
                    total += count
        return total


class Orders:
    """A permutation for each epoch; the mount learns of it one epoch ahead, if it is to know."""

    def __init__(self, paths, seed, mount):
        self.paths, self.seed, self.hints, self.told = paths, seed, None, -1
        if mount:
            import shade  # pylint: disable=import-outside-toplevel
            self.hints = shade.Mount(mount)
            self.hints.register(paths)

    def ids(self, epoch):
        ids = list(range(len(self.paths)))
        random.Random(self.seed * 1000 + epoch).shuffle(ids)
        return ids

    def begin(self, epoch):
        if self.hints:
            self.hints.epoch(epoch)
            while self.told <= epoch:
                self.told += 1
                self.hints.order(self.told, self.ids(self.told))
        return [self.paths[number] for number in self.ids(epoch)]


def run_epoch(pool, reader, paths, options, steps):
    """Appends (when the step began, when it ended) of each step."""
    batches = [paths[at:at + options.batch] for at in range(0, len(paths), options.batch)]
    batches.reverse()
    waiting = []
    while batches or waiting:
        while batches and len(waiting) < AHEAD:
            waiting.append(pool.submit(reader.batch, batches.pop()))
        waiting.pop(0).result()
        begin = time.monotonic()
        time.sleep(options.step_s)
        steps.append((begin, time.monotonic()))


def busy_share(steps):
    """Compute / wall after the first step."""
    wall = steps[-1][1] - steps[0][1]
    return sum(end - begin for begin, end in steps[1:]) / wall


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--step-s", type=float, required=True)
    parser.add_argument("--mount", help="a shadefs mount that learns of the orders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    paths = lab.files_below(options.data)
    sizes = [os.path.getsize(path) for path in paths]
    orders = Orders(paths, options.seed, options.mount)
    print("ready", flush=True)
    steps, epochs, reader = [], [], Reader(max(sizes))
    with ThreadPoolExecutor(WORKERS) as pool:
        for epoch in range(options.epochs):
            last = max(0, len(steps) - 1)  # of the epoch before: waiting for the next one counts
            run_epoch(pool, reader, orders.begin(epoch), options, steps)
            epochs.append(busy_share(steps[last:]))
    with open(options.out, "w") as file:
        json.dump({"busy": busy_share(steps), "steps": len(steps), "epochs": epochs,
                   "s": steps[-1][1] - steps[0][1]}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
