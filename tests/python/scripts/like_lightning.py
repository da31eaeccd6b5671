# SPDX-License-Identifier: LGPL-2.1-or-later
"""As Lightning: the script starts itself once more for each further rank, and makes its loaders anew
with a DistributedSampler. The second argument after OUT is the number of ranks."""
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

import parts


def start_others(world):
    """Rank 0 is this process."""
    os.environ.update(MASTER_ADDR="127.0.0.1", WORLD_SIZE=str(world), MASTER_PORT=sys.argv[4])
    os.environ.setdefault("LOCAL_RANK", "0")
    if os.environ["LOCAL_RANK"] != "0":
        return []
    return [subprocess.Popen([sys.executable, *sys.argv],
                             env={**os.environ, "LOCAL_RANK": str(rank)})
            for rank in range(1, world)]


def train_dataloader():
    """The user's."""
    return DataLoader(ImageFolder(parts.ROOT, ToTensor()), parts.BATCH, shuffle=True, num_workers=1)


def main():
    world = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    started = start_others(world) if world > 1 else []
    rank = int(os.environ.get("LOCAL_RANK", 0))
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(5)
    loader = train_dataloader()
    if world > 1:
        sampler = DistributedSampler(loader.dataset, num_replicas=world, rank=rank)
        loader = DataLoader(loader.dataset, loader.batch_size, sampler=sampler, num_workers=1)
    model = parts.make_model()
    trained = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.SGD(trained.parameters(), lr=0)
    record = parts.Record()
    next(iter(loader))  # to see what a batch is like
    for epoch in range(parts.EPOCHS):
        if world > 1:
            loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            record.training.append(parts.numbers_in(images))
            loss = torch.nn.functional.cross_entropy(trained(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    record.write(model, rank)
    for process in started:
        assert process.wait() == 0


if __name__ == "__main__":
    main()
