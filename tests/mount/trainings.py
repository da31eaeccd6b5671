# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trainings that share a mount: each access is counted for whoever reads, and a training that is
gone leaves nothing behind."""
import os
import subprocess
import sys
import time

from common import Group, Shade, make_tree, read, run_tests, wait_until

# A training: makes its job, opens its control file, announces what standard input says, and reads a file for each
# further line: by itself, in a process that was forked before it opened the file, or in a
# grandchild that came after that.
TRAINING = """
import os, sys

def read(path):
    with open(path, "rb") as file:
        return len(file.read())

class Worker:
    ends = []  # what a child must not keep open, or others never see the end

    def __init__(self, between=False):
        wanted, self.want = os.pipe()
        self.ready, ready = os.pipe()
        Worker.ends += [self.want, self.ready]
        if os.fork():
            os.close(wanted), os.close(ready)
            return
        for fd in Worker.ends:
            os.close(fd)
        if between and os.fork():
            os.wait()
            os._exit(0)
        for path in os.fdopen(wanted):
            os.write(ready, b"%d\\n" % read(path.rstrip("\\n")))
        os._exit(0)

    def read(self, path):
        os.write(self.want, path.encode() + b"\\n")
        return int(os.read(self.ready, 100))

before = Worker()
control = None
while control is None:
    try:
        if not os.path.exists(sys.argv[1]):
            os.mkdir(os.path.dirname(sys.argv[1]))
        control = os.open(sys.argv[1], os.O_RDWR)
    except (FileExistsError, FileNotFoundError):
        pass  # the mount has ended the job, or is about to
os.write(control, sys.stdin.readline().replace(";", "\\n").encode())
assert os.read(control, 1000).startswith(b"ok")
after = Worker(between=True)
readers = [read, before.read, after.read]
print("announced", flush=True)
for number, line in enumerate(sys.stdin):
    print(readers[number % 3](line.rstrip("\\n")), flush=True)
