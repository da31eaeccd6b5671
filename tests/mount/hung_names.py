# SPDX-License-Identifier: LGPL-2.1-or-later
"""Directories that hang: who needs them waits for a deadline, and nobody else waits at all. And
callers that get signals while they wait."""
import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
import time

from common import (MODE, Shade, Slow, make_tree, raises, read, reads_as, run_tests, wait_until)

LONG = 600  # a deadline that no test waits for
STALENESS = 0.5
NOBODY = 65534


class Callers:
    """Threads that each do something that may take long. What comes of it is in `results`."""

    def __init__(self, calls):
        self.results = []
        self.threads = [threading.Thread(target=self.call, args=(call,), daemon=True)
                        for call in calls]
        for thread in self.threads:
            thread.start()

    def call(self, call):
        try:
            self.results.append(call())
        except OSError as failure:
            self.results.append(failure.errno)

    def wait(self):
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a caller still waits"


def in_time(work, seconds, what):
    """Does it within so many seconds, or fails without waiting for it."""
    callers = Callers([work])
    callers.threads[0].join(seconds)
    assert not callers.threads[0].is_alive(), f"{what} took more than {seconds} s"
    return callers.results[0]


def stat_of(path):
    return lambda: os.stat(path) and "found"


def start_hanging(slow, fs, directory):
    """Many wait for the directory: what is known of it is older than `staleness`. In portable mode
    they ask for names that they know; in native mode nobody asks for these again, and the daemon
    begins to read the directory before it is so old. Returns them, and what they are to get."""
    names = [fs.at(directory, name) for name in os.listdir(fs.at(directory))]
    if MODE == "native":
        names = [name + ".none" for name in names]
    else:
        for name in names:
            os.stat(name)
    slow.tell(f"fault hangopen /{directory}")
    time.sleep(2 * STALENESS)
    first = Callers([stat_of(names[0])])
    wait_until(slow.hangs, "the directory hangs")
    time.sleep(2 * STALENESS)
    callers = Callers([stat_of(name) for name in names])
    callers.threads += first.threads
    time.sleep(0.5)
    return callers, {errno.ENOENT if MODE == "native" else "found"}


def many_lookups_in_a_hung_directory():
    """They were as many as there were workers, and took them all."""
    root, contents = make_tree(400, size=4000)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=STALENESS, deadline=LONG)
    callers, due = start_hanging(slow, fs, "class0")
    for path, data in contents.items():
        if not path.startswith("class0"):
            assert in_time(lambda: read(fs.at(path)), 60, path) == data  # pylint: disable=W0640
    assert len(in_time(lambda: os.listdir(fs.at("class1")), 60, "a listing")) == 100
    assert in_time(fs.stats, 60, ".shade")["accesses"] > 0
    assert in_time(lambda: fs.control("score 0 1\n"), 60, "a command").startswith("ok")
    assert slow.hangs(), "nothing hung: nothing was seen"
    slow.tell("clear all")
    callers.wait()
    assert set(callers.results) == due, set(callers.results)
    fs.end()
    slow.end()


def names_have_a_deadline():
    """After it what is known is the answer, at once; of what is not known, an error."""
    root, contents = make_tree(400, size=4000)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=STALENESS, deadline=3)
    hung = [path for path in contents if path.startswith("class0")]
    callers, due = start_hanging(slow, fs, "class0")
    callers.wait()
    assert set(callers.results) == due, set(callers.results)
    begin = time.monotonic()
    for path in hung:
        assert read(fs.at(path)) == contents[path], path
        raises(errno.ENOENT, stat_of(fs.at(path + ".none")))
    assert time.monotonic() - begin < 60, "they waited"
    assert sorted(os.listdir(fs.at("class0"))) == sorted(map(os.path.basename, hung))
    slow.tell("fault hangopen /new")
    os.mkdir(os.path.join(root, "new"))
    wait_until(lambda: os.path.exists(fs.at("new")), "the new directory is seen")
    raises(errno.ETIMEDOUT, lambda: os.listdir(fs.at("new")))
    raises(errno.ETIMEDOUT, stat_of(fs.at("new", "file")))
    assert slow.hangs(), "nothing hung: nothing was seen"
    with open(os.path.join(root, hung[0] + ".late"), "wb") as file:
        file.write(b"late")
    slow.tell("clear all")
    wait_until(lambda: reads_as(fs.at(hung[0] + ".late"), b"late"), "names are read again")
    wait_until(lambda: os.listdir(fs.at("new")) == [], "the new directory is well")
    fs.end()
    slow.end()


