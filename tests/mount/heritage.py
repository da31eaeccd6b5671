# SPDX-License-Identifier: LGPL-2.1-or-later
"""What has been said outlives the daemon: jobs, scores, orders, settings, and open files of .shade
with what is unfinished on them."""
import errno
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

from common import MODE, Shade, is_sanitized, make_tree, raises, read, run_tests, skip, wait_until

FILES = 24
RECORD = 0x444853f5
STEADY = 1.2 if not is_sanitized() else 3  # seconds after which a death does not count
ANSWERS = 6 if not is_sanitized() else 3   # so many, less one, may come before that to a request


def mount(**options):
    root, contents = make_tree(FILES)
    fs = Shade(root, capacity="16M", **options)
    if not fs.stats()["takeover_possible"]:
        fs.end()
        skip("this kernel cannot repeat requests")
    return fs, contents


def kill_daemon(fs):
    """Returns when another one has answered; it has lasted, so that it may die as well."""
    dead, before = fs.daemon(), fs.stats()["takeovers"]
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: fs.stats()["takeovers"] > before, "it is taken over")
    time.sleep(STEADY)


class Control:
    """An open file `control`."""

    def __init__(self, fs, *job):
        self.fd = os.open(fs.at(".shade", *job, "control"), os.O_RDWR)

    def write(self, data):
        data = data.encode() if isinstance(data, str) else data
        assert os.write(self.fd, data) == len(data)

    def answer(self):
        return os.read(self.fd, 1 << 20).decode()

    def say(self, data):
        self.write(data)
        return self.answer()

    def close(self):
        os.close(self.fd)


def text_of(fs, *names):
    with open(fs.at(".shade", *names)) as file:
        return file.read()


def ahead(fs, *job):
    """What its orders expect, by epoch: ids."""
    return [list(map(int, line.split())) for line in text_of(fs, *job, "order").splitlines()]


def scores(fs, *job):
    rows = (line.split("\t") for line in text_of(fs, *job, "scores").splitlines())
    return {int(row[0]): float(row[1]) for row in rows if row[1] != "-" and float(row[1]) >= 0}


def stats_of(fs, *job):
    return dict(line.split(" ", 1) for line in text_of(fs, *job, "stats").splitlines())


# --- what was said -------------------------------------------------------------------------------

def jobs_with_all_they_have_said():
    fs, _ = mount()
    for name in ("a", "gone", "b"):
        os.mkdir(fs.at(".shade/jobs", name))
    os.rmdir(fs.at(".shade/jobs/gone"))
    assert fs.control("score 3 0.25\nscore 4 7\nuses 2.5\norder 5 begin\norder 5 1 2 3\n"
                      "order 5 end\nepoch 5\norder 6 begin\norder 6 3 2 1\norder 6 end\n") \
        .startswith("ok")
    held = {name: Control(fs, "jobs", name) for name in ("a", "b")}
    held["b"].say("score 7 1.5\norder 2 begin\norder 2 9 8 7\norder 2 end\nepoch 2\n")
    before = ahead(fs), ahead(fs, "jobs/b"), scores(fs), scores(fs, "jobs/b")
    assert before[0] and before[1] and before[2] == {3: 0.25, 4: 7} and before[3] == {7: 1.5}
    for _ in range(2):
        kill_daemon(fs)
        assert sorted(os.listdir(fs.at(".shade/jobs"))) == ["a", "b"]
        assert (ahead(fs), ahead(fs, "jobs/b"), scores(fs), scores(fs, "jobs/b")) == before
        assert (stats_of(fs)["epoch"], stats_of(fs, "jobs/b")["epoch"]) == ("5", "2")
        assert float(stats_of(fs)["uses"]) == 2.5
    # Numbers are as they were, so what is said now is about the same.
    os.mkdir(fs.at(".shade/jobs/c"))
    assert Control(fs, "jobs", "c").say("score 1 1\n").startswith("ok")
    assert scores(fs, "jobs/b") == {7: 1.5} and scores(fs, "jobs/c") == {1: 1}
    for control in held.values():
        control.close()
    fs.control("forget b\n")
    kill_daemon(fs)
    assert sorted(os.listdir(fs.at(".shade/jobs"))) == ["a", "c"]
    assert scores(fs, "jobs/c") == {1: 1}
    fs.end()


