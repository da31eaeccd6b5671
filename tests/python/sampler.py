# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sampler in one process: what it draws, announces, scores and saves."""
import math
import os
import pickle
import sys
import warnings
from collections import Counter

from harness import Numbers, Shade, batch_scores, image_tree, job_file, job_stats, need, python, \
    run_tests, wait_until

need("torch", "PIL", "torchvision", "shade")
import torch  # noqa: E402 pylint: disable=wrong-import-position
from torch.nn import functional  # noqa: E402 pylint: disable=wrong-import-position
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset  # noqa: E402 pylint: disable=wrong-import-position
from torchvision.datasets import ImageFolder  # noqa: E402 pylint: disable=wrong-import-position

import shade  # noqa: E402 pylint: disable=wrong-import-position
from shade._paths import neighbours_of  # noqa: E402 pylint: disable=wrong-import-position


def losses_of(indices):
    """Any losses that are all different."""
    return ((indices * 37) % 101).float() + indices / 1000


def wanted_scores(batches):
    scores = {}
    for batch in batches:
        losses = [losses_of(torch.tensor(number)).item() for number in batch]
        scores.update(zip(batch, batch_scores(losses)))
    return scores


def check_scores(sampler, batches, count):
    wanted = wanted_scores(batches)
    for number, score in enumerate(sampler.scorer.scores()):
        assert abs(score - wanted.get(number, -1)) < 1e-5, f"{number}: {score}"
    assert len(wanted) >= count, f"only {len(wanted)}"


def raises(kind, words, work):
    try:
        work()
    except kind as failure:
        assert words in str(failure), f"{failure!r} does not say '{words}'"
        return
    raise AssertionError(f"no {kind.__name__}")


def test_without_torch():
    done = python("-c", "import shade, sys\n"
                  "sampler = shade.Sampler(10)\n"
                  "assert sorted(sampler) == list(range(10))\n"
                  "sampler.update([0.5] * 10)\n"
                  "sampler.weights(0)\n"
                  "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
                  "assert type(sampler) is shade.Sampler\n")
    assert not done.stderr


def test_without_numpy():
    """torch works without it, and so do tensors of all kinds, and ranks."""
    python("-c", "import sys\n"
           "sys.modules['numpy'] = None\n"
           "import torch, torch.distributed, shade\n"
           "sampler = shade.Sampler(10)\n"
           "order = list(sampler)\n"
           "losses = torch.arange(20.0, requires_grad=True)[::2].double()\n"
           "sampler.update(losses[:5])\n"
           "sampler.update(logits=torch.rand(5, 3), labels=torch.tensor([0, 1, 2, 0, 1]))\n"
           "sampler.update(losses, ids=torch.arange(10))\n"
           "scores = sampler.scorer.scores().tolist()\n"
           "assert scores == sorted(scores) and scores[0] > 0, scores\n"
           "from shade._torch import all_gather\n"
           "torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(),\n"
           "                                     rank=0, world_size=1)\n"
           "assert all_gather(b'news') == [b'news'] and all_gather(b'') == [b'']\n"
           # Where it is NCCL, over a group of gloo, which is made once.
           "made, new_group = [], torch.distributed.new_group\n"
           "torch.distributed.new_group = lambda **words: made.append(words) or new_group(**words)\n"
           "torch.distributed.get_backend = lambda: 'nccl'\n"
           "for _ in range(2):\n"
           "    assert all_gather(b'news') == [b'news']\n"
           "assert made == [{'backend': 'gloo'}], made\n")


