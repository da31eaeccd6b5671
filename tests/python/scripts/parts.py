# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the scripts in this folder have in common. Each does what a script does that many people
run, without a word of shade, and writes down what it read: SCRIPT ROOT OUT. The learning rate is 0,
so that the losses of all samples are known."""
import glob
import json
import os
import sys

import torch
import torchvision.io
from PIL import Image
from torchvision.transforms import ToTensor

EPOCHS, BATCH, CLASSES = 3, 8, 4
ROOT, OUT = sys.argv[1:3]


def files():
    """All images, by class and name."""
    return sorted(glob.glob(os.path.join(ROOT, "class*", "*.png")))


def label_of(path):
    return int(os.path.basename(os.path.dirname(path))[len("class"):])


def load(path):
    with Image.open(path) as image:
        return ToTensor()(image.convert("RGB"))


def load_in_c(path):
    """Python opens nothing for this."""
    return torchvision.io.read_image(path).float() / 255


def make_model():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, CLASSES))
    with torch.no_grad():
        model[1].weight.mul_(20)
    return model


def numbers_in(images):
    """What the images of a batch carry."""
    first = (images[:, :2, 0, 0] * 255).round()
    return [int(value) for value in first[:, 0] * 256 + first[:, 1]]


class Record:
    """What was read, in which batches."""

    def __init__(self):
        self.training, self.validation = [], []

    def write(self, model, rank=0, **kind):
        losses = {}
        with torch.no_grad():
            for path in files():
                image = load(path)[None]
                losses[numbers_in(image)[0]] = torch.nn.functional.cross_entropy(
                    model(image), torch.tensor([label_of(path)]), **kind).item()
        with open(f"{OUT}.{rank}", "w") as file:
            json.dump({"training": self.training, "validation": self.validation,
                       "losses": losses}, file)