def an_order_as_far_as_it_was_read():
    fs, contents = mount()
    paths = {number: path for path, number in fs.samples().items()}
    order = list(range(FILES))
    random.Random(1).shuffle(order)
    words = " ".join(map(str, order))
    assert fs.control(f"order 1 begin\norder 1 {words}\norder 1 end\nepoch 1\n").startswith("ok")
    for number, sample in enumerate(order):
        if number in (5, 15):
            wait_until(lambda number=number: float(fs.stats()["order_ahead"]) == FILES - number,
                       "what was read is known")
            kill_daemon(fs)
            assert fs.stats()["order_ahead"] == FILES - number, fs.stats()
            assert stats_of(fs)["epoch"] == "1"
        assert read(fs.at(paths[sample])) == contents[paths[sample]]
    wait_until(lambda: fs.stats()["order_ahead"] == 0, "all of it was read")
    fs.end()


def settings_and_pins():
    fs, contents = mount()
    path = min(contents)
    assert fs.control(f"capacity 12M\npolicy lru\npin {path}\nwarm {path}\n").startswith("ok")
    wait_until(lambda: fs.stats()["resident_samples"] == 1, "it is there")
    fs.settle()
    pinned = fs.stats()["pinned_bytes"]
    kill_daemon(fs)
    stats = fs.stats()
    assert stats["capacity_bytes"] == 12 << 20 and stats["policy"] == "lru", stats
    assert "\ncapacity 12582912 # control\n" in text_of(fs, "config"), text_of(fs, "config")
    assert stats["pinned_bytes"] == pinned, stats
    fs.end()


# --- open files ----------------------------------------------------------------------------------

def table_of(paths):
    body = b"".join(path.encode() + b"\0" for path in paths)
    return struct.pack("<IHHQQ", RECORD, 1, 4, 8 + len(body), len(paths)) + body


def order_of(epoch, ids):
    return struct.pack("<IHHQQQ", RECORD, 1, 2, 16 + 4 * len(ids), epoch, len(ids)) + \
        struct.pack(f"<{len(ids)}I", *ids)


def what_is_unfinished_goes_on():
    fs, _ = mount()
    ids = fs.samples()
    mine = sorted(ids, reverse=True)[:10]
    text, record, line, table = (Control(fs) for _ in range(4))
    table.write(table_of(mine))
    assert table.answer().startswith("ok")
    text.write("order 1 begin\norder 1 1 2\n")
    data = order_of(2, list(range(FILES)))
    record.write(data[:50])
    line.write("score 5 3")
    kill_daemon(fs)
    text.write("order 1 3\norder 1")
    record.write(data[50:70])
    kill_daemon(fs)
    text.write(" 4 5\norder 1 end\n")
    record.write(data[70:])
    line.write(".5\n")
    table.write("score 0 9\n")
    for control in (text, record, line, table):
        assert control.answer().startswith("ok ")
        assert control.answer() == "", "an answer is read once"
    assert scores(fs) == {5: 3.5, ids[mine[0]]: 9}, scores(fs)
    assert fs.stats()["order_ahead"] == 5 + FILES, ahead(fs)
    # A table that comes while something is unfinished.
    table.write(b"order 3 begin\norder 3 0\n" + table_of(mine[1:4]))
    kill_daemon(fs)
    table.write("order 3 1\norder 3 end\nscore 2 4\n")
    assert table.answer() == "ok 3 commands\n"
    assert scores(fs)[ids[mine[3]]] == 4
    for control in (text, record, line, table):
        control.close()
    fs.end()


def what_was_refused_stays_refused():
    fs, _ = mount()
    control = Control(fs)
    control.write("order 4 begin\norder 4 7\n")
    raises(errno.EINVAL, lambda: control.write("order 4 8\nnonsense\n"))
    kill_daemon(fs)
    assert "nonsense" in control.answer()
    control.write("order 4 9\norder 4 end\n")
    assert control.answer() == "ok 2 commands\n"
    assert [row[-2:] for row in ahead(fs)] == [[7, 9]] or ahead(fs)[-2:] == [[7], [9]], ahead(fs)
    raises(errno.EINVAL, lambda: control.write("nonsense\n"))
    kill_daemon(fs)
    assert control.say("score 1 1\n") == "ok 1 command\n"
    control.close()
    fs.end()


def an_answer_is_read_by_whoever_did_not_get_it():
    fs, _ = mount()
    control = Control(fs)
    control.write("score 1 1\nscore 2 2\n")
    kill_daemon(fs)
    assert control.answer() == "ok 2 commands\n"
    kill_daemon(fs)
    assert control.answer() == ""
    control.close()
    fs.end()


