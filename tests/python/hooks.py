# SPDX-License-Identifier: LGPL-2.1-or-later
"""The hook in one process: what it changes, whose losses it takes, and that nothing of it reaches
the script."""
import io
import os
import queue
import sys
import threading
import warnings
from contextlib import contextmanager, redirect_stderr
from unittest import mock

from harness import Numbers, batch_scores, need, run_tests

need("torch", "shade")
import torch  # noqa: E402 pylint: disable=wrong-import-position
import torch.distributed  # noqa: E402 pylint: disable=wrong-import-position
from torch.nn import functional  # noqa: E402 pylint: disable=wrong-import-position
from torch.utils.data import BatchSampler, DataLoader, RandomSampler  # noqa: E402 pylint: disable=wrong-import-position

import shade.sampler  # noqa: E402 pylint: disable=wrong-import-position
import shade.scorer  # noqa: E402 pylint: disable=wrong-import-position
from shade import _choice, _handed, _hooked, _jobs, _notes, _outputs, _pace, _paths  # noqa: E402 pylint: disable=wrong-import-position
from shade._choice import random_sampler  # noqa: E402 pylint: disable=wrong-import-position
from shade._hooked import HookedSampler, LearningSampler  # noqa: E402 pylint: disable=wrong-import-position
from shade._torch import TorchSampler  # noqa: E402 pylint: disable=wrong-import-position
from shade import hook  # noqa: E402 pylint: disable=wrong-import-position

CLASSES = 5


class Files(Numbers):
    """The same, with paths."""

    def __init__(self, count):
        super().__init__(count)
        self.samples = [(f"/nowhere/{number}", 0) for number in range(count)]


class Labelled(Files):
    """The same, with labels."""

    def __getitem__(self, index):
        return float(index), index * 7 % CLASSES


class Unlabelled(Numbers):
    """Without paths."""

    def __getitem__(self, index):
        return float(index), index * 7 % CLASSES


@contextmanager
def hooked(**settings):
    installed = hook.install(hook.Settings(mount="none", **settings))
    try:
        yield installed
        assert installed.trouble is None, installed.trouble
    finally:
        hook.uninstall()


def logits_of(numbers):
    """Any, with losses that all differ."""
    numbers = numbers.double()
    return torch.stack([torch.sin(numbers * (place + 1)) for place in range(CLASSES)],
                       1).requires_grad_()


class Judge:
    """Computes losses as a script does, and knows what the scores must be."""

    def __init__(self):
        self.wanted = {}

    def learn(self, numbers, labels, targets=None):
        logits = logits_of(numbers)
        targets = labels if targets is None else targets
        functional.cross_entropy(logits, targets).backward()
        with torch.no_grad():
            losses = functional.cross_entropy(logits, targets, reduction="none").tolist()
        self.wanted.update(zip(map(int, numbers.tolist()), batch_scores(losses)))

    def check(self, loader, count=None):
        scores = loader.sampler.scorer.scores()
        for number, score in enumerate(scores):
            assert abs(score - self.wanted.get(number, -1)) < 1e-5, f"{number}: {score}"
        assert count is None or len(self.wanted) == count, len(self.wanted)


def one_ahead(loader):
    """What a prefetcher does that copies the next batch while this one is used."""
    iterator = iter(loader)
    following = next(iterator, None)
    while following is not None:
        numbers, labels = following[0].clone(), following[1].clone()
        following = next(iterator, None)
        yield numbers, labels


def test_one_ahead():
    for workers in (0, 2):
        with hooked() as installed:
            loader = DataLoader(Labelled(90), 16, shuffle=True, num_workers=workers,
                                persistent_workers=workers > 0)
            judge = Judge()
            for _ in range(3):
                for numbers, labels in one_ahead(loader):
                    judge.learn(numbers, labels)
            judge.check(installed.loaders[0], 90)
            assert installed.loaders[0].scored == installed.loaders[0].batches == 18
            assert not installed.doubtful and not installed.strange


