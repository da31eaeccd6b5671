# SPDX-License-Identifier: LGPL-2.1-or-later
"""Two ranks over gloo: exact parts of one order, and scores that all of them have."""
import json
import math
import os
import subprocess
import sys
import threading
import warnings
from array import array
from collections import Counter

from harness import HERE, Shade, batch_scores, image_tree, job_file, job_stats, mount_scores, \
    need, possible_scores, python, run_tests, scratch

need("torch", "PIL", "torchvision", "shade")
import shade  # noqa: E402 pylint: disable=wrong-import-position
from shade._pace import Span  # noqa: E402 pylint: disable=wrong-import-position
from shade import _exchange  # noqa: E402 pylint: disable=wrong-import-position


def wanted_scores(ranks, epochs):
    """The last visit wins: batches in their sequence, ranks in theirs."""
    scores = {}
    for epoch in range(epochs):
        for number in range(len(ranks[0]["epochs"][epoch])):
            for rank in ranks:
                batch = rank["epochs"][epoch][number]
                losses = [sample * 37 % 101 for sample in batch]
                scores.update(zip(batch, batch_scores(losses)))
    return scores


def test_two_ranks():
    mount = Shade(image_tree(49), capacity="64M")
    outs = [os.path.join(scratch, f"rank{rank}.json") for rank in range(2)]
    store = os.path.join(scratch, "store")
    ranks = [subprocess.Popen([sys.executable, os.path.join(HERE, "rank.py"), str(rank), "2",
                               store, mount.path, outs[rank]], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=90)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert not any("MountWarning" in text for text in said), said
    results = []
    for out in outs:
        with open(out) as file:
            results.append(json.load(file))
    assert results[0]["digests"] == results[1]["digests"], "they drew the same"
    assert [result["leader"] for result in results] == [0, 0], "one announces for both"
    for epoch in range(4):
        parts = [[number for batch in result["epochs"][epoch] for number in batch]
                 for result in results]
        assert [len(part) for part in parts] == [25, 25]
        if epoch < 2:
            # Nothing is scored when these are drawn: a permutation, and one to make it even.
            counts = Counter(parts[0] + parts[1])
            assert len(counts) == 49 and sum(counts.values()) == 50, counts
    # All scores but those of the last epoch were exchanged, and are the same on both.
    wanted = wanted_scores(results, 3)
    for result in results:
        for number, score in enumerate(result["scores"]):
            assert abs(score - wanted.get(number, -1)) < 1e-5, f"{number}: {score}"
    # The mount has them of both ranks; which of two at the same time was last is open.
    assert set(mount_scores(mount)) == set(wanted_scores(results, 4))
    assert job_stats(mount)["epoch"] == 3
    mount.settle()
    mount.end()


def run_ddp(mount, *words):
    """ddp.py with two ranks, below torch.distributed.run and the hook. What they wrote, and
    standard error."""
    out = os.path.join(scratch, "ddp")
    # That of torch 1.13 fails with Python 3.11 unless told what to do with standard output.
    done = python("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                  "--redirects", "1", "--tee", "1", "--log_dir", scratch, "-m", "shade", "run",
                  os.path.join(HERE, "ddp.py"), mount.at("train"), out, *words)
    results = []
    for rank in range(2):
        with open(f"{out}.{rank}") as file:
            results.append(json.load(file))
    return results, done.stderr


def ranks_within(batch, losses):
    """The scores that the samples of a batch may get."""
    return possible_scores(batch, {number: losses[str(number)] for number in batch})


def check_ddp(mount, results, stderr, each, steps):
    """That ranks had `each` samples an epoch in so many steps, in parts that do not overlap, and
    that every score is that of its sample in its last visit."""
    wanted = {}
    for epoch in range(2):
        parts = [[number for batch in result["epochs"][epoch] for number in batch]
                 for result in results]
        assert [len(result["epochs"][epoch]) for result in results] == [steps, steps]
        extra = len(parts[0]) + len(parts[1]) - len(set(parts[0] + parts[1]))
        assert extra <= 1, f"epoch {epoch}: {parts}"
        last = {}
        for result in results:
            for batch in result["epochs"][epoch]:
                for number, ranks in ranks_within(batch, result["losses"]).items():
                    last.setdefault(number, set()).update(ranks)
        wanted.update(last)
    assert [result["length"] for result in results] == [each, each]
    scores = mount_scores(mount)
    assert set(scores) == set(wanted), f"scored {sorted(scores)}, not {sorted(wanted)}"
    for number, score in scores.items():
        assert round(score, 4) in wanted[number], f"{number}: {score}, not {wanted[number]}"
    sure = sum(len(ranks) == 1 for ranks in wanted.values())
    assert sure > 0.7 * len(wanted), f"only {sure} of {len(wanted)} are without doubt"
    for rank in range(2):
        assert f"DistributedSampler became shade.Sampler, mode auto, seed 1, rank {rank} of 2, " \
            f"{mount.path}" in stderr, stderr
    assert stderr.count(f"{2 * steps} batches, {2 * steps} scored, 0 not") == 2, stderr
    assert "failed" not in stderr and job_stats(mount)["epoch"] == 1, stderr


def test_unmodified():
    """DistributedDataParallel and DistributedSampler below torch.distributed.run and the hook."""
    for words, each, steps in (((), 25, 4), (("--drop-last",), 24, 3)):
        mount = Shade(image_tree(49), capacity="64M")
        check_ddp(mount, *run_ddp(mount, *words), each, steps)
        mount.settle()
        mount.end()


def test_one_without():
    """A rank whose files are on no shadefs does not leave the other one waiting."""
    source = image_tree(17)
    mount = Shade(source, capacity="64M")
    _, stderr = run_ddp(mount, "--other-root", os.path.join(source, "train"))
    assert "left alone: its files are not on a shadefs" in stderr, stderr
    assert "own sampler draws: rank 1 does not take part" in stderr, stderr
    assert "failed" not in stderr and "4 batches, 4 scored" in stderr, stderr
    mount.settle()
    mount.end()


def test_alone():
    """Without a way to the others parts are exact all the same, and it is said once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranks = [shade.Sampler(10, seed=1, rank=rank, world=2) for rank in range(2)]
        for epoch in range(4):
            parts = [list(rank) for rank in ranks]
            assert sorted(parts[0] + parts[1]) == list(range(10)) or epoch > 1
            assert [rank.scorer.digest(epoch) for rank in ranks][0] == ranks[1].scorer.digest(epoch)
            for rank, part in zip(ranks, parts):
                rank.update([float(number) for number in part])
    assert len(caught) == 2, [str(warning.message) for warning in caught]


def gathers(world):
    """An all-gather between threads, for each rank."""
    slots, barrier = [b""] * world, threading.Barrier(world)

    def gather_of(rank):
        def gather(data):
            slots[rank] = data
            barrier.wait(10)
            result = list(slots)
            barrier.wait(10)
            return result
        return gather
    return [gather_of(rank) for rank in range(world)]


def side_by_side(work, ranks):
    """Does work(rank) in a thread for each. What they raised."""
    raised = [None] * len(ranks)

    def one(number):
        try:
            work(ranks[number])
        except Exception as failure:  # pylint: disable=broad-except
            raised[number] = failure
    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_own_gather():
    """Any all-gather of bytes will do."""
    ranks = [shade.Sampler(10, seed=1, rank=rank, world=2, gather=gather, lookahead=0)
             for rank, gather in enumerate(gathers(2))]

    def work(sampler):
        for _ in range(3):
            order = list(sampler)
            sampler.update([float(number) for number in order])
        state = sampler.state_dict()
        sampler.load_state_dict(state)
        list(sampler)
    assert side_by_side(work, ranks) == [None, None]
    assert ranks[0].scorer.digest(3) == ranks[1].scorer.digest(3)
    assert ranks[0].scorer.scores() == ranks[1].scorer.scores()
    assert min(ranks[0].scorer.scores()) > 0


def test_scores_come_together():
    """A rank keeps no score of a batch before all ranks have them, and has one scorer for that."""
    made, create = [], shade.Scorer.__init__

    def counted(self, *words, **named):
        made.append(self)
        create(self, *words, **named)
    shade.Scorer.__init__ = counted
    try:
        ranks = [shade.Sampler(10, seed=1, rank=rank, world=2, gather=gather, lookahead=0)
                 for rank, gather in enumerate(gathers(2))]
    finally:
        shade.Scorer.__init__ = create
    assert made == [rank.scorer for rank in ranks], f"{len(made)} scorers for two ranks"
    assert side_by_side(list, ranks) == [None, None]
    parts = [list(rank.order) for rank in ranks]
    for rank, part in zip(ranks, parts):
        rank.update([float(number) for number in part])
        assert set(rank.scorer.scores()) == {-1}, "a score was kept before the others have it"
    assert side_by_side(list, ranks) == [None, None]
    wanted = {number: math.log(sorted(part).index(number) + 10) for part in parts
              for number in part}
    for rank in ranks:
        scores = rank.scorer.scores()
        assert all(abs(scores[number] - score) < 1e-5 for number, score in wanted.items()), scores


def test_apart():
    """Ranks that would not draw alike all say so, and what it is."""
    for one, two, words in ((dict(seed=1), dict(seed=2), "seed is 1, 2"),
                            (dict(), dict(mode="uniform"), "mode is auto, uniform"),
                            (dict(), dict(rep=2), "rep is 1.0, 2.0"),
                            (dict(lookahead=0), dict(), "lookahead is 0, 1"),
                            (dict(mix=0.5), dict(), "mix is 0.5, 0.0"),
                            (dict(), dict(block=7), "block is 0, 7")):
        ranks = [shade.Sampler(10, rank=rank, world=2, gather=gather, **options)
                 for rank, gather, options in zip(range(2), gathers(2), (one, two))]
        for failure in side_by_side(list, ranks):
            assert isinstance(failure, RuntimeError) and words in str(failure), failure
    ranks = [shade.Sampler(10 + rank, rank=rank, world=2, gather=gather)
             for rank, gather in enumerate(gathers(2))]
    assert all("samples is 10, 11" in str(failure) for failure in side_by_side(list, ranks))
    # The same options, but scores that one has alone.
    for lookahead in (0, 1):
        ranks = [shade.Sampler(10, rank=rank, world=2, gather=gather, lookahead=lookahead)
                 for rank, gather in enumerate(gathers(2))]
        assert side_by_side(list, ranks) == [None, None]
        ranks[1].scorer.merge([3], [5.0])
        assert side_by_side(list, ranks) == [None, None], "not used yet"
        assert all("digest" in str(failure) for failure in side_by_side(list, ranks))


def test_left_out_together():
    """All leave the same samples out, and have as many entries, though each knows only its own
    losses until an epoch begins."""
    for options in ({"mode": "prune"}, {"mode": "iis", "substitute": 1, "package": 4},
                    {"mode": "echo", "keep": 0.5, "capacity": 60}):
        ranks = [shade.Sampler(101, rank=rank, world=3, gather=gather, seed=2, **options)
                 for rank, gather in enumerate(gathers(3))]

        lengths = []
        for _ in range(9):
            assert side_by_side(list, ranks) == [None] * 3
            assert len({len(rank.order) for rank in ranks}) == 1 and len(ranks[0]) * 3 == \
                sum(len(rank.order) for rank in ranks), options
            lengths.append(3 * len(ranks[0].order))
            for rank in ranks:
                for at in range(0, len(rank.order), 7):
                    rank.update([float(number) for number in rank.order[at:at + 7]])
        assert side_by_side(list, ranks) == [None] * 3
        assert len({rank.scorer.digest(9) for rank in ranks}) == 1, options
        assert all(list(rank.scorer.losses()) == list(map(float, range(101))) for rank in ranks)
        assert lengths[0] == 102 and (options["mode"] == "echo" or min(lengths) < 95), lengths


def test_other_inodes():
    """Ranks whose sources number files otherwise go by indices, all of them."""
    ranks = [shade.Sampler(40, rank=rank, world=2, gather=gather, mode="iis", package=4)
             for rank, gather in enumerate(gathers(2))]
    for rank, sampler in enumerate(ranks):
        sampler._neighbours = array("I", list(range(40))[::1 - 2 * rank])
        sampler.scorer.neighbours(sampler._neighbours)

    def work(sampler):
        for _ in range(8):
            sampler.update([float(number) for number in list(sampler)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert side_by_side(work, ranks) == [None, None]
    assert ranks[0].scorer.digest(7) == ranks[1].scorer.digest(7)
    assert any("inodes" in str(warning.message) for warning in caught)


def test_uses_together():
    """The rank that waits most decides for all, and their parts stay the whole."""
    ranks = [shade.Sampler(200, rank=rank, world=2, gather=gather, capacity=60, batch=4)
             for rank, gather in enumerate(gathers(2))]
    starved = Span(seconds=100.0, waited=75.0, read=1e9, bytes=1e9, limited=100.0,
                   limited_bytes=1e9)
    fed = starved._replace(waited=0.0, bytes=1e8, limited=0.0, limited_bytes=0.0)
    assert side_by_side(list, ranks) == [None, None]
    assert sorted(ranks[0].order + ranks[1].order) == list(range(200)), "each once"
    ranks[0].pace.span = lambda _least: fed
    ranks[1].pace.span = lambda _least: starved
    for rank in ranks:
        rank.pace.begin(None)
        rank.pace.stepped()
        rank.pace.end()
    assert side_by_side(list, ranks) == [None, None]
    assert ranks[0].uses == ranks[1].uses == 4 / 0.95, (ranks[0].uses, ranks[1].uses)
    assert len(set(ranks[0].order + ranks[1].order)) < 150, "samples come again"
    assert [ranks[0].scorer.digest(1)] == [ranks[1].scorer.digest(1)]


def on_mounts(mounts, layout, **options):
    """Samplers of ranks, each on one of the mounts."""
    world = len(layout)
    samplers = []
    for rank, gather in enumerate(gathers(world)):
        mount = mounts[layout[rank]]
        paths = sorted(mount.at(path) for path in mount.samples() if path.startswith("train/"))
        samplers.append(shade.Sampler(paths, mount.path, rank=rank, world=world, gather=gather,
                                      block=10, **options))
    return samplers


def readers(samplers, layout):
    """An epoch of all ranks: by sample, the node that reads it last."""
    raised = side_by_side(list, samplers)
    assert not any(raised), raised
    digests = {sampler.scorer.digest(sampler.epoch) for sampler in samplers}
    assert len(digests) == 1, "they drew the same"
    assert len({len(sampler.order) for sampler in samplers}) == 1, "equally many each"
    return {number: layout[rank] for rank, sampler in enumerate(samplers)
            for number in sampler.order}


def kept(before, after):
    """The share of samples that the same node reads again."""
    return sum(before[number] == node for number, node in after.items()) / len(after)


def test_several_mounts():
    """What a node has read, it reads again: ranks that share a mount are one."""
    source = image_tree(300)
    mounts = [Shade(source, capacity="64M") for _ in range(2)]
    layout = [0, 0, 1]
    samplers = on_mounts(mounts, layout, mode="uniform")
    before = readers(samplers, layout)
    assert [sampler._group for sampler in samplers] == [[0, 1], [0, 1], [2]]
    for _ in range(3):
        after = readers(samplers, layout)
        assert kept(before, after) > 0.7, kept(before, after)
        before = after
    # Each mount was told its own part, of this epoch and of the next one.
    for number, mount in enumerate(mounts):
        with open(job_file(mount, "order")) as file:
            ahead = [line.split() for line in file]
        assert len(ahead) >= 2 * layout.count(number) * 100 - 10, len(ahead)
    # It goes on so on fewer ranks.
    state = samplers[0].state_dict()
    resumed = on_mounts(mounts, [0, 1], mode="uniform")
    for sampler in resumed:
        sampler.load_state_dict(state)
    before = readers(resumed, [0, 1])
    for _ in range(2):
        after = readers(resumed, [0, 1])
        assert kept(before, after) > 0.7, kept(before, after)
        before = after
    # A mount that was replaced while somebody had it open is found.
    subprocess.run(["umount", "-R", "-l", mounts[1].path], check=True)
    replaced = Shade(source, mounts[1].path, capacity="64M")
    readers(resumed, [0, 1])
    assert job_stats(replaced)["epoch"] == resumed[0].epoch, "the new daemon gets the hints"
    for sampler in samplers:
        sampler.mount.close()  # or the old daemon would wait for these
    mounts[1].process.wait(60)
    mounts[1].process = replaced.process
    # Anywhere: half of it by chance, and no more.
    mixed = on_mounts(mounts, [0, 1], mode="uniform", mix=1.0)
    before = readers(mixed, [0, 1])
    readers(mixed, [0, 1])
    assert kept(before, readers(mixed, [0, 1])) < 0.65
    for mount in mounts:
        mount.settle()
        mount.end()


def test_capacity_of_all():
    """Of nodes, not of ranks; echo draws with the sum."""
    def news(mount, capacity):
        return _exchange.News(0, mount, None, capacity, [], {})
    nodes = _exchange.find_nodes([news("a", 5), news("b", 7), news("a", 5), news("", 0)])
    assert nodes == ([0, 1, 0, 2], 12), nodes
    # A mount that is away for an epoch changes nothing of who is where.
    away = _exchange.find_nodes([news("", 5), news("b", 7), news("a", 5), news("c", 1)],
                                [0, 1, 0, 2])
    assert away == ([0, 1, 0, 2], 13), away
    back = _exchange.find_nodes([news("d", 5), news("b", 7), news("d", 5), news("c", 1)],
                                away.node_of)
    assert back == ([0, 1, 0, 2], 13), back
    scorer = shade.Scorer(100, mode="echo", capacity=5)
    scorer.nodes(nodes.node_of, capacity=nodes.capacity)
    scorer.begin(0)
    assert scorer.options["capacity"] == 12


def test_bad_shares():
    for options in (dict(mix=-0.1), dict(mix=2), dict(block=-1)):
        try:
            shade.Sampler(10, **options)
        except ValueError as failure:
            assert next(iter(options)) in str(failure)
            continue
        raise AssertionError(f"{options} were taken")


run_tests([test_several_mounts, test_capacity_of_all, test_bad_shares, test_two_ranks, test_unmodified, test_one_without, test_alone, test_own_gather,
           test_scores_come_together, test_apart, test_left_out_together, test_other_inodes,
           test_uses_together])
