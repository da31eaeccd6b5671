# SPDX-License-Identifier: LGPL-2.1-or-later
"""As pytorch/examples' imagenet: one process, or `spawn N`, which starts its ranks by
multiprocessing and has them meet at a file."""
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

import parts


def work(rank, world):
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{parts.OUT}.store", rank=rank,
                                world_size=world)
    dataset = ImageFolder(parts.ROOT, ToTensor())
    sampler = DistributedSampler(dataset) if world > 1 else None
    loader = DataLoader(dataset, parts.BATCH, shuffle=sampler is None, sampler=sampler,
                        num_workers=1)
    model = parts.make_model()
    trained = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else \
        torch.nn.DataParallel(model)
    optimiser = torch.optim.SGD(trained.parameters(), lr=0)
    record, criterion = parts.Record(), torch.nn.CrossEntropyLoss()
    for epoch in range(parts.EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for images, labels in loader:
            record.training.append(parts.numbers_in(images))
            loss = criterion(trained(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    record.write(model, rank)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        mp.spawn(work, nprocs=int(sys.argv[4]), args=(int(sys.argv[4]),))
    else:
        work(0, 1)
