# SPDX-License-Identifier: LGPL-2.1-or-later
"""One rank of a training on several machines: node_rank.py CONFIG RANK. It learns from real files
through the mount of its node, with DistributedDataParallel over gloo, and writes what it saw to
OUT.RANK. CONFIG is JSON: world, address, mount, sampler (options of shade.Sampler, or null for
torch's DistributedSampler), epochs, batch, slowfs, restart (epoch, rank and command), out."""
import json
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

import shade

RANK = int(sys.argv[2])
with open(sys.argv[1]) as config_file:
    CONFIG = json.load(config_file)
MOUNT = CONFIG["mount"]


def source_opens():
    """What the source was asked for so far, by all nodes."""
    with open(os.path.join(CONFIG["slowfs"], ".slowfs")) as file:
        counts = dict(line.rsplit(None, 1) for line in file if len(line.split()) > 1)
    return int(counts["opens"])


def restart():
    """The node loses its daemon, and with it all that was in memory."""
    subprocess.run(["umount", "-R", "-l", MOUNT], check=True)
    while os.path.exists(os.path.join(MOUNT, ".shade")):
        time.sleep(0.01)
    subprocess.run(CONFIG["restart"]["command"], check=True)


def make_sampler(dataset):
    if CONFIG["sampler"] is None:
        return DistributedSampler(dataset, seed=3)
    return shade.Sampler(dataset, MOUNT, rank=RANK, world=CONFIG["world"], **CONFIG["sampler"])


def accuracy(model, dataset):
    images = torch.stack([image for image, _ in dataset])
    labels = torch.tensor([label for _, label in dataset])
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def learn(loader, sampler, parallel, optimiser):
    criterion = torch.nn.CrossEntropyLoss(reduction="none")
    ids = 0
    for images, labels in loader:
        losses = criterion(parallel(images), labels)
        optimiser.zero_grad()
        losses.mean().backward()
        optimiser.step()
        ids += len(labels)
        if CONFIG["sampler"] is not None:
            sampler.update(losses)
    return ids


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=CONFIG["address"], rank=RANK,
                            world_size=CONFIG["world"])
    dataset = ImageFolder(os.path.join(MOUNT, "train"), transform=ToTensor())
    sampler = make_sampler(dataset)
    loader = DataLoader(dataset, CONFIG["batch"], sampler=sampler)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=0.1)
    opens, digests, read = [], [], []
    for epoch in range(CONFIG["epochs"]):
        if CONFIG.get("restart") and (epoch, RANK) == tuple(CONFIG["restart"]["at"]):
            restart()
        dist.barrier()
        opens.append(source_opens())
        dist.barrier()
        if CONFIG["sampler"] is None:
            sampler.set_epoch(epoch)
        read.append(learn(loader, sampler, parallel, optimiser))
        if CONFIG["sampler"] is not None:
            digests.append(sampler.scorer.digest(epoch))
    dist.barrier()
    opens.append(source_opens())
    dist.barrier()
    with open(f"{CONFIG['out']}.{RANK}", "w") as file:
        json.dump({"opens": opens, "digests": digests, "read": read,
                   "accuracy": accuracy(model, dataset) if RANK == 0 else None}, file)
    dist.barrier()
    dist.destroy_process_group()


main()
