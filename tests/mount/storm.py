# SPDX-License-Identifier: LGPL-2.1-or-later
"""Everything at once: readers, a source that is changed in every way, hints that change their
mind, and an end in the middle of it. STORM_SECONDS and STORM_SEED make it longer, or another."""
import errno
import os
import random
import shutil
import threading
import time
import zlib

from common import MODE, Shade, Slow, is_mounted, read, run_tests, running, scratch, wait_until

SECONDS = float(os.environ.get("STORM_SECONDS", "5"))
SEED = int(os.environ.get("STORM_SEED", "1"))
STALENESS = float(os.environ.get("STORM_STALENESS", "0.3"))
PASSING = (errno.ESTALE, errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINTR,
           errno.ETIMEDOUT)
LONGEST = 400000  # more than an eighth of the capacity: such files are read by ranges


def stream(path, version):
    """What version `version` of a path begins with, whatever its length."""
    head = f"{path}|{version}|".encode()
    return head + random.Random(zlib.crc32(head)).randbytes(LONGEST - len(head))


class Source:
    """A tree that changes. Every version is a beginning of its stream, so that whatever is read
    tells which version it is, and a mixture of two is none."""

    def __init__(self, files, seed):
        self.root = os.path.join(scratch, f"storm-{seed}-{time.monotonic_ns()}")
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.versions = {}  # path: number of the last one
        self.present = {}  # path: its size
        self.cache = {}
        for number in range(files):
            path = f"d{number % 5}/f{number:03}"
            os.makedirs(os.path.join(self.root, f"d{number % 5}"), exist_ok=True)
            self.replace(path)

    def size(self):
        return self.chance.choice((0, 1, 3000, 4096, 9000, 20000, 50000, 50000, LONGEST))

    def replace(self, path):
        version = self.versions[path] = self.versions.get(path, 0) + 1
        size = max(self.size(), 20)
        full = os.path.join(self.root, path)
        with open(full + ".tmp", "wb") as file:
            file.write(stream(path, version)[:size])
        os.rename(full + ".tmp", full)
        self.present[path] = size

    def shrink(self, path):
        if path in self.present:
            self.present[path] = self.chance.randrange(20, self.present[path] + 1)
            os.truncate(os.path.join(self.root, path), self.present[path])

    def grow(self, path):
        if path in self.present:
            size = self.chance.randrange(self.present[path], LONGEST + 1)
            with open(os.path.join(self.root, path), "ab") as file:
                file.write(stream(path, self.versions[path])[self.present[path]:size])
            self.present[path] = size

    def remove(self, path):
        if self.present.pop(path, None):
            os.unlink(os.path.join(self.root, path))

    def touch(self, path):
        if path in self.present:
            os.utime(os.path.join(self.root, path))

    def file_for_directory(self, path):
        """A directory makes way for a file, or the other way round."""
        full = os.path.join(self.root, path)
        self.remove(path)
        os.mkdir(full)
        os.rmdir(full)
        self.replace(path)

    def move_directory(self, path):
        """The same names and files in another directory."""
        folder = os.path.join(self.root, os.path.dirname(path))
        os.rename(folder, folder + ".away")
        if self.chance.random() < 0.5:
            time.sleep(0.005)
        shutil.copytree(folder + ".away", folder)
        shutil.rmtree(folder + ".away")

    def change(self):
        path = self.chance.choice(list(self.versions))
        work = self.chance.choices(
            (self.replace, self.shrink, self.grow, self.remove, self.touch,
             self.file_for_directory, self.move_directory), (10, 3, 3, 4, 2, 1, 0.3))[0]
        with self.lock:
            work(path)

    def check(self, path, data):
        """That the data is one version that has existed."""
        if not data:
            return
        fields = data[:40].split(b"|")
        assert len(fields) >= 3 and fields[0] == path.encode(), (path, data[:40])
        version = int(fields[1])
        assert version <= self.versions[path], (path, version)
        assert data == stream(path, version)[:len(data)], f"{path}: a mixture with version {version}"


def read_somehow(full, chance):
    """At once, in pieces, with pauses in which others drop what is there."""
    how = chance.random()
    if how < 0.5:
        return read(full)
    with open(full, "rb", buffering=0) as file:
        parts, size = [], os.fstat(file.fileno()).st_size
        while part := file.read(chance.choice((1000, 4096, 30000, 131072))):
            parts.append(part)
            if how > 0.8:
                time.sleep(chance.random() * 0.02)
        data = b"".join(parts)
        assert len(data) == size, f"{full}: {len(data)} of {size}"
        return data


def reader(fs, source, stop, number, done):
    chance = random.Random(SEED * 1000 + number)
    while not stop.is_set():
        path = chance.choice(list(source.versions))
        try:
            source.check(path, read_somehow(fs.at(path), chance))
            done[number] += 1
            if chance.random() < 0.05:
                for entry in os.scandir(fs.at(os.path.dirname(path))):
                    entry.stat(follow_symlinks=False)
        except OSError as failure:
            if failure.errno in (errno.ENOTCONN, errno.ECONNABORTED) and stop.wait(0.5):
                return
            assert failure.errno in PASSING, failure