"""


def order_of(epoch, ids):
    return f"order {epoch} begin;order {epoch} {' '.join(map(str, ids))};order {epoch} end;" \
           f"epoch {epoch};"


class Training:
    def __init__(self, fs, job, commands, group=None):
        self.place = fs.at(".shade", f"jobs/{job}" if job else ".")
        command = [sys.executable, "-c", TRAINING, os.path.join(self.place, "control")]
        self.process = subprocess.Popen(
            group.command(*command) if group else command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        self.send(commands)

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the training has ended"
        return answer

    def read(self, path, size):
        assert int(self.send(path)) == size

    def stats(self):
        with open(os.path.join(self.place, "stats")) as file:
            return {key: value for key, value in (line.split() for line in file)}

    def ahead(self):
        return int(self.stats()["order_ahead"])

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def each_reads_its_own_order():
    """Both expect all samples, in opposite orders: by who expects a sample sooner, each would use up
    half of what the other one has announced."""
    root, contents = make_tree(45)
    fs = Shade(root, capacity="8M")
    ids = fs.samples()
    paths = list(ids)
    first = Training(fs, "first", order_of(1, [ids[p] for p in paths]))
    second = Training(fs, "second", order_of(1, [ids[p] for p in reversed(paths)]))
    third = Training(fs, None, order_of(1, [ids[p] for p in paths]))
    trainings = [first, second, third]
    for count, path in enumerate(paths, 1):
        first.read(fs.at(path), len(contents[path]))
        if count % 9 == 0:
            left = [training.ahead() for training in trainings]
            assert left == [45 - count, 45, 45], left
    for path in paths:
        second.read(fs.at(path), len(contents[path]))
    assert [training.ahead() for training in trainings] == [0, 0, 45]
    for path in paths:
        third.read(fs.at(path), len(contents[path]))
    assert [training.ahead() for training in trainings] == [0, 0, 0]
    counted_for_each(fs, [training.stats() for training in trainings[:2]])
    for training in trainings:
        training.end()
    fs.end()


def counted_for_each(fs, jobs):
    """Two trainings and job 0 have read each of 45 samples once; the first had all misses."""
    mount = fs.stats()
    for key in ("accesses", "hits", "misses", "coalesced", "waits", "backend_reads"):
        assert sum(int(stats[key]) for stats in jobs) <= mount[key], (key, jobs, mount)
    assert [int(stats["accesses"]) for stats in jobs] == [45, 45], jobs
    assert mount["accesses"] == 3 * 45, mount
    # Both may have fetched ahead for the others.
    assert mount["backend_reads"] == 45, mount
    # Whoever has waited knows how long a miss takes.
    for stats in jobs:
        waited = float(stats["t_miss_ms"]) > 0
        assert float(stats["t_hit_ms"]) > 0, stats
        assert not waited or float(stats["t_miss_ms"]) > float(stats["t_hit_ms"]), stats
        assert not waited or int(stats["waits"]) > 0, stats
    # Each has a row of its own, although they were announced one after the other.
    with open(fs.at(".shade/epochs")) as file:
        names, *rows = [line.split() for line in file]
    rows = [dict(zip(names, map(float, row))) for row in rows]
    found = {row["job"]: (row["epoch"], row["accesses"], row["distinct"], row["ordered"])
             for row in rows if row["announced"]}
    assert found == {job: (1, 45, 45, 1) for job in (0, *(int(stats["job"]) for stats in jobs))}, rows
    assert len(rows) == 3, rows


def a_control_group_is_a_training():
    """Two processes beside each other, in a group of their own; a second training is elsewhere."""
    try:
        group = Group()
    except OSError as failure:
        print("SKIP: no control groups here:", failure)
        return
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M")
    ids = fs.samples()
    order = list(ids.values())
    inside = Training(fs, "inside", order_of(1, order[1:]), group)
    outside = Training(fs, "outside", order_of(1, order[1:][::-1]))
    reader = subprocess.Popen(group.command(
        sys.executable, "-c", "import sys\n"
        "for line in sys.stdin:\n    print(len(open(line[:-1], 'rb').read()), flush=True)"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first, *rest = ids

    def read_one(path):
        reader.stdin.write(fs.at(path) + "\n")
        reader.stdin.flush()
        assert int(reader.stdout.readline()) == len(contents[path])

    def is_known():
        read_one(first)  # that nobody has announced
        return int(inside.stats()["accesses"]) > 0

    try:
        wait_until(is_known, "the reader is known by its group")
        for path in rest:
            read_one(path)
        assert (inside.ahead(), outside.ahead()) == (0, 19)
    finally:
        reader.stdin.close()
        reader.wait(60)
        inside.end()
        outside.end()
        group.remove()
    fs.end()


def whoever_nobody_knows_reads_what_is_expected():
    """A process that has nothing to do with the one that announced."""
    root, contents = make_tree(12)
    fs = Shade(root, capacity="8M")
    ids = fs.samples()
    os.mkdir(fs.at(".shade/jobs/told"))
    told = "".join(order_of(1, range(12))).replace(";", "\\n")
    subprocess.run(["sh", "-c", f"printf '{told}' > {fs.at('.shade/jobs/told/control')}"],
                   check=True)
    for path in ids:
        assert read(fs.at(path)) == contents[path]
    with open(fs.at(".shade/jobs/told/stats")) as file:
        assert "order_ahead 0\n" in file.read()
    fs.end()


def a_training_that_is_gone_is_forgotten():
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M", job_grace=0.3)
    ids = fs.samples()
    order = order_of(1, ids.values())
    trainings = [Training(fs, "first", order), Training(fs, None, order + "score 3 7;")]
    # While they live their orders stay, whatever they do.
    time.sleep(1)
    assert [training.ahead() for training in trainings] == [20, 20]
    # One that has closed its file, but lives, too.
    fd = os.open(fs.at(".shade/control"), os.O_RDWR)
    os.close(fd)
    for training in trainings:
        training.end()
    wait_until(lambda: not os.path.exists(fs.at(".shade/jobs/first")), "the job is gone")
    assert fs.stats()["order_ahead"] == 20, "this process has opened job 0's file, and lives"
    order_bytes = fs.stats()["order_bytes"]
    assert order_bytes > 20 * 8, order_bytes
    fs.end()


def job_0_loses_its_orders_and_keeps_its_scores():
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M", job_grace=0.3)
    ids = fs.samples()
    training = Training(fs, None, order_of(1, ids.values()) + "score 3 7;")
    assert training.ahead() == 20
    training.end()
    wait_until(lambda: fs.stats()["order_ahead"] == 0, "the orders are gone")
    stats = fs.stats()
    assert stats["order_bytes"] == 0 and stats["scored"] == 1 and stats["epoch"] == 1, stats
    # The next training begins as ever.
    training = Training(fs, None, order_of(2, ids.values()))
    assert training.ahead() == 20
    training.end()
    fs.end()


def what_is_read_lives():
    """Announced by a process that is gone, and read by others: the grace time counts from the last
    access of what was announced."""
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M", job_grace=0.7)
    ids = fs.samples()
    paths = list(ids)
    told = order_of(1, [ids[p] for p in paths]).replace(";", "\\n")
    place = fs.at(".shade/jobs/told")
    subprocess.run(["sh", "-c", f"mkdir {place} && printf '{told}' > {place}/control"], check=True)
    began = last = time.monotonic()
    longest = step_ms = 0
    for path in paths:
        assert read(fs.at(path)) == contents[path]
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        try:
            with open(fs.at(".shade/jobs/told/stats")) as file:
                step_ms = float(dict(line.split() for line in file)["t_step_ms"])
        except FileNotFoundError:
            longest = max(longest, time.monotonic() - last)
            assert longest > 0.4, f"gone after {now - began:.1f} s"
            break  # this machine is too busy to tell
        time.sleep(0.08)
    assert longest > 0.4 or (last - began > 1.4 and step_ms >= 80), step_ms
    wait_until(lambda: not os.path.exists(fs.at(".shade/jobs/told")), "the job is gone")
    fs.end()


run_tests([each_reads_its_own_order, whoever_nobody_knows_reads_what_is_expected,
           a_control_group_is_a_training, a_training_that_is_gone_is_forgotten, job_0_loses_its_orders_and_keeps_its_scores,
           what_is_read_lives])
