# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the benchmarks and the demo say to .shade/control; include/shade/control.h is the law."""
import array
import os
import struct
import sys

MAGIC, VERSION = 0x444853f5, 1
SCORES, ORDER, EPOCH, TABLE = 1, 2, 3, 4


def packed(kind, values):
    numbers = array.array(kind, values)
    assert numbers.itemsize == 4
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def record(kind, payload):
    return struct.pack("<IHHQ", MAGIC, VERSION, kind, len(payload)) + payload


def scores(ids, values):
    return record(SCORES, struct.pack("<Q", len(ids)) + packed("I", ids) + packed("f", values))


def order(epoch, ids):
    return record(ORDER, struct.pack("<QQ", epoch, len(ids)) + packed("I", ids))


def table(paths):
    """From then on ids are positions in this list."""
    return record(TABLE, struct.pack("<Q", len(paths)) +
                  b"".join(path.encode() + b"\0" for path in paths))


def epoch_begins(epoch):
    return record(EPOCH, struct.pack("<Q", epoch))


class Control:
    """An open control file."""

    def __init__(self, mount):
        self.descriptor = os.open(os.path.join(mount, ".shade", "control"), os.O_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def write(self, data):
        """All of it. The answer tells what was wrong."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.descriptor, view):]
        except OSError as failure:
            answer = os.read(self.descriptor, 4096).decode(errors="replace")
            raise SystemExit(f"control: {failure}: {answer}") from None
