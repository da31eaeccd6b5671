# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mode auto with real mounts, sources that are limited, and DataLoaders: how often samples are used
follows how much too slow the source is. What a step computes is a sleep."""
import logging
import os
import tempfile
import time

from harness import Shade, Slow, job_stats, need, run_tests, scratch

need("torch", "shade")
import shade  # noqa: E402 pylint: disable=wrong-import-position
from torch.utils.data import DataLoader, Dataset  # noqa: E402 pylint: disable=wrong-import-position

SAMPLES, SIZE, BATCH = 400, 24_000, 8


def files():
    root = tempfile.mkdtemp(prefix="files-", dir=scratch)
    for number in range(SAMPLES):
        with open(os.path.join(root, f"{number:04}"), "wb") as file:
            file.write(os.urandom(SIZE))
    return root


class Files(Dataset):
    """Their indices, after they were read."""

    def __init__(self, root):
        self.paths = [os.path.join(root, f"{number:04}") for number in range(SAMPLES)]

    @property
    def samples(self):
        return [(path, 0) for path in self.paths]

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            assert len(file.read()) == SIZE
        return index


class Training:
    """A mount with room for a fifth, a sampler, and a loader."""

    def __init__(self, source, workers=2, **options):
        self.mount = Shade(source, capacity=str(SAMPLES * SIZE // 5), inflight="500K")
        self.data = Files(self.mount.path)
        self.sampler = shade.Sampler(self.data, mount=self.mount.path, **options)
        self.loader = DataLoader(self.data, batch_size=BATCH, sampler=self.sampler,
                                 num_workers=workers)

    def epoch(self, step_seconds):
        """The samples that it had, and what came from the source, as a share of the data."""
        before = self.mount.stats()["backend_bytes"]
        seen = []
        for batch in self.loader:
            time.sleep(step_seconds)
            seen += batch.tolist()
            self.sampler.update([float(number % 7) for number in batch])
        assert seen == self.sampler.order.tolist(), "the order is what was read"
        return seen, (self.mount.stats()["backend_bytes"] - before) / (SAMPLES * SIZE)

    def end(self):
        self.sampler.mount.close()
        self.mount.end()


class Notes(logging.Handler):
    """What is logged."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []
        shade.sampler.log.addHandler(self)
        shade.sampler.log.setLevel(logging.INFO)

    def emit(self, record):
        self.lines.append(record.getMessage())


def test_short_source():
    """2 MB/s are 4.8 s for all of it, and the training would take 1 s."""
    notes = Notes()
    root = files()
    slow = Slow(root, bandwidth="2M")
    training = Training(slow.path)
    shares = [training.epoch(0.02)[1]]
    rate = training.sampler.figures()["source_rate"]
    assert 1e6 < rate < 4e6, rate
    shares += [training.epoch(0.02)[1] for _ in range(3)]
    figures = training.sampler.figures()
    assert training.sampler.uses > 2, training.sampler.summary()
    assert shares[-1] < 0.6, shares
    assert figures["waiting"] < 0.6 and figures["hit_ratio"] > 0.4, figures
    assert abs(job_stats(training.mount)["uses"] - training.sampler.uses) < 0.01
    assert any("fetched sample is used" in line for line in notes.lines), notes.lines
    # Somebody has mended the source. It takes a while until that is known for sure.
    slow.tell("set bandwidth 0")
    epochs = 0
    while training.sampler.uses > 1 and epochs < 40:
        training.epoch(0.02)
        epochs += 1
    assert training.sampler.uses == 1, (epochs, training.sampler.summary())
    training.epoch(0.02)  # it was drawn before that was known
    seen, _ = training.epoch(0.02)
    assert sorted(seen) == list(range(SAMPLES)), "each once"
    training.end()
    slow.end()


def test_fast_source():
    """Each epoch is a permutation, and the cache has its part of it."""
    training = Training(files())
    orders = []
    for _ in range(4):
        seen, share = training.epoch(0.04)
        assert sorted(seen) == list(range(SAMPLES)), "each once"
        orders.append(seen)
    assert training.sampler.uses == 1, training.sampler.summary()
    assert len({tuple(order) for order in orders}) == 4, "each another one"
    assert share < 0.95, share
    training.end()


def test_state():
    """A training that resumes in the middle of an epoch that was drawn anew goes on alike."""
    root = files()
    slow = Slow(root, bandwidth="2M")
    training = Training(slow.path)
    training.epoch(0.02)
    state = training.sampler.state_dict()
    assert training.sampler.uses > 1
    orders = []
    for _ in range(2):
        again = shade.Sampler(training.data, mount=training.mount.path)
        again.load_state_dict(state)
        orders.append(list(again))
        assert again.uses == training.sampler.uses
        again.mount.close()
    assert orders[0] == orders[1]
    training.end()
    slow.end()


def test_plain_loop():
    """Without torch's loader nobody sees the training wait; the mount sees its readers wait."""
    slow = Slow(files(), bandwidth="2M")
    mount = Shade(slow.path, capacity=str(SAMPLES * SIZE // 5), inflight="500K")
    data = Files(mount.path)
    sampler = shade.Sampler(data.paths, mount=mount.path)
    for _ in range(2):
        batch = []
        for number in sampler:
            batch.append(data[number])
            if len(batch) == BATCH:
                time.sleep(0.01)
                sampler.update([1.0] * BATCH)
                batch = []
    assert sampler.uses > 2, sampler.summary()
    assert "uses" in sampler.summary() and "coverage" in sampler.summary(), sampler.summary()
    sampler.mount.close()
    mount.end()
    slow.end()


def test_without_a_mount():
    """Nothing is measured, so each sample comes once."""
    sampler = shade.Sampler(100)
    for _ in range(3):
        assert sorted(sampler) == list(range(100))
    assert sampler.mode == "auto" and sampler.uses == 1
    assert sampler.summary() == "epoch 2, coverage 1.00, 1.00 uses", sampler.summary()


def test_log():
    class Writer:
        """Like TensorBoard's."""
        def __init__(self):
            self.scalars = {}

        def add_scalar(self, tag, value, step):
            self.scalars[tag] = (float(value), step)

    training = Training(files(), workers=0)
    training.epoch(0)
    writer = Writer()
    training.sampler.log(writer, 7)
    figures = training.sampler.figures()
    assert set(writer.scalars) == {f"shade/{name}" for name in figures}, (writer.scalars, figures)
    assert {"hit_ratio", "coverage", "waiting", "seconds", "source_bytes", "uses"} <= set(figures)
    assert all(step == 7 for _, step in writer.scalars.values())
    assert writer.scalars["shade/coverage"] == (1.0, 7)
    training.end()


run_tests([test_short_source, test_fast_source, test_state, test_plain_loop, test_without_a_mount,
           test_log])
