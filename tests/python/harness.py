# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the tests of the Python package share. Every script is run by the system's Python as
SCRIPT SHADEFS SLOWFS, with PYTHONPATH set to the package of the build tree, and exits with 0, 1,
or 77 and a reason."""
import importlib
import math
import os
import random
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "mount"))
from common import MODE, SHADEFS, Shade, Slow, run_tests, scratch, skip, wait_until  # noqa: E402,F401 pylint: disable=wrong-import-position,unused-import

CLASSES = 4
TRAIN = os.path.join(HERE, "train.py")


if os.environ.get("SHADE_TEST_SKIP"):
    skip(os.environ["SHADE_TEST_SKIP"])


class Numbers:
    """A data set: its samples are their own indices."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


def need(*modules):
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as failure:
            skip(f"{name} cannot be imported: {failure}")


def image_tree(count, seed=1):
    """An ImageFolder below train/, whose images carry their index in it, and files beside it, so
    that the ids of the mount are others."""
    from PIL import Image
    root = tempfile.mkdtemp(prefix="images-", dir=scratch)
    chance = random.Random(seed)
    for number in range(count):
        folder = os.path.join(root, "train", f"class{number * CLASSES // count}")
        os.makedirs(folder, exist_ok=True)
        pixels = bytearray(chance.randbytes(8 * 8 * 3))
        pixels[0], pixels[1] = divmod(number, 256)
        Image.frombytes("RGB", (8, 8), bytes(pixels)).save(os.path.join(folder, f"{number:05}.png"))
    for name in ("LICENSE", "train/../notes.txt", "zz.txt"):
        with open(os.path.join(root, name), "w") as file:
            file.write(name)
    return root


def numbers_of(images):
    """The index that each image of a batch carries."""
    return [int(value) for value in
            ((images[:, 0, 0, 0] * 255).round() * 256 + (images[:, 1, 0, 0] * 255).round())]


def job_file(shade, name, job=None):
    """A file of the only training on a mount, or of this one; of the mount itself if there is
    none."""
    jobs = [job] if job else os.listdir(shade.at(".shade", "jobs"))
    assert len(jobs) <= 1, jobs
    return shade.at(".shade", *(["jobs", jobs[0]] if jobs else []), name)


def job_stats(shade, job=None):
    """What the mount tells of that training, as numbers."""
    with open(job_file(shade, "stats", job)) as file:
        return {key: float(value) for key, value in (line.split() for line in file)}


def mount_scores(shade):
    """From ImageFolder indices to scores, for those that have one."""
    ids = {number: path for path, number in shade.samples().items()}
    scores = {}
    with open(job_file(shade, "scores")) as file:
        for line in file:
            number, score, _, _ = line.split("\t")
            path = ids[int(number)]
            if float(score) >= 0:
                scores[int(os.path.basename(path)[:-4])] = float(score)
    return scores


def batch_scores(losses):
    """The scores of a batch: ln(rank + 10). Equal losses share the mean of their ranks, and a batch
    of one ranks in the middle of 64."""
    if len(losses) == 1:
        return [math.log(31.5 + 10)]
    return [math.log(sum(other < loss for other in losses)
                     + (sum(other == loss for other in losses) - 1) / 2 + 10) for loss in losses]


def possible_scores(batch, losses):
    """Of each sample of a batch: losses that are as good as equal share a rank, or rank either
    way."""
    if len(batch) == 1:
        return {batch[0]: {round(math.log(31.5 + 10), 4)}}
    values = sorted(losses[number] for number in batch)
    possible = {}
    for number in batch:
        close = [rank for rank, value in enumerate(values) if abs(value - losses[number]) < 1e-6]
        possible[number] = {round(math.log(twice / 2 + 10), 4)
                            for twice in range(2 * close[0], 2 * close[-1] + 1)}
    return possible


def check_scores(batches, losses, scores):
    """That `scores` are what SHADE's rule makes of these batches; the last visit wins."""
    wanted = {}
    for batch in batches:
        wanted.update(possible_scores(batch, losses))
    assert set(scores) == set(wanted), f"scored {sorted(scores)}, not {sorted(wanted)}"
    for number, score in scores.items():
        assert round(score, 4) in wanted[number], f"{number}: {score}, not {wanted[number]}"
    sure = sum(len(ranks) == 1 for ranks in wanted.values())
    assert sure > 0.7 * len(wanted), f"only {sure} of {len(wanted)} are without doubt"


def python(*words, check=True, timeout=120, **environment):
    """Runs the interpreter; the finished process. What takes too long ends with all its
    children."""
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **environment}, start_new_session=True) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    done = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}\n{done.stderr}"
    return done
