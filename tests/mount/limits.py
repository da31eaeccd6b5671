# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one file takes when the source does not answer: not what others need."""
import ctypes
import errno
import os
import signal
import subprocess
import threading
import time

from common import MODE, Shade, Slow, is_mounted, make_tree, raises, read, run_tests, wait_until

OTHER = 65534  # nobody


def make_large(root, name, size):
    data = os.urandom(size)
    with open(os.path.join(root, name), "wb") as file:
        file.write(data)
    return data


def pread_all(path, size, step=65536):
    """Many reads at a time, far apart, so that the kernel does not read ahead."""
    threads = []
    for offset in range(0, size, step):
        def one(offset=offset):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.pread(fd, 512, offset)
            except OSError:
                pass
            finally:
                os.close(fd)
        threads.append(threading.Thread(target=one, daemon=True))
    for thread in threads:
        thread.start()
    return threads


def a_large_file_that_hangs_keeps_nobody():
    """It is read by ranges, far more of them than the store takes at a time."""
    root, contents = make_tree(40, size=20000)
    make_large(root, "large", 12 << 20)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", deadline=20)
    slow.tell("fault hang /large")
    readers = pread_all(fs.at("large"), 12 << 20)
    wait_until(lambda: int(slow.counts()["hung"]) >= 1, "it hangs")
    time.sleep(0.5)
    begin = time.monotonic()
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path
    assert any(reader.is_alive() for reader in readers), "nothing hung: nothing was seen"
    assert time.monotonic() - begin < 18, "small files waited for the large one"
    slow.tell("clear all")
    for reader in readers:
        reader.join(60)
    stats = fs.stats()
    assert stats["memory_bytes"] <= stats["capacity_bytes"], stats
    fs.end()
    slow.end()


def what_was_given_up_is_not_tried_beside_itself():
    """A source that cannot be interrupted, like NFS: each try would keep a part of the store."""
    root, contents = make_tree(20, size=20000)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", deadline=1)
    paths = list(contents)
    hung = paths[0]
    read(fs.at(paths[1]))
    slow.pause()  # not even an interrupt is answered
    try:
        raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(hung)))
        begin = time.monotonic()
        for _ in range(20):
            raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(hung)))
        assert time.monotonic() - begin < 10, "it was tried again, beside the first"
    finally:
        slow.resume()
    wait_until(lambda: can_read(fs.at(hung), contents[hung]), "it is tried again")
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path
    fs.end()
    slow.end()


def can_read(path, data):
    try:
        return read(path) == data
    except OSError:
        return False


def listing_while_names_go():
    """A folder that is listed in several pieces and read again meanwhile: who stays is told of
    once."""
    root, _ = make_tree(1)
    folder = os.path.join(root, "many")
    os.mkdir(folder)
    stays = {f"stays-{number:05}-{'x' * 100}" for number in range(3000)}
    goes = [f"a-goes-{number:05}" for number in range(300)]
    for name in (*stays, *goes):
        with open(os.path.join(folder, name), "wb"):
            pass
    fs = Shade(root, capacity="8M", staleness=0.1)
    with Listing(fs.at("many")) as listing:
        found = listing.some()
        assert 0 < len(found) < 3000, len(found)
        for name in goes:
            os.unlink(os.path.join(folder, name))
        fs.control("rescan\n")
        wait_until(lambda: fs.stats()["samples"] == 3001, "seen at the source")
        while more := listing.some():
            found += more
    found = [name for name in found if name in stays]
    assert len(found) == len(set(found)), "told of twice"
    assert set(found) == stays, f"{len(stays - set(found))} left out"
    fs.end()


class Listing:
    """getdents64(2), with a small buffer: libraries read all at once."""
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def some(self):
        buffer = ctypes.create_string_buffer(4096)
        size = self.libc.syscall(217, self.fd, buffer, len(buffer))
        assert size >= 0, os.strerror(ctypes.get_errno())
        names, at = [], 0
        while at < size:
            length = int.from_bytes(buffer.raw[at + 16:at + 18], "little")
            names.append(buffer.raw[at + 19:at + length].split(b"\0")[0].decode())
            at += length
        return [name for name in names if name not in (".", "..")]


def closed_to_others_at_the_top():
    """The source's own directory: who may not enter it any more may not here, either."""
    root, contents = make_tree(4, size=100)
    os.chmod(root, 0o755)
    fs = Shade(root, capacity="8M", staleness=1, allow_other=True)
    os.chmod(os.path.dirname(fs.path), 0o755)
    path = fs.at(next(iter(contents)))

    def others_can():
        return subprocess.run(["cat", path], user=OTHER, group=OTHER, extra_groups=[],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    assert others_can()
    os.chmod(root, 0o700)
    wait_until(lambda: not others_can(), "closed to others")
    if fs.process.poll() is None and MODE == "portable":
        assert read(path) == next(iter(contents.values()))
        fs.end()
        return
    assert fs.process.wait(30) == 0, fs.read_log()
    assert "fewer may enter" in fs.read_log() and not is_mounted(fs.path), fs.read_log()


def control_is_unmounted_while_a_trace_waits():
    """Native: .shade comes back, and who waited there is not waited for."""
    root, contents = make_tree(4, size=100)
    fs = Shade(root, capacity="8M")
    follower = subprocess.Popen(["cat", fs.at(".shade", "trace")], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    subprocess.run(["umount", "-f", fs.at(".shade")], check=False, capture_output=True)
    subprocess.run(["umount", "-l", fs.at(".shade")], check=False, capture_output=True)
    wait_until(fs.is_ready, ".shade is back", 30)
    time.sleep(0.2)  # the clock looks at who waits every 20 ms
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    assert follower.wait(20) is not None
    fs.end()


def something_else_is_mounted_over_it():
    """Native: that is neither made read-only nor unmounted."""
    root, _ = make_tree(4, size=100)
    fs = Shade(root, capacity="8M", staleness=0.5)
    subprocess.run(["mount", "-t", "tmpfs", "none", fs.path], check=True)
    try:
        os.mkdir(os.path.join(root, "news"))  # something to tell the overlay
        time.sleep(2)
        with open(fs.at("mine"), "w") as file:
            file.write("mine")
        fs.process.send_signal(signal.SIGTERM)
        assert fs.process.wait(30) == 0, fs.read_log()
        assert read(fs.at("mine")) == b"mine"
    finally:
        subprocess.run(["umount", fs.path], check=True)
        subprocess.run(["umount", "-l", fs.path], check=False, capture_output=True)


run_tests([a_large_file_that_hangs_keeps_nobody, what_was_given_up_is_not_tried_beside_itself,
           listing_while_names_go, closed_to_others_at_the_top,
           *([control_is_unmounted_while_a_trace_waits, something_else_is_mounted_over_it]
             if MODE == "native" else [])])
