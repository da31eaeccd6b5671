# SPDX-License-Identifier: LGPL-2.1-or-later
"""Binary records and ioctls through a real mount: include/shade/control.h is the law. Whatever is
wrong gets EINVAL and a sentence, and the plan stays as it was."""
import errno
import fcntl
import math
import os
import struct
import sys
import threading

from common import Shade, in_threads, make_tree, raises, read, run_tests, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import control_records as records  # pylint: disable=wrong-import-position

SAMPLES = 40
SCORES_MAX = 1024
READ, WRITE = 2, 1


def number(direction, which, layout):
    """As _IOC() makes them."""
    return direction << 30 | struct.calcsize(layout) << 16 | 0xf5 << 8 | which


SCORES_LAYOUT = f"=II{SCORES_MAX}I{SCORES_MAX}f"
QUERY_LAYOUT = "=IIfIQ"
IOCTL_SCORES = number(WRITE, 1, SCORES_LAYOUT)
IOCTL_EPOCH = number(WRITE, 2, "=Q")
IOCTL_QUERY = number(READ | WRITE, 3, QUERY_LAYOUT)


def scores_of(pairs, count=None, zero=0):
    ids, values = zip(*pairs)
    rest = [0] * (SCORES_MAX - len(pairs))
    return bytearray(struct.pack(SCORES_LAYOUT, len(pairs) if count is None else count, zero, *ids,
                                 *rest, *values, *rest))


def query(fd, sample):
    return struct.unpack(QUERY_LAYOUT, fcntl.ioctl(fd, IOCTL_QUERY,
                                                   struct.pack(QUERY_LAYOUT, sample, 0, 0, 0, 0)))


def plan(fs):
    """All that hints can change."""
    with open(fs.at(".shade", "scores")) as scores:
        return ([line.split()[1] for line in scores], read(fs.at(".shade", "order")),
                [fs.stats()[key] for key in ("epoch", "order_ahead", "scored", "policy",
                                             "capacity_bytes")])


class Planned:
    """A mount with a plan, and a descriptor of its control file."""

    def __init__(self):
        self.root, self.contents = make_tree(SAMPLES)
        self.fs = Shade(self.root, capacity="8M")
        self.fd = self.open()
        os.write(self.fd, records.scores([1, 2], [5, 6]) + records.order(3, [3, 2, 1])
                 + records.epoch_begins(3))
        wait_until(lambda: self.fs.stats()["resident_samples"] == 3, "fetched ahead")
        self.fs.settle()
        self.before = plan(self.fs)
        assert self.before[1].split() == [b"3", b"2", b"1"] and self.before[2][:3] == [3, 3, 2]

    def open(self):
        return os.open(self.fs.at(".shade", "control"), os.O_RDWR)

    def refuses(self, work, what, error=errno.EINVAL, sentence=True):
        """work(descriptor), on one that was used before and on a new one."""
        for fd in (self.fd, self.open()):
            raises(error, lambda: work(fd))  # pylint: disable=cell-var-from-loop
            if sentence:
                answer = os.read(fd, 4096).decode()
                assert answer and not answer.startswith("ok"), (what, answer)
            if fd != self.fd:
                os.close(fd)
            assert plan(self.fs) == self.before, what

    def end(self):
        os.close(self.fd)
        self.fs.end()


def ioctls():
    on = Planned()
    paths = sorted(on.contents)
    wait_until(lambda: query(on.fd, 3)[3] == 1, "3 is resident")
    assert query(on.fd, 1)[:3] == (1, 0, 5) and query(on.fd, 0)[2] < 0
    assert [query(on.fd, sample)[4] for sample in range(SAMPLES)] == \
        [len(on.contents[path]) for path in paths]
    for what, bad in {
            "NaN": scores_of([(0, 1), (1, math.nan)]), "infinite": scores_of([(0, math.inf)]),
            "below 0": scores_of([(0, 1), (2, -1)]),
            "no such sample": scores_of([(0, 1), (SAMPLES, 1)]),
            "the last number": scores_of([(0xffffffff, 1)]), "none": scores_of([(0, 1)], count=0),
            "more than there is room for": scores_of([(0, 1)], count=SCORES_MAX + 1),
            "count too large": scores_of([(0, 1)], count=0xffffffff),
            "zero is not": scores_of([(0, 1)], zero=1)}.items():
        on.refuses(lambda fd: fcntl.ioctl(fd, IOCTL_SCORES, bad), what)
    for sample in (SAMPLES, 0xffffffff):
        on.refuses(lambda fd: query(fd, sample), f"query {sample}")
    for which in (number(WRITE, 4, "=Q"), number(READ | WRITE, 2, "=Q"), number(WRITE, 1, "=Q")):
        on.refuses(lambda fd: fcntl.ioctl(fd, which, bytes(8)), f"ioctl {which:#x}",
                   (errno.ENOTTY, errno.EINVAL, errno.ENOSYS), sentence=False)
    fcntl.ioctl(on.fd, IOCTL_SCORES, scores_of([(sample, sample + 0.5)
                                                for sample in range(SAMPLES)]))
    assert plan(on.fs)[0] == [f"{sample + 0.5:g}" for sample in range(SAMPLES)], plan(on.fs)[0]
    fcntl.ioctl(on.fd, IOCTL_EPOCH, struct.pack("=Q", 4))
    assert on.fs.stats()["epoch"] == 4
    assert read(on.fs.at(paths[7])) == on.contents[paths[7]]
    wait_until(lambda: query(on.fd, 7)[1] == 1, "it was read once")
    assert query(on.fd, 7) == (7, 1, 7.5, 1, len(on.contents[paths[7]])), query(on.fd, 7)
    on.end()