def test_loaders():
    """With workers, drop_last, batch_sampler, and neither."""
    for kind in range(5):
        sampler = shade.Sampler(Numbers(83), seed=kind)
        assert isinstance(sampler, torch.utils.data.Sampler)
        data = Numbers(83)
        loader = [lambda: DataLoader(data, 8, sampler=sampler),
                  lambda: DataLoader(data, 8, sampler=sampler, num_workers=2),
                  lambda: DataLoader(data, 8, sampler=sampler, num_workers=2, drop_last=True,
                                     persistent_workers=True),
                  lambda: DataLoader(data, batch_sampler=BatchSampler(sampler, 8, False),
                                     num_workers=2),
                  lambda: DataLoader(data, 1, sampler=sampler)][kind]()
        batches = []
        for epoch in range(4):
            for batch in loader:
                batches.append(batch.tolist())
                sampler.update(losses_of(batch))
                if epoch == 1 and len(batches) > 13:
                    break  # an epoch that is not finished
            assert sampler.epoch == epoch
        check_scores(sampler, batches, 80)
        assert len(loader) == (10 if kind == 2 else 83 if kind == 4 else 11)


def test_epochs():
    sampler, other = shade.Sampler(50, seed=1), shade.Sampler(50, seed=1)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == list(range(50)), "unseen samples come first"
    assert first != second and list(other) == first
    other.set_epoch(7)
    list(other)
    assert other.epoch == 7
    assert list(shade.Sampler(50, seed=2)) != first
    raises(ValueError, "epoch", lambda: sampler.set_epoch(-1))
    # With lookahead the third epoch is the first that can follow scores.
    scored = {}
    for lookahead in (0, 1):
        pair = [shade.Sampler(50, mode="replacement", lookahead=lookahead, seed=5, draws=500),
                shade.Sampler(50, mode="pads", lookahead=lookahead, seed=5, draws=500,
                              max_repeats=500, cover_epochs=100)]
        for sampler in pair:
            scored[lookahead, sampler.mode] = []
            for _ in range(4):
                scored[lookahead, sampler.mode].append(Counter(sampler))
                sampler.update([float(number >= 25) + number / 100 for number in range(50)],
                               ids=range(50))
    for lookahead in (0, 1):
        epochs = scored[lookahead, "pads"]
        high = [sum(count for number, count in epoch.items() if number >= 25) for epoch in epochs]
        assert high[1 + lookahead] > 265, f"lookahead {lookahead}: {high}"


def test_saved():
    """A training that resumes draws the same orders."""
    for mode in ("pads", "uniform", "paper"):
        one = shade.Sampler(60, mode=mode, seed=3)
        for _ in range(3):
            for batch in torch.tensor(list(one)).split(10):
                one.update(losses_of(batch))
        state = pickle.loads(pickle.dumps(one.state_dict()))
        two = shade.Sampler(60, mode=mode, seed=99)
        fresh = list(two)
        two.load_state_dict(state)
        ahead = [list(one) for _ in range(3)]
        assert [list(two) for _ in range(3)] == ahead, mode
        assert two.epoch == one.epoch and fresh not in ahead
    # In the middle of an epoch: the same one again, if that is wanted.
    order = list(one)
    one.update([float(number) for number in range(20)])
    two.load_state_dict(one.state_dict())
    two.set_epoch(one.epoch)
    assert list(two) == order
    raises(ValueError, "state", lambda: two.load_state_dict({}))
    raises(shade.ShadeError, "", lambda: shade.Sampler(61).load_state_dict(state))


def test_options():
    """They can be seen, and a state brings its own."""
    given = dict(mode="echo", seed=1 << 63, lookahead=1, draws=70, rep=2.5, uses=3.5, strength=0.25,
                 max_repeats=9, cover_epochs=7, capacity=11)
    one, two = shade.Scorer(60, **given), shade.Scorer(60, draws=70)
    assert two.options["mode"] == "pads" and shade.Scorer(60).options["draws"] == 60
    two.load(one.save())
    assert one.options == two.options == {**given, "samples": 60, "most_uses": 8, "keep": 0,
                                          "epochs": 0, "multiple": 1, "substitute": 0, "package": 0}