def test_thread_ahead():
    """The next batches are fetched by a thread."""
    with hooked() as installed:
        loader = DataLoader(Labelled(400), 8, shuffle=True)
        judge, fetched = Judge(), queue.Queue(3)

        def fetch():
            for batch in loader:
                fetched.put(batch)
            fetched.put(None)
        thread = threading.Thread(target=fetch)
        thread.start()
        for numbers, labels in iter(fetched.get, None):
            judge.learn(numbers, labels)
        thread.join()
        judge.check(installed.loaders[0], 400)
        assert installed.loaders[0].scored == 50


def test_two_iterators():
    """Over one loader, and one over a loader that is left alone, in turns."""
    with hooked() as installed:
        loader, other = DataLoader(Labelled(64), 8, shuffle=True), DataLoader(Labelled(64), 8)
        judge, aside = Judge(), Judge()
        for one, two, three in zip(loader, loader, other):
            judge.learn(*two)
            aside.learn(*three)
            judge.learn(*one)
        judge.check(installed.loaders[0])
        assert installed.loaders[0].scored == installed.loaders[0].batches == 16


def test_doubt():
    """Where labels do not tell, and the script is ahead, nothing is scored."""
    with hooked() as installed:
        loader = DataLoader(Files(60), 10, shuffle=True)
        iterator = iter(loader)
        one, two = next(iterator), next(iterator)
        labels = torch.arange(10) % CLASSES
        for numbers in (one, two):
            Judge().learn(numbers, labels)
        assert installed.doubtful == 2 and installed.loaders[0].scored == 0
        # With the next pass there is no doubt any more.
        del iterator
        judge = Judge()
        for numbers in loader:
            judge.learn(numbers, labels)
        judge.check(installed.loaders[0], 60)
        assert installed.doubtful == 2


def test_other_targets():
    """A loss on something else that has the size of the batch is not its loss."""
    with hooked() as installed:
        loader = DataLoader(Labelled(40), 10, shuffle=True)
        judge = Judge()
        for number, (numbers, labels) in enumerate(loader):
            Judge().learn(numbers + 100, labels, (labels + 1) % CLASSES)
            if number != 2:  # which the script skips
                judge.learn(numbers, labels)
        judge.check(installed.loaders[0], 30)
        assert installed.strange == 4 and installed.loaders[0].scored == 3


def test_bounded():
    """A script without a loss that is known keeps neither batches nor memory."""
    with hooked() as installed:
        for _ in DataLoader(Labelled(400), 4, shuffle=True):
            assert len(installed.handed.batches) <= 32
        large = torch.zeros(4, 1 << 20, dtype=torch.int64)
        run = installed.handed.batches[0].run
        for _ in range(4):
            installed.handed.add(hook.Batch(run, None, None, [torch.zeros(4), large]))
        assert sum(batch.label_bytes() for batch in installed.handed.batches) <= 64 << 20


def grads(loss, logits):
    logits.grad = None
    loss.sum().backward()
    return logits.grad.clone()


def test_hook_losses():
    """The script gets its own loss and gradient, bit for bit, and the batch is scored once."""
    torch.manual_seed(2)
    logits = torch.randn(8, 5, requires_grad=True)
    labels = torch.randint(0, 5, (8,))
    labels[3] = -100
    kinds = [dict(), dict(reduction="sum"), dict(reduction="none"), dict(label_smoothing=0.1),
             dict(weight=torch.rand(5)), dict(size_average=False)]
    plain = [(loss.detach().clone(), grads(loss, logits)) for loss in
             (functional.cross_entropy(logits, labels, **kind) for kind in kinds)]
    original = functional.cross_entropy
    installed = hook.install(hook.Settings(mount="none"))
    try:
        assert functional.cross_entropy is not original
        loader = DataLoader(Files(48), 8, shuffle=True)
        for kind, (value, gradient), _ in zip(kinds, plain, loader):
            batch = installed.handed.batches[-1]
            with torch.no_grad():
                functional.cross_entropy(logits, labels)
            functional.cross_entropy(logits.detach(), labels)
            functional.cross_entropy(logits[:7], labels[:7])
            assert not batch.scored, "not a training, or not this batch"
            loss = torch.nn.CrossEntropyLoss(**kind)(logits, labels)
            assert torch.equal(loss, value) and torch.equal(grads(loss, logits), gradient), kind
            assert batch.scored
            scores = installed.loaders[0].sampler.scorer.scores()
            functional.cross_entropy(-logits, labels)
            assert installed.loaders[0].sampler.scorer.scores() == scores, "scored once"
        assert installed.loaders[0].scored == len(kinds) and installed.trouble is None
        for _ in DataLoader(Numbers(16), 8):
            functional.cross_entropy(logits, labels)
        assert installed.loaders[0].scored == len(kinds), "of another loader"
    finally:
        hook.uninstall()
    assert functional.cross_entropy is original


