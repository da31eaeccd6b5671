# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trainings with torch's DistributedSampler, with nothing of ours in them, are recognised by what they
read: real ranks over gloo, ImageFolder, workers.

predict.py SHADEFS SLOWFS SHADECTL runs a few of them; with --matrix at the end all of 1, 2 and 4 ranks,
2 and 4 workers, persistent or not, drop_last or not."""
import errno
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time

MATRIX = "--matrix" in sys.argv
if MATRIX:
    sys.argv.remove("--matrix")

from common import (MODE, SHADECTL, Shade, Slow, digest, is_sanitized, raises, read, run_tests,
                    scratch, wait_until)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from torch_order import randperm

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
    return Shade(slow.path, capacity=2 * resident, inflight=resident, prefetch=resident,
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
    # When an epoch begins, each worker gets two batches at once: these must fit into the cache.
    hits, known = run_training(fs, ranks=ranks, workers=workers, persistent=persistent,
                               drop_last=drop_last, batch=8 if ranks * workers <= 8 else 4)
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
    # With a sanitizer the daemon may be too slow to fetch ahead of the readers.
    assert min(hits[1:]) >= (0.5 if is_sanitized() else 0.95), (what, hits)
    assert "recognised epoch 0 of DistributedSampler" in fs.read_log()
    fs.end()


def real_trainings_are_recognised():
    if MATRIX:
        for options in itertools.product((1, 2, 4), (2, 4), (False, True), (False, True)):
            check_training(*options)
    elif MODE == "native":
        check_training(2, 2, False, True)
    else:
        check_training(2, 2, True, False)


# --- what needs no torch: a process that reads what it is told, in the order that torch would make ---

READER = """
import hashlib, sys
for line in sys.stdin:
    with open(line.rstrip("\\n"), "rb") as file:
        print(hashlib.sha256(file.read()).hexdigest(), flush=True)
"""


class Reader:
    """A process that is nobody's: what this one claims is not for it."""

    def __init__(self):
        self.process = subprocess.Popen(["setsid", "-f", sys.executable, "-c", READER], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, path):
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def small(count=600, **options):
    """A mount of small images, their paths as ImageFolder lists them, and what is in them."""
    root = os.path.join(scratch, f"small-{count}")
    if not os.path.exists(root):
        make_images(os.path.join(root, "train"), count, 4000)
    fs = Shade(root, **{"capacity": "2M", "log": "info", **options})
    names = sorted(os.path.relpath(os.path.join(folder, name), root)
                   for folder, _, files in os.walk(root) for name in files)
    digests = {name: digest(read(os.path.join(root, name))).hex() for name in names}
    return fs, names, digests


def read_all(fs, reader, names, digests, order):
    for index in order:
        assert reader.read(fs.at(names[index])) == digests[names[index]], names[index]


def is_known(fs, text=": known"):
    return text in line_of(fs)


def recognised(**options):
    """A mount, with a training that reads by seed 0 and was recognised after 40 reads."""
    fs, names, digests = small(**options)
    reader = Reader()
    read_all(fs, reader, names, digests, randperm(len(names), 0)[:40])
    wait_until(lambda: is_known(fs), "recognised")
    return fs, names, digests, reader


def a_wrong_prediction_costs_speed_only():
    fs, names, digests, reader = recognised()
    assert line_of(fs).startswith("epoch 0 of DistributedSampler, seed 0, rank 0 of 1, below train/")
    order = list(range(len(names)))
    random.Random(5).shuffle(order)
    for index in order:
        assert reader.read(fs.at(names[index])) == digests[names[index]]
        stats = fs.stats() if index % 20 == 0 else {}
        assert not stats or stats["memory_bytes"] <= stats["capacity_bytes"], stats
    wait_until(lambda: fs.stats()["predict_dropped"] == 1, "dropped")
    assert not is_known(fs)
    assert "predicted" not in os.listdir(fs.at(".shade", "jobs"))
    assert "dropped the prediction of epoch 0" in fs.read_log()
    read_all(fs, reader, names, digests, range(0, len(names), 3))
    reader.end()
    fs.end()