def texts_go_on():
    fs, _ = mount()
    names = ("stats", "samples", "config", "scores")
    whole = {name: text_of(fs, name) for name in names if name != "stats"}
    held = {name: os.open(fs.at(".shade", name), os.O_RDONLY) for name in names}
    begun = {name: os.read(fd, 20) for name, fd in held.items()}
    kill_daemon(fs)
    for name, fd in held.items():
        rest = begun[name]
        while part := os.read(fd, 100):
            rest += part
        assert name == "stats" or rest.decode() == whole[name], name
        assert name != "stats" or b"\ntakeovers 0\n" in rest, "it shows one moment"
        os.close(fd)
    fs.end()


def samples_that_are_others_by_now_are_not_mixed():
    root, _ = make_tree(FILES)
    fs = Shade(root, capacity="16M", staleness=0.2)
    fd = os.open(fs.at(".shade/samples"), os.O_RDONLY)
    first = os.read(fd, 10)
    kill_daemon(fs)
    with open(os.path.join(root, "class0/added.bin"), "wb") as file:
        file.write(b"x" * 100)
    fs.control("rescan\n")
    wait_until(lambda: "class0/added.bin" in fs.samples(), "it has a number")
    raises(errno.EIO, lambda: os.read(fd, 100))
    os.close(fd)
    assert first
    fs.end()


def a_trace_goes_on():
    fs, contents = mount()
    fd = os.open(fs.at(".shade/trace"), os.O_RDONLY)
    got, path = [], min(contents)
    reader = threading.Thread(target=lambda: got.append(os.read(fd, 4096)), daemon=True)
    reader.start()
    time.sleep(0.2)
    kill_daemon(fs)
    read(fs.at(path))
    reader.join(30)
    assert got and got[0].startswith(b"a "), got
    os.close(fd)
    fs.end()