def test_hook_prunes():
    """Epochs get shorter, and it says that nobody weighs."""
    said = io.StringIO()
    with redirect_stderr(said), hooked(mode="prune", options={"lookahead": 0}) as installed:
        loader = DataLoader(Labelled(64), 8, shuffle=True)
        lengths = []
        for _ in range(3):
            batches = list(loader)
            assert len(batches) == len(loader), "of the epoch at hand"
            lengths.append(sum(len(numbers) for numbers, _ in batches))
            sampler = installed.loaders[0].sampler
            for at in range(0, len(sampler.order), 8):
                ids = sampler.order[at:at + 8]
                sampler.update([float(number) for number in ids], ids=ids)
            sampler.trains = True
    assert lengths[0] == 64 and 32 < lengths[1] < 60 and 32 < lengths[2] < 60, lengths
    assert "leaves samples out" in said.getvalue(), said.getvalue()


def test_hook_loaders():
    installed = hook.install(hook.Settings(mount="none"))
    data = Files(30)
    try:
        for sampled in (DataLoader(data, 4, True), DataLoader(data, 4, sampler=RandomSampler(data)),
                        DataLoader(data, None, shuffle=True, num_workers=1),
                        DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, True))):
            count = len(installed.loaders)
            numbers, noted = [], []
            for batch in sampled:
                numbers += batch.tolist() if torch.is_tensor(batch) else [batch]
                noted += installed.handed.batches[-1].ids
            assert numbers == noted and len(set(numbers)) >= 28
        assert count == 4
        old = torch.utils.data.DistributedSampler(data, num_replicas=3, rank=1, seed=3)
        loader = DataLoader(data, 4, sampler=old)
        sampler = installed.loaders[4].sampler
        assert (sampler.rank, sampler.world, len(loader.sampler)) == (1, 3, 10)
        old.set_epoch(6)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            list(loader)
        assert sampler.epoch == 6
        DataLoader(data, 4)
        DataLoader(Numbers(30), 4, shuffle=True)
        DataLoader(data, 4, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 30, 30))
        assert len(installed.loaders) == 5 and installed.trouble is None
    finally:
        hook.uninstall()


def failing(*_):
    raise MemoryError("none is left")


def test_never_ends():
    """Whatever fails when an epoch begins: the script gets what it would have drawn itself."""
    data = Labelled(30)
    with hooked() as installed:
        loaders = [DataLoader(data, 4, shuffle=True), DataLoader(
            data, 4, sampler=torch.utils.data.DistributedSampler(data, 1, 0))]
        for loader, noted in zip(loaders, installed.loaders):
            noted.sampler.scorer.begin = failing
            orders = []
            for epoch in range(2):
                judge, orders = Judge(), [*orders, []]
                if hasattr(noted.sampler.own, "set_epoch"):
                    noted.sampler.own.set_epoch(epoch)
                for numbers, labels in loader:
                    judge.learn(numbers, labels)
                    orders[-1] += numbers.tolist()
                assert sorted(orders[-1]) == list(range(30))
                judge.check(noted, 30)
            assert orders[0] != orders[1] and noted.sampler.epoch == 1
            assert "none is left" in installed.trouble
            del noted.sampler.scorer.begin
            assert len(list(loader)) == 8 and noted.sampler.epoch == 2
            loader.sampler.set_epoch(-1)
        installed.trouble = None


def functions_of(*owners):
    """All that can fail in these classes and modules, but for what puts the hook in place."""
    for owner in owners:
        for name, value in vars(owner).items():
            inner = getattr(value, "__func__", value)
            if isinstance(inner, type(failing)) and not name.startswith(("make_", "__")) and \
                    inner.__module__ == (owner.__module__ if isinstance(owner, type)
                                         else owner.__name__) and \
                    name not in ("guarded", "failed", "say", "replace", "install", "uninstall",
                                 "report_at_end", "begin_child", "settings_from", "raises"):
                yield owner, name


