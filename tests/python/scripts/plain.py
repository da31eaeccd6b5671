# SPDX-License-Identifier: LGPL-2.1-or-later
"""A plain loop with a data set of one's own, which keeps its paths to itself, and label smoothing
written by hand. With the word `c` after OUT files are opened by code in C. The validation shuffles as well, and its learning is not turned off."""
import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import parts

load = parts.load_in_c if sys.argv[3:] == ["c"] else parts.load


class Things:
    """Something with a length and samples."""

    def __init__(self):
        self._open = {index: (path, parts.label_of(path))
                      for index, path in enumerate(parts.files())}

    def __len__(self):
        return len(self._open)

    def __getitem__(self, index):
        if load is parts.load:
            with open(os.path.join(parts.ROOT, "labels.txt")):  # which all samples have in common
                pass
        path, label = self._open[index]
        return load(path), label


def smooth(logits, labels):
    logs = logits - logits.logsumexp(1, keepdim=True)
    return -(0.9 * logs[torch.arange(len(labels)), labels] + 0.1 * logs.mean(1)).mean()


def main():
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(9)
    things = Things()
    sampler = DistributedSampler(things) if world > 1 else None
    loader = DataLoader(things, parts.BATCH, shuffle=sampler is None, sampler=sampler,
                        num_workers=2 if world == 1 else 0)
    checked = DataLoader(things, parts.BATCH, shuffle=True)
    model = parts.make_model()
    trained = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.SGD(trained.parameters(), lr=0)
    record = parts.Record()
    for epoch in range(parts.EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for images, labels in loader:
            record.training.append(parts.numbers_in(images))
            loss = smooth(trained(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            for images, labels in checked:
                record.validation.append(parts.numbers_in(images))
                smooth(model(images), labels)
    record.write(model, rank)


if __name__ == "__main__":
    main()