def hints(fs, source, stop):
    """Orders, scores and commands without sense or end."""
    chance = random.Random(SEED + 7)
    epoch = 0
    while not stop.wait(0.01):
        path = chance.choice(list(source.versions))
        samples = max(int(fs.stats()["samples"]), 1)
        ids = [chance.randrange(samples) for _ in range(chance.choice((1, 30, 60)))]
        epoch += chance.random() < 0.1
        text = chance.choice((
            f"policy {chance.choice(('shade', 'app', 'lru', 'lfu', 'fifo', 'minio', 'icache'))}\n",
            f"capacity {chance.choice(('600K', '1M', '2M'))}\n", "warm .\n", f"warm {path}\n",
            "evict .\n", f"evict {path}\n", f"pin {path}\n", f"unpin {path}\n", "unpin .\n",
            "rescan\n", f"epoch {epoch}\n",
            f"order {epoch} begin\norder {epoch} {' '.join(map(str, ids))}\norder {epoch} end\n",
            "".join(f"score {i} {chance.random() * 9}\n" for i in ids)))
        try:
            fs.control(text)
            if chance.random() < 0.05:
                os.mkdir(fs.at(".shade", "jobs", "j"))
                os.rmdir(fs.at(".shade", "jobs", "j"))
        except OSError as failure:  # what it names may be gone, or too many orders wait
            assert failure.errno in (errno.EINVAL, errno.ENOSPC, *PASSING), failure


def changes(source, stop):
    while not stop.wait(source.chance.random() * 0.02):
        source.change()


def in_background(failures, work, *arguments):
    def guarded():
        try:
            work(*arguments)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)
    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread


def is_as_source(fs, source):
    """Everything is there as it is at the source."""
    for path in source.versions:
        try:
            data = read(fs.at(path))
        except OSError as failure:
            if failure.errno == errno.ENOENT and path not in source.present:
                continue
            return f"{path}: {failure}"
        if path not in source.present:
            return f"{path} is gone, and still there"
        if data != stream(path, source.versions[path])[:source.present[path]]:
            return f"{path} is old"
    for folder in {os.path.dirname(path) for path in source.versions}:
        if sorted(os.listdir(fs.at(folder))) != sorted(os.listdir(os.path.join(source.root, folder))):
            return f"{folder} is listed as it was"
    return None


def changes_hints_and_readers():
    source = Source(60, SEED)
    slow = Slow(source.root, delay_us=300)
    fs = Shade(slow.path, capacity="1M", inflight="300K", staleness=STALENESS, deadline=10)
    stop, quiet, failures, done = threading.Event(), threading.Event(), [], [0] * 8
    threads = [in_background(failures, reader, fs, source, stop, number, done)
               for number in range(8)]
    threads.append(in_background(failures, hints, fs, source, quiet))
    changer = in_background(failures, changes, source, quiet)
    begin = time.monotonic()
    wait_until(lambda: failures or time.monotonic() - begin > SECONDS and min(done) > 3,
               "every reader has read a few", SECONDS + 60)
    quiet.set()
    changer.join()
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "somebody hangs"
    if failures:
        raise failures[0]
    # Whatever happened, in the end all is as it is at the source.
    wait_until(lambda: not is_as_source(fs, source), f"as the source: {is_as_source(fs, source)}",
               STALENESS * 2 + 60)
    # Of what is to be made resident, young versions wait for their time.
    wait_until(lambda: not fs.stats()["warm_pending"], "all is warm that can be")
    fs.control("epoch 1000000\nunpin .\nevict .\n")  # no order is ahead
    if MODE == "portable":  # where opens are observed, some of what passes may wait for the next
        fs.settle()
    wait_until(lambda: not fs.stats()["reserved_bytes"], "nothing is reserved")
    stats = fs.stats()
    assert not stats["resident_bytes"] and not stats["pinned_bytes"], stats
    assert stats["memory_bytes"] <= stats["capacity_bytes"], stats
    assert stats["warm_pending"] == 0 and stats["warm_pending_bytes"] == 0, stats
    assert "no answer" not in fs.read_log(), fs.read_log()
    fs.end()
    slow.end()


def ended_in_the_middle():
    """SIGTERM at any moment: a clean end, whatever was under way."""
    for turn in range(max(3, int(SECONDS / 2))):
        chance = random.Random(SEED * 100 + turn)
        source = Source(40, SEED * 100 + turn)
        slow = Slow(source.root, delay_us=chance.choice((0, 3000)))
        fs = Shade(slow.path, capacity="1M", inflight="300K", staleness=STALENESS, deadline=5)
        stop, failures, done = threading.Event(), [], [0] * 6
        threads = [in_background(failures, reader, fs, source, stop, number, done)
                   for number in range(6)]
        threads.append(in_background(failures, changes, source, stop))
        time.sleep(chance.random() * 0.6)
        if turn % 2:
            slow.tell(f"fault hang {chance.choice(list(source.versions))}")
            fs.control("warm .\n")
            time.sleep(0.05)
        stop.set()
        if turn % 2:  # it may not wait for what hangs, but then says so
            fs.process.terminate()
            assert fs.process.wait(60) in (0, 1) and not is_mounted(fs.path), fs.read_log()
            assert "AddressSan" not in fs.read_log() and "data race" not in fs.read_log()
            running.remove(fs)
        else:
            fs.end()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "somebody hangs"
        slow.tell("clear all")
        slow.end()
        shutil.rmtree(source.root)


run_tests([changes_hints_and_readers, ended_in_the_middle])
