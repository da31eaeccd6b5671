# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files that are neighbours at the source and in a row in an order are fetched together: a source
that pays for seeks has few of them."""
import os
import random

from common import Shade, Slow, make_tree, read, run_tests

RUN = 16


def by_inode(fs):
    """The ids and paths of all samples, neighbours one after the other, as the mount shows them."""
    places = []
    for path, number in fs.samples().items():
        entries = {entry.name: entry.inode()
                   for entry in os.scandir(os.path.dirname(fs.at(path)))}
        places.append((os.path.dirname(path), entries[os.path.basename(path)], number, path))
    return [(number, path) for _, _, number, path in sorted(places)]


def seeks_of(slow, mix):
    """What an epoch costs whose order `mix` makes of all samples."""
    fs = Shade(slow.path, capacity="8M")
    order = mix(by_inode(fs))
    before = int(slow.counts()["seeks"])
    fs.control("order 0 begin\norder 0 " + " ".join(str(number) for number, _ in order)
               + "\norder 0 end\nepoch 0\n")
    for _, path in order:
        read(fs.at(path))
    assert fs.stats()["prefetches"] > len(order) / 2, "nothing was fetched ahead"
    fs.end()
    return int(slow.counts()["seeks"]) - before


def shuffled(items):
    return random.Random(1).sample(items, len(items))


def in_runs(items):
    runs = [items[at:at + RUN] for at in range(0, len(items), RUN)]
    return [item for run in shuffled(runs) for item in run]


def a_run_is_fetched_together():
    root, _ = make_tree(160, folders=2)
    slow = Slow(root, seek_us=1000, timeout=60)
    alone, runs = seeks_of(slow, shuffled), seeks_of(slow, in_runs)
    assert alone > 80, f"only {alone} seeks for 160 files in no order"
    assert runs < alone / 2, f"{runs} seeks in runs, {alone} in no order"
    slow.end()


run_tests([a_run_is_fetched_together])
