# SPDX-License-Identifier: LGPL-2.1-or-later
"""Asks torch, torchvision and Python's own sort what the library shuffle/ says: permutations, numberings,
orders of ranks. shuffle_torch.py TOOL, with a Python that has torch, or 77."""
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile

TOOL = os.path.abspath(sys.argv[1])
PYTHON = "/usr/bin/python3"  # another one may come first in PATH, without torch
try:
    import torch
    from torch.utils.data.distributed import DistributedSampler
    from torchvision.datasets import ImageFolder
except ImportError:
    if sys.executable != PYTHON and os.path.exists(PYTHON):
        os.execv(PYTHON, [PYTHON, *sys.argv])
    print("SKIP: there is no torch here")
    sys.exit(77)


def tool(*words, text=b""):
    done = subprocess.run([TOOL, *map(str, words)], input=text, stdout=subprocess.PIPE, check=True)
    return done.stdout.splitlines()


def numbers(*words):
    return [int(line) for line in tool(*words)]


def permutations():
    for seed, n in itertools.product((0, 1, 42, 2**31, 2**32 - 1, 2**32 + 5), (1, 2, 3, 10, 623, 1000, 70001)):
        generator = torch.Generator()
        generator.manual_seed(seed)
        assert numbers("permute", seed % 2**32, n) == torch.randperm(n, generator=generator).tolist(), (seed, n)


def distributed_sampler():
    for n, world, drop in itertools.product((5, 100, 1003), (1, 2, 3, 7, 16), (False, True)):
        parts = []
        for rank in range(world):
            sampler = DistributedSampler(range(n), world, rank, seed=3, drop_last=drop)
            sampler.set_epoch(4)
            parts.append(list(sampler))
        turns = [index for turn in zip(*parts) for index in turn]
        ours = numbers("order", "turns", 7, n, world, 1, *range(world))
        if n >= world:  # more ranks than samples are no training
            assert ours[:len(turns)] == turns, (n, world, drop)
            assert drop or len(ours) == len(turns), (n, world)
        for rank in (0, world - 1):
            part = numbers("order", "turns", 7, n, world, 1, rank)
            assert n < world or part[:len(parts[rank])] == parts[rank], (n, world, rank)


def accelerate_batches():
    """Whole batches go round the ranks, permuted by seed + epoch; the end is filled up from the begin."""
    for n, world, batch in itertools.product((320, 321, 1000), (1, 2, 4), (8, 20)):
        generator = torch.Generator()
        generator.manual_seed(42)
        shuffled = torch.randperm(n, generator=generator).tolist()
        total = -(-n // (world * batch)) * world * batch
        filled = (shuffled * 2)[:total]
        for rank in range(world):
            expected = [index for at in range(rank * batch, total, world * batch)
                        for index in filled[at:at + batch]]
            assert numbers("order", "batches", 42, n, world, batch, rank) == expected, (n, world, batch, rank)


def repeated_augmentation():
    """Each sample three times in a row, then in turns, then cut to a multiple of 256."""
    for n, world in itertools.product((300, 1000, 2561), (1, 2, 3, 4, 8)):
        generator = torch.Generator()
        generator.manual_seed(9)
        thrice = [index for index in torch.randperm(n, generator=generator).tolist() for _ in range(3)]
        for rank in range(world):
            expected = thrice[rank::world][:n // 256 * 256 // world]
            assert numbers("order", "repeated", 9, n, world, 1, rank) == expected, (n, world, rank)


def natural_key(text):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text.lower())]


def make_names(chance):
    parts = ["a", "A", "b", "1", "2", "10", "02", " ", "-", "_", ".", "~", "\u00e9", "\u4e2d", "\U0001f600", "\udcff"]
    def name(extension=""):
        return "".join(chance.choice(parts) for _ in range(chance.randint(1, 4))).strip(".") + "x" + extension
    for _ in range(200):
        folders = [name() for _ in range(chance.randint(0, 3))]
        extension = chance.choice([".jpg", ".JPEG", ".png", ".tiff", ".webp", ".txt", ".jpg.gz", ""])
        yield "/".join([*folders, name(extension)])


def numberings():
    for seed in range(20):
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory() as root:
            for path in make_names(chance):
                full = os.path.join(root, path)
                try:
                    os.makedirs(os.path.dirname(full), exist_ok=True)
                    with open(full, "w"):
                        pass
                except OSError:
                    pass  # a file where a folder should be
            paths = [os.path.relpath(os.path.join(folder, name), root)
                     for folder, _, names in os.walk(root) for name in names]
            text = b"".join(os.fsencode(path) + b"\n" for path in paths)
            try:
                expected = [os.path.relpath(path, root) for path, _ in ImageFolder(root).samples]
            except FileNotFoundError:  # a class without images: ImageFolder refuses the folder
                classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
                from torchvision.datasets.folder import IMG_EXTENSIONS
                expected = [os.path.relpath(os.path.join(folder, name), root) for label in classes
                            for folder, _, names in sorted(os.walk(os.path.join(root, label)))
                            for name in sorted(names) if name.lower().endswith(IMG_EXTENSIONS)]
            assert [os.fsdecode(line) for line in tool("list", "folder", text=text)] == expected, seed
            images = [path for path in paths
                      if os.path.splitext(path)[1].lower() in (".png", ".jpg", ".jpeg")]
            ours = [os.fsdecode(line) for line in tool("list", "timm", text=text)]
            # What has the same key may come in any sequence.
            assert list(map(natural_key, ours)) == sorted(map(natural_key, images)), seed
            assert sorted(ours) == sorted(images), seed


for test in (permutations, distributed_sampler, accelerate_batches, repeated_augmentation, numberings):
    test()
    print("ok", test.__name__, flush=True)
