# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ways to break a promise that were found by trying, and that must not work any more."""
import errno
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time

from common import (MODE, SHADEFS, Shade, Slow, is_mounted, make_tree, raises, read, run_tests,
                    scratch, wait_until)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import control_records as records  # pylint: disable=wrong-import-position

DEADLINE = 60


def a_hung_file_that_leaves_delays_no_miss():
    """It was resident, has lost its pages, and the kernel reads it ahead: that READ holds its
    folios, and dropping it waits for them. Others are dropped all the same."""
    root, contents = make_tree(300, size=20000)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="1M", policy="lru", deadline=DEADLINE)
    paths = list(contents)
    hung = paths[0]
    with open(fs.at(hung), "rb") as file:
        assert file.read() == contents[hung]
        slow.tell(f"fault hang /{hung}")
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        wait_until(slow.hangs, "the file hangs")
    begin = time.monotonic()
    for path in paths[1:]:
        assert read(fs.at(path)) == contents[path], path
    took = time.monotonic() - begin
    assert slow.hangs(), "nothing hung: nothing was seen"
    assert took < DEADLINE / 2, f"others waited for {took:.1f} s"
    stats = fs.stats()
    assert stats["memory_bytes"] <= stats["capacity_bytes"], stats
    slow.tell("clear all")
    fs.end()
    slow.end()


def a_lower_capacity_binds_what_was_reserved():
    """Opens that wait have room set aside under the higher capacity."""
    root, contents = make_tree(200, size=20000)
    slow = Slow(root, delay_us=300000)
    fs = Shade(slow.path, capacity="16M", inflight="2M")
    threads = [threading.Thread(target=read, args=(fs.at(path),)) for path in contents]
    for thread in threads:
        thread.start()
    wait_until(lambda: fs.stats()["reserved_bytes"] > 3 << 20, "much is reserved")
    assert fs.control("capacity 3M\n").startswith("ok")
    for thread in threads:
        thread.join()
    fs.settle()
    stats = fs.stats()
    assert stats["memory_bytes"] <= stats["capacity_bytes"] == 3 << 20, stats
    fs.end()
    slow.end()


def pins_that_do_not_fit_are_named():
    root, contents = make_tree(100, size=20000)
    fs = Shade(root, capacity="8M", inflight="1M")
    assert fs.control("pin .\nwarm .\n").startswith("ok")
    wait_until(lambda: fs.stats()["warm_pending"] == 0, "all are resident")
    pinned = fs.stats()["pinned_bytes"]
    fd = os.open(fs.at(".shade", "control"), os.O_RDWR)
    raises(errno.EBUSY, lambda: os.write(fd, b"capacity 2M\n"))
    answer = os.read(fd, 4096).decode()
    os.close(fd)
    assert "pinned" in answer and "unpin" in answer, answer
    stats = fs.stats()
    assert stats["capacity_bytes"] == 8 << 20 and stats["pinned_bytes"] == pinned, stats
    assert fs.control("unpin .\ncapacity 2M\n").startswith("ok")
    assert fs.stats()["memory_bytes"] <= 2 << 20, fs.stats()
    assert all(read(fs.at(path)) == data for path, data in contents.items())
    fs.end()


def a_daemon_without_standard_input():
    """What it opens first would get the number 0, and lose it to /dev/null."""
    root, contents = make_tree(3, size=1000)
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        point = tempfile.mkdtemp(dir=scratch)
        try:
            subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", SHADEFS, "-o",
                            f"mode={MODE},capacity=8M", root, point], check=True, timeout=60,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for path, data in contents.items():
                assert read(os.path.join(point, path)) == data, (closed, path)
        finally:
            subprocess.run(["umount", "-R", point], check=False, capture_output=True)
            wait_until(lambda: not is_mounted(point), "unmounted")


def times_before_1970():
    root, contents = make_tree(3, size=100)
    path = next(iter(contents))
    ns = -86400 * 10**9 - 250_000_000
    os.utime(os.path.join(root, path), ns=(ns, ns))
    fs = Shade(root, capacity="8M")
    assert os.stat(fs.at(path)).st_mtime_ns == ns, os.stat(fs.at(path))
    fs.end()


