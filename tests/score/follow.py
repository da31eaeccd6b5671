# SPDX-License-Identifier: LGPL-2.1-or-later
"""shade-score follow against a real mount: follow.py SHADEFS SLOWFS SHADE_SCORE."""
import math
import os
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
from common import Shade, Slow, make_tree, read, run_tests, scratch, wait_until  # noqa: E402

SHADE_SCORE = sys.argv[3]
COUNT = 120


def loss_of(epoch, number):
    """Any fixed numbers."""
    return ((number * 7919 + epoch * 31) % 1009) / 100


class Follow:
    """The helper, fed as a training would."""

    def __init__(self, fs, *options):
        self.orders = tempfile.mkdtemp(prefix="orders-", dir=scratch)
        self.process = subprocess.Popen(
            [SHADE_SCORE, "follow", fs.path, "--orders", self.orders, *map(str, options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def write(self, data):
        self.process.stdin.write(data.encode() if isinstance(data, str) else data)
        self.process.stdin.flush()

    def order(self, epoch):
        path = os.path.join(self.orders, f"order.{epoch}")
        wait_until(lambda: os.path.exists(path), f"the order of epoch {epoch}")
        with open(path) as file:
            return [int(line) for line in file]

    def end(self):
        out, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0 and not errors, (self.process.returncode, errors)
        return out.decode().splitlines()

    def refused(self, *words):
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 2 and errors.count(b"\n") == 1, errors
        for word in words:
            assert word in errors.decode(), errors


def mount():
    root, contents = make_tree(COUNT, size=16000)
    fs = Shade(root, capacity="1M", inflight="128K")
    paths = {number: path for path, number in fs.samples().items()}
    return fs, contents, paths


def scores_of(fs, *job):
    with open(fs.at(".shade", *job, "scores")) as file:
        return [float(line.split("\t")[1]) for line in file]


def expect(scores, epoch, ids):
    """What a batch makes of the scores, computed apart."""
    losses = [loss_of(epoch, number) for number in ids]
    for number, loss in zip(ids, losses):  # equal losses share the mean of their ranks
        rank = sum(other < loss for other in losses) + (losses.count(loss) - 1) / 2
        scores[number] = math.log((rank if len(ids) > 1 else 31.5) + 10)


def train(fs, contents, paths, helper, epoch, scores, binary=False):
    order = helper.order(epoch)
    for begin in range(0, len(order), 32):
        ids = order[begin:begin + 32]
        for number in ids:
            assert read(fs.at(paths[number])) == contents[paths[number]]
        if binary:
            helper.write(b"".join(struct.pack("<QIf", epoch, i, loss_of(epoch, i)) for i in ids)
                         + struct.pack("<QIf", epoch, 0xffffffff, 0))
        else:
            helper.write("".join(f"{epoch} {i} {loss_of(epoch, i)}\n" for i in ids) + "\n")
        expect(scores, epoch, ids)
    helper.write(struct.pack("<QIf", epoch, 0xfffffffe, 0) if binary else f"{epoch} end\n")


def same_scores(fs, scores, *job):
    return all(abs(one - other) < 1e-5 for one, other in zip(scores_of(fs, *job), scores))


def training(lookahead, binary):
    fs, contents, paths = mount()
    options = ["--rep", 2, "--seed", 5, *(["--lookahead", 1] if lookahead else []),
               *(["--binary"] if binary else [])]
    helper = Follow(fs, *options)
    scores = [-1.0] * COUNT
    for epoch in range(3):
        train(fs, contents, paths, helper, epoch, scores, binary)
        ahead = helper.order(epoch + 1 + lookahead)
        assert len(ahead) == COUNT, ahead
        wait_until(lambda: same_scores(fs, scores), "all scores")
        wait_until(lambda: fs.stats()["epoch"] == epoch + 1, "the next epoch")
        assert fs.stats()["order_ahead"] == COUNT * (1 + lookahead), fs.stats()
    with open(fs.at(".shade", "order")) as file:
        shown = [int(line) for line in file]
    assert shown[:COUNT] == helper.order(3)
    out = helper.end()
    assert out == [f"order {epoch} {COUNT}" for epoch in range(4 + lookahead)], out
    fs.end()


def text_records():
    training(0, False)


def text_records_one_epoch_ahead():
    training(1, False)


def binary_records():
    training(0, True)


def residents_come_more_often():
    root, _ = make_tree(COUNT, size=40000)
    fs = Shade(root, capacity="1200K", inflight="128K", prefetch="536K")
    helper = Follow(fs, "--mode", "pads", "--rep", 4)
    order = helper.order(0)
    helper.write("".join(f"0 {i} 1\n" for i in order) + "\n")
    wait_until(lambda: fs.stats()["scored"] == COUNT, "all scores")
    fs.settle()
    resident = fs.stats()["resident_samples"]
    bits = read(fs.at(".shade", "resident"))
    helper.write("0 end\n")
    hits = sum(bits[i // 8] >> i % 8 & 1 for i in helper.order(1))
    assert 10 < resident < COUNT / 3 and hits > 1.8 * resident, (resident, hits)
    helper.end()
    fs.end()


def pruned_epochs_are_shorter():
    """The first epoch has everything, later ones leave samples of low loss out."""
    fs, contents, paths = mount()
    helper = Follow(fs, "--mode", "prune", "--seed", 3, "--epochs", 4)
    scores = [-1.0] * COUNT
    for epoch in range(3):
        train(fs, contents, paths, helper, epoch, scores)
    lengths = [len(helper.order(epoch)) for epoch in range(4)]
    assert lengths[0] == lengths[3] == COUNT, lengths  # the last eighth of four epochs is one
    assert COUNT / 2 < lengths[1] < COUNT and COUNT / 2 < lengths[2] < COUNT, lengths
    assert helper.end() == [f"order {epoch} {length}" for epoch, length in enumerate(lengths)]
    assert same_scores(fs, scores) and fs.stats()["order_ahead"] == COUNT
    fs.end()


def uses_follow_the_source():
    """A source of 1 MB/s has 1.9 s to do for each epoch of a training that computes nothing."""
    root, contents = make_tree(COUNT, size=16000)
    slow = Slow(root, bandwidth="1M")
    fs = Shade(slow.path, capacity="1M", inflight="128K")
    paths = {number: path for path, number in fs.samples().items()}
    helper = Follow(fs, "--most", 3, "--batch", 8)
    scores = [-1.0] * COUNT
    for epoch in range(2):
        train(fs, contents, paths, helper, epoch, scores)
    assert len(set(helper.order(0))) == COUNT, "each once"
    later = helper.order(2)
    assert len(set(later)) < 0.8 * COUNT, later
    assert fs.stats()["uses"] == 3, fs.stats()
    assert "uses 3.00" in helper.end()
    fs.end()
    slow.end()


def batches_by_number_and_epochs_that_rise():
    """No blank lines and no ends: --batch, a rising epoch and the end of the input do it."""
    fs, _, _ = mount()
    helper = Follow(fs, "--batch", 10)
    scores = [-1.0] * COUNT
    ids = list(range(25))
    for epoch in (0, 4):
        helper.write("".join(f"{epoch} {i} {loss_of(epoch, i)}\n" for i in ids))
        for begin in (0, 10, 20):
            expect(scores, epoch, ids[begin:begin + 10])
    out = helper.end()
    assert out == [f"order {epoch} {COUNT}" for epoch in (0, 4, 5)], out
    assert same_scores(fs, scores) and fs.stats()["epoch"] == 5, scores_of(fs)
    expect(scores, 4, ids)  # in one batch they would be others
    assert not same_scores(fs, scores)
    fs.end()


def bad_input():
    fs, _, _ = mount()
    for text, *words in (("0 1 2\nx\n", "input:2", "'x'"), ("0 1 nan\n", "input:1", "nan"),
                         (f"0 {COUNT} 1\n", "input:1", "an id"), ("0 1\n", "missing"),
                         ("0 1 1 1\n", "too much"), ("2 1 1\n1 1 1\n", "input:2", "is over"),
                         ("0 end\n0 1 1\n", "input:2", "is over")):
        helper = Follow(fs)
        helper.write(text)
        helper.refused(*words)
    helper = Follow(fs, "--binary")
    helper.write(struct.pack("<QIf", 0, 1, 1) + b"abc")
    helper.refused("record:2", "cut off")
    helper = Follow(fs, "--binary")
    helper.write(struct.pack("<QIf", 0, COUNT, 1))
    helper.refused("record:1", "an id")
    fs.end()


def killed_in_the_middle():
    """The mount goes on serving, and takes the next helper."""
    fs, contents, paths = mount()
    helper = Follow(fs, "--batch", 8)
    ids = helper.order(0)
    helper.write("".join(f"0 {i} 1\n" for i in ids[:50]))
    wait_until(lambda: fs.stats()["scored"] > 0, "scores have come")
    helper.process.kill()
    helper.process.communicate()
    for number in ids:
        assert read(fs.at(paths[number])) == contents[paths[number]]
    scores = scores_of(fs)
    helper = Follow(fs, "--epoch", 1)
    helper.order(1)
    helper.end()
    assert scores_of(fs) == scores
    fs.end()


def saved(name, data):
    path = os.path.join(scratch, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def draw(epoch, *options):
    """What `order` makes of the same."""
    done = subprocess.run([SHADE_SCORE, "order", "--samples", str(COUNT), "--epoch", str(epoch),
                           *options], capture_output=True, check=True)
    return [int(line) for line in done.stdout.split()]


def started_again():
    """The order of the next helper follows the scores that the last one has left."""
    fs, _, _ = mount()
    helper = Follow(fs, "--mode", "pads")
    ids = helper.order(0)
    helper.write("".join(f"0 {i} {loss_of(0, i)}\n" for i in ids) + "\n")
    wait_until(lambda: fs.stats()["scored"] == COUNT, "all scores")
    helper.process.kill()
    helper.process.communicate()
    fs.settle()
    resident = saved("resident", read(fs.at(".shade", "resident")))
    scores = saved("scores", read(fs.at(".shade", "scores")))
    helper = Follow(fs, "--mode", "pads", "--epoch", 1)
    order = helper.order(1)
    helper.end()
    assert order == draw(1, "--resident", resident, "--scores", scores), order
    assert order != draw(1, "--resident", resident), "the scores make no difference"
    fs.end()


def jobs():
    """Two trainings over one mount know nothing of each other."""
    fs, _, _ = mount()
    scores = {name: [-1.0] * COUNT for name in ("one", "other")}
    helpers = {name: Follow(fs, "--job", name, "--batch", 10) for name in scores}
    for epoch, name in enumerate(scores):
        ids = helpers[name].order(0)[10 * epoch:][:10]
        helpers[name].write("".join(f"0 {i} {loss_of(epoch, i)}\n" for i in ids))
        expect(scores[name], epoch, ids)
    for name, helper in helpers.items():
        helper.end()
        assert same_scores(fs, scores[name], "jobs", name), name
    assert not same_scores(fs, scores["one"], "jobs", "other")
    assert same_scores(fs, [-1.0] * COUNT), "the mount's own training was told"
    helper = Follow(fs, "--job", "a/b")
    _, errors = helper.process.communicate(timeout=60)
    assert helper.process.returncode == 1 and b"a/b" in errors, errors
    fs.end()


def daemon_gone():
    fs, _, _ = mount()
    helper = Follow(fs)
    helper.order(0)
    # Not while it fetches ahead: a daemon that is killed while it asks itself for a file is
    # another matter than this helper's.
    time.sleep(0.5)
    fs.settle()
    fs.process.kill()
    fs.process.wait(60)
    helper.write("0 1 1\n\n")
    _, errors = helper.process.communicate(timeout=60)
    assert helper.process.returncode == 1 and errors.count(b"\n") == 1, errors
    assert b"is gone" in errors, errors


run_tests([text_records, text_records_one_epoch_ahead, binary_records,
           residents_come_more_often, pruned_epochs_are_shorter, uses_follow_the_source,
           batches_by_number_and_epochs_that_rise, bad_input,
           killed_in_the_middle, started_again, jobs, daemon_gone])