def test_batch():
    """echo has no sample twice in a batch, once it knows how large they are."""
    for given in (0, 50):
        sampler = shade.Sampler(1000, mode="echo", capacity=60, batch=given, lookahead=0)
        for epoch in range(4):
            order = list(sampler)
            for at in range(0, 1000, 50):
                batch = order[at:at + 50]
                assert len(set(batch)) == 50 or not (given or epoch), (given, epoch, at)
                assert set(sampler.weights(50)) == {1}
                sampler.update([float(number) for number in batch])
    two = shade.Sampler(1000, mode="echo", capacity=60, lookahead=0)
    two.load_state_dict(sampler.state_dict())
    assert list(two) == list(sampler), "a state knows it"
    raises(ValueError, "batch", lambda: shade.Sampler(10, batch=-1))


def train(sampler, epochs, batch=25):
    """Epochs whose losses are the indices; their orders, and the weights."""
    orders, weights = [], []
    for _ in range(epochs):
        order, seen = list(sampler), []
        assert len(order) == len(sampler)
        for at in range(0, len(order), batch):
            part = order[at:at + batch]
            seen += sampler.weights(len(part))
            sampler.update([float(number) for number in part])
        orders.append(order)
        weights.append(dict(zip(order, seen)))
    return orders, weights


def test_prune():
    """Half of those with low losses; how many they are is known when the epoch is named."""
    for lookahead in (0, 1):
        sampler = shade.Sampler(400, mode="prune", lookahead=lookahead, epochs=16)
        assert len(sampler) == 400
        first = 1 + lookahead  # epochs that are drawn when nothing is known
        orders, weights = train(sampler, 14)
        assert all(sorted(order) == list(range(400)) for order in orders[:first])
        for order, factors in zip(orders[first:], weights[first:]):
            assert 250 < len(order) < 350 and set(range(200, 400)) <= set(order)
            assert all(factors[number] == (1 if number >= 200 else 2) or factors[number] == 1
                       for number in order)
            assert sum(factors[number] == 2 for number in order) > 50
        sampler.set_epoch(13)
        assert len(sampler) == len(orders[13]), "it was read last"
        sampler.set_epoch(14)
        assert len(sampler) == 400 and len(list(sampler)) == 400, "the last eighth"
        loader = DataLoader(Numbers(400), 25, sampler=sampler)
        sampler.set_epoch(9)
        assert len(list(loader)) == len(loader) < 16
    raises(shade.ShadeError, "prune", lambda: shade.Sampler(10, mode="prune", draws=9))
    raises(shade.ShadeError, "keep", lambda: shade.Sampler(10, mode="prune", keep=2.0))
    raises(shade.ShadeError, "iis", lambda: shade.Sampler(10, mode="prune", substitute=1))


def test_prune_is_saved():
    for options in ({"mode": "prune"}, {"mode": "iis", "substitute": 1},
                    {"mode": "echo", "keep": 0.5, "capacity": 30}):
        one, two = shade.Sampler(100, **options), shade.Sampler(100, seed=5)
        for _ in range(7):
            one.update([float(number) for number in list(one)])
        two.load_state_dict(one.state_dict())
        assert len(two) == one.scorer.length(0, 1, 7), "one that was drawn ahead"
        assert [list(two) for _ in range(3)] == [list(one) for _ in range(3)]
        assert list(two.scorer.losses()) == list(map(float, range(100)))


def test_packages():
    """Neighbours are those of a directory, by inode, as the mount shows it."""
    mount = Shade(image_tree(60), capacity="64M")
    data = ImageFolder(mount.at("train"))
    paths = [path for path, _ in data.samples]
    near = neighbours_of(paths)
    assert sorted(near) == list(range(60))
    places = [(os.path.dirname(paths[number]), os.stat(paths[number]).st_ino) for number in near]
    assert places == sorted(places) and len({inode for _, inode in places}) == 60
    assert list(neighbours_of([f"/nonexistent/{name}" for name in "cab"])) == [0, 1, 2]
    sampler = shade.Sampler(data, mount.path, mode="iis", substitute=1, package=8)
    for _ in range(6):
        sampler.update([float(number) for number in list(sampler)])
    assert 20 < len(list(sampler)) <= 60 and job_stats(mount)["order_ahead"] > 40
    raises(ValueError, "neighbours", lambda: sampler.scorer.neighbours([1]))
    mount.settle()
    mount.end()


