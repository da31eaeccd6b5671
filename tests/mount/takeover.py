# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon is killed, and another one takes its connections over: readers notice nothing. The
process that was started is a supervisor; the daemon is its child. tests/takeover/ has the readers,
which compare every byte.

    takeover.py SHADEFS SLOWFS SHADECTL READERS [--seconds N] [--every N] [--seed N] [NAME ...]

kills the daemon every 2 s for 12 s, or for N seconds: hours are for finding what is rare. NAME: only
these of the tests. Runs in a mount namespace with a /run of its own, so that no other daemon of this
machine cleans up what is looked at here."""
import argparse
import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Mounts of other tests would be kept alive by their copies here.
ALONE = """
awk '$5 ~ "/shade-test-|^/run/shadefs/" { print $5 }' /proc/self/mountinfo | tac |
    xargs -r -d '\\n' -n 1 umount -l
mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"
"""
if not os.environ.get("SHADE_TEST_PRIVATE") and os.geteuid() == 0:
    os.environ["SHADE_TEST_PRIVATE"] = "1"
    os.execvp("unshare", ["unshare", "-m", "--propagation", "private", "sh", "-c", ALONE, "sh",
                          sys.executable, *sys.argv])

from common import (MODE, SHADEFS, Group, Shade, Slow, children, daemon_pid, daemons, in_threads,
                    is_mounted, is_sanitized, mount_points, read, run_tests, running, scratch,
                    wait_until)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "takeover"))
from load import Readers  # pylint: disable=wrong-import-position

FILES, SIZE = 300, 100000  # 30 MB
CAPACITY, INFLIGHT = "10M", "2M"  # no file is above a sixth of the second: memory stays in bounds
LASTING = 1.5  # seconds after which a daemon does not count as one that cannot serve
SETTLED = 30 if not is_sanitized() else 120  # seconds that nothing here may take
DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("readers")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*")
    return parser.parse_intermixed_args(sys.argv[4:])


def make_data():
    folder = tempfile.mkdtemp(prefix="data-", dir=scratch)
    subprocess.run([OPTIONS.readers, "make", folder, str(FILES), str(SIZE)], check=True)
    return folder


def path_of(number):
    return f"d{number % 8}/f{number:05}"


def bounded(work, what, seconds=None):
    """What work() returns or raises, or a failure if it takes too long: it may hang in the mount."""
    result, failure = [], []

    def guarded():
        try:
            result.append(work())
        except BaseException as caught:  # pylint: disable=broad-except
            failure.append(caught)

    seconds = seconds or SETTLED
    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"after {seconds} s still not: {what}"
    if failure:
        raise failure[0]
    return result[0]


# --- processes -----------------------------------------------------------------------------------

def processes_of(point):
    """Those that serve a mount point, by their command lines."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = read(f"/proc/{name}/cmdline").split(b"\0")
        except OSError:
            continue  # it has ended meanwhile
        if words[0] == SHADEFS.encode() and point.encode() in words:
            found.append(int(name))
    return found


def what_is_left(point):
    """Of a mount that has ended, and was the only one in this namespace."""
    places = os.listdir("/run/shadefs") if os.path.exists("/run/shadefs") else []
    mounts = [path for path in mount_points() if path.startswith((point, "/run/shadefs"))]
    return {"processes": processes_of(point), "mounts": mounts, "places": places}


def nothing_is_left(point):
    def is_clean():
        return not any(what_is_left(point).values())
    try:
        wait_until(is_clean, "nothing is left", 20)
    except AssertionError as failure:
        raise AssertionError(f"{failure}: {what_is_left(point)}") from failure


