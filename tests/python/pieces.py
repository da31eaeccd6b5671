# SPDX-License-Identifier: LGPL-2.1-or-later
"""The parts of the hook and the sampler, one by one, without a mount."""
import os
import tempfile
import threading
import warnings
from types import SimpleNamespace

from harness import Numbers, need, run_tests, scratch

need("torch", "shade")
import torch  # noqa: E402 pylint: disable=wrong-import-position
import torch.distributed  # noqa: E402 pylint: disable=wrong-import-position
from torch.nn import functional  # noqa: E402 pylint: disable=wrong-import-position
from torch.utils.data import DataLoader  # noqa: E402 pylint: disable=wrong-import-position

import shade  # noqa: E402 pylint: disable=wrong-import-position
from shade import _jobs, _notes, _ranks, _state, _traced  # noqa: E402 pylint: disable=wrong-import-position
from shade._hooked import gains  # noqa: E402 pylint: disable=wrong-import-position
from shade._outputs import first_tensor, own_losses  # noqa: E402 pylint: disable=wrong-import-position
from shade._paths import paths_of  # noqa: E402 pylint: disable=wrong-import-position


def test_names_of_jobs():
    def name(environment, world=1, script="/home/me/my train.py"):
        return _jobs.name_of(environment, world, script, 77)
    assert name({}) == "my-train-77" and name({}, script="") == "python-77"
    ranks = {"MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "29500"}
    assert name(ranks) == "my-train-77", "one rank alone meets nobody"
    assert name(ranks, 4) == "ranks-10.1.2.3-29500"
    assert name({**ranks, "SHADE_RUN": "run-1"}, 4) == "run-1"
    for long in (name({}, script="x" * 200), name({"SHADE_RUN": "a/b\n" + "y" * 200})):
        assert len(long) <= 63 and not set(long) & set("/\n\t"), long


class Data(Numbers):
    def __init__(self, count, **attributes):
        super().__init__(count)
        vars(self).update(attributes)


def test_paths():
    """Under whatever name a data set has them."""
    absolute = [f"/data/{number}.png" for number in range(3)]
    pairs = [(path, 1) for path in absolute]
    for name in ("samples", "imgs", "file_names", "files", "paths", "image_paths", "img_paths"):
        assert paths_of(Data(3, **{name: absolute})) == absolute, name
        assert paths_of(Data(3, **{name: pairs})) == absolute, name
    assert paths_of(Data(3, reader=SimpleNamespace(samples=pairs))) == absolute
    assert paths_of(Data(3, filenames=lambda basename=False, absolute=False: [
        f"/data/{number}.png" if absolute else f"{number}.png" for number in range(3)])) == absolute
    # Not for another number of samples, not for what is no path, and not for what is not there.
    assert paths_of(Data(4, samples=absolute)) is None
    assert paths_of(Data(3, samples=[(1, 2), (3, 4), (5, 6)])) is None
    assert paths_of(Data(3, files=["a", "b", "c"])) is None
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for letter in "abc":
            with open(os.path.join(folder, letter), "w"):
                pass
        assert paths_of(Data(3, files=["a", "b", "c"], root_dir=folder)) == \
            [os.path.join(folder, letter) for letter in "abc"]


def test_notes():
    """What is opened for an index is noted, here and in workers, and the rest is not."""
    folder = tempfile.mkdtemp(dir=scratch)
    for number in range(12):
        with open(os.path.join(folder, f"{number}"), "w") as file:
            file.write("x" * number)

    class Things(Numbers):
        """Opens three files for each."""

        def __getitem__(self, index):
            for name in (f"{index}", "11"):
                with open(os.path.join(folder, name)):
                    pass
            with open(os.path.join(folder, f"{index}.out"), "w"):
                pass
            return index
    for workers in (0, 2):
        data = Things(10)
        notes = _notes.Notes(data)
        batches = torch.utils.data._utils.fetch._MapDatasetFetcher
        original = batches.__init__
        batches.__init__ = lambda self, given, *rest: original(self, _notes.noted(given), *rest)
        try:
            assert sorted(int(number) for batch in DataLoader(data, 3, num_workers=workers)
                          for number in batch) == list(range(10))
        finally:
            batches.__init__ = original
        known = notes.read()
        assert sorted(known) == list(range(10))
        assert known[3] == [os.path.join(folder, name) for name in ("3", "11")], known[3]
        paths = _notes.choose_paths(known, 10, lambda path: True, os.path.getsize)
        assert paths == [os.path.join(folder, str(number)) for number in range(10)], paths
        notes.end()
        assert not hasattr(data, "_shade_notes") and _notes.noted(data) is data


def test_choice_of_paths():
    def choose(known, count=None, ours=lambda path: path.startswith("/m/")):
        return _notes.choose_paths(known, count or len(known), ours,
                                   lambda path: {"/m/big": 9}.get(path, 1))
    assert choose({0: ["/m/a"], 1: ["/x/y", "/m/b"]}) == ["/m/a", "/m/b"]
    assert choose({0: ["/m/small", "/m/big"]}) == ["/m/big"]
    assert choose({0: ["/m/a"]}, 2) is None and choose({0: ["/x/a"]}) is None
    many = {number: ["/m/list", f"/m/{number}"] for number in range(20)}
    assert choose(many) == [f"/m/{number}" for number in range(20)]
    # Samples that share a file in small numbers keep it.
    assert choose({number: [f"/m/{number // 4}"] for number in range(40)})[5] == "/m/1"


def test_pairs():
    """Files that a thread opened, with samples that it fetched."""
    fetched = {1: [5, 2], 2: [0, 1, 4]}
    opened = {1: [("/m", 50), ("/m", 20)], 2: [("/m", 0), ("/m", 10)], 3: [("/m", 9)]}
    assert _traced.pair(fetched, opened) == {5: ("/m", 50), 2: ("/m", 20)}
    tracer = _traced.Tracer([], 2)
    tracer._take("/m", [b"a 50 100 # hit 1", b"# 3 were lost", b"a 1 2 # hit", b"a 20 9 # join 1",
                        *[b"a 7 9 # hit 4"] * 9])
    assert tracer.opened()[1] == opened[1] and len(tracer.opened()[4]) == 3


def test_own_losses():
    torch.manual_seed(1)
    logits = torch.randn(6, 4, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 0, -100])
    wanted = functional.cross_entropy(logits, labels, reduction="none")
    assert torch.equal(own_losses(logits, [labels]), wanted.detach())
    assert torch.equal(own_losses(logits, [labels[:, None]]), wanted.detach())
    many = (torch.rand(6, 4) > 0.5).float()
    assert torch.allclose(own_losses(logits, [many]), functional.binary_cross_entropy_with_logits(
        logits.detach(), many, reduction="none").mean(1))
    soft = torch.softmax(torch.randn(6, 4), 1)
    assert torch.allclose(own_losses(logits, [soft]),
                          functional.cross_entropy(logits.detach(), soft, reduction="none"))
    one = torch.randn(6, 1, requires_grad=True)
    assert torch.allclose(own_losses(one, [torch.tensor([0, 1, 1, 0, 1, 0])]),
                          functional.binary_cross_entropy_with_logits(
                              one.detach()[:, 0], torch.tensor([0., 1, 1, 0, 1, 0]),
                              reduction="none"))
    # Which of two labels it is cannot be known; nor what classes are that the model has not got.
    assert own_losses(logits, [labels, labels]) is None
    assert own_losses(logits, [torch.tensor([0, 1, 2, 3, 4, 5])]) is None
    assert own_losses(logits, []) is None
    assert first_tensor({"loss": torch.ones(()), "logits": logits}) is logits
    assert first_tensor((logits, torch.ones(6))) is logits and first_tensor("no") is None