def what_is_read_during_a_write_is_not_kept():
    """A file has its new date before its new bytes, so what is read meanwhile looks like one
    version and is of two. This writer gets the second half of its bytes from a mapped file that
    hangs, and so stays in the middle of one write() as long as that does."""
    half = 20 << 20
    old, new = b"o" * half, b"n" * half
    root, behind = tempfile.mkdtemp(dir=scratch), tempfile.mkdtemp(dir=scratch)
    subprocess.run(["mount", "-t", "tmpfs", "none", root], check=True)
    try:
        with open(os.path.join(root, "file"), "wb") as file:
            file.write(old + old)
        with open(os.path.join(behind, "new"), "wb") as file:
            file.write(new)
        slow = Slow(behind)
        fs = Shade(root, capacity="1G", inflight="256M", staleness=0.02)
        with open(os.path.join(root, "file"), "rb+", buffering=0) as file, \
                open(os.path.join(slow.path, "new"), "rb") as bytes_to_come:
            slow.tell("fault hang /new")
            mapped = mmap.mmap(bytes_to_come.fileno(), half, mmap.MAP_PRIVATE, mmap.PROT_READ)
            writer = threading.Thread(target=lambda: os.pwritev(file.fileno(), [new, mapped], 0))
            writer.start()
            wait_until(slow.hangs, "the writer is half-way")
            date = os.stat(file.fileno()).st_ctime_ns
            wait_until(lambda: os.stat(fs.at("file")).st_ctime_ns == date, "the change is seen")
            begin = time.monotonic()
            assert read(fs.at("file")) == new + old, "no mixture: nothing was seen"
            slow.tell("clear all")
            writer.join()
            resident = fs.stats()["resident_samples"]
            took = time.monotonic() - begin
            assert os.stat(file.fileno()).st_ctime_ns == date, "the write changed its date"
        if took < 3:  # else the version has come of age meanwhile
            assert not resident, "a mixture is kept"
            wait_until(lambda: read(fs.at("file")) == new + new, "the new bytes are read")
            fs.settle()
            assert read(fs.at("file")) == new + new
        fs.end()
        slow.end()
    finally:
        subprocess.run(["umount", root], check=True)


def scores_by_path(fs):
    with open(fs.at(".shade", "scores")) as file:
        scores = dict(line.split()[:2] for line in file)
    return {path: float(scores[str(number)]) for path, number in fs.samples().items()
            if float(scores[str(number)]) >= 0}


def a_table_means_what_it_meant():
    """Ids of a table are files, whatever numbers a scan gives these later."""
    root, contents = make_tree(8, size=100)
    fs = Shade(root, capacity="8M")
    paths = sorted(contents)
    with records.Control(fs.path) as control:
        control.write(records.table(paths))
        control.write(records.scores([3], [1.5]))
        assert scores_by_path(fs) == {paths[3]: 1.5}
        os.unlink(os.path.join(root, paths[5]))
        for name in ("0", "00", "000"):
            with open(os.path.join(root, name), "w") as file:
                file.write(name)
        assert fs.control("rescan\n").startswith("ok")
        wait_until(lambda: set(fs.samples()) == {*paths, "0", "00", "000"} - {paths[5]},
                   "the names are new")
        assert fs.samples()[paths[3]] == 6, fs.samples()
        control.write(records.scores([0, 3, 7], [2.5, 3.5, 4.5]))
        control.write(records.scores([5], [9]))
        assert scores_by_path(fs) == {paths[0]: 2.5, paths[3]: 3.5, paths[7]: 4.5}
    fs.end()


def what_the_kernel_took_is_fetched_again():
    """It takes pages and keeps the inode, and tells nobody. What is ahead in an order is there again
    before anybody asks for it."""
    count = 500
    root, contents = make_tree(count, size=20000)
    fs = Shade(root, capacity="64M")
    for path in contents:
        read(fs.at(path))
    files = [open(fs.at(path), "rb") for path in contents]  # pylint: disable=consider-using-with
    fs.settle()
    fs.control("order 1 begin\n" + "".join(f"order 1 {number}\n" for number in range(count)) +
               "order 1 end\nepoch 1\n")
    fs.settle()
    before = fs.stats()
    assert before["resident_samples"] == before["order_ahead"] == count, before
    for file in files:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.close()
    wait_until(lambda: fs.stats()["backend_reads"] >= before["backend_reads"] + count,
               "all are fetched again")
    fs.settle()
    after = fs.stats()
    assert after["resident_samples"] == count and after["reclaimed"] >= count, after
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    missing = fs.stats()["backend_reads"] - after["backend_reads"]
    assert missing < count / 10, f"{missing} were not there"  # some may be lost to their drops
    fs.end()


run_tests([what_the_kernel_took_is_fetched_again, a_table_means_what_it_meant, what_is_read_during_a_write_is_not_kept, a_hung_file_that_leaves_delays_no_miss, a_lower_capacity_binds_what_was_reserved,
           pins_that_do_not_fit_are_named, a_daemon_without_standard_input, times_before_1970])