class Hole:
    """A directory in which another source is mounted, which stands still: whoever asks for the
    attributes of its name waits."""

    def __init__(self, root):
        elsewhere, _ = make_tree(1)
        path = os.path.join(root, "elsewhere")
        os.mkdir(path)
        self.slow = Slow(elsewhere, point=path)

    def open(self):
        self.slow.pause()

    def close(self):
        self.slow.resume()
        self.slow.end()


def a_hung_name_at_the_top():
    """All paths go through the directory that it is in, and it is read again all the time."""
    root, contents = make_tree(40)
    hole = Hole(root)
    fs = Shade(root, capacity="8M", staleness=1, deadline=3)

    def read_all():
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        return "read"

    hole.open()
    try:
        end = time.monotonic() + 12
        while time.monotonic() < end:
            assert in_time(read_all, 60, "reading") == "read"
        # It is late by now, and nobody waits.
        assert in_time(read_all, 60, "reading") == "read"
        assert in_time(fs.stats, 60, ".shade")["accesses"] > 0
    finally:
        hole.slow.resume()
    fs.end()
    hole.slow.end()


def memory_while_a_directory_hangs():
    """The kernel has the directory's lock for a LOOKUP, and names in it are to be invalidated."""
    root, contents = make_tree(1600)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="1M", policy="lru", deadline=LONG)  # names do not time out
    hung = [path for path in contents if path.startswith("class0")][:12]
    others = [path for path in contents if not path.startswith("class0")]
    held = [open(fs.at(path), "rb", buffering=0) for path in hung]  # pylint: disable=R1732
    for path, file in zip(hung, held):
        assert file.read() == contents[path]
        with open(os.path.join(root, path), "ab") as changed:
            changed.write(b"more")
    slow.tell("fault hangopen /class0")
    for file in held:  # what the kernel knows by these names is found to be old
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        raises((errno.ESTALE, errno.EIO), lambda: os.pread(file.fileno(), 1, 0))  # noqa: B023
        file.close()
    callers = Callers([stat_of(fs.at("class0", f"none{number}")) for number in range(4)])
    wait_until(slow.hangs, "the directory hangs")
    time.sleep(0.5)
    highest = 0

    def read_others():
        nonlocal highest
        for number, path in enumerate(others):
            assert read(fs.at(path)) == contents[path], path
            if number % 20 == 0:
                highest = max(highest, fs.stats()["memory_bytes"])
        return "read"

    assert in_time(read_others, 60, "reading other files") == "read"
    assert slow.hangs(), "nothing hung: nothing was seen"
    assert highest <= 1 << 20, f"{highest / 2**20:.1f} MB of 1"
    slow.tell("clear all")
    callers.wait()
    for path in hung:
        wait_until(lambda: reads_as(fs.at(path), contents[path] + b"more"),  # noqa: B023
                   f"{path} is new")
    fs.settle()
    fs.end()
    slow.end()


def fetched_ahead_from_a_hung_directory():
    """The kernel knows none of these files. To tell it of them needs their names, which are too old
    by now, but not the source."""
    root, contents = make_tree(400, size=4000)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="16M", prefetch="8M", staleness=STALENESS, deadline=LONG)
    ids = fs.samples()
    order = " ".join(str(ids[path]) for path in sorted(contents))  # the hung directory is first
    slow.tell("fault hangopen /class0")
    time.sleep(2 * STALENESS)
    if MODE == "portable":  # in native mode the daemon reads it without anybody asking
        fs.control("rescan\n")
    wait_until(slow.hangs, "the directory hangs")
    time.sleep(2 * STALENESS)
    fs.control(f"order 1 begin\norder 1 {order}\norder 1 end\nepoch 1\n")

    def is_done():
        stats = fs.stats()
        return stats["backend_reads"] >= len(contents) and not stats["reserved_bytes"]

    wait_until(is_done, f"all are fetched ahead: {fs.stats()}")
    assert slow.hangs(), "nothing hung: nothing was seen"
    for path, data in contents.items():
        if not path.startswith("class0"):
            assert in_time(lambda: read(fs.at(path)), 60, path) == data  # pylint: disable=W0640
    assert fs.stats()["fetch_errors"] == 0, fs.stats()
    slow.tell("clear all")
    fs.end()
    slow.end()


def can_read_as_nobody(path):
    done = subprocess.run([sys.executable, "-c", "import os, sys\nos.setgroups([])\n"
                           f"os.setgid({NOBODY})\nos.setuid({NOBODY})\nopen(sys.argv[1]).close()",
                           path], capture_output=True, timeout=120, check=False)
    return done.returncode == 0