def an_announced_order_wins():
    fs, names, digests, reader = recognised()
    ids = fs.samples()
    rest = randperm(len(names), 0)[40:400]
    text = f"order 0 begin\norder 0 {' '.join(str(ids[names[index]]) for index in rest)}\norder 0 end\n"
    # By a process that is not an ancestor of the reader: nobody claims what that reads.
    subprocess.run([sys.executable, "-c", "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR);"
                    "os.write(fd, sys.argv[2].encode())", fs.at(".shade", "control"), text], check=True)
    time.sleep(1.5)  # until it is noticed that the announcer is gone
    before = fs.stats()["order_ahead"]
    assert before == len(rest), before
    read_all(fs, reader, names, digests, rest)
    fs.settle()
    assert fs.stats()["order_ahead"] == 0, "the announced order was not read"
    wait_until(lambda: fs.stats()["predict_dropped"] == 1, "the prediction gives up")
    reader.end()
    fs.end()


def trainers_get_their_jobs():
    fs, names, digests, reader = recognised()
    jobs = fs.at(".shade", "jobs")
    assert os.listdir(jobs) == ["predicted"]
    for number in range(14):
        os.mkdir(os.path.join(jobs, f"job{number}"))
    assert "predicted" in os.listdir(jobs)
    os.mkdir(os.path.join(jobs, "job14"))  # there is no other place left
    assert "predicted" not in os.listdir(jobs)
    raises(errno.ENOSPC, lambda: os.mkdir(os.path.join(jobs, "job15")))
    wait_until(lambda: not is_known(fs), "the prediction gives up")
    # Now there is no place for it, and nothing happens.
    read_all(fs, reader, names, digests, randperm(len(names), 7)[:100])
    assert "predicted" not in os.listdir(jobs)
    os.rmdir(os.path.join(jobs, "job14"))
    time.sleep(0.2)
    assert "predicted" not in os.listdir(jobs), "the last place is left to others"
    reader.end()
    fs.end()


def it_can_be_turned_off():
    fs, names, digests = small(predict="off")
    reader = Reader()
    read_all(fs, reader, names, digests, randperm(len(names), 0))
    assert "predict_known" not in fs.stats()
    assert not line_of(fs) and not os.listdir(fs.at(".shade", "jobs"))
    reader.end()
    fs.end()


def other_seeds_can_be_told():
    for options, found in (({}, False), ({"predict_seed": "5:777777"}, True)):
        fs, names, digests = small(**options)
        reader = Reader()
        read_all(fs, reader, names, digests, randperm(len(names), 777778)[:200])
        wait_until(lambda: fs.stats()["predict_searches"] >= 1, "tried")
        if found:
            wait_until(lambda: is_known(fs, "seed 777778"), "recognised")
        else:
            time.sleep(0.5)
            assert fs.stats()["predict_recognised"] == 0
        reader.end()
        fs.end()


def two_trainings_at_once():
    fs, names, digests = small(1200)
    readers = [Reader(), Reader()]
    orders = [randperm(len(names), seed) for seed in (3, 500)]
    for at in range(len(names)):
        for reader, order in zip(readers, orders):
            read_all(fs, reader, names, digests, order[at:at + 1])
    wait_until(lambda: fs.stats()["predict_known"] == 2, "both are recognised")
    lines = sorted(line_of(fs).splitlines())
    assert lines[0].startswith("epoch 3 of") and lines[1].startswith("epoch 500 of"), lines
    orders = [randperm(len(names), seed) for seed in (4, 501)]
    for at in range(len(names)):
        for reader, order in zip(readers, orders):
            read_all(fs, reader, names, digests, order[at:at + 1])
    wait_until(lambda: sorted(line_of(fs).splitlines())[-1].startswith("epoch 501 of"), "the next epoch")
    stats = fs.stats()
    assert (stats["predict_known"], stats["predict_dropped"], stats["predict_epochs"]) == (2, 0, 2), stats
    for reader in readers:
        reader.end()
    fs.end()


