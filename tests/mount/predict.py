# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trainings with torch's DistributedSampler, with nothing of ours in them, are recognised by what they
read: real ranks over gloo, ImageFolder, workers.

predict.py SHADEFS SLOWFS SHADECTL runs a few of them; with --matrix at the end all of 1, 2 and 4 ranks,
2 and 4 workers, persistent or not, drop_last or not."""
import itertools
import os
import random
import socket
import subprocess
import sys
import time

MATRIX = "--matrix" in sys.argv
if MATRIX:
    sys.argv.remove("--matrix")

from common import MODE, SHADECTL, Shade, Slow, read, run_tests, scratch, skip, wait_until

PYTHON = "/usr/bin/python3"  # another one may come first in PATH, without torch
FILES, SIZE, CLASSES = 2000, 20000, 20

# A rank of a training. Rank 0 says what it does, and goes on when a line comes.
RANK = """
import os, sys, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

root, epochs, workers, persistent, drop_last, seed, batch = sys.argv[1], *map(int, sys.argv[2:8])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()

def load(path):
    with open(path, "rb") as file:
        return len(file.read())

train = ImageFolder(os.path.join(root, "train"), loader=load)
held = ImageFolder(os.path.join(root, "val"), loader=load)
sampler = DistributedSampler(train, seed=seed, drop_last=bool(drop_last))
loader = DataLoader(train, batch, sampler=sampler, num_workers=workers, drop_last=bool(drop_last),
                    persistent_workers=bool(persistent))
validation = DataLoader(held, batch, num_workers=1)

def step(text):
    dist.barrier()
    if rank == 0:
        print(text, flush=True)
        if not sys.stdin.readline():
            sys.exit(1)
    dist.barrier()

step("ready")
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    count = 0
    for sizes, _ in loader:
        count += len(sizes)
        dist.all_reduce(sizes.sum())  # a step: ranks wait for each other
        time.sleep(0.004)
    step(f"epoch {epoch} {count}")
    if rank == 0:
        for _ in validation:
            pass
    step("validated")
step("end")
"""


def make_images(folder, files, size=SIZE):
    """Files that ImageFolder takes for images; nothing decodes them."""
    chance = random.Random(1)
    for number in range(files):
        path = os.path.join(folder, f"n{number % CLASSES:03}", f"{number}.JPEG")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(chance.randbytes(size))


def make_source(files=FILES):
    root = os.path.join(scratch, f"images-{files}")
    if not os.path.exists(root):
        make_images(os.path.join(root, "train"), files)
        make_images(os.path.join(root, "val"), files // 10)
    return root


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Training:
    """Ranks of one training, started as a launcher does it."""

    def __init__(self, root, ranks=2, workers=2, persistent=False, drop_last=False, seed=0, epochs=3,
                 batch=8):
        script = os.path.join(scratch, "rank.py")
        with open(script, "w") as file:
            file.write(RANK)
        port = free_port()
        words = [epochs, workers, int(persistent), int(drop_last), seed, batch]
        self.ranks = [subprocess.Popen(
            [PYTHON, script, root, *map(str, words)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for rank in range(ranks)]

    def wait(self, wanted):
        line = self.ranks[0].stdout.readline().strip()
        assert line.startswith(wanted), f"{line!r}, not {wanted!r}"
        return line

    def go(self):
        self.ranks[0].stdin.write("\n")
        self.ranks[0].stdin.flush()

    def end(self):
        self.wait("end")
        self.go()
        for rank in self.ranks:
            assert rank.wait(60) == 0

    def kill(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()


def mount(root, share=0.1, **options):
    """A mount of a slow source, with a cache of this share of the data."""
    slow = Slow(root, delay_us=2000)
    resident = int(FILES * (SIZE // 4096 + 1) * 4096 * share)
    return Shade(slow.path, capacity=2 * resident, inflight=resident, prefetch=resident // 2,
                 log="info", **options)


def ratio(before, after):
    """The share of opens that found the sample resident."""
    change = {key: after[key] - before[key] for key in ("hits", "misses", "coalesced")}
    return change["hits"] / sum(change.values())


def line_of(fs):
    return read(fs.at(".shade", "predictions")).decode().strip()


def run_training(fs, epochs=3, **options):
    """Runs it, and gives the hit ratios of its epochs, and what was known at the end of each."""
    training = Training(fs.path, epochs=epochs, **options)
    hits, known = [], []
    try:
        training.wait("ready")
        for epoch in range(epochs):
            before = fs.stats()
            training.go()
            training.wait(f"epoch {epoch}")
            hits.append(ratio(before, fs.stats()))
            known.append(line_of(fs))
            training.go()
            training.wait("validated")
        training.go()
        training.end()
    finally:
        training.kill()
    return hits, known


def check_training(ranks, workers, persistent, drop_last):
    fs = mount(make_source())
    hits, known = run_training(fs, ranks=ranks, workers=workers, persistent=persistent,
                               drop_last=drop_last)
    stats = fs.stats()
    what = f"{ranks} ranks, {workers} workers, persistent {persistent}, drop_last {drop_last}"
    print(f"{MODE}, {what}: {stats['predict_reads']:.0f} reads were enough; hits "
          f"{' '.join(f'{value:.3f}' for value in hits)}; {stats['predict_cpu_ms']:.0f} ms", flush=True)
    assert stats["predict_recognised"] == 1, (what, fs.read_log())
    assert stats["predict_dropped"] == 0, (what, fs.read_log())
    assert stats["predict_reads"] <= 64, what
    ranks_text = "rank 0 of 1" if ranks == 1 else f"ranks 0-{ranks - 1} of {ranks}"
    for epoch, line in enumerate(known):
        # The layout of one rank may be seen as that of its workers: everything is local anyway.
        assert line.startswith(f"epoch {epoch} of DistributedSampler, seed 0, {ranks_text}, below train/: "
                               "known"), (what, line)
    assert min(hits[1:]) >= 0.95, (what, hits)
    assert "recognised epoch 0 of DistributedSampler" in fs.read_log()
    fs.end()


def test_trainings():
    if MATRIX:
        for options in itertools.product((1, 2, 4), (2, 4), (False, True), (False, True)):
            check_training(*options)
    elif MODE == "native":
        check_training(2, 2, False, True)
    else:
        check_training(2, 2, True, False)


if subprocess.run([PYTHON, "-c", "import torch, torchvision"], stderr=subprocess.DEVNULL).returncode:
    skip("there is no torch here")
run_tests([test_trainings])