def with_store(world, work, seconds=5.0):
    """Runs work(ranks) for each rank in a thread of its own; what they returned or raised."""
    store, results = torch.distributed.HashStore(), [None] * world

    def run(rank):
        try:
            results[rank] = work(_ranks.Ranks("loader", rank, world, seconds))
        except _ranks.NobodyError as failure:
            results[rank] = str(failure)
            assert failure.for_good == ("not all" not in results[rank])
    original, _ranks.default_store = _ranks.default_store, lambda: store
    try:
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        _ranks.default_store = original
    return results


def test_ranks():
    both = threading.Barrier(3)

    def all_come(ranks):
        ranks.join()
        both.wait()
        return [ranks.gather(meeting, f"{meeting}{ranks.rank}".encode()) for meeting in "abc"]
    assert with_store(3, all_come) == 3 * [[[f"{meeting}{rank}".encode() for rank in range(3)]
                                            for meeting in "abc"]]

    def one_without(ranks):
        """Rank 2 has no hook: nobody waits for it."""
        if ranks.rank == 2:
            both.wait()
            return None
        ranks.join()
        both.wait()
        return ranks.gather("a", b"here")
    found = with_store(3, one_without, seconds=600)
    assert found == ["rank 2 does not take part"] * 2 + [None], found

    for away in range(3):
        def one_away(ranks, away=away):
            """It is there, and does not want to."""
            ranks.join()
            both.wait()
            if ranks.rank == away:
                ranks.stay_away("a")
                return None
            return ranks.gather("a", b"here")
        found = with_store(3, one_away, seconds=600)
        assert found == [None if rank == away else "not all ranks take part" for rank in range(3)], \
            found

    early = threading.Event()

    def one_joins_later(ranks):
        """Rank 0 has found it missing, and goes on: the others must not wait for rank 0."""
        if ranks.rank:
            early.wait()
        ranks.join()
        try:
            return ranks.gather("a", b"here")
        finally:
            early.set()
    found = with_store(2, one_joins_later, seconds=5)
    assert found == ["rank 1 does not take part", "not all ranks take part"], found

    def one_late(ranks):
        ranks.join()
        both.wait()
        return None if ranks.rank == 1 else ranks.gather("a", b"here")
    found = with_store(3, one_late, seconds=0.2)
    assert found[1] is None and "not all" in found[0], found