def test_state_of_another():
    """A state whose mode and lookahead are others: from there on they are the sampler's."""
    mount = Shade(image_tree(24), capacity="64M")
    files = sorted(mount.at(name) for name in mount.samples() if name.endswith(".png"))
    for lookahead in (0, 1):
        saved = shade.Sampler(files, mode="uniform", lookahead=lookahead, seed=4)
        list(saved)
        sampler = shade.Sampler(files, mount=mount.path, lookahead=1 - lookahead)
        sampler.load_state_dict(saved.state_dict())
        assert sampler.mode == "uniform"
        assert list(sampler) == list(saved) and job_stats(mount)["order_ahead"] == 24 * (1 + lookahead)
    one, many = shade.Sampler(25), shade.Sampler(25, rank=0, world=2)
    list(one)
    one.update([float(number) for number in range(25)])
    many.load_state_dict(one.state_dict())
    assert many.scorer.options["draws"] == 26  # 25 do not make two equal parts
    assert len(list(many)) == 13 and list(many.scorer.scores()) == list(one.scorer.scores())
    raises(shade.ShadeError, "24", lambda: shade.Sampler(24).load_state_dict(one.state_dict()))
    mount.settle()
    mount.end()


def test_bad_updates():
    sampler = shade.Sampler(20)
    raises(ValueError, "0 of epoch None", lambda: sampler.update([1.0]))
    list(sampler)
    raises(ValueError, "reduction='none'", lambda: sampler.update(torch.tensor(1.0)))
    raises(ValueError, "(2, 3)", lambda: sampler.update(torch.zeros(2, 3)))
    raises(TypeError, "losses, or logits", sampler.update)
    raises(TypeError, "losses, or logits", lambda: sampler.update(logits=torch.zeros(2, 2)))
    raises(ValueError, "classes", lambda: sampler.update(logits=torch.zeros(2, 2),
                                                         labels=torch.zeros(2, 2)))
    raises(ValueError, "20 of epoch 0 are left", lambda: sampler.update([0.0] * 21))
    raises(ValueError, "3 ids", lambda: sampler.update([0.0] * 4, ids=[1, 2, 3]))
    raises(ValueError, "0 of epoch None", lambda: shade.Sampler(20).weights(1))
    raises(ValueError, "seed is out of range: -1", lambda: shade.Sampler(20, seed=-1))
    raises(ValueError, "seed is out of range", lambda: shade.Sampler(20, seed=1 << 64))
    raises(ValueError, "no rank 2", lambda: shade.Sampler(20, rank=2, world=2))
    raises(ValueError, "mode is one of", lambda: shade.Sampler(20, mode="best"))
    raises(TypeError, "no option 'reps'", lambda: shade.Sampler(20, reps=2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.update([1.0, math.nan])
        sampler.update([math.nan, 1.0])
    assert len(caught) == 1 and issubclass(caught[0].category, shade.MountWarning)
    sampler.skip(4)
    sampler.update([5.0, 4.0])
    scores = sampler.scorer.scores()
    assert [scores[number] for number in sampler.order[:8]] == [-1] * 8
    assert scores[sampler.order[8]] > scores[sampler.order[9]] > 0


def test_dropped():
    """Where a collate_fn leaves samples out, no sample gets the loss of another."""
    dropped = list(shade.Sampler(83, seed=1))[30]

    def collate(batch):
        return torch.tensor([number for number in batch if number != dropped])
    for workers in (0, 2):
        sampler = shade.Sampler(Numbers(83), seed=1)
        loader = DataLoader(Numbers(83), 8, sampler=sampler, collate_fn=collate,
                            num_workers=workers)
        named = shade.Sampler(Numbers(83), seed=1)
        list(named)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = [batch.tolist() for batch in loader
                       if sampler.update(losses_of(batch)) is None]
            for batch in batches:
                named.update(losses_of(torch.tensor(batch)), ids=batch)
        short = [len(batch) for batch in batches].index(7)
        assert short == 3 and len(batches) == 11
        check_scores(sampler, batches[:short], 8 * short)
        check_scores(named, batches, 82)
        assert len(caught) == 1 and "ids=" in str(caught[0].message), caught
        # The next epoch begins anew, as far as it goes.
        batches = batches[:short]
        for batch in loader:
            sampler.update(losses_of(batch))
            if len(batch) < 8:
                break
            batches.append(batch.tolist())
        check_scores(sampler, batches, 8 * short)
    # The first may be the one, or all of a batch be left out, or of the last.
    for sizes in ((7, 8, 5), (8, 0, 4), (8, 8, 3)):
        sampler = shade.Sampler(20)
        order = list(sampler)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for size in sizes:
                sampler.update([1.0] * size)
        scores = sampler.scorer.scores()
        right = sum(sizes[:2]) if sizes[2] == 3 else sizes[0]
        assert [scores[number] > 0 for number in order] == [True] * right + [False] * (20 - right)
        assert len(caught) == 1


def test_logits():
    """Cross-entropy of all kinds of tensors ranks as torch's does."""
    torch.manual_seed(1)
    logits, labels = torch.randn(16, 10) * 5, torch.randint(0, 10, (16,))
    for make in (lambda t: t, lambda t: t.double(), lambda t: t.half(), lambda t: t.bfloat16(),
                 lambda t: t.t().contiguous().t(), lambda t: t.requires_grad_(),
                 lambda t: t[:1].expand(16, 10), lambda t: t.flatten().as_strided((16, 10), (9, 1)),
                 lambda t: torch.cat([t, -t], 1)[:, :10], lambda t: torch.stack([t, -t], 1)[:, 0],
                 lambda t: t.detach().numpy(), lambda t: t.tolist()):
        sampler = shade.Sampler(16)
        order = list(sampler)
        given = make(logits.clone())
        reference = given.float() if hasattr(given, "float") else torch.as_tensor(given)
        losses = functional.cross_entropy(reference, labels, reduction="none")
        plain = not hasattr(given, "float")
        sampler.update(logits=given, labels=labels.tolist() if plain else labels.int())
        for number, score in zip(order, batch_scores(losses.tolist())):
            assert abs(sampler.scorer.scores()[number] - score) < 1e-5
    sampler = shade.Sampler(1)
    list(sampler)
    sampler.update(logits=logits.as_strided((1, 10), (3, 1)), labels=labels[:1])
    assert sampler.scorer.scores()[0] > 0


def test_data_sets():
    """Subsets and sums of data sets have the paths of their parts."""
    mount = Shade(image_tree(40), capacity="64M")
    whole = ImageFolder(mount.at("train"))
    part = Subset(whole, [5, 3, 30])
    both = ConcatDataset([part, Subset(whole, [3, 7])])
    sampler = shade.Sampler(both, mount="auto")
    assert sampler.mount.path == mount.path
    order = list(sampler)
    sampler.update([float(number) for number in order])
    ids = mount.samples()
    with shade.Mount(mount.at("train", "class0"), sampler.job) as seen:
        scores = {number: seen.query(ids[f"train/class{number // 10}/{number:05}.png"]).score
                  for number in (5, 3, 30, 7, 8)}
        assert scores[8] is None and seen.sample_count() == 43 and len(seen.samples()) == 43
    # In the sum 3 is both sample 1 and 3, and the last visit wins.
    last = [number for number in order if number in (1, 3)][-1]
    assert [round(scores[number], 4) for number in (5, 3, 30, 7)] == \
        [round(math.log(rank + 10), 4) for rank in (0, last, 2, 4)]
    # A data set of one's own may have paths alone.
    own = Numbers(3)
    own.samples = [whole.samples[number][0] for number in (30, 8, 5)]
    sampler = shade.Sampler(own, mount=mount.path, job="own")
    sampler.mount.scores([1], [7.5])
    with shade.Mount(mount.path, "own") as seen:
        assert seen.query(ids["train/class0/00008.png"]).score == 7.5
    raises(ValueError, "files of this data set are not known",
           lambda: shade.Sampler(Numbers(3), mount=mount.path))
    assert shade.Sampler(Numbers(3), mount="auto").mount is None
    raises(shade.ShadeError, "no shadefs", lambda: shade.Sampler(whole, mount="/proc"))
    raises(shade.ShadeError, "not below", lambda: shade.Sampler(["/etc/passwd"], mount=mount.path))
    raises(shade.ShadeError, "none", lambda: shade.Sampler(["train/none"], mount=mount.path))
    raises(TypeError, "not one path", lambda: shade.Sampler(mount.path, mount=mount.path))
    mount.settle()
    mount.end()


def test_announced():
    """The mount knows this order and the next, by its own ids, and residency comes back."""
    mount = Shade(image_tree(40), capacity="64M")
    whole = ImageFolder(mount.at("train"))
    sampler = shade.Sampler(whole, mount=mount.path, mode="pads")
    ids = mount.samples()

    def ahead():
        with open(job_file(mount, "order")) as file:
            return [int(line) for line in file]

    def own(order):
        return [ids[os.path.relpath(whole.samples[number][0], mount.path)] for number in order]
    first = list(sampler)
    following = sampler.scorer.order(1).tolist()
    assert ahead() == own(first + following), "orders"
    assert list(sampler) == following and job_stats(mount)["epoch"] == 1
    assert ahead()[:40] == own(following) and len(ahead()) == 80
    sampler.mount.evict(".")
    sampler.mount.warm(whole.samples[17][0])
    sampler.mount.command("epoch 2")
    wait_until(lambda: int.from_bytes(sampler.mount.resident(), "little") >> 17 & 1, "it is resident")
    assert sampler.mount.stats()["scored"] == 0 and sampler.mount.stat("capacity_bytes") > 0
    mount.settle()
    mount.end()


def test_modes():
    """Every mode draws from a mount; echo knows how much the cache holds."""
    mount = Shade(image_tree(40), capacity="1M")
    files = sorted(mount.at("train", *entry.split("/")[1:]) for entry in mount.samples()
                   if entry.endswith(".png"))
    for mode in ("pads", "echo", "paper", "uniform", "replacement"):
        sampler = shade.Sampler(files, mount.path, mode, rep=2 if mode in ("pads", "paper") else None)
        for _ in range(3):
            order = list(sampler)
            assert len(order) == 40 and set(order) <= set(range(40))
            for batch in torch.tensor(order).split(8):
                sampler.update(losses_of(batch))
        assert sampler.mount is not None
        if mode == "pads":
            assert min(sampler.weights(0).tolist() or [1]) > 0
            list(sampler)
            assert len(sampler.weights(8)) == 8 and min(sampler.weights(8)) > 0
    mount.settle()
    mount.end()


if __name__ == "__main__":
    sys.stderr = sys.stdout
    run_tests([test_without_torch, test_without_numpy, test_loaders, test_epochs, test_saved,
               test_options, test_batch, test_prune, test_prune_is_saved,
               test_packages, test_state_of_another, test_bad_updates, test_dropped, test_logits,
               test_data_sets, test_announced, test_modes])