class Mount(Shade):
    """One whose start is not waited for."""

    def __init__(self, source, **options):
        # pylint: disable=super-init-not-called
        text = ",".join(f"{name}={value}" for name, value in
                        {"mode": MODE, "capacity": CAPACITY, "inflight": INFLIGHT,
                         **options}.items())
        self.path = tempfile.mkdtemp(prefix="shadefs-", dir=scratch)
        self.log = tempfile.mktemp("-shadefs.log", dir=scratch)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([SHADEFS, "-f", "-o", text, source, self.path],
                                            stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        running.append(self)

    def has_ended(self):
        return self.process.poll() is not None

    def works(self):
        """Whether a file can be read by now."""
        try:
            return bounded(lambda: read(self.at(path_of(7))), "a file is read") == \
                read(os.path.join(DATA, path_of(7)))
        except OSError:
            return False


def mount(source, **options):
    fs = Mount(source, **options)
    wait_until(lambda: fs.has_ended() or is_mounted(fs.path), "mounted", SETTLED)
    assert not fs.has_ended(), f"it ended: {fs.read_log()}"
    wait_until(lambda: bounded(fs.is_ready, "stats are read"), "scanned", SETTLED)
    return fs


def stats_of(fs):
    return bounded(fs.stats, f"stats are read while the daemon is {fs.daemon()}")


def new_child(fs, seen):
    """The next daemon, as soon as it appears. None: the supervisor has ended."""
    end = time.monotonic() + SETTLED
    while time.monotonic() < end:
        fresh = [pid for pid in daemons(fs.process.pid) if pid not in seen]
        if fresh:
            return fresh[0]
        if fs.has_ended():
            return None
        time.sleep(0.0005)
    raise AssertionError(f"after {SETTLED} s still no successor of {seen}: {fs.read_log()}")


def kill_daemon(fs):
    """Kills it, and waits until another one has taken over."""
    before, takeovers = fs.daemon(), stats_of(fs)["takeovers"]
    assert before != fs.process.pid, "there is no supervisor"
    os.kill(before, signal.SIGKILL)
    after = new_child(fs, {before})
    assert after, f"the supervisor has ended: {fs.read_log()}"
    wait_until(lambda: stats_of(fs)["takeovers"] > takeovers, f"{after} has taken over", SETTLED)


def end(fs):
    fs.end()
    nothing_is_left(fs.path)


def begin_readers(path, **options):
    return Readers(OPTIONS.readers, path, FILES, SIZE, seed=OPTIONS.seed, **options)


def check_memory(fs):
    stats = stats_of(fs)
    assert stats["memory_bytes"] <= stats["capacity_bytes"], stats


def watch_memory(fs, seconds):
    end_of_it = time.monotonic() + seconds
    while time.monotonic() < end_of_it:
        check_memory(fs)
        time.sleep(0.05)


def all_is_right(fs):
    """Every file, by a new reader."""
    for number in range(FILES):
        path = path_of(number)
        data = bounded(lambda path=path: read(fs.at(path)), f"{path} is read")
        assert data == read(os.path.join(DATA, path)), path


# --- deaths under load ---------------------------------------------------------------------------

def readers_can_fail():
    """The negative twin: a wrong byte, a name too few and one too many are told."""
    folder = make_data()
    with open(os.path.join(folder, path_of(3)), "r+b") as file:
        file.seek(40000)
        file.write(bytes([CONTENTS[path_of(3)][40000] ^ 1]))
    readers = begin_readers(folder, hints=0)
    time.sleep(1)
    counts = readers.end()
    assert counts["wrong_bytes"] and not counts["errors"], (counts, readers.errors)
    assert "file 3: 1 of " in readers.errors, readers.errors
    os.rename(os.path.join(folder, path_of(4)), os.path.join(folder, "d4/x"))
    readers = begin_readers(folder, hints=0)
    time.sleep(1)
    counts = readers.end()
    assert counts["errors"], counts
    assert "it lists x" in readers.errors and "names of" in readers.errors, readers.errors


def killed_again_and_again():
    """While the source is slow, files are evicted, and hints come."""
    slow = Slow(DATA, delay_us=2000)
    fs = mount(slow.path)
    readers = begin_readers(fs.path, seconds=OPTIONS.seconds + 600)
    watch_memory(fs, 1)
    deaths, begin = 0, time.monotonic()
    while time.monotonic() < begin + OPTIONS.seconds:
        moment = time.monotonic()
        kill_daemon(fs)
        deaths += 1
        watch_memory(fs, max(LASTING, moment + OPTIONS.every - time.monotonic()))
        assert readers.process.poll() is None, "the readers have ended"
    stats = stats_of(fs)
    counts = readers.end_well()
    print(f"   {deaths} deaths, the longest read took {counts['longest_ms']} ms", flush=True)
    assert stats["takeovers"] == deaths, (deaths, stats)
    assert stats["evictions"] and counts["hints"], (stats, counts)
    all_is_right(fs)
    check_memory(fs)
    end(fs)
    slow.end()


class Totals:
    """Counters of a mount, whether or not a successor begins with 0."""
    KEYS = ("accesses", "hits")

    def __init__(self, fs):
        self.fs, self.last = fs, stats_of(fs)
        self.sums = dict.fromkeys(self.KEYS, 0)

    def look(self):
        stats = stats_of(self.fs)
        for key in self.KEYS:
            more = stats[key] - self.last[key]
            self.sums[key] += more if more >= 0 else stats[key]
        self.last = stats
        return self.sums


def announce(fs, epoch, order):
    text = f"order {epoch} begin\norder {epoch} {' '.join(map(str, order))}\norder {epoch} end\n"
    answer = bounded(lambda: fs.control(text), "an order is announced")
    assert answer.startswith("ok"), answer


def read_epoch(fs, paths, order, pace, meanwhile):
    """Loaders, each of which needs some time for a sample; meanwhile() is called again and again."""
    def work(number):
        for sample in order[number::4]:
            assert read(fs.at(paths[sample])) == CONTENTS[paths[sample]], paths[sample]
            time.sleep(4 * pace)

    failures = []

    def guarded():
        try:
            in_threads(4, work)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    limit = time.monotonic() + 20 * pace * len(order) + SETTLED
    while thread.is_alive():
        assert time.monotonic() < limit, "an epoch does not end"
        meanwhile()
        time.sleep(0.02)
    if failures:
        raise failures[0]


def hit_ratio(every):
    """Of epochs whose orders are announced, while the daemon dies every so many seconds. 0: never.
    The source is fast enough to fetch ahead what is not kept, and not fast enough for everything."""
    slow = Slow(DATA, delay_us=2000, bandwidth="10M")
    fs = mount(slow.path)
    paths = {number: path for path, number in fs.samples().items()}
    chance = random.Random(OPTIONS.seed)
    orders = [chance.sample(sorted(paths), len(paths)) for _ in range(4)]
    for epoch in range(2):
        announce(fs, epoch, orders[epoch])
    totals, due, deaths = None, None, 0

    def meanwhile():
        nonlocal due, deaths
        totals.look()
        if due and time.monotonic() > due:
            moment = time.monotonic()
            kill_daemon(fs)
            due = max(moment + every, time.monotonic() + LASTING)
            deaths += 1

    for epoch in range(3):
        if epoch == 1:  # what is there before depends on nothing that is known
            due = time.monotonic() + every / 2 if every else None
        if epoch < 2:
            totals = Totals(fs)
        assert bounded(lambda: fs.control(f"epoch {epoch}\n"), "an epoch begins").startswith("ok")
        announce(fs, epoch + 1, orders[epoch + 1])
        read_epoch(fs, paths, orders[epoch], 0.012, meanwhile)
    time.sleep(1)  # in native mode an access is known a little later
    sums = totals.look()
    end(fs)
    slow.end()
    assert sums["accesses"] >= 1.9 * len(paths), sums
    return sums["hits"] / sums["accesses"], deaths


def as_many_hits_as_without():
    quiet, _ = hit_ratio(0)
    disturbed, deaths = hit_ratio(OPTIONS.every)
    print(f"   hit ratio {quiet:.3f}, with {deaths} deaths {disturbed:.3f}", flush=True)
    assert deaths >= 2, deaths
    assert disturbed >= quiet - 0.02, (quiet, disturbed)
    assert quiet > 0.5, f"the source is too slow for this test: {quiet}"


# --- deaths at bad moments -----------------------------------------------------------------------

def ends_or_works(fs, what):
    """One or the other, soon; then it ends, and nothing is left."""
    wait_until(lambda: fs.has_ended() or fs.works(), f"{what}: there is a mount, or none",
               SETTLED)
    if fs.has_ended():
        assert fs.process.returncode, f"{what}: it says that all is well: {fs.read_log()}"
        assert "anitizer" not in fs.read_log(), fs.read_log()
        nothing_is_left(fs.path)
        running.remove(fs)
    else:
        wait_until(lambda: bounded(fs.is_ready, "stats are read"), "scanned", SETTLED)
        all_is_right(fs)
        end(fs)


def killed_during_the_start():
    slow = Slow(DATA)
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2):
        slow.tell("set meta_delay_us 5000")
        fs = Mount(slow.path)
        child = new_child(fs, ())
        assert child, f"it ended: {fs.read_log()}"
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        slow.tell("set meta_delay_us 0")
        ends_or_works(fs, f"killed after {delay} s")
    slow.end()


