# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fashion-MNIST (Debian's dataset-fashion-mnist) as arrays, and as a tree of image files as
ImageFolder reads it. Each file is a PNG that a private chunk before the image makes as large as a
small photograph: a decoder has to read all of it."""
import gzip
import io
import os
import random
import struct
import zlib

FOLDER = "/usr/share/datasets/fashion-mnist"
# ImageFolder numbers classes by their names.
CLASSES = ("0-top", "1-trouser", "2-pullover", "3-dress", "4-coat", "5-sandal", "6-shirt",
           "7-sneaker", "8-bag", "9-boot")
HEADER_END = 33        # of a PNG: signature and the chunk IHDR
CHUNK_NAME = b"shAd"   # ancillary, private, safe to copy


def present():
    return os.path.isdir(FOLDER)


def read_idx(name):
    """The bytes of an idx file, and its dimensions."""
    with gzip.open(os.path.join(FOLDER, name)) as file:
        data = file.read()
    count = data[3]
    sizes = struct.unpack(f">{count}I", data[4:4 + 4 * count])
    return data[4 + 4 * count:], sizes


def read_part(part):
    """`train` or `t10k`: images as numpy's uint8 (count, 28, 28), labels."""
    import numpy  # pylint: disable=import-outside-toplevel
    images, sizes = read_idx(f"{part}-images-idx3-ubyte.gz")
    labels, _ = read_idx(f"{part}-labels-idx1-ubyte.gz")
    return (numpy.frombuffer(images, numpy.uint8).reshape(sizes),
            numpy.frombuffer(labels, numpy.uint8))


def padded(png, size, filler):
    """The same picture in a file of `size` bytes."""
    payload = filler[:max(0, size - len(png) - 12)]
    chunk = CHUNK_NAME + payload
    chunk = struct.pack(">I", len(payload)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return png[:HEADER_END] + chunk + png[HEADER_END:]


def write_tree(root, count, size):
    """Writes `count` training images of `size` bytes."""
    from PIL import Image  # pylint: disable=import-outside-toplevel
    images, labels = read_part("train")
    filler = random.Random(1).randbytes(size)
    for name in CLASSES:
        os.makedirs(os.path.join(root, name), exist_ok=True)
    os.chmod(root, 0o755)
    for number in random.Random(2).sample(range(len(labels)), count):
        buffer = io.BytesIO()
        Image.fromarray(images[number]).save(buffer, "png")
        path = os.path.join(root, CLASSES[labels[number]], f"{number:05}.png")
        with open(path, "wb") as file:
            file.write(padded(buffer.getvalue(), size, filler))
