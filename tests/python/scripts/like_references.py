# SPDX-License-Identifier: LGPL-2.1-or-later
"""As torchvision's references: batches from a BatchSampler, ranks that a launcher starts, print()
that only rank 0 has, and cross_entropy with label smoothing; a validation that shuffles, too."""
import builtins
import os

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

import parts


def main():
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
        dist.barrier()
        if rank:
            builtins.print = lambda *_, **__: None
    torch.manual_seed(1)
    dataset = ImageFolder(parts.ROOT, ToTensor())
    sampler = DistributedSampler(dataset) if world > 1 else RandomSampler(dataset)
    loader = DataLoader(dataset, batch_sampler=BatchSampler(sampler, parts.BATCH, drop_last=True),
                        num_workers=2)
    checked = DataLoader(dataset, parts.BATCH, shuffle=world == 1, num_workers=1,
                         sampler=DistributedSampler(dataset) if world > 1 else None)
    model = parts.make_model()
    trained = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.SGD(trained.parameters(), lr=0)
    record, criterion = parts.Record(), torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(parts.EPOCHS):
        if world > 1:
            sampler.set_epoch(epoch)
        for images, labels in loader:
            record.training.append(parts.numbers_in(images))
            loss = criterion(trained(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        with torch.inference_mode():
            for images, labels in checked:
                record.validation.append(parts.numbers_in(images))
                criterion(trained(images), labels)
        model.train()
    record.write(model, rank, label_smoothing=0.1)


if __name__ == "__main__":
    main()
