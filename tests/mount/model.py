# SPDX-License-Identifier: LGPL-2.1-or-later
"""The model test: readers against writers that rewrite, replace, truncate, rename and delete at the
source, with hints, resizes, evictions, policy changes and drop_caches. Every open is checked against
what the source has had; tests/model/main.c says how, and does it. Here are the mounts: small files,
large ones, and such as are read by ranges, each on a tmpfs and on an ext4 of its own.

    model.py SHADEFS SLOWFS SHADECTL MODEL [--seconds N] [--seed N] [NAME ...]

takes half a minute, less under a sanitizer, or about N seconds: hours are for finding what is
rare. NAME: only these of the tests."""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from common import MODE, Shade, is_sanitized, run_tests, running, scratch

LONGEST = 60  # seconds with one mount and one seed
MIB = 1 << 20


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("names", nargs="*")
    return parser.parse_intermixed_args(sys.argv[4:])


class Disk:
    """A file system of our own, so that nobody else's files matter, and nobody else's load."""

    def __init__(self, kind):
        self.path = tempfile.mkdtemp(prefix=f"{kind}-", dir=scratch)
        if kind == "tmpfs":
            self.call("mount", "-t", "tmpfs", "-o", "size=1G", "model", self.path)
        else:
            image = self.path + ".image"
            with open(image, "wb") as file:
                file.truncate(1 << 30)
            self.call("mkfs.ext4", "-q", "-F", image)
            self.call("mount", "-o", "loop", image, self.path)
        running.append(self)  # before the mount over it, which is ended first
        self.source = os.path.join(self.path, "source")

    @staticmethod
    def call(*words):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"

    def fresh(self):
        """An empty source."""
        shutil.rmtree(self.source, ignore_errors=True)
        os.mkdir(self.source)
        return self.source

    @staticmethod
    def read_log():
        return ""

    def end(self):
        self.call("umount", self.path)
        running.remove(self)

    def kill(self):
        subprocess.run(["umount", "-l", self.path], check=False, stderr=subprocess.DEVNULL)


def small(chance):
    """Files that are fetched whole, in numbers. None is above a sixth of `inflight`, so memory must
    stay below the capacity."""
    mount = {"capacity": 3 * MIB, "inflight": 900 << 10, "staleness": chance.choice((0.05, 0.3))}
    return mount, {"files": 60, "largest": 150000, "readers": 8, "memory": 1}


def resized(chance):
    """The same while the capacity changes."""
    mount, model = small(chance)
    return mount, {**model, "resizes": 1, "memory": 0}


def large(chance):
    """Files of up to 24 MiB, fetched whole and written in place by one write(): that takes long, and
    the change time tells only when it began."""
    mount = {"capacity": 512 * MIB, "inflight": 128 * MIB, "staleness": 0.02}
    return mount, {"files": 4, "smallest": 16 * MIB, "largest": 24 * MIB, "in_place": 90,
                   "hints": int(chance.random() < 0.5)}


def ranges(chance):
    """Files above an eighth of the capacity, which are read by ranges."""
    mount = {"capacity": 32 * MIB, "inflight": 8 * MIB, "staleness": 0.02}
    return mount, {"files": 4, "smallest": 5 * MIB, "largest": 12 * MIB, "in_place": 90,
                   "hints": int(chance.random() < 0.5)}


def run_once(plan, disk, seed, seconds):
    mount, model = plan(random.Random(seed))
    fs = Shade(disk.fresh(), policy=random.Random(seed).choice(("shade", "lru", "minio")), **mount)
    words = [OPTIONS.model, disk.source, fs.path, f"seed={seed}", f"seconds={int(seconds)}",
             f"staleness_ms={int(mount['staleness'] * 1000)}", f"capacity={mount['capacity']}",
             *(f"{name}={value}" for name, value in model.items())]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 600,
                              check=False)
    except subprocess.TimeoutExpired as failure:
        raise AssertionError(f"seed {seed}: somebody hangs: {failure}") from failure
    print(f"  {plan.__name__}, seed {seed}: {done.stdout.strip()}", flush=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    fs.control("evict .\n")
    stats = fs.stats()
    assert stats["memory_bytes"] <= stats["capacity_bytes"] or plan is not small, stats
    fs.end()


def test_of(plan, kind):
    """A test with a name: so long as it has, with fresh mounts and seeds."""
    def test():
        disk = Disk(kind)
        until = time.monotonic() + SHARE
        seed = SEED
        while seed == SEED or time.monotonic() < until:
            run_once(plan, disk, seed, min(LONGEST, max(until - time.monotonic(), 1)))
            seed += 1
        disk.end()
    test.__name__ = f"{plan.__name__}_{kind}"
    return test


OPTIONS = arguments()
SEED = OPTIONS.seed if OPTIONS.seed is not None else time.time_ns() // 1000 % 1000000007
TESTS = [test_of(plan, kind) for plan in (small, resized, large, ranges)
         for kind in ("tmpfs", "ext4")]
TESTS = [test for test in TESTS if not OPTIONS.names or test.__name__ in OPTIONS.names]
SHARE = (OPTIONS.seconds or (20 if is_sanitized() else 30)) / len(TESTS)
print(f"{MODE}, --seed {SEED}", flush=True)
run_tests(TESTS)
