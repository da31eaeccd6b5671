# SPDX-License-Identifier: LGPL-2.1-or-later
"""No path leaves the source: directories and files that were looked up make way for symbolic links
to others outside, again and again, while there are readers. Links are for the caller to resolve;
those here lead out of the source and, from the mount, nowhere."""
import ctypes
import errno
import os
import tempfile
import threading
import time

from common import Shade, in_threads, read, run_tests, scratch, wait_until

AT_FDCWD, RENAME_EXCHANGE = -100, 2
PASSING = (errno.ENOENT, errno.ESTALE, errno.EIO, errno.ENOTDIR, errno.ELOOP, errno.ETIMEDOUT)
FILES = [f"f{number}" for number in range(8)]
SIZES = {name: 3000 + 2000 * number for number, name in enumerate(FILES)}
SIZES["f7"] = 400000  # read by ranges
libc = ctypes.CDLL(None, use_errno=True)


def exchange(one, other):
    """At once: at no moment one of the names is missing."""
    if libc.renameat2(AT_FDCWD, one.encode(), AT_FDCWD, other.encode(), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


def fill(folder, letter):
    os.makedirs(folder)
    for name in FILES:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(letter * SIZES[name])


class Source:
    """class0 and deep/class1, whose neighbours are links to a folder outside of the same names and
    sizes; and class2, whose files have such neighbours."""

    def __init__(self):
        base = tempfile.mkdtemp(prefix="escape-", dir=scratch)
        self.root = os.path.join(base, "one", "source")
        fill(os.path.join(base, "one", "outside"), b"O")
        fill(os.path.join(base, "one", "outside2", "class1"), b"O")
        for folder in ("class0", "deep/class1", "class2"):
            fill(os.path.join(self.root, folder), b"I")
        self.pairs = [("class0", "link0"), ("deep", "link1")]
        os.symlink("../outside", os.path.join(self.root, "link0"))
        os.symlink("../outside2", os.path.join(self.root, "link1"))
        for name in FILES:
            os.symlink(f"../../outside/{name}", os.path.join(self.root, "class2", "l" + name))
            self.pairs.append((f"class2/{name}", f"class2/l{name}"))
        # The links lead to what they are meant to.
        for link in ("link0/f0", "link1/class1/f0", "class2/lf0"):
            assert read(os.path.join(self.root, link)) == b"O" * SIZES["f0"]

    def swap(self):
        for one, other in self.pairs:
            exchange(os.path.join(self.root, one), os.path.join(self.root, other))


def nothing_from_outside():
    source = Source()
    fs = Shade(source.root, capacity="2M", inflight="512K", staleness=0.05, deadline=10)
    paths = [f"{folder}/{name}" for folder in ("class0", "deep/class1", "class2") for name in FILES]
    for path in paths:
        assert read(fs.at(path)) == b"I" * SIZES[os.path.basename(path)]
    folders = {folder: os.open(fs.at(folder), os.O_PATH) for folder in
               ("class0", "deep/class1", "class2")}
    over, good = threading.Event(), [0] * 6
    begin, reads = time.monotonic(), fs.stats()["backend_reads"]

    def work(number):
        """Swaps, hints, or reads: by path, and below a folder that was opened before."""
        turn = number
        while not over.is_set():
            turn += 1
            try:
                if number == 0:
                    source.swap()
                    time.sleep(0.003 * (turn % 20))
                elif number == 1:
                    fs.control("rescan\nevict .\n" if turn % 2 else "warm .\n")
                    time.sleep(0.01)
                else:
                    folder, name = os.path.split(paths[turn % len(paths)])
                    fd = os.open(name, os.O_RDONLY, dir_fd=folders[folder]) if turn % 3 == 0 else \
                        os.open(fs.at(folder, name), os.O_RDONLY)
                    with open(fd, "rb") as file:
                        data = file.read()
                    assert data.strip(b"I") == b"", f"{folder}/{name}: {data.strip(b'I')[:20]}"
                    assert len(data) == SIZES[name], (folder, name, len(data))
                    good[number] += 1
            except OSError as failure:
                if failure.errno not in PASSING:
                    over.set()
                    raise
            except AssertionError:
                over.set()
                raise

    def watch():
        try:
            wait_until(lambda: over.is_set() or time.monotonic() - begin > 4 and min(good[2:]) > 50
                       and fs.stats()["backend_reads"] > reads + 100, "enough was read")
        finally:
            over.set()

    in_threads(7, lambda number: watch() if number == 6 else work(number))
    for fd in folders.values():
        os.close(fd)
    print("   reads that were well:", sum(good), "fetches:", fs.stats()["backend_reads"] - reads)
    fs.end()
    assert read(os.path.join(source.root, "..", "outside", "f0")) == b"O" * SIZES["f0"]


run_tests([nothing_from_outside])
