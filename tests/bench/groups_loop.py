# SPDX-License-Identifier: LGPL-2.1-or-later
"""A training that computes nothing, one of several on a mount: threads read batches ahead, and a step
is a sleep. Prints `ready`, waits for a line, and then prints for each epoch when it ended, what the
mount had fetched by then, and whether each sample came once."""
import argparse
import os
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import lab
import shade

WORKERS, AHEAD = 2, 4  # batches that are read at a time, and that are under way


def read(paths):
    total = 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            total += len(file.read())
    return total


def fetched(mount):
    with open(os.path.join(mount, ".shade", "stats")) as file:
        return next(int(float(line.split()[1])) for line in file if line.startswith("backend_bytes"))


def run_epoch(pool, sampler, paths, options):
    """Whether each sample came once."""
    order, under_way = list(sampler), deque()
    for first in range(0, len(order), options.batch):
        batch = [paths[number] for number in order[first:first + options.batch]]
        under_way.append(pool.submit(read, batch))
        last = first + options.batch >= len(order)
        while under_way and (last or len(under_way) == AHEAD):
            under_way.popleft().result()
            time.sleep(options.step_ms / 1000)
    return sorted(order) == list(range(len(paths)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mount")
    parser.add_argument("job")
    parser.add_argument("--group")
    parser.add_argument("--mode", default="uniform")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--step-ms", type=float, default=10)
    options = parser.parse_args()
    paths = [path for path in lab.files_below(options.mount)
             if not path.startswith(os.path.join(options.mount, ".shade"))]
    sampler = shade.Sampler(paths, mount=options.mount, mode=options.mode, seed=options.seed,
                            job=options.job, group=options.group)
    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in range(options.epochs):
            once = run_epoch(pool, sampler, paths, options)
            print(time.monotonic(), fetched(options.mount), int(once), flush=True)


main()