def test_every_second_batch():
    """Which samples a loss belongs to is known, or it scores none."""
    def scored(uses, ahead=0):
        sampler = shade.Sampler(Numbers(64), seed=3)
        loader = DataLoader(Numbers(64), 8, sampler=sampler)
        waiting, wanted = [], set()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number, batch in enumerate(loader):
                waiting.append((number, batch))
                if len(waiting) > ahead:
                    number, batch = waiting.pop(0)
                    if uses(number):
                        sampler.update(batch.float())
                        wanted |= set(batch.tolist())
            for number, batch in waiting:
                if uses(number):
                    sampler.update(batch.float())
                    wanted |= set(batch.tolist())
        found = {number for number, score in enumerate(sampler.scorer.scores()) if score >= 0}
        return found, wanted, [str(warning.message) for warning in caught]
    for ahead in (0, 1, 3):
        found, wanted, said = scored(lambda number: True, ahead)
        assert found == wanted == set(range(64)) and not said, (ahead, said)
    for first in (0, 1):
        found, wanted, said = scored(lambda number, first=first: number % 2 == first)
        assert found <= wanted and len(found) == 8 * (1 - first), (first, found, wanted)
        assert len(said) == 1 and "update() or skip()" in said[0], said


def test_seeds():
    """The draws follow the script's seed, unless they have one of their own."""
    orders = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        orders.append(list(shade.Sampler(100)))
    assert orders[0] == orders[2] != orders[1]
    assert list(shade.Sampler(100, seed=5)) == list(shade.Sampler(100, seed=5))


def test_state_file():
    path = os.path.join(scratch, "state")
    states = _state.States(path)
    assert states.of("a") is None
    states.write({"a": {"x": 1}})
    _state.States(path).write({"b": {"y": 2}})
    assert _state.States(path).of("a") == {"x": 1} and _state.States(path).of("b") == {"y": 2}
    for text in ("", "{}", "[1]", '{"shade_hook": 9, "loaders": {}}'):
        with open(path, "w") as file:
            file.write(text)
        try:
            _state.States(path)
        except ValueError as failure:
            assert "is not a state" in str(failure)
        else:
            raise AssertionError(text)


def test_gains():
    lines = gains({"accesses": 1000.0, "hits": 950.0, "backend_bytes": 5e7}, 200, 1e6, 0.25)
    assert lines[0].startswith("0.95 of 1000 reads were hits; ") and lines[0].endswith("0.20")
    assert "50.0 MB" in lines[1] and lines[1].endswith("800.0 MB"), lines
    assert gains({}, 200, 1e6, 0.25) == []


run_tests([test_names_of_jobs, test_paths, test_notes, test_choice_of_paths, test_pairs, test_own_losses,
           test_ranks, test_every_second_batch, test_seeds, test_state_file, test_gains])
