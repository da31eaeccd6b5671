# SPDX-License-Identifier: LGPL-2.1-or-later
"""shadectl warm: what it sends, waits for, shows and says: warm.py SHADECTL FAKEFS."""
import errno
import json
import os
import pty
import subprocess
import threading
import time

from fake import SHADECTL, STATS, Fake, check, finish, refuses, run, works

MIB = 1 << 20
KEYS = ["wanted", "resident", "refused", "failed", "bytes", "seconds"]


def grown(**by):
    """Stats in which the counters of warm have grown by that much."""
    return {f"warm_{key}": STATS[f"warm_{key}"] + value for key, value in by.items()}


def play(fake, steps, pause=0.3):
    """The first step comes with the first command, the others after it."""
    fake.stats()
    fake.stats(_next=True, **steps[0])

    def later():
        until = time.monotonic() + 20
        while os.path.exists(fake.state + ".next") and time.monotonic() < until:
            time.sleep(0.005)
        for changes in steps[1:]:
            time.sleep(pause)
            fake.stats(**changes)

    thread = threading.Thread(target=later)
    thread.start()
    return thread


def warm(fake, steps, *arguments, **how):
    """The finished process, and what it sent."""
    thread = play(fake, steps)
    done = run("warm", fake.mnt, *arguments, **how)
    thread.join()
    return done, fake.take()


def result(done):
    check(done.stdout.count("\n") == 1, f"not one line: {done.stdout!r}")
    row = json.loads(done.stdout)
    check(list(row) == KEYS, f"keys: {row}")
    return row


ALL = [grown(pending=10, pending_bytes=10 * MIB),
       grown(pending=4, pending_bytes=4 * MIB, done=6, done_bytes=6 * MIB),
       grown(done=10, done_bytes=10 * MIB)]


def complete(fake):
    done, sent = warm(fake, ALL, "train", "val.bin")
    works(done)
    check(sent == "warm train\nwarm val.bin\n", f"sent {sent!r}")
    row = result(done)
    check([row[key] for key in KEYS[:-1]] == [10, 10, 0, 0, 10 * MIB], f"result: {row}")
    check(0.5 < row["seconds"] < 20, f"it did not wait to the end: {row}")
    done, sent = warm(fake, ALL, "-f", "-", stdin="train\nval.bin\n")
    works(done)
    check(sent == "warm train\nwarm val.bin\n" and result(done)["resident"] == 10, "a list")
    done, sent = warm(fake, ALL[2:], "-0", "-f", "-", stdin="a\nb\0")
    works(done)
    check(sent == "warm a\\012b\n", f"a list with NUL: {sent!r}")
    # All of it was there already, and the mount counts nothing.
    done, _ = warm(fake, [{}], "train")
    works(done)
    check(result(done)["wanted"] == 0, "nothing to do")


def incomplete(fake):
    done, _ = warm(fake, [grown(done=4, done_bytes=6 << 30, refused=3, refused_bytes=3 << 30)],
                   "train")
    refuses(done, 1, "4 of 7 samples", "exceeds the capacity", "9.0 GiB", "8.0 GiB", sentences=2)
    row = result(done)
    check([row[key] for key in KEYS[:-1]] == [7, 4, 3, 0, 6 << 30], f"too large: {row}")
    done, _ = warm(fake, [grown(done=4, done_bytes=MIB, refused=1, refused_bytes=MIB)], "train")
    refuses(done, 1, "4 of 5 samples", "for 1 of them there is no room", sentences=2)
    check("exceeds" not in done.stderr, f"it fits: {done.stderr!r}")
    done, _ = warm(fake, [grown(done=4, failed=2)], "train")
    refuses(done, 1, "4 of 6 samples", "2 of them could not be read", sentences=2)
    check(result(done)["failed"] == 2, f"failed: {done.stdout}")


def gives_up(fake):
    start = time.monotonic()
    done, _ = warm(fake, ALL[:1], "train", "--timeout", "0.5")
    refuses(done, 1, "0 of 10 samples", "10 of them are not dealt with after 0.5", sentences=2)
    check(0.5 <= time.monotonic() - start < 15, "the timeout took another time")
    check(result(done)["resident"] == 0, f"given up: {done.stdout}")
    done, _ = warm(fake, ALL, "train", "--timeout", "30")
    works(done)


def refused_paths(fake):
    fake.stats()
    fake.rules(("gone", errno.ENOENT, "there is no 'gone'"))
    refuses(run("warm", fake.mnt, "gone"), 1, "there is no 'gone'")
    check(not run("warm", fake.mnt, "gone").stdout, "a result of nothing")
    done, sent = warm(fake, ALL[2:], "gone", "train")
    refuses(done, 1, "there is no 'gone'")
    check(sent == "warm train\n" and result(done)["resident"] == 10, "the other path")
    fake.rules()
    refuses(run("warm", fake.mnt), 2, "paths")
    refuses(run("warm", fake.mnt, "/etc"), 2, "/etc")
    fake.stats(_without=["warm_pending"])
    refuses(run("warm", fake.mnt, "train"), 1, "warm_pending")
    check(not fake.take(), "sent, though it cannot be waited for")
    # The daemon dies on the way.
    thread = play(fake, ALL[:1])
    killer = threading.Timer(1, fake.servers[0].kill)
    killer.start()
    refuses(run("warm", fake.mnt, "train"), 1, "is gone")
    thread.join()
    killer.join()


def on_terminal(fake, steps, code, locale, *arguments):
    """All that a terminal gets to see."""
    thread = play(fake, steps, pause=1)
    ours, theirs = pty.openpty()
    child = subprocess.Popen([SHADECTL, "warm", fake.mnt, *arguments], stdin=theirs, stdout=theirs,
                             stderr=theirs, env={**os.environ, "LC_ALL": locale})
    os.close(theirs)
    seen = b""
    while True:
        try:
            some = os.read(ours, 4096)
        except OSError:
            some = b""
        if not some:
            break
        seen += some
    os.close(ours)
    check(child.wait(30) == code, f"exit {child.returncode} on a terminal, not {code}")
    thread.join()
    fake.take()
    return seen.decode()


def bars(fake):
    seen = on_terminal(fake, ALL, 0, "C.UTF-8", "train")
    frames = [frame for frame in seen.split("\r") if "%" in frame]
    check(len(frames) >= 3, f"frames: {frames}")
    check("0.0 %  0 of 10" in frames[0] and "░" in frames[0], f"first: {frames[0]!r}")
    middle = [frame for frame in frames if "60.0 %  6 of 10" in frame]
    check(middle and "█" in middle[0] and "░" in middle[0] and "MiB/s" in middle[0]
          and "0:0" in middle[0] and "left" in middle[0], f"middle: {middle[:1]}")
    check("100.0 %  10 of 10" in frames[-1] and "░" not in frames[-1], f"last: {frames[-1]!r}")
    check("{" not in seen and seen.endswith("\n"), f"end: {seen[-100:]!r}")
    seen = on_terminal(fake, ALL, 0, "C", "train")
    check(seen.isascii() and "############" in seen and "######" in seen.split("6 of 10")[0],
          f"ASCII: {seen!r}")
    seen = on_terminal(fake, [grown(done=1, done_bytes=MIB, refused=9, refused_bytes=9 << 30)], 1,
                       "C.UTF-8", "train")
    check("1 of 10" in seen and "exceeds the capacity" in seen, f"too large: {seen!r}")


with Fake() as mount:
    for part in (complete, incomplete, gives_up, bars, refused_paths):
        part(mount)
finish()