def script(loader_of):
    """A training and a validation; what they read, by epoch."""
    read = []
    loader, checked = loader_of(), DataLoader(Labelled(16), 4, shuffle=True)
    for _ in range(3):
        for each, learns in ((loader, True), (checked, False)):
            read.append([])
            with torch.set_grad_enabled(learns):
                for numbers, labels in each:
                    read[-1] += map(int, numbers.tolist())
                    model = torch.nn.Linear(1, CLASSES)
                    loss = functional.cross_entropy(model(numbers.float()[:, None]), labels)
                    if learns:
                        loss.backward()
    return read


def test_a_failure_anywhere():
    """Whatever of ours fails, at any call: the script reads every sample in every epoch."""
    kinds = [lambda: DataLoader(Labelled(16), 4, shuffle=True),
             lambda: DataLoader(Labelled(16), 4, sampler=torch.utils.data.DistributedSampler(
                 Labelled(16), 1, 0)),
             lambda: DataLoader(Unlabelled(16), 4, shuffle=True)]
    places = list(functions_of(
        hook.Hook, hook.Handed, hook.Batch, HookedSampler, LearningSampler, TorchSampler,
        shade.sampler.Sampler, shade.scorer.Scorer, _pace.Pace, _notes.Notes, _choice, _handed,
        _hooked, _jobs, _notes, _outputs, _pace, _paths))
    reached = set()
    for owner, name in places:
        def fails(*_, place=(owner, name), **__):
            reached.add(place)
            raise RuntimeError("as a test wants it")
        for kind in kinds:
            with redirect_stderr(io.StringIO()):
                installed = hook.install(hook.Settings(mount="none"))
                try:
                    with mock.patch.object(owner, name, fails):
                        read = script(kind)
                        installed.guarded(installed.report)
                finally:
                    hook.uninstall()
            assert all(sorted(epoch) == list(range(16)) for epoch in read), (owner, name, read)
    assert len(reached) > 50, (len(reached), len(places))


def test_warnings_as_errors():
    data = Labelled(30)
    with hooked() as installed, warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(data, 4, sampler=torch.utils.data.DistributedSampler(data, 3, 1))
        assert sum(len(labels) for _, labels in loader) == 10
        assert installed.loaders


def test_left_alone():
    """Loaders that ours would draw wrongly for."""
    class Own(torch.utils.data.DistributedSampler):
        """May mean anything."""
    data = Labelled(31)
    reasons = [random_sampler(dict(dataset=data, shuffle=True, in_order=order))[1]
               for order in (True, False)]
    assert reasons == ["", "its batches come in any sequence"], reasons
    with hooked() as installed, mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="3"):
        DataLoader(data, shuffle=True)
        assert not installed.loaders, "every rank would draw the same"
        DataLoader(data, sampler=torch.utils.data.DistributedSampler(data, 3, 1))
        assert len(installed.loaders) == 1
    with hooked() as installed:
        DataLoader(data, sampler=Own(data, 3, 1))
        DataLoader(data, sampler=torch.utils.data.DistributedSampler(Labelled(7), 3, 1))
        assert not installed.loaders
        for drop_last, count in ((False, 11), (True, 10)):
            old = torch.utils.data.DistributedSampler(data, 3, 1, drop_last=drop_last)
            loader = DataLoader(data, sampler=old)
            assert len(loader) == len(old) == len(list(loader)) == count
        assert len(installed.loaders) == 2
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0,
                                         world_size=1)
    with hooked() as installed:
        DataLoader(data, sampler=torch.utils.data.DistributedSampler(data, 3, 1))
        assert not installed.loaders, "its ranks are others than those there are"
        DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))
        assert len(installed.loaders) == 1
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.stderr = sys.stdout
    run_tests([test_one_ahead, test_thread_ahead, test_two_iterators, test_doubt,
               test_other_targets, test_bounded, test_hook_losses, test_hook_prunes,
               test_hook_loaders,
               test_never_ends, test_a_failure_anywhere, test_warnings_as_errors, test_left_alone])
