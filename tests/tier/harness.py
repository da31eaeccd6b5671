# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the tests of the tier share: mounts with a tier, in a network and with mounts of their own.
Every script is run as SCRIPT SHADEFS SLOWFS [WORD...]; words choose tests by their names."""
import os
import random
import sys
import tempfile
import time

import private

private.enter()
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "mount"))
from common import Shade, Slow, read, run_tests, scratch, skip, wait_until  # noqa: E402,F401 pylint: disable=wrong-import-position,unused-import

TIMEOUT_S = 0.5
DELAY_US = 4000  # so that the source is slower than any engine on this machine


def make_files(count, size, seed=1):
    """A tree of files of one size; from paths to contents."""
    root = tempfile.mkdtemp(prefix="source-", dir=scratch)
    chance = random.Random(seed)
    contents = {}
    for number in range(count):
        path = f"class{number % 4}/{number:04}"
        os.makedirs(os.path.join(root, f"class{number % 4}"), exist_ok=True)
        contents[path] = chance.randbytes(size)
        with open(os.path.join(root, path), "wb") as file:
            file.write(contents[path])
    return root, contents


class Tiered(Shade):
    """A mount with a tier."""

    def __init__(self, source, addresses, **options):
        options = {"capacity": "64M", "volume": "data", "tier_timeout": TIMEOUT_S, **options}
        super().__init__(source, tier="redis://" + ",".join(addresses), **options)

    def count(self, name):
        return self.stats()["tier_" + name]

    def expect_hits(self, due):
        """What the kernel has taken back is fetched again, and by then the tier has it."""
        stats = self.stats()
        assert due <= stats["tier_hits"] <= due + stats["reclaimed"], stats

    def see(self, contents, paths=None):
        """Reads files, and sees that every byte is right. The seconds that each took."""
        times = []
        for path in paths or contents:
            begin = time.monotonic()
            data = read(self.at(path))
            times.append(time.monotonic() - begin)
            assert data == contents[path], f"wrong bytes in {path}"
        return times

    def see_ahead(self, contents):
        """The same, when everything has been fetched ahead: that asks the tier first, whatever the
        source costs."""
        ids = self.samples()
        order = " ".join(str(ids[path]) for path in contents)
        self.control(f"order 0 begin\norder 0 {order}\norder 0 end\nepoch 0\n")
        wait_until(lambda: self.stats()["resident_samples"] == len(contents), "all is fetched ahead")
        return self.see(contents)

    def see_again_ahead(self, contents):
        """Once more, when memory has nothing of it."""
        self.control("".join(f"evict {path}\n" for path in contents))
        return self.see_ahead(contents)


def choose(tests):
    """Those whose names have one of the words, or all."""
    words = sys.argv[3:]
    return [test for test in tests if not words or any(word in test.__name__ for word in words)]
