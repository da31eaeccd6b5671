# SPDX-License-Identifier: LGPL-2.1-or-later
"""A training as a user would write it: a small CNN, torchvision's ImageFolder, a DataLoader with
workers, and either its own shuffling or a shade.Sampler. It trains for a time, or for a number of
steps, over which the learning rate falls to nothing, and writes down what happened as JSON.

Weights are copied now and then while it trains, and evaluated on the test set after the end:
neither the clock nor the source notices."""
import argparse
import copy
import json
import math
import os
import sys
import time

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

import train_data

BATCH = 64
RATE = 2e-3
MEAN, DEVIATION = 0.286, 0.353  # of the pixels
MOUNT_KEYS = ("hits", "misses", "hits_prefetched")


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))


def load(path):
    with open(path, "rb") as file:
        return Image.open(file).convert("L")


class Noted(RandomSampler):
    """A DataLoader's own shuffling, which remembers what it drew."""

    order = ()

    def __iter__(self):
        self.order = list(super().__iter__())
        return iter(self.order)


class NotedDistributed(DistributedSampler):
    """The same of torch's sampler for several ranks, with one."""

    order = ()

    def __iter__(self):
        self.order = list(super().__iter__())
        self.set_epoch(self.epoch + 1)  # as the script would, before the next epoch
        return iter(self.order)


class Counters:
    """What the source and the mount have counted so far."""

    def __init__(self, source, mount):
        self.files = {"source": os.path.join(source, ".slowfs")}
        if mount:
            self.files["mount"] = os.path.join(mount, ".shade", "stats")

    def read(self):
        counts = {}
        for name, path in self.files.items():
            with open(path) as file:
                pairs = [line.split() for line in file]
            keys = ("bytes", "opens") if name == "source" else MOUNT_KEYS
            counts.update({pair[0]: int(pair[1]) for pair in pairs
                           if len(pair) == 2 and pair[0] in keys})
        return counts


class Schedule:
    """How far the training is, from 0 to 1: by its time, or by its steps."""

    def __init__(self, budget_s, steps):
        self.budget_s, self.steps = budget_s, steps
        self.start = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.start

    def progress(self, steps_done):
        return steps_done / self.steps if self.steps else self.elapsed() / self.budget_s

    def rate(self, steps_done):
        return RATE * 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress(steps_done))))


