# SPDX-License-Identifier: LGPL-2.1-or-later
"""A distributed training as people write it, without a word of shade: ddp.py ROOT OUT, run by
torch.distributed.run. What each rank read and the losses of all samples go into OUT.RANK. The
learning rate is 0, so that those are the losses that it had."""
import argparse
import json

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor


def decode(images):
    first = (images[:, :2, 0, 0] * 255).round()
    return [int(value) for value in first[:, 0] * 256 + first[:, 1]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("out")
    parser.add_argument("--other-root", help="that of rank 1")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--drop-last", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    root = args.other_root if args.other_root and dist.get_rank() == 1 else args.root
    dataset = ImageFolder(root, transform=ToTensor())
    sampler = DistributedSampler(dataset, drop_last=args.drop_last)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=1,
                        drop_last=args.drop_last)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    with torch.no_grad():
        model[1].weight.mul_(20)
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=0)
    criterion = torch.nn.CrossEntropyLoss()

    epochs = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        epochs.append([])
        for images, labels in loader:
            epochs[-1].append(decode(images))
            loss = criterion(parallel(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    losses = {}
    with torch.no_grad():
        for image, label in dataset:
            losses[decode(image[None])[0]] = criterion(model(image[None]),
                                                       torch.tensor([label])).item()
    with open(f"{args.out}.{dist.get_rank()}", "w") as file:
        json.dump({"epochs": epochs, "losses": losses, "length": len(sampler)}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
