#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Any framework, or none: reads the files of a mount in shade's order, in batches, and tells it
how hard each one was. Here that is how well a file compresses; a training has its losses.

    shadefs /nfs/data /mnt/data
    python3 plain_loop.py /mnt/data
"""
import argparse
import os
import zlib

import shade


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", help="a folder on the mount")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    paths = sorted(os.path.join(folder, name) for folder, folders, names in os.walk(args.root)
                   if ".shade" not in folder.split(os.sep) for name in names)
    sampler = shade.Sampler(paths, mount=args.root, rep=2)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        order = list(sampler)
        for first in range(0, len(order), args.batch_size):
            batch = [read(paths[index]) for index in order[first:first + args.batch_size]]
            sampler.update([len(zlib.compress(data)) / max(1, len(data)) for data in batch])
        if sampler.mount:
            stats = sampler.mount.stats()
            print(f"epoch {epoch}: {stats['hits']:.0f} of {stats['accesses']:.0f} reads were hits, "
                  f"coverage {stats['coverage']:.3f}")


if __name__ == "__main__":
    main()