def killed_during_the_scan():
    slow = Slow(DATA)
    for delay in (0, 0.2):
        slow.tell("set meta_delay_us 30000")
        fs = Mount(slow.path)
        wait_until(lambda: fs.has_ended() or fs.path in fs.read_log(), "it says that it is there",
                   SETTLED)
        time.sleep(delay)
        assert not stats_of(fs)["scan_complete"], "the scan is too quick for this test"
        kill_daemon(fs)
        slow.tell("set meta_delay_us 0")
        wait_until(lambda: stats_of(fs)["scan_complete"], "scanned", SETTLED)
        assert stats_of(fs)["samples"] == FILES, stats_of(fs)
        all_is_right(fs)
        end(fs)
    slow.end()


def killed_during_a_take_over():
    """The successor dies as soon as it appears; the next one takes over all the same."""
    slow = Slow(DATA, delay_us=2000)
    fs = mount(slow.path)
    readers = begin_readers(fs.path)
    time.sleep(0.5)
    first = fs.daemon()
    os.kill(first, signal.SIGKILL)
    second = new_child(fs, {first})
    os.kill(second, signal.SIGKILL)
    third = new_child(fs, {first, second})
    assert third, f"the supervisor has given up: {fs.read_log()}"
    wait_until(lambda: stats_of(fs)["takeovers"], f"{third} has taken over", SETTLED)
    watch_memory(fs, 1)
    readers.end_well()
    all_is_right(fs)
    end(fs)
    slow.end()