def bad_records():
    on = Planned()
    good = records.scores([4, 5], [1, 2])

    def scores(count, ids=(4,), values=(1,)):
        return records.record(records.SCORES, struct.pack("<Q", count)
                              + records.packed("I", ids) + records.packed("f", values))

    def order(count, ids):
        return records.record(records.ORDER, struct.pack("<QQ", 9, count)
                              + records.packed("I", ids))

    for what, bad in {
            "NaN": records.scores([4, 5], [1, math.nan]), "below 0": records.scores([4], [-1]),
            "infinite": records.scores([4], [math.inf]),
            "no such sample": records.scores([4, SAMPLES], [1, 1]),
            "no such sample in an order": records.order(9, [1, SAMPLES, 2]),
            "more scores than follow": scores(2), "fewer": scores(0),
            "so many that they overflow": scores(1 << 61), "as many as can be": scores(2**64 - 1),
            "more ids than follow": order(2, [1]), "fewer ids": order(1, [1, 2]),
            "ids that overflow": order(1 << 62, [1]),
            "a huge record": struct.pack("<IHHQ", records.MAGIC, 1, records.SCORES, 1 << 60),
            "one that overflows": struct.pack("<IHHQ", records.MAGIC, 1, records.ORDER, 2**64 - 1),
            "another version": struct.pack("<IHHQQ", records.MAGIC, 2, records.EPOCH, 8, 9),
            "another type": struct.pack("<IHHQQ", records.MAGIC, 1, 77, 8, 9),
            "another magic": struct.pack("<IHHQQ", records.MAGIC + 0x100, 1, 3, 8, 9),
            "an epoch of 4 bytes": records.record(records.EPOCH, bytes(4)),
            "after a good one": good + records.scores([4], [math.nan]),
            "before a good one": scores(2) + good,
            "after text": b"score 4 1\n" + scores(2)}.items():
        on.refuses(lambda fd: os.write(fd, bad), what)
        # What it left unfinished is forgotten: the next message begins anew.
        assert os.write(on.fd, records.epoch_begins(3)) == 24, what
        assert plan(on.fs) == on.before, what
    on.end()


def records_in_pieces():
    on = Planned()
    whole = records.scores([4, 5], [1.5, 2.5])
    for cut in range(1, len(whole)):  # and never the rest
        fd = on.open()
        os.write(fd, whole[:cut])
        os.close(fd)
        assert on.fs.stats()["scored"] == 2, cut
    assert plan(on.fs) == on.before
    for byte in whole + records.order(9, [9, 8]):
        assert os.write(on.fd, bytes([byte])) == 1
    after = plan(on.fs)
    assert after[0][4:6] == ["1.5", "2.5"] and after[2][:3] == [3, 5, 4], after
    # A bad end takes the good beginning with it.
    on.before = after
    bad = records.scores([6, 7], [1, math.nan])
    on.refuses(lambda fd: os.write(fd, bad[:-4]) and os.write(fd, bad[-4:]), "a bad end")
    on.end()


def two_writers():
    """Two orders of one epoch, each in many writes and at the same time: one of them, whole."""
    root, _ = make_tree(SAMPLES)
    fs = Shade(root, capacity="8M")
    count = 20000
    orders = [[at * step % SAMPLES for at in range(count)] for step in (3, 7)]
    texts = [b"order 1 begin\norder 1 " + " ".join(map(str, ids)).encode() + b"\norder 1 end\n"
             for ids in orders]
    binary = [records.order(1, ids) for ids in orders]
    for messages in (texts, binary, (texts[0], binary[1])):
        for _ in range(5):
            begin = threading.Barrier(2)

            def write(which):
                fd = os.open(fs.at(".shade", "control"), os.O_RDWR)
                begin.wait()
                for at in range(0, len(messages[which]), 4001):
                    part = messages[which][at:at + 4001]
                    assert os.write(fd, part) == len(part)
                assert os.read(fd, 100).startswith(b"ok")
                os.close(fd)

            in_threads(2, write)
            found = list(map(int, read(fs.at(".shade", "order")).split()))
            assert found in orders, found[:100]
            assert fs.stats()["order_ahead"] == count
    fs.end()


run_tests([ioctls, bad_records, records_in_pieces, two_writers])
