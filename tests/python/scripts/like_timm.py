# SPDX-License-Identifier: LGPL-2.1-or-later
"""As timm's train.py: a data set whose paths are in its reader, a loader that is wrapped in one which
prepares the next batch meanwhile, label smoothing as a module of its own, mixup now and then."""
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import parts


class Reader:
    def __init__(self):
        self.samples = [(path, parts.label_of(path)) for path in parts.files()]


class ImageDataset(Dataset):
    def __init__(self):
        self.reader = Reader()

    def __len__(self):
        return len(self.reader.samples)

    def __getitem__(self, index):
        path, label = self.reader.samples[index]
        return (parts.load(path) * 255).to(torch.uint8), label

    def filenames(self, basename=False, absolute=False):
        assert absolute and not basename
        return [path for path, _ in self.reader.samples]


class PrefetchLoader:
    """Hands a batch out when the next one has come, as floats."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        before = None
        for images, labels in self.loader:
            following = images.float().div(255).sub(0.5), labels.clone()
            if before is not None:
                yield before
            before = following
        if before is not None:
            yield before


class LabelSmoothingLoss(torch.nn.Module):
    def forward(self, logits, target):
        logs = torch.nn.functional.log_softmax(logits, -1)
        right = -logs.gather(-1, target.unsqueeze(1)).squeeze(1)
        return (0.9 * right - 0.1 * logs.mean(-1)).mean()


def main():
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(42 + rank)
    dataset = ImageDataset()
    sampler = DistributedSampler(dataset) if world > 1 else None
    loader = DataLoader(dataset, parts.BATCH, shuffle=sampler is None, sampler=sampler,
                        num_workers=1, persistent_workers=True)
    model = parts.make_model()
    trained = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.SGD(trained.parameters(), lr=0)
    record, criterion = parts.Record(), LabelSmoothingLoss()
    for epoch in range(parts.EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for images, labels in PrefetchLoader(loader):
            images = images + 0.5
            record.training.append(parts.numbers_in(images))
            loss = criterion(trained(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    record.write(model, rank)


if __name__ == "__main__":
    main()