def gives_up_in_the_end():
    """Three that die within ten seconds and do not last: then there are errors, and nothing waits or
    is left. The first one may have lasted."""
    slow = Slow(DATA, delay_us=2000)
    fs = mount(slow.path)
    readers = begin_readers(fs.path)
    time.sleep(0.5)
    seen, begin = set(), time.monotonic()
    while len(seen) < 10 and (pid := new_child(fs, seen)):
        seen.add(pid)
        os.kill(pid, signal.SIGKILL)
    took = time.monotonic() - begin
    assert fs.process.wait(SETTLED), f"it says that all is well: {fs.read_log()}"
    assert 3 <= len(seen) <= 4 or took > 10, f"{len(seen)} deaths in {took:.1f} s"
    counts = readers.end_with_errors()
    assert counts["longest_ms"] < SETTLED * 1000, counts
    nothing_is_left(fs.path)
    assert not os.listdir(fs.path)
    running.remove(fs)
    slow.end()


def grow(fs, stop):
    """Orders that are never finished take memory, as long as their descriptors are open."""
    held = []
    try:
        while not stop():
            held.append(os.open(fs.at(".shade", "control"), os.O_RDWR))
            os.write(held[-1], b"order 9 begin\n")
            line = b"order 9" + b" 1 2 3 4 5 6 7 8 9 10" * 3000 + b"\n"
            for _ in range(20):
                if stop():
                    break
                os.write(held[-1], line)
    except OSError as failure:  # there may be a bound, and the order's beginning may be forgotten
        print("   while it grew:", failure, flush=True)
        wait_until(stop, "the daemon was killed for its memory", 10)
    finally:
        for fd in held:
            os.close(fd)


def killed_for_its_memory():
    """By the kernel, in a memory cgroup that the daemon alone is in."""
    try:
        group = Group()
    except OSError as reason:
        print(f"   SKIP: no memory cgroup can be made: {reason}")
        return
    try:
        fs = mount(DATA)
        readers = begin_readers(fs.path, hints=0)
        time.sleep(0.5)
        before = fs.daemon()
        assert before != fs.process.pid, "there is no supervisor"
        group.add(before)
        group.limit(3 << 20)
        bounded(lambda: grow(fs, lambda: fs.daemon() != before), "it has grown too much", 60)
        wait_until(lambda: fs.daemon() not in (before, fs.process.pid), "there is another", SETTLED)
        wait_until(lambda: stats_of(fs)["takeovers"], "it has taken over", SETTLED)
        assert "oom_kill 0" not in group.events(), group.events()
        readers.end_well()
        all_is_right(fs)
        end(fs)
    finally:
        for left in reversed(list(running)):
            left.kill()
            running.remove(left)
        group.remove()


def killed_while_a_file_hangs():
    """Others go on; who waits for that file gets it once the source answers."""
    slow = Slow(DATA)
    fs = mount(slow.path, deadline=120)
    hung = path_of(11)
    slow.tell(f"fault hang /{hung}")
    result = []
    waiter = threading.Thread(target=lambda: result.append(read(fs.at(hung))), daemon=True)
    waiter.start()
    wait_until(slow.hangs, "the file hangs", SETTLED)
    for _ in range(2):
        kill_daemon(fs)
        for number in range(0, FILES, 10):
            path = path_of(number)
            assert bounded(lambda path=path: read(fs.at(path)), f"{path} is read") == \
                CONTENTS[path], path
        assert waiter.is_alive(), f"the source does not hang: {result and len(result[0])}"
    slow.tell("clear all")
    waiter.join(SETTLED)
    assert not waiter.is_alive(), f"after {SETTLED} s the file is still not read"
    assert result and result[0] == CONTENTS[hung], "the waiter got an error, or wrong bytes"
    all_is_right(fs)
    end(fs)
    slow.end()


