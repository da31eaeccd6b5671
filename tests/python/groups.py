# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trainings that read one shared order: what they fetch together, and who joins, lags or dies.

Trainings are processes of their own that read a batch when they are told to, so that who is how far
ahead does not depend on how busy the machine is. Only the last test lets them run."""
import functools
import json
import os
import signal
import time
import traceback
import warnings

from harness import Shade, need, run_tests, wait_until
from common import make_tree

need("shade")
import shade  # noqa: E402 pylint: disable=wrong-import-position

FILES, BYTES, BATCH = 480, 40000, 8
BATCHES = FILES // BATCH
RESIDENT = 0.2  # of the data


def make_mount(**options):
    root, contents = make_tree(FILES, size=BYTES, folders=8)
    inflight = 2 << 20
    capacity = int(RESIDENT * sum(map(len, contents.values()))) + inflight
    fs = Shade(root, capacity=capacity, inflight=inflight, prefetch="1M", **options)
    return fs, [fs.at(name) for name in sorted(contents)]


class Training:
    """A process that reads epochs in batches, one when it is told to. `epochs` are the indices that
    it has read."""

    def __init__(self, paths, mount, job, **options):
        (self._down, down), (up, self._up) = os.pipe()[::-1], os.pipe()
        self.epochs, self.steps, self.alive = [[]], 0, True
        self.pid = os.fork()
        if not self.pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(self._down)
            os.close(up)
            self._serve(down, paths, mount, {"job": job, **options})
        os.close(down)
        os.close(self._up)
        self._answers = os.fdopen(up)

    def _serve(self, down, paths, mount, options):
        try:
            batches = self._batches(paths, mount, options)
            while os.read(down, 1):
                os.write(self._up, (json.dumps(next(batches)) + "\n").encode())
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        os._exit(1)

    @staticmethod
    def _batches(paths, mount, options):
        sampler = shade.Sampler(paths, mount=mount, **options)
        yield ["ready"]
        while True:
            order = list(sampler)
            for first in range(0, len(order), BATCH):
                batch = order[first:first + BATCH]
                for number in batch:
                    with open(paths[number], "rb", buffering=0) as file:
                        assert file.read(), paths[number]
                losses = [float(number % 101) for number in batch]
                if options.get("mode", "uniform") != "uniform":
                    sampler.weights(len(batch))
                sampler.update(losses)
                yield ["last" if first + BATCH >= len(order) else "batch", *batch]

    def ask(self):
        os.write(self._down, b".")

    def take(self):
        line = self._answers.readline()
        assert line, f"the training {self.pid} has ended"
        kind, *batch = json.loads(line)
        self.epochs[-1] += batch
        self.steps += kind != "ready"
        if kind == "last":
            self.epochs.append([])

    def step(self, count=1):
        for _ in range(count):
            self.ask()
            self.take()
        return self

    def end(self, number=signal.SIGTERM):
        if self.alive:
            self.alive = False
            os.close(self._down)
            os.kill(self.pid, number)
            os.waitpid(self.pid, 0)


def run_in_turn(trainings, steps):
    for _ in range(steps):
        for training in trainings:
            training.step()


def each_once(epoch):
    return sorted(epoch) == list(range(FILES))


def fetched(fs):
    return fs.stats()["backend_bytes"]


def bytes_an_epoch(count, **options):
    """What `count` trainings fetch an epoch, once the cache is warm, and what they have read."""
    fs, paths = make_mount()
    trainings = [Training(paths, fs.path, f"job{number}", seed=number, mode="uniform",
                          **options).step() for number in range(count)]
    run_in_turn(trainings, BATCHES)
    before = fetched(fs)
    run_in_turn(trainings, 2 * BATCHES)
    result = (fetched(fs) - before) / 2
    for training in trainings:
        assert all(map(each_once, training.epochs[:3])), "each sample comes once an epoch"
        training.end()
    fs.end()
    return result, [training.epochs for training in trainings]


@functools.lru_cache(maxsize=None)
def bytes_of_one():
    return bytes_an_epoch(1)[0]


def test_four_fetch_as_much_as_one():
    one = bytes_of_one()
    four, epochs = bytes_an_epoch(4, group="sweep")
    assert all(read == epochs[0] for read in epochs), "they read one order"
    assert epochs[0][0] != epochs[0][1], "another one each epoch"
    apart, _ = bytes_an_epoch(4)
    print(f"source bytes an epoch, of one training: {one:.0f}; four in a group: {four / one:.3f}; "
          f"four without: {apart / one:.3f}", flush=True)
    assert four <= 1.1 * one, f"{four / one:.3f}"
    assert apart > 1.5 * one, f"a group makes no difference: {apart / one:.3f}"


def test_late_one_begins_where_the_others_are():
    fs, paths = make_mount()
    first = [Training(paths, fs.path, f"job{number}", seed=number, mode="uniform",
                      group="sweep").step() for number in range(2)]
    run_in_turn(first, BATCHES * 3 // 2)
    late = Training(paths, fs.path, "late", seed=9, mode="uniform", group="sweep").step()
    before = fetched(fs)
    run_in_turn([*first, late], 3 * BATCHES)
    mean = (fetched(fs) - before) / 3
    assert late.epochs[0][:16] == first[0].epochs[1][FILES // 2 + BATCH:][:16], \
        "it begins in the middle"
    for training in (*first, late):
        assert len(training.epochs) >= 4 and all(map(each_once, training.epochs[:3]))
    print(f"with a late one: {mean / bytes_of_one():.3f} of what one alone fetches", flush=True)
    assert mean <= 1.1 * bytes_of_one()
    for training in (*first, late):
        training.end()
    fs.end()


def test_slow_one_is_left_behind():
    fs, paths = make_mount()
    fast = [Training(paths, fs.path, f"job{number}", seed=number, mode="uniform",
                     group="sweep").step() for number in range(2)]
    slow = Training(paths, fs.path, "slow", seed=5, mode="uniform", group="sweep").step()
    for number in range(4 * BATCHES):
        for training in fast:
            training.step()
        if number % 2:
            slow.step()
    assert len(fast[0].epochs) == 5 and len(slow.epochs) == 3, "nobody waits for it"
    for training in (*fast, slow):
        assert all(map(each_once, training.epochs[:-1]))
    slow.step()
    run_in_turn(fast, 1)
    # When it began its third epoch it was far behind, and is now where they are.
    assert slow.epochs[2][:16] == fast[0].epochs[4][:16]
    for training in (*fast, slow):
        training.end()
    fs.end()


def test_killed_one_is_forgotten():
    fs, paths = make_mount()
    group = [Training(paths, fs.path, f"job{number}", seed=number, mode="uniform",
                      group="sweep").step() for number in range(3)]
    run_in_turn(group, 30)
    members = fs.at(".shade/groups/sweep/members")
    with open(members) as file:
        assert len(file.readlines()) == 3
    group[0].end(signal.SIGKILL)

    def count():
        with open(members) as file:
            return len(file.readlines())
    wait_until(lambda: count() == 2, "forgotten")
    run_in_turn(group[1:], BATCHES - 30)
    before = fetched(fs)
    run_in_turn(group[1:], 2 * BATCHES)
    mean = (fetched(fs) - before) / 2
    print(f"after one was killed: {mean / bytes_of_one():.3f} of that", flush=True)
    assert mean <= 1.1 * bytes_of_one(), "nothing is kept for it"
    assert group[1].epochs[:3] == group[2].epochs[:3] and all(map(each_once, group[1].epochs[:3]))
    # It comes back under its name, and joins the others.
    again = Training(paths, fs.path, "job0", seed=0, mode="uniform", group="sweep").step()
    run_in_turn([*group[1:], again], BATCHES)
    assert again.epochs[0] == group[1].epochs[3]
    for training in (*group, again):
        training.end()
    wait_until(lambda: not os.listdir(fs.at(".shade/groups")), "the group goes with the last")
    fs.end()


def test_race_of_first_draws():
    fs, paths = make_mount()
    for turn, mode in enumerate(("pads", "prune", "auto", "echo")):
        group = [Training(paths, fs.path, f"job{turn}{number}", seed=number, mode=mode,
                          group=f"race{turn}").step() for number in range(3)]
        for training in group:  # all draw at once
            training.ask()
        for training in group:
            training.take()
        run_in_turn(group, BATCHES + 4)
        assert len(group[0].epochs) > 1 and group[0].epochs[1], "into the second epoch"
        assert all(training.epochs == group[0].epochs for training in group)
        for training in group:
            training.end()
            wait_until(lambda: removed(fs.at(".shade/jobs", f"job{turn}{group.index(training)}")),
                       "the job is over")
    fs.end()


def removed(path):
    """The close of a descriptor reaches the daemon a moment later."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def raises(words, work):
    try:
        work()
    except ValueError as failure:
        assert words in str(failure) and "\n" not in str(failure), failure
        return
    raise AssertionError("no ValueError")