def files_come_and_go():
    fs, names, digests, reader = recognised(staleness=1)
    root = os.path.join(scratch, "small-600")
    order = randperm(len(names), 0)[40:]
    gone = {names[index] for index in order[-50:]}
    for name in gone:
        os.rename(os.path.join(root, name), os.path.join(root, name) + ".off")
    try:
        for number in range(50):
            with open(os.path.join(root, "train", "n000", f"new{number}.JPEG"), "w") as file:
                file.write("new")
        wait_until(lambda: not os.path.exists(fs.at(min(gone))), "the mount knows")
        subprocess.run([SHADECTL, "rescan", fs.path], check=True)
        time.sleep(1.5)  # shadectl claims what is read near it as long as it lives
        read_all(fs, reader, names, digests, [index for index in order if names[index] not in gone])
        assert is_known(fs), "what the training has listed is what counts"
    finally:
        for name in gone:
            os.rename(os.path.join(root, name) + ".off", os.path.join(root, name))
        for number in range(50):
            os.remove(os.path.join(root, "train", "n000", f"new{number}.JPEG"))
    reader.end()
    fs.end()


def a_training_that_ends_is_forgotten():
    fs, _, _, reader = recognised(job_grace=1)
    time.sleep(2)
    assert is_known(fs), "it lives, though it reads nothing"
    reader.end()
    wait_until(lambda: not line_of(fs), "forgotten")
    assert not os.listdir(fs.at(".shade", "jobs"))
    fs.end()


def it_outlives_the_daemon():
    """The orders are kept until the training is recognised once more, and then they go."""
    fs, names, digests, reader = recognised()
    if not fs.stats()["takeover_possible"]:
        print("   this kernel cannot repeat requests")
        reader.end()
        fs.end()
        return
    order = randperm(len(names), 0)
    read_all(fs, reader, names, digests, order[40:200])
    os.kill(fs.daemon(), signal.SIGKILL)
    wait_until(lambda: fs.stats()["takeovers"] == 1, "taken over")
    assert os.listdir(fs.at(".shade", "jobs")) == ["predicted"]

    def ahead():
        with open(fs.at(".shade", "jobs", "predicted", "stats")) as file:
            return int(dict(line.split(" ", 1) for line in file)["order_ahead"])

    before = ahead()
    assert before >= 400, before
    read_all(fs, reader, names, digests, order[200:300])
    wait_until(lambda: ahead() <= before - 100 or is_known(fs), "the order is still read")
    read_all(fs, reader, names, digests, order[300:])
    read_all(fs, reader, names, digests, randperm(len(names), 1)[:100])
    wait_until(lambda: is_known(fs, "epoch 1 of DistributedSampler"), "recognised")
    wait_until(lambda: len(os.listdir(fs.at(".shade", "jobs"))) == 1, "there is one job for it")
    reader.end()
    fs.end()


def people_are_told():
    fs, _, _, reader = recognised()
    text = subprocess.run([SHADECTL, "status", fs.path], capture_output=True, text=True, check=True).stdout
    assert "predicted  epoch 0 of DistributedSampler, seed 0, rank 0 of 1, below train/: known" in text, text
    assert "shadefs_predict_recognised_total 1\n" in read(fs.at(".shade", "metrics")).decode()
    reader.end()
    fs.end()


tests = [a_wrong_prediction_costs_speed_only, an_announced_order_wins, trainers_get_their_jobs,
         it_can_be_turned_off, other_seeds_can_be_told, two_trainings_at_once, files_come_and_go,
         a_training_that_ends_is_forgotten, it_outlives_the_daemon, people_are_told]
if subprocess.run([PYTHON, "-c", "import torch, torchvision"], stderr=subprocess.DEVNULL).returncode:
    print("there is no torch here: nothing is read by it")
else:
    tests = [real_trainings_are_recognised] if MATRIX else [*tests, real_trainings_are_recognised]
run_tests(tests)
