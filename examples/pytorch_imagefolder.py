#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trains a small network on an ImageFolder behind a shadefs. Two lines are shade's.

    shadefs /nfs/images /mnt/images
    python3 pytorch_imagefolder.py /mnt/images/train
"""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import shade


def network(classes: int, size: int) -> nn.Module:
    """A convolutional network of three layers."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (size // 4) ** 2, classes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", help="an ImageFolder on the mount")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=32, help="of the images, in pixels")
    args = parser.parse_args()

    dataset = datasets.ImageFolder(args.root, transforms.Compose(
        [transforms.Resize((args.size, args.size)), transforms.ToTensor()]))
    sampler = shade.Sampler(dataset, mount=args.root)                            # <- shade
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, num_workers=args.workers)
    model = network(len(dataset.classes), args.size)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(args.epochs):
        total = 0.0
        for images, labels in loader:
            losses = nn.functional.cross_entropy(model(images), labels, reduction="none")
            sampler.update(losses)                                               # <- shade
            optimiser.zero_grad()
            losses.mean().backward()
            optimiser.step()
            total += losses.sum().item()
        line = f"epoch {epoch}: loss {total / len(sampler):.4f}"
        if sampler.mount:
            stats = sampler.mount.stats()
            line += (f", hit ratio {stats['hits'] / max(1, stats['accesses']):.3f}"
                     f", coverage {stats['coverage']:.3f}")
        print(line, flush=True)


if __name__ == "__main__":
    main()