def test_what_cannot_be():
    fs, paths = make_mount()
    root, other = make_tree(4)
    raises("needs a mount", lambda: shade.Sampler(10, job="a", group="g"))
    raises("needs a mount", lambda: shade.Sampler(
        [os.path.join(root, name) for name in other], mount="auto", job="a", group="g"))
    raises("an empty name", lambda: shade.Sampler(paths, mount=fs.path, job="a", group=""))
    raises("needs job=", lambda: shade.Sampler(paths, mount=fs.path, group="g"))
    raises("2 ranks", lambda: shade.Sampler(paths, mount=fs.path, job="a", group="g", world=2))
    first = shade.Sampler(paths, mount=fs.path, job="a", group="g", mode="uniform")
    second = shade.Sampler(paths[:-3], mount=fs.path, job="b", group="g", mode="uniform")
    list(first)
    raises("files that this training does not have", lambda: list(second))
    fs.end()


def test_checkpoints():
    """One that resumes goes on with or without the others."""
    fs, paths = make_mount()
    one = shade.Sampler(paths, mount=fs.path, job="a", group="g", mode="pads", seed=1)
    two = shade.Sampler(paths, mount=fs.path, job="b", group="g", mode="pads", seed=2)
    for _ in range(3):
        order = list(one)
        assert order == list(two)
        one.update([float(number) for number in order])
    weights = list(one.weights(0)), one.epoch
    assert weights == ([], 2)
    state = one.state_dict()
    assert state["epoch"] == 3 and state["stream"] == 3
    one.mount.close()
    wait_until(lambda: removed(fs.at(".shade/jobs/a")), "the first one is gone")
    again = shade.Sampler(paths, mount=fs.path, job="a", group="g", mode="pads", seed=1)
    again.load_state_dict(state)
    order = list(two)
    assert list(again) == order and again.epoch == 3
    assert len(again.weights(100)) == 100 and two.weights(FILES) == again.weights(FILES)
    # The others are gone, and the mount then as well.
    two.mount.close()
    last = list(again)
    assert len(last) == len(again) == FILES and last != order
    fs.end()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lone = list(again)
        assert len(lone) == FILES and again.mount is None and again.epoch == 5
        assert len(again.weights(FILES)) == FILES
    assert any("sampling goes on" in str(warning.message) for warning in caught)


