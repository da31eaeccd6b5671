# SPDX-License-Identifier: LGPL-2.1-or-later
"""The time of day is set back by an hour, as an administrator or ntpd may do: deadlines hold, new
versions are seen, and the daemon ends. tests/clock/clock.c does it, for the daemon alone: it replaces
the functions of the C library that know the time of day, and waits that go by it."""
import errno
import os
import sys
import threading
import time

from common import (Shade, Slow, is_sanitized, make_tree, raises, read, reads_as, run_tests, scratch,
                    skip, wait_until)

CLOCK = os.path.join(scratch, "an hour ago")
DEADLINE = 3

if is_sanitized():
    skip("a sanitizer wants to be loaded first, and so does the clock")


class Preloaded:
    """Sets the environment of what is started meanwhile."""

    def __enter__(self):
        os.environ.update(LD_PRELOAD=os.path.abspath(sys.argv[4]), SHADE_TEST_CLOCK=CLOCK)

    def __exit__(self, *_):
        del os.environ["LD_PRELOAD"], os.environ["SHADE_TEST_CLOCK"]


def is_preloaded(fs):
    with open(f"/proc/{fs.process.pid}/maps") as file:
        return os.path.basename(sys.argv[4]) in file.read()


def set_back():
    with open(CLOCK, "w"):
        pass


def deadlines_hold():
    root, contents = make_tree(20)
    slow = Slow(root)
    with Preloaded():
        fs = Shade(slow.path, capacity="8M", deadline=DEADLINE, staleness=1)
    assert is_preloaded(fs), "the daemon goes by the machine's clock"
    hung, changed, *others = sorted(contents)
    assert read(fs.at(changed)) == contents[changed]
    slow.tell(f"fault hang /{hung}")
    begin = time.monotonic()
    failure = []
    waiter = threading.Thread(target=lambda: failure.append(
        raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(hung)))))
    waiter.start()
    wait_until(slow.hangs, "the file hangs")
    set_back()
    waiter.join(60)
    assert failure, f"no answer after {time.monotonic() - begin:.0f} s"
    assert all(read(fs.at(path)) == contents[path] for path in others)
    with open(os.path.join(root, changed), "wb") as file:
        file.write(b"new")
    wait_until(lambda: reads_as(fs.at(changed), b"new"), "the new version is seen")
    slow.tell("clear all")
    fs.end()
    os.unlink(CLOCK)
    slow.end()


run_tests([deadlines_hold])
