# SPDX-License-Identifier: LGPL-2.1-or-later
"""A training as people write it: train.py ROOT OUT [--shade MNT]. What it read and the loss of
every sample, computed one by one when all is over, go into OUT. The learning rate is 0, so
that those are the losses that it had."""
import argparse
import json
import os
import sys

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def decode(images):
    first = (images[:, :2, 0, 0] * 255).round()
    return [int(value) for value in first[:, 0] * 256 + first[:, 1]]


def one_ahead(loader):
    """As prefetchers do: the next batch is fetched before this one is used."""
    iterator = iter(loader)
    following = next(iterator, None)
    while following is not None:
        batch, following = following, next(iterator, None)
        yield [tensor.clone() for tensor in batch]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("out")
    parser.add_argument("--shade")
    parser.add_argument("--logits", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    torch.manual_seed(1)
    dataset = ImageFolder(args.root, transform=ToTensor())
    sampler = None
    if args.shade:
        import shade
        sampler = shade.Sampler(dataset, args.shade, seed=4)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=sampler is None,
                        sampler=sampler, num_workers=2, drop_last=args.drop_last)
    validation = DataLoader(dataset, batch_size=args.batch_size)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    with torch.no_grad():
        model[1].weight.mul_(20)
    optimiser = torch.optim.SGD(model.parameters(), lr=0)
    mean, each = torch.nn.CrossEntropyLoss(), torch.nn.CrossEntropyLoss(reduction="none")

    batches, values = [], []
    for _ in range(args.epochs):
        for images, labels in one_ahead(loader) if args.ahead else loader:
            batches.append(decode(images))
            logits = model(images)
            if args.logits:
                sampler.update(logits=logits, labels=labels)
                loss = mean(logits, labels)
            elif sampler:
                losses = each(logits, labels)
                sampler.update(losses)
                loss = losses.mean()
            else:
                loss = mean(logits, labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            values.append([loss.item(), model[1].bias.grad.tolist()])
        model.eval()
        with torch.no_grad():
            for images, labels in validation:
                mean(model(images), labels)
        model.train()

    losses = {}
    with torch.no_grad():
        for image, label in dataset:
            number = decode(image[None])[0]
            losses[number] = each(model(image[None]), torch.tensor([label])).item()
    with open(args.out, "w") as file:
        json.dump({"batches": batches, "losses": losses, "values": values,
                   "shade": "shade" in sys.modules}, file)


if __name__ == "__main__":
    main()