def who_reads_for_whom_is_known():
    """A process that has its job's file open; another one that nobody knows."""
    fs, contents = mount()
    os.mkdir(fs.at(".shade/jobs/mine"))
    code = ("import os, sys\n"
            "fd = os.open(sys.argv[1] + '/.shade/jobs/mine/control', os.O_RDWR)\n"
            "for line in sys.stdin:\n"
            "    print(len(open(sys.argv[1] + '/' + line.strip(), 'rb').read()), flush=True)\n")
    with subprocess.Popen([sys.executable, "-c", code, fs.path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as training:
        def has_read(path):
            training.stdin.write(path + "\n")
            training.stdin.flush()
            assert int(training.stdout.readline()) == len(contents[path])
        paths = sorted(contents)
        has_read(paths[0])
        wait_until(lambda: stats_of(fs, "jobs/mine")["accesses"] == "1", "it counts")
        kill_daemon(fs)
        has_read(paths[1])
        has_read(paths[2])
        read(fs.at(paths[3]))
        wait_until(lambda: stats_of(fs, "jobs/mine")["accesses"] == "2", "it still counts")
        raises(errno.EBUSY, lambda: os.rmdir(fs.at(".shade/jobs/mine")))
        training.stdin.close()
        assert training.wait(60) == 0
    fs.end()


def a_group_is_joined_again():
    fs, _ = mount()
    for name in "ab":
        os.mkdir(fs.at(".shade/jobs", name))
    members = [Control(fs, "jobs", name) for name in "ab"]
    for member in members:
        assert member.say("group both\n") == "ok 1 command\n"
    kill_daemon(fs)
    rows = sorted(line.split("\t")[0] for line in text_of(fs, "groups/both/members").splitlines())
    assert rows == ["a", "b"], rows
    members[0].say("group\n")
    kill_daemon(fs)
    assert text_of(fs, "groups/both/members").split("\t")[0] == "b"
    for member in members:
        member.close()
    assert not os.listdir(fs.at(".shade/groups"))
    fs.end()


def files_that_are_closed_are_gone():
    """Nothing is kept of them, and their numbers mean nothing."""
    fs, _ = mount()
    os.mkdir(fs.at(".shade/jobs/x"))
    for _ in range(50):
        control = Control(fs, "jobs", "x")
        control.write("order 1 begin\norder 1 1 2 3\n")
        control.close()
    kill_daemon(fs)
    os.rmdir(fs.at(".shade/jobs/x"))  # would be busy
    fs.end()


# --- between a request and its answer ------------------------------------------------------------

def without_answer(fs, number, request):
    """The daemon dies instead of giving that many-th answer from now on. Returns what came of the
    request all the same."""
    before = fs.stats()["takeovers"]
    time.sleep(0.3)  # until it is quiet: its next words to the kernel are answers
    with subprocess.Popen(["strace", "-f", "-p", str(fs.daemon()), "-e", "trace=writev", "-e",
                           f"inject=writev:error=EINTR:signal=SIGKILL:when={number}"],
                          stderr=subprocess.PIPE, text=True) as tracer:
        while "attached" not in (line := tracer.stderr.readline()):
            assert line, "the daemon cannot be traced"
        time.sleep(0.3)  # all its threads
        result = request()
        wait_until(lambda: fs.stats()["takeovers"] > before, "it has died")
        tracer.communicate(timeout=60)
    time.sleep(STEADY)
    return result


def what_was_done_is_not_done_again():
    """The kernel looks names up first: the answer that is lost is one to that, too."""
    if not shutil.which("strace"):
        print("   SKIP: there is no strace")
        return
    root, _ = make_tree(FILES)
    fs = Shade(root, capacity="16M", prefetch="4K")  # nothing else is said to the kernel
    control, held = Control(fs), []
    for number in (3, 4):
        control.write("order 1 begin\norder 1 ")
        without_answer(fs, 1, lambda number=number: control.write(f"{number}\norder 1 5 "))
        without_answer(fs, 1, lambda: control.write("6\norder 1 end\nscore 2 2\n"))
        assert ahead(fs) == [[number], [5], [6]], ahead(fs)
        assert without_answer(fs, 1, control.answer) == "ok 3 commands\n"
        assert control.answer() == ""
    without_answer(fs, 1, lambda: raises(errno.EINVAL, lambda: control.write("nonsense\n")))
    assert "nonsense" in control.answer()
    for number in range(1, ANSWERS):
        without_answer(fs, number, lambda: os.mkdir(fs.at(f".shade/jobs/x{number}")))
        held.append(without_answer(fs, number, lambda: Control(fs, "jobs/x1")))
    for file in held:
        without_answer(fs, 1, file.close)
    wait_until(lambda: can_remove(fs, "x1"), "nobody has it open")
    for number in range(2, ANSWERS):
        without_answer(fs, number, lambda: os.rmdir(fs.at(f".shade/jobs/x{number}")))
    control.close()
    fs.end()


def can_remove(fs, job):
    try:
        os.rmdir(fs.at(".shade/jobs", job))
    except OSError as failure:
        if failure.errno != errno.EBUSY:
            raise
        return False
    return True


# --- at any moment -------------------------------------------------------------------------------

def writes_are_applied_once():
    """Orders in pieces while the daemon is killed again and again: each answer is exact, and each
    order has its samples, none twice and none missing."""
    fs, _ = mount()
    chance = random.Random(7)
    control, stop, deaths = Control(fs), [], 0
    failures, epochs = [], [0]

    def write():
        try:
            while not stop:
                epochs[0] += 1
                epoch, ids = epochs[0], chance.sample(range(FILES), FILES)
                pieces = ["order %d begin\n" % epoch]
                pieces += ["order %d %d\n" % (epoch, sample) for sample in ids]
                pieces += ["order %d end\nepoch %d\n" % (epoch, epoch)]
                text, at = "".join(pieces), 0
                while at < len(text):
                    size = chance.choice((1, 7, 40, 400))
                    control.write(text[at:at + size])
                    at += size
                assert control.answer().startswith("ok"), "the last write was right"
                assert control.answer() == ""
                got = [sample for row in ahead(fs) for sample in row]
                assert got[-FILES:] == ids, (got, ids)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    while deaths < 8 and not failures:
        time.sleep(STEADY + chance.random() / 3)
        os.kill(fs.daemon(), signal.SIGKILL)
        deaths += 1
        before = deaths
        wait_until(lambda before=before: fs.stats()["takeovers"] == before, "it is taken over")
    stop.append(True)
    writer.join(60)
    assert not failures, failures
    assert not writer.is_alive() and epochs[0] > 10, epochs
    print(f"   {epochs[0]} orders, {deaths} deaths")
    control.close()
    fs.end()


print(MODE, flush=True)
run_tests([jobs_with_all_they_have_said, an_order_as_far_as_it_was_read, settings_and_pins,
           what_is_unfinished_goes_on, what_was_refused_stays_refused,
           an_answer_is_read_by_whoever_did_not_get_it, texts_go_on,
           samples_that_are_others_by_now_are_not_mixed, a_trace_goes_on,
           who_reads_for_whom_is_known, a_group_is_joined_again, files_that_are_closed_are_gone,
           what_was_done_is_not_done_again, writes_are_applied_once])
