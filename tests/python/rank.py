# SPDX-License-Identifier: LGPL-2.1-or-later
"""One rank of a distributed training: rank.py RANK WORLD STORE MOUNT OUT. Its losses are a
function of the sample and the rank, so that the test can recompute them."""
import json
import sys

import torch
import torch.distributed
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

import shade

RANK, WORLD = int(sys.argv[1]), int(sys.argv[2])
STORE, MOUNT, OUT = sys.argv[3:6]


def decode(images):
    first = (images[:, :2, 0, 0] * 255).round()
    return [int(value) for value in first[:, 0] * 256 + first[:, 1]]


torch.distributed.init_process_group("gloo", init_method=f"file://{STORE}", rank=RANK,
                                     world_size=WORLD)
dataset = ImageFolder(f"{MOUNT}/train", transform=ToTensor())
sampler = shade.Sampler(dataset, MOUNT, seed=11, rank=RANK, world=WORLD)
loader = DataLoader(dataset, 8, sampler=sampler, num_workers=1)
epochs, digests = [], []
for _ in range(4):
    batches = []
    for images, labels in loader:
        numbers = decode(images)
        batches.append(numbers)
        sampler.update(torch.tensor([float(number * 37 % 101) for number in numbers]))
        torch.distributed.barrier()  # as DistributedDataParallel waits in every step
    epochs.append(batches)
    digests.append(sampler.scorer.digest(sampler.epoch))
with open(OUT, "w") as out:
    json.dump({"epochs": epochs, "digests": digests, "leader": sampler._group[0],
               "scores": sampler.scorer.scores().tolist()}, out)
torch.distributed.barrier()