def run_loader(paths, mount, job, start, done):
    """A training with torch in a process of its own, which begins when `start` is closed."""
    import torch.utils.data  # pylint: disable=import-outside-toplevel

    class Data(torch.utils.data.Dataset):
        """Whose samples are their indices."""
        samples = [(path, 0) for path in paths]

        def __len__(self):
            return len(paths)

        def __getitem__(self, index):
            with open(paths[index], "rb") as file:
                file.read()
            return index
    sampler = shade.Sampler(Data(), mount=mount, mode="uniform", job=job, group="loaders")
    loader = torch.utils.data.DataLoader(Data(), batch_size=BATCH, sampler=sampler, num_workers=2)
    os.read(start, 1)
    epochs = []
    for _ in range(3):
        epochs.append([])
        for batch in loader:
            epochs[-1] += batch.tolist()
            sampler.update(batch.float())
            time.sleep(0.005)
    os.write(done, json.dumps(epochs).encode() + b"\n")


def test_loaders_with_workers():
    """Real loaders, which run as they like."""
    need("torch.utils.data")
    fs, paths = make_mount()
    (start, go), (done_read, done) = os.pipe(), os.pipe()
    pids = [os.fork(), 0]
    if pids[0]:
        pids[1] = os.fork()
    if not all(pids):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(go)
        try:
            run_loader(paths, fs.path, f"job{pids.index(0)}", start, done)
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        os._exit(0)
    os.close(done)
    wait_until(lambda: len(os.listdir(fs.at(".shade/jobs"))) == 2, "both are ready")
    before = fetched(fs)
    os.close(go)
    with os.fdopen(done_read) as lines:
        epochs = [json.loads(line) for line in lines]
    for pid in pids:
        os.waitpid(pid, 0)
    ratio = (fetched(fs) - before) / ((1 + 2 * 0.8) * FILES * BYTES)
    print(f"two loaders with two workers each: {ratio:.3f} of what one would fetch", flush=True)
    assert [len(read) for read in epochs] == [3, 3], epochs
    assert all(each_once(epoch) for read in epochs for epoch in read)
    assert ratio < 1.7, ratio  # without a group it is 2
    fs.end()


run_tests([test_four_fetch_as_much_as_one, test_late_one_begins_where_the_others_are,
           test_slow_one_is_left_behind, test_killed_one_is_forgotten, test_race_of_first_draws,
           test_what_cannot_be, test_checkpoints, test_loaders_with_workers])