# --- the supervisor ------------------------------------------------------------------------------

def the_supervisor_is_killed():
    """Then there is no successor: readers get errors soon, and the place can be used again."""
    slow = Slow(DATA, delay_us=2000)
    fs = mount(slow.path)
    readers = begin_readers(fs.path)
    time.sleep(0.5)
    daemon = fs.daemon()
    assert daemon != fs.process.pid, "there is no supervisor"
    fs.process.kill()
    fs.process.wait(SETTLED)
    wait_until(lambda: daemon not in processes_of(fs.path), "the daemon is gone", 20)

    def gives_errors():
        try:
            bounded(lambda: read(fs.at(".shade", "stats")), "stats give an error")
        except OSError as failure:
            assert failure.errno in DEAD, failure
            return True
        return False

    wait_until(gives_errors, "the mount gives errors", 20)
    counts = readers.end_with_errors()
    assert counts["longest_ms"] < 20000, counts
    running.remove(fs)
    again = Shade(slow.path, point=fs.path, capacity=CAPACITY, inflight=INFLIGHT)
    all_is_right(again)
    end(again)
    slow.end()


def an_orderly_end_is_no_death():
    """Whoever unmounts, or sends SIGTERM to the supervisor, gets no successor."""
    program = "umount" if MODE == "native" else "fusermount3"
    flag = "-R" if MODE == "native" else "-u"
    ways = {"SIGTERM": lambda fs: fs.process.terminate(),
            "SIGINT": lambda fs: fs.process.send_signal(signal.SIGINT),
            program: lambda fs: subprocess.run([program, flag, fs.path], check=True,
                                               timeout=SETTLED)}
    for name, way in ways.items():
        for deaths in (0, 1):
            fs = mount(DATA)
            for _ in range(deaths):
                kill_daemon(fs)
            assert fs.works(), name
            assert stats_of(fs)["takeovers"] == deaths, name
            way(fs)
            assert fs.process.wait(SETTLED) == 0, (name, deaths, fs.read_log())
            nothing_is_left(fs.path)
            running.remove(fs)


def in_the_background():
    """The command has returned; the supervisor is its child."""
    point = tempfile.mkdtemp(prefix="background-", dir=scratch)
    options = f"mode={MODE},capacity={CAPACITY}"
    done = subprocess.run([SHADEFS, "-o", options, DATA, point], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SETTLED, check=False)
    assert done.returncode == 0 and is_mounted(point), done
    try:
        processes = processes_of(point)
        supervisor, = [pid for pid in processes
                       if not any(pid in children(other) for other in processes)]
        before = daemon_pid(supervisor)
        assert before != supervisor, "there is no supervisor"
        path = path_of(5)
        os.kill(before, signal.SIGKILL)
        assert bounded(lambda: read(os.path.join(point, path)), "a file is read") == CONTENTS[path]
        wait_until(lambda: daemon_pid(supervisor) not in (before, supervisor), "a successor",
                   SETTLED)
        subprocess.run(["umount", "-R", point], check=True, timeout=SETTLED)
        nothing_is_left(point)
    finally:
        for pid in processes_of(point):
            os.kill(pid, signal.SIGKILL)
        for path in (os.path.join(point, ".shade"), point):
            subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL, check=False)


OPTIONS = arguments()
DATA = make_data()
CONTENTS = {path: read(os.path.join(DATA, path)) for path in map(path_of, range(FILES))}
TESTS = [readers_can_fail, killed_again_and_again, as_many_hits_as_without, killed_during_the_start,
         killed_during_the_scan, killed_during_a_take_over, gives_up_in_the_end,
         killed_for_its_memory, killed_while_a_file_hangs, the_supervisor_is_killed,
         an_orderly_end_is_no_death, in_the_background]
print(f"{MODE}, --seed {OPTIONS.seed}", flush=True)
run_tests([test for test in TESTS if not OPTIONS.names or test.__name__ in OPTIONS.names])