class Training:
    """Model, loader, and the record of what they did."""

    def __init__(self, options):
        torch.manual_seed(options.seed)
        self.model = make_model()  # before anything else can draw: it begins alike for each seed
        self.options = options
        self.data = ImageFolder(options.data, transforms.Compose([
            transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize(MEAN, DEVIATION)]), loader=load)
        self.size = os.path.getsize(self.data.samples[0][0])
        self.sampler = self.make_sampler()
        self.loader = DataLoader(self.data, batch_size=BATCH, sampler=self.sampler,
                                 num_workers=options.workers, persistent_workers=True)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)
        self.counters = Counters(options.source, options.mount)
        self.steps, self.epochs, self.copies = [], [], []
        self.first = self.counters.read()
        self.seen = set()

    def make_sampler(self):
        if self.options.distributed:
            return NotedDistributed(self.data, num_replicas=1, rank=0, seed=self.options.seed)
        if not self.options.sampler:
            return Noted(self.data, generator=torch.Generator().manual_seed(self.options.seed))
        import shade  # pylint: disable=import-outside-toplevel
        sampler = shade.Sampler(self.data, mount=self.options.mount, seed=self.options.seed,
                                batch=BATCH, **json.loads(self.options.sampler))
        if self.options.quiet:
            sampler._announce = lambda epoch: None  # pylint: disable=protected-access
        return sampler

    def learn(self, images, labels, rate):
        """One step; the mean loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        losses = nn.functional.cross_entropy(self.model(images), labels, reduction="none")
        loss = losses.mean()
        if self.options.weights:
            loss = (losses * torch.tensor(self.sampler.weights(len(losses)))).mean()
        if self.options.sampler:
            self.sampler.update(losses.detach())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(losses.detach().mean())

    def copy_weights(self, schedule):
        """A point of the curve; it takes less than a millisecond or two."""
        self.copies.append({"s": schedule.elapsed(), "steps": len(self.steps),
                            "source_bytes": self.counters.read()["bytes"] - self.first["bytes"],
                            "weights": copy.deepcopy(self.model.state_dict())})

    def run_epoch(self, schedule):
        """Whether there is time for another one."""
        before, begin = self.counters.read(), schedule.elapsed()
        asked, samples, busy_s, going = begin, 0, 0.0, True
        for images, labels in self.loader:
            got = schedule.elapsed()
            if not self.options.steps and schedule.progress(0) >= 1:
                going = False
                break
            loss = self.learn(images, labels, schedule.rate(len(self.steps)))
            samples += len(labels)
            done = schedule.elapsed()
            busy_s += done - got
            self.steps.append((round(done, 4), round(got - asked, 5), round(loss, 4)))
            progress = schedule.progress(len(self.steps))
            if progress * self.options.copies >= len(self.copies) + 1 and progress < 1:
                self.copy_weights(schedule)
            if progress >= 1:
                going = False
                break
            asked = done
        self.note_epoch(before, samples, busy_s, schedule.elapsed() - begin)
        return going

    def note_epoch(self, before, samples, busy_s, seconds):
        after = self.counters.read()
        change = {key: after[key] - before[key] for key in after}
        order = [int(number) for number in self.sampler.order]
        used = order[:samples]
        self.seen.update(used)
        if "hits" in change:
            ratio = change["hits"] / max(1, change["hits"] + change["misses"])
            ahead = change["hits_prefetched"] / max(1, change["hits"] + change["misses"])
        else:
            ratio = 1 - change["bytes"] / max(1, change["opens"] * self.size)
            ahead = 0
        self.epochs.append({
            "s": seconds, "samples": samples, "complete": samples == len(order),
            "hit_ratio": ratio, "prefetched": ahead,
            "coverage": len(set(used)) / len(self.data), "source_bytes": change["bytes"],
            "stall": 1 - busy_s / seconds, "uses": getattr(self.sampler, "uses", 1.0)})

    def run(self):
        print("ready", flush=True)
        schedule = Schedule(self.options.budget, self.options.steps)
        while self.run_epoch(schedule):
            pass
        self.copy_weights(schedule)
        return self.result(schedule.elapsed())

    def result(self, seconds):
        stalled = sum(epoch["stall"] * epoch["s"] for epoch in self.epochs)
        samples = sum(epoch["samples"] for epoch in self.epochs)
        return {"s": seconds, "samples": samples, "samples_s": samples / seconds,
                "stall": stalled / seconds, "images": len(self.data),
                "distinct": len(self.seen) / len(self.data), "file_bytes": self.size,
                "source_bytes": self.copies[-1]["source_bytes"],
                "epochs": self.epochs, "curve": self.evaluate(), "steps": self.steps}

    def evaluate(self):
        """Test accuracy of each copy."""
        torch.set_num_threads(os.cpu_count())
        images, labels = train_data.read_part("t10k")
        images = (torch.tensor(images[:, None] / 255.0, dtype=torch.float32) - MEAN) / DEVIATION
        labels = torch.tensor(labels.astype("int64"))
        if self.options.test:
            images, labels = images[:self.options.test], labels[:self.options.test]
        curve = []
        for point in self.copies:
            self.model.load_state_dict(point.pop("weights"))
            with torch.no_grad():
                right = sum(int((self.model(part).argmax(1) == truth).sum()) for part, truth in
                            zip(images.split(BATCH), labels.split(BATCH)))
            curve.append({**point, "accuracy": right / len(labels)})
        return curve


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="the folder of images")
    parser.add_argument("--source", required=True, help="the mount of slowfs, for its counters")
    parser.add_argument("--mount", help="the shadefs mount that has the data")
    parser.add_argument("--sampler", help="shade.Sampler's options as JSON (default: shuffling)")
    parser.add_argument("--weights", action="store_true", help="weight the losses")
    parser.add_argument("--quiet", action="store_true",
                        help="the mount gets scores, but learns of no order")
    parser.add_argument("--distributed", action="store_true",
                        help="shuffled by torch's DistributedSampler")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, help="seconds")
    parser.add_argument("--steps", type=int, default=0, help="instead of a budget")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--copies", type=int, default=10, help="points of the curve")
    parser.add_argument("--test", type=int, default=0, help="test images (default: all)")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        training = Training(options)
    except (ValueError, OSError) as failure:
        print(failure, file=sys.stderr)
        return 3
    result = training.run()
    with open(options.out, "w") as file:
        json.dump(result, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