def revoked_while_something_else_hangs():
    root, contents = make_tree(40)
    path = next(iter(contents))
    folder = os.path.join(root, os.path.dirname(path))
    for directory in (os.path.dirname(root), root, folder):
        os.chmod(directory, 0o755)
    hole = Hole(root)
    fs = Shade(root, capacity="8M", staleness=1, deadline=3, allow_other=True)
    assert can_read_as_nobody(fs.at(path))
    hole.open()
    try:
        time.sleep(2)  # the directory that has the hung name is being read
        assert can_read_as_nobody(fs.at(path))
        os.chmod(folder, 0o700)
        wait_until(lambda: not can_read_as_nobody(fs.at(path)), "revoked", 120)
    finally:
        hole.slow.resume()
    fs.end()
    hole.slow.end()


def signals_do_not_end_opens():
    """Only a caller that is being killed gives up."""
    root, contents = make_tree(60, size=4000)
    slow = Slow(root, delay_us=20000)
    fs = Shade(slow.path, capacity="8M")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(10000)
    failures, seen = [], []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for path, data in contents.items():
            fd = libc.open(fs.at(path).encode(), os.O_RDONLY)  # Python's own tries again
            if fd < 0:
                failures.append(errno.errorcode[ctypes.get_errno()])
                continue
            length = libc.read(fd, buffer, len(buffer))
            if buffer.raw[:max(length, 0)] != data:
                failures.append(path)
            libc.close(fd)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(seen) > 60, "there were no signals"
    assert not failures, f"{len(failures)} of {len(contents)}: {set(failures)}"
    fs.end()
    slow.end()


WAITER = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)
sys.argv[1] == "stat" and os.stat(sys.argv[2]) or open(sys.argv[2], "rb").read()
"""


def the_killed_leave():
    """At once, even if they have got another signal before, and whatever they wait for."""
    root, contents = make_tree(8)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=STALENESS, deadline=LONG)
    path = next(iter(contents))
    slow.tell(f"fault hang /{path}")
    for how, target in (("open", path), ("stat", "class1/none")):
        if how == "stat":
            slow.tell("fault hangopen /class1")
            time.sleep(2 * STALENESS)
        waiter = subprocess.Popen([sys.executable, "-c", WAITER, how, fs.at(target)],
                                  stdout=subprocess.PIPE)
        waiter.stdout.readline()
        wait_until(slow.hangs, "it waits")
        time.sleep(0.5)
        waiter.send_signal(signal.SIGUSR1)
        time.sleep(1)
        assert waiter.poll() is None, f"{how}: it did not wait"
        waiter.kill()
        assert waiter.wait(60) == -signal.SIGKILL, how
        waiter.stdout.close()
        assert slow.hangs(), "nothing hung: nothing was seen"
        slow.tell("clear all")
        wait_until(lambda: not slow.hangs(), "it is well again")
    wait_until(lambda: reads_as(fs.at(path), contents[path]), "the file is well again")
    fs.end()
    slow.end()


def shade_unmounted_while_a_command_hangs():
    root, contents = make_tree(8)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=STALENESS, deadline=LONG)
    time.sleep(1)
    slow.tell("fault hangopen /class0")
    command = Callers([lambda: fs.control("score class0/none 1\n")])
    wait_until(slow.hangs, "the command hangs")
    subprocess.run(["umount", "-l", fs.at(".shade")], check=True)
    wait_until(fs.is_ready, ".shade is back")
    path = next(path for path in contents if not path.startswith("class0"))
    assert read(fs.at(path)) == contents[path]
    slow.tell("clear all")
    command.wait()
    fs.end()
    slow.end()


def ended_while_names_hang():
    """Whoever waits gets an error at once; the daemon's end does not wait for a deadline."""
    root, _ = make_tree(40)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=STALENESS, deadline=LONG)
    callers, due = start_hanging(slow, fs, "class0")
    fs.process.send_signal(signal.SIGTERM)
    callers.wait()
    assert not due & set(callers.results), callers.results
    slow.tell("clear all")
    fs.end()
    slow.end()


TESTS = [many_lookups_in_a_hung_directory, names_have_a_deadline, a_hung_name_at_the_top,
         memory_while_a_directory_hangs, fetched_ahead_from_a_hung_directory,
         revoked_while_something_else_hangs, signals_do_not_end_opens, the_killed_leave,
         ended_while_names_hang]
if MODE == "native":  # where .shade is a mount of its own
    TESTS.append(shade_unmounted_while_a_command_hangs)
run_tests(TESTS)
