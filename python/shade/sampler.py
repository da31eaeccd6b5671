# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sampler: draws what an epoch reads, tells the mount, and scores the samples of batches."""
import base64
import errno
import functools
import logging
import os
import sys
import warnings
from array import array
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from . import _batch, _exchange, _group, _jobs, _libs
from ._pace import Pace, Span
from ._errors import MountWarning, ShadeError
from ._paths import neighbours_of, paths_of
from .mount import Mount, PathLike
from .scorer import Scorer

Gather = Callable[[bytes], List[bytes]]
AGAIN_SECONDS = 10  # that a mount which is back may take to know its samples
LOOK_SECONDS = 1.0  # a shorter epoch tells nothing of its pace
# Mode auto looks at the pace of the first epoch so long after its first batch, and then each time
# when twice as much time has passed: that epoch is as it comes, and must not be slow to its end.
# Later ones it looks at in their middle.
FIRST_LOOK_SECONDS = 0.6
HAND_OUT = 64  # entries between two looks at the clock
SKIPPING = ("prune", "iis")  # modes whose epochs are as long as what is not left out

log = logging.getLogger("shade")


class Sampler:
    """An iterable of indices into `data`, for a DataLoader or a plain loop; a torch Sampler if
    the program uses torch.

    data     a data set whose files are known (ImageFolder, a Subset of it...), a list of paths,
             or, without a mount, a number of samples or anything with a length
    mount    the mount point, or anything below it; "auto": the one that has the files, if they
             are on one; None: none, and it only samples
    mode     auto: each sample once an epoch where the source keeps up, and several times while it
             is in memory where the training waits for the source; or pads, echo, paper, uniform,
             replacement; or prune, iis: epochs that leave samples out, by their last losses
    rank     this process among `world` ones, which all give the same seed and options
    seed     of the draws; None: that of torch (rank 0's) where the program uses it, else 0
    job      the name of this training on the mount; None: one of its own, "": the mount's first
             job, which all share that name it
    group    the name of a group of trainings with the same files, each with a job of its own:
             they read one shared order an epoch, so that one fetch serves all that are close to
             each other
    lookahead  1: draws and announces each order one epoch ahead
    batch    samples of this rank's batches, for echo, which uses none twice in a step; 0: as
             many as update() gets
    gather   all-gather of bytes over the ranks, if torch.distributed is not to do it
    block    entries of a rank that are assigned to machines together; 0: 1024
    mix      the share of entries that any machine may read, 0 to 1; the others are read where
             they were read last
    Other options are those of Scorer.
    """

    def __new__(cls, *_args: Any, **_kwargs: Any) -> "Sampler":
        if cls is Sampler and hasattr(sys.modules.get("torch"), "utils"):
            from ._torch import TorchSampler  # pylint: disable=import-outside-toplevel
            cls = TorchSampler
        return super().__new__(cls)

    def __init__(self, data: Any, mount: Optional[PathLike] = None, mode: str = "auto",
                 seed: Optional[int] = None, rank: int = 0, world: int = 1, *,
                 job: Optional[str] = None,
                 group: Optional[str] = None, lookahead: int = 1, backend: str = "auto",
                 gather: Optional[Gather] = None, block: int = 0, mix: float = 0.0, batch: int = 0,
                 scan_seconds: float = 600, **options: Any) -> None:
        if world < 1 or not 0 <= rank < world:
            raise ValueError(f"there is no rank {rank} of {world}")
        if not 0 <= mix <= 1:
            raise ValueError(f"mix is a share from 0 to 1, not {mix}")
        if not isinstance(block, int) or not 0 <= block < 1 << 20:
            raise ValueError(f"block is a number from 0 to {(1 << 20) - 1}, not {block}")
        if not isinstance(batch, int) or not 0 <= batch <= 1 << 20:
            raise ValueError(f"batch is a number from 0 to {1 << 20}, not {batch}")
        _group.check(group, job, world, mount)
        self._shared = None if group is None else _group.Group(group)
        self._shared_weights: Optional[_libs.Floats] = None  # of this epoch's entries
        self._block, self._mix = block, mix
        self._given_batch = self._seen_batch = batch  # 0: not known
        self.rank, self.world = rank, world
        self._names_itself = job is None and mount is not None
        self.job = self._own_job() if self._names_itself else job or None
        self._paths = None if isinstance(data, int) else paths_of(data)
        self._samples = data if isinstance(data, int) else len(data)
        self._scan_seconds = scan_seconds
        self._mount: Optional[Mount] = None
        self._mount_path: Optional[PathLike] = None
        self._left: Optional[str] = None  # a job that is no longer this training's
        self._device = 0  # the number of the mount
        self._warned: Set[str] = set()
        self._announced: Set[int] = set()
        self._connect_first(mount)
        self._capacity = 0  # that of this rank's mount, if it was not given
        self.pace = Pace()  # how the training reads
        self._rate = 0.0  # that the source gives at most, in bytes a second
        self._fresh = True  # no epoch was measured yet
        self._told_uses = 0.0
        if mode in ("echo", "auto"):
            options["capacity"] = self._find_capacity(mode, options.get("capacity"))
        # Ranks that wait for each other in every step must have as many steps.
        options["multiple"] = world
        if world > 1 and mode not in SKIPPING and options.get("draws") is None:
            options["draws"] = (self._samples + world - 1) // world * world
        self._neighbours: Optional[_libs.Ids] = None
        if options.get("package") and self._paths is not None:
            self._neighbours = neighbours_of(self._paths)
        self._seed = self._find_seed() if seed is None else seed
        self._seed_is_open = seed is None and world > 1  # until the ranks meet
        self._scorer_options: Dict[str, Any] = {**options, "mode": mode, "backend": backend,
                                "lookahead": lookahead}
        self._scorer = self._new_scorer(self._seed)
        self._gather = gather
        self._pending: List[_exchange.Scored] = []
        self._group = [rank] if world == 1 else list(range(world))
        self._node_of: Optional[List[int]] = None  # by rank, in the last epoch
        self._epoch: Optional[int] = None
        self._next_epoch = 0
        self._named = False  # set_epoch() has said which epoch is next
        self._order = array("I")
        self._cursor = 0
        self._batches = 0
        self._batch_size = 0  # of the batches of this epoch; 0: none came yet
        self._lost = False  # which samples follow in this epoch is not known
        self._handed = 0  # entries that a DataLoader has handed out in this epoch; 0: none is seen
        self._ahead: Optional[int] = None  # of these, beyond the first batch that was scored
        self._held: Optional[Callable[[], None]] = None  # scores that batch, once it is sure

    # --- what draws

    def _find_seed(self) -> int:
        """Where none is given. Overridden where there is torch."""
        return 0

    def _new_scorer(self, seed: int) -> Scorer:
        scorer = Scorer(self._samples, seed=seed, **self._scorer_options)
        if self._neighbours is not None:
            scorer.neighbours(self._neighbours)
        return scorer

    def _settle_seed(self, seed: int) -> None:
        """Ranks draw with the seed of the first. Nothing was drawn or scored before they meet."""
        if self._seed_is_open and seed != self._seed:
            self._scorer = self._new_scorer(seed)
        self._seed, self._seed_is_open = seed, False

    # --- the mount

    def _connect_first(self, mount: Optional[PathLike]) -> None:
        if mount is None:
            return
        if self._paths is None:
            if mount == "auto":
                return
            raise ValueError("the files of this data set are not known: give a list of paths in "
                             "the sequence of its indices, or no mount")
        self._mount_path = self._paths[0] if mount == "auto" else mount
        try:
            self._mount = self._connect(self._scan_seconds)
        except ShadeError as failure:
            if mount != "auto" or failure.errno != errno.ENODEV:
                raise
            _group.check(None if self._shared is None else self._shared.name, self.job, 1, None)
            self._mount_path = None

    def _own_job(self) -> str:
        """The name of this training, if nobody gave it one."""
        return _jobs.own_name(self.world)

    def _open(self) -> Mount:
        """In the job of this training. If there are too many, and nobody has asked for it, all that
        find no place share the first."""
        assert self._mount_path is not None
        try:
            return Mount(self._mount_path, self.job)
        except ShadeError as failure:
            if not self._names_itself or failure.errno != errno.ENOSPC:
                raise
        self.job = None
        self._warn("job", "the mount has as many trainings as it can tell apart: this one shares "
                   "its orders and scores with others")
        return Mount(self._mount_path, None)

    def _share_job(self, name: str) -> None:
        """Ranks of one mount have one job. It is that of the first of them, who has it open."""
        if not self._names_itself or self._mount is None or name == (self.job or ""):
            return
        self._left = os.path.join(self._mount.folder, "jobs", self.job or "")
        self._mount.close()
        self._mount, self.job = None, name or None
        self._connect_again()

    def _forget_left(self) -> None:
        """The job that this rank had before it shared one. The kernel takes its time to close what
        was closed, so this comes an epoch later."""
        if self._left is not None:
            left, self._left = self._left, None
            try:
                os.rmdir(left)
            except OSError:
                pass  # then it goes when this process has ended

    def _connect(self, scan_seconds: float) -> Mount:
        assert self._mount_path is not None and self._paths is not None
        mount = self._open()
        try:
            mount.wait(scan_seconds)
            mount.register(self._paths)
            if self._shared is not None:
                self._shared.join(mount)
            self._device = _exchange.device_of(mount.folder)
        except OSError:
            mount.close()
            raise
        self._mount_path = mount.path
        return mount

    def _connect_again(self) -> None:
        """A mount that went away may be back when an epoch begins."""
        if self._mount is None and self._mount_path is not None:
            try:
                self._mount = self._connect(min(self._scan_seconds, AGAIN_SECONDS))
            except (ShadeError, OSError):
                return
            self._announced.clear()
            self._told_uses = 0.0
            self._warned.discard("mount")

    def _look(self) -> Optional[bytes]:
        """What is resident. A daemon that was restarted between two epochs is met here first."""
        if self._mount is not None:
            try:
                # An open handle keeps a daemon alive that was unmounted lazily.
                if _exchange.device_of(self._mount.folder) == self._device:
                    return self._mount.resident(self._samples)
            except OSError:
                pass
            self._mount.close()
            self._mount = None
        self._connect_again()
        if self._mount is None and self._mount_path is not None:
            self._warn("mount", "the mount takes no hints any more, sampling goes on")
        resident: Optional[bytes] = self._tell(Mount.resident, self._samples)
        return resident

    def _warn(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(text, MountWarning, stacklevel=4)

    def _tell(self, action: Callable[..., Any], *words: Any) -> Any:
        """Does it if the mount is there. A training does not end because a cache did."""
        if self._mount is None:
            return None
        try:
            return action(self._mount, *words)
        except OSError as failure:
            self._mount.close()
            self._mount = None
            self._warn("mount", f"the mount takes no hints any more, sampling goes on: {failure}")
            return None

    def _find_capacity(self, mode: str, given: Optional[int]) -> Optional[int]:
        """How many samples the cache holds, from the sizes of some. Mode auto does without a mount
        as well: then nothing is measured, and each sample comes once."""
        if self._mount is None:
            return self._samples if given is None and mode == "auto" else given
        count = self._mount.sample_count()
        sizes = [self._mount.query(number).size
                 for number in range(0, count, max(1, count // 256))]
        self.pace.sample_bytes = mean = max(1.0, sum(sizes) / len(sizes))
        if given is None:
            given = self._capacity = max(1, min(count, int(self._mount.stat("capacity_bytes") / mean)))
        return given

    @property
    def mount(self) -> Optional[Mount]:
        """The open mount, or None."""
        return self._mount

    @property
    def mode(self) -> str:
        """How it draws; that of the state that was loaded, if one was."""
        return str(self._scorer.options["mode"])

    @property
    def seed(self) -> int:
        """Of the draws; several ranks without a given one agree on it when they first meet."""
        return self._seed

    @property
    def scorer(self) -> Scorer:
        """What scores and draws."""
        return self._scorer

    # --- epochs

    @property
    def epoch(self) -> Optional[int]:
        """The epoch that was begun last."""
        return self._epoch

    @property
    def order(self) -> _libs.Ids:
        """What this rank reads in that epoch."""
        return self._order

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is. Without it, the one after the last."""
        if epoch < 0:
            raise ValueError(f"an epoch is 0 or more, not {epoch}")
        self._next_epoch = epoch
        self._named = True

    def __len__(self) -> int:
        """Entries of the epoch that was begun last, until set_epoch() names another one; of one
        that is not drawn yet, the most that it can have."""
        if self._epoch is not None and not self._named:
            return len(self._order)
        return self._length_of(self._next_epoch)

    def _length_of(self, epoch: int) -> int:
        if self._shared is not None:  # who draws it is open, and so is how long it will be
            return self._scorer.length(self.rank, self.world)
        try:
            return self._scorer.length(self.rank, self.world, epoch)
        except ShadeError as failure:
            if failure.errno != errno.ENOENT:
                raise
            return self._scorer.length(self.rank, self.world)

    def __iter__(self) -> Iterator[int]:
        epoch = self._next_epoch
        self._drain()
        resident = self._look()
        span = self._take_span()
        if self.world > 1:
            resident = self._agree(epoch, resident, span)
        else:
            self._tell_batch(self._seen_batch)
            self._scorer.measured([span])
        if self._shared is not None:
            order = self._begin_shared(self._shared, epoch, resident)
        else:
            self._scorer.begin(epoch, resident)
            self._announce(epoch)
            order = self._scorer.order(epoch, self.rank, self.world)
        self._tell_uses()
        self._begin(epoch, order)
        return self._hand_out(self._order)

    def _hand_out(self, order: _libs.Ids) -> Iterator[int]:
        """The entries, with a look at the pace now and then."""
        half, look_seconds = len(order) // 2, FIRST_LOOK_SECONDS
        if not self._adapts:
            yield from order
            return
        first = self._fresh
        for at in range(0, len(order), HAND_OUT):
            if order is self._order and at:
                if first and self.pace.seconds() > look_seconds:
                    self._reconsider(at)
                    look_seconds *= 2
                elif not first and at - HAND_OUT < half <= at:
                    self._reconsider(at)
            yield from order[at:at + HAND_OUT]

    # --- groups

    def _begin_shared(self, group: _group.Group, epoch: int,
                      resident: Optional[bytes]) -> _libs.Ids:
        """What the group reads next, or what this training draws alone while there is none."""
        turn: Optional[_group.Turn] = None
        try:
            if not group.left:
                turn = self._tell(lambda mount: _group.take_turn(self._scorer, group, mount, epoch,
                                                                 resident))
        except _group.StrangerError as failure:
            if not group.has_begun:
                raise
            self._warn("group", f"{failure}; this training goes on alone")
            self._tell(Mount.group_join, None)
            group.left = True
        if turn is None:
            turn = _group.alone(self._scorer, group, resident)
        self._shared_weights = turn.order.weights
        self._tell(Mount.epoch, epoch)
        self._tell(Mount.order, epoch, turn.order.ids)
        if turn.ahead is not None:
            self._tell(Mount.order, epoch + 1, turn.ahead)
        return turn.order.ids

    # --- mode auto

    @property
    def _adapts(self) -> bool:
        return self.mode == "auto" and self._mount is not None

    @property
    def uses(self) -> float:
        """How often a sample that was fetched is used, on the mean, in orders that are drawn from
        now on; 1 in modes that know no such thing."""
        return float(self._scorer.options["uses"]) if self.mode in ("echo", "auto") else 1.0

    def _take_span(self) -> Optional[Span]:
        """What the last epoch tells, if it was read to its end."""
        span = self.pace.span(LOOK_SECONDS) if self.pace.is_over else None
        if span is not None and self._shared is not None:
            # The mount counts what all members have read.
            span = span._replace(read=len(self._order) * self.pace.sample_bytes)
        return self._with_rate(span)

    def _with_rate(self, span: Optional[Span]) -> Optional[Span]:
        if span is None:
            return None
        self._fresh = False
        self._rate = self._scorer.rate(self._rate, span)
        return span._replace(rate=self._rate)

    def _reconsider(self, position: int) -> None:
        """In the middle of an epoch: if it is too slow, or faster than it need be, the rest is
        drawn anew. Only where this is the only rank, for ranks must meet to agree, and members of
        a group read what was agreed on."""
        if self.world > 1 or self._shared is not None or self._epoch is None:
            return
        span = self.pace.span(FIRST_LOOK_SECONDS / 2)
        if span is None or not self._scorer.measured([self._with_rate(span)]):
            return
        self._scorer.redraw(self._epoch, position, self._tell(Mount.resident, self._samples))
        self._order[position:] = self._scorer.order(self._epoch)[position:]
        self._announced.clear()
        self._announce_orders(self._epoch)
        self._tell_uses()
        self.pace.restart()

    def _tell_uses(self) -> None:
        """Whoever looks at the mount sees how often samples are used."""
        uses = self.uses
        if uses == self._told_uses or self.mode not in ("echo", "auto"):
            return
        if self.rank == self._group[0]:
            self._tell(Mount.command, f"uses {uses:.4g}")
        if self._told_uses:
            self._say_uses(self._told_uses, uses)
        self._told_uses = uses

    def _say_uses(self, before: float, uses: float) -> None:
        log.info("a fetched sample is used %.2f times, no longer %.2f: the source gives %.1f MB/s",
                 uses, before, self._rate / 1e6)

    def _tell_batch(self, size: int) -> None:
        """Of one rank. If it is not known, the scorer goes on with what it was told."""
        if size:
            self._scorer.batch(min(size * self.world, self._samples))

    def _begin(self, epoch: int, order: _libs.Ids) -> None:
        self._order = order
        # Members of a group fetch for each other: there the figures of the whole mount tell.
        self.pace.begin(self._mount.folder if self._mount else None,
                        None if self._shared is not None else self.job)
        self._epoch, self._next_epoch, self._named = epoch, epoch + 1, False
        self._rewind()

    def _rewind(self) -> None:
        """The first batch comes next."""
        self._cursor = self._batches = self._batch_size = self._handed = 0
        self._lost, self._ahead, self._held = False, None, None

    def _announce(self, epoch: int) -> None:
        """One rank does it for all that share its mount."""
        if self._mount is None or self.rank != self._group[0]:
            return
        self._tell(Mount.epoch, epoch)
        self._announce_orders(epoch)

    def _announce_orders(self, epoch: int) -> None:
        known = set()
        for ahead in range(epoch, epoch + 1 + self._scorer.options["lookahead"]):
            known.add(ahead)
            if ahead in self._announced:
                continue
            try:
                ids = _exchange.interleave([self._scorer.order(ahead, rank, self.world)
                                            for rank in self._group])
            except ShadeError as failure:
                if failure.errno != errno.ENOENT:  # the first time mode auto draws nothing ahead
                    raise
                known.remove(ahead)
                break
            self._tell(Mount.order, ahead, ids)
        self._announced = known - {epoch}

    # --- ranks

    def _find_gather(self) -> Optional[Gather]:
        """Overridden where there is torch."""
        return self._gather

    def _agree(self, epoch: int, resident: Optional[bytes],
               span: Optional[Span]) -> Optional[bytes]:
        """Tells all ranks what this one has, takes what they have, and returns what is resident
        on one of them."""
        gather = self._find_gather()
        if gather is None:
            self._warn("ranks", f"rank {self.rank} of {self.world} cannot reach the others: their "
                       "parts are exact, but orders do not follow the scores; initialise "
                       "torch.distributed, or give gather=")
            self._pending.clear()
            self._settle_seed(0)
            return None
        name = self._tell(lambda mount: _exchange.mount_name(mount.folder)) or ""
        own = _exchange.News(epoch, name, resident, self._capacity, self._pending,
                             self._plan(epoch), self._seen_batch, span,
                             _exchange.checksum(self._neighbours), self._seed, self.job or "")
        all_news = [_exchange.unpack(data) for data in gather(_exchange.pack(own))]
        self._pending = []
        if len(all_news) != self.world:
            raise RuntimeError(f"rank {self.rank} of {self.world} has gathered the news of "
                               f"{len(all_news)}")
        # All of them see it, and all stop: none is left waiting for another.
        differing = _exchange.disagreement(all_news)
        if differing:
            raise RuntimeError(f"{self.world} ranks must draw alike, but from rank 0 on their "
                               + differing)
        self._group = [rank for rank, news in enumerate(all_news)
                       if rank == self.rank or (name and news.mount == name)]
        self._settle_seed(all_news[0].seed)
        self._forget_left()
        self._share_job(all_news[self._group[0]].job)
        self._merge(all_news)
        self._agree_on_neighbours(all_news)
        self._scorer.measured([news.span for news in all_news])
        self._tell_batch(max(news.batch for news in all_news))
        nodes = _exchange.find_nodes(all_news, self._node_of)
        self._node_of = nodes.node_of
        self._scorer.nodes(nodes.node_of, block=self._block, mix=self._mix,
                           capacity=min(self._samples, nodes.capacity))
        return _exchange.resident_somewhere(all_news)

    def _agree_on_neighbours(self, all_news: List[_exchange.News]) -> None:
        """Sources that number their files otherwise have no neighbours in common."""
        if any(news.neighbours != all_news[0].neighbours for news in all_news):
            self._warn("neighbours", "the ranks see other inodes: samples are neighbours by their "
                       "indices")
            self._neighbours = None
            self._scorer.neighbours(None)

    def _plan(self, epoch: int) -> Dict[str, Any]:
        """What the next order comes from, but for what is exchanged. The digest is of the newest
        draw, so that ranks that went apart are found before, or one epoch after, it is used."""
        digest = None
        for drawn in (epoch, self._epoch):
            try:
                digest = None if drawn is None else self._scorer.digest(drawn)
                break
            except ShadeError as failure:
                if failure.errno != errno.ENOENT:
                    raise
        options = self._scorer.options
        if self._capacity:  # each mount has its own, and all draw with the sum
            del options["capacity"]
        if self._seed_is_open:
            del options["seed"]
        return {"world": self.world, "block": self._block, "mix": self._mix, **options,
                "digest of the last draw": digest}

    def _merge(self, all_news: List[_exchange.News]) -> None:
        for rank, entry in _exchange.in_sequence(all_news):
            self._scorer.merge(entry.ids, entry.scores)
            if entry.losses is not None:
                self._scorer.merge_losses(entry.ids, entry.losses)
            # Those of its group the mount has already.
            if rank not in self._group and self.rank == self._group[0]:
                self._tell(Mount.scores, entry.ids, entry.scores)

    # --- batches

    def batch_ids(self, count: int) -> _libs.Ids:
        """The samples of the batch that update() comes to next, if it has so many."""
        left = len(self._order) - self._cursor
        if count > left:
            raise ValueError(f"{count} samples, but {left} of epoch {self._epoch} are left: "
                             "update() is for each batch once, in their sequence, and "
                             "skip() for those that are not scored")
        return self._order[self._cursor:self._cursor + count]

    def skip(self, count: int) -> None:
        """The next batch, of so many samples, will not be scored."""
        self.batch_ids(count)
        self._cursor += count
        self._batches += 1

    def weights(self, count: int) -> _libs.Floats:
        """For each sample of the next batch the factor of its loss that keeps the gradient over
        the epoch unbiased."""
        ids = self.batch_ids(count)  # there are none before the first epoch
        if self._shared is not None:
            return _group.weights_from(self._scorer, self._shared, self._shared_weights,
                                       self._cursor, count)
        return self._scorer.weights(self._epoch or 0, ids)

    def update(self, losses: Any = None, *, logits: Any = None, labels: Any = None,
               ids: Any = None) -> None:
        """Scores a batch, after it was used: by the loss of each sample, or by logits and labels.
        Batches come in the sequence in which they were drawn, each once, and all have one size
        but for the last, unless `ids` names the samples."""
        if (losses is None) == (logits is None) or (logits is None) != (labels is None):
            raise TypeError("update() takes losses, or logits and labels")
        on_device = self._scorer.backend == "cuda"
        batch = _batch.from_losses(losses, on_device) if logits is None else \
            _batch.from_logits(logits, labels, on_device)
        named = self._next_ids(batch.samples) if ids is None else _libs.as_ids(ids)
        if named is None or not batch.samples:
            return
        if len(named) != batch.samples:
            raise ValueError(f"{len(named)} ids, but {batch.samples} losses")
        number = self._batches
        self._batches += 1
        self.pace.stepped()
        if not self._given_batch:
            self._seen_batch = max(self._seen_batch, batch.samples)
        if ids is None and number == 0 and self._ahead:
            self._held = functools.partial(self._try_score, number, named, batch)
            return
        if self._held is not None:
            self._held()
            self._held = None
        self._try_score(number, named, batch)
        if self._cursor == len(self._order):
            self.pace.end()

    def _try_score(self, number: int, ids: _libs.Ids, batch: _batch.Batch) -> None:
        try:
            self._score(number, ids, batch)
        except ShadeError as failure:
            if failure.errno not in (errno.EINVAL, errno.ENOMEM):  # ENOMEM: of a device, for now
                raise
            self._warn("losses", f"a batch is not scored, and others may not be: {failure}")

    def _next_ids(self, count: int) -> Optional[_libs.Ids]:
        """The samples of the next batch, which is done with; None: they are not known."""
        if self._lost:
            return None
        ids = self.batch_ids(count)
        last = count == len(self._order) - self._cursor
        size = self._batch_size or count
        if count > size or (count < size and not last):
            # A collate_fn left samples out, or batches have different sizes. In both cases the
            # cursor does not say any more which samples the next batch has.
            self._lose("size", f"a batch of {count} after batches of {size}")
            return None
        if self._falls_behind(count):
            self._lose("every", "batches were handed out that update() or skip() was not called "
                       "for")
            return None
        self._batch_size = size
        self._cursor += count
        return ids

    def _falls_behind(self, count: int) -> bool:
        """A script may fetch some batches before it uses them, but always as many. If more and more
        have no update(), it leaves some out. The first batch tells neither, so it is held until
        the next one comes."""
        if not self._handed:
            return False
        ahead = max(0, min(self._handed, len(self._order)) - self._cursor - count)
        if self._ahead is None:
            self._ahead = ahead
        return ahead > self._ahead

    def _lose(self, what: str, why: str) -> None:
        self._lost, self._held = True, None
        self._warn(what, f"{why}: which samples they have is not known, and the rest of epoch "
                   f"{self._epoch} is not scored; name them: update(losses, ids=...)")

    def batch_arrived(self, asked: float, now: float, count: int) -> None:
        """A DataLoader has given a batch of so many entries to the training, which had asked for it
        then."""
        self.pace.arrived(asked, now)
        self._handed += count

    def _score(self, number: int, ids: _libs.Ids, batch: _batch.Batch) -> None:
        scores = array("f", bytes(4 * batch.samples))
        fields = {**batch.fields, "scores_out": scores.buffer_info()[0]}
        losses = None
        if self._sends_losses:
            losses = array("f", bytes(4 * batch.samples))
            fields["losses_out"] = losses.buffer_info()[0]
        self._update_batch(ids, fields)
        self._deliver(number, ids, scores, losses)

    def _update_batch(self, ids: _libs.Ids, fields: Dict[str, Any]) -> None:
        """One of several ranks keeps no score yet: it merges those of all ranks when an epoch
        begins, for otherwise the orders of the ranks would differ."""
        self._scorer.update_batch(ids, keep=self.world == 1, **fields)

    @property
    def _sends_losses(self) -> bool:
        """Other ranks need to know them, too."""
        return self.world > 1 and self._scorer.needs_losses

    def _deliver(self, number: int, ids: _libs.Ids, scores: _libs.Floats,
                 losses: Optional[_libs.Floats] = None) -> None:
        self._tell(Mount.scores, ids, scores)
        if self.world > 1:
            self._pending.append(_exchange.Scored(number, ids, scores, losses))

    def _drain(self) -> None:
        """Waits for batches that are in flight on a device."""

    # --- telling people

    def figures(self) -> Dict[str, float]:
        """Of the epoch that was begun last, as far as it has come: hit_ratio, coverage, waiting
        (the share of the time that it waited for the source), seconds, source_bytes, source_rate
        (bytes a second that the source gives while it is the limit), uses. Only those that are
        known."""
        result: Dict[str, float] = {}
        if self._epoch is not None:
            result["coverage"] = len(set(self._order)) / self._samples
        if self.mode in ("echo", "auto"):
            result["uses"] = self.uses
        span = self.pace.epoch()
        if span is None:
            return result
        result.update(seconds=span.seconds, source_bytes=span.bytes)
        if span.seconds > 0:
            result["waiting"] = span.waited / span.seconds
        if span.accesses:
            result["hit_ratio"] = min(1.0, span.hits / span.accesses)
        if span.limited > 0:
            result["source_rate"] = span.limited_bytes / span.limited
        return result

    def log(self, writer: Any, step: int) -> None:
        """Gives the figures to anything with add_scalar(tag, value, step), such as TensorBoard's
        SummaryWriter."""
        for name, value in self.figures().items():
            writer.add_scalar(f"shade/{name}", value, step)

    def summary(self) -> str:
        """The figures as one line, for people who print."""
        found = self.figures()
        words = [f"epoch {self._epoch}"] if self._epoch is not None else ["no epoch yet"]
        if "hit_ratio" in found:
            words.append(f"hit ratio {found['hit_ratio']:.2f}")
        if "coverage" in found:
            words.append(f"coverage {found['coverage']:.2f}")
        if "waiting" in found:
            words.append(f"waited {found['waiting']:.0%} of {found['seconds']:.1f} s")
        if "source_bytes" in found:
            rate = f" at {found['source_rate'] / 1e6:.1f} MB/s" if "source_rate" in found else ""
            words.append(f"source {found['source_bytes'] / 1e6:.1f} MB{rate}")
        if "uses" in found:
            words.append(f"{found['uses']:.2f} uses")
        return ", ".join(words)

    # --- saving

    def state_dict(self) -> Dict[str, Any]:
        """All that the next orders depend on, as numbers and strings."""
        self._drain()
        pending = _exchange.pack(_exchange.News(self._next_epoch, "", None, 0, self._pending, {}))
        state = {"version": 1, "epoch": self._next_epoch,
                 "scorer": base64.b64encode(self._scorer.save()).decode(),
                 "pending": base64.b64encode(pending).decode()}
        if self._shared is not None:
            state["stream"] = self._shared.next
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where that was."""
        if state.get("version") != 1:
            raise ValueError("this is not the state of a shade.Sampler")
        self._scorer.load(base64.b64decode(state["scorer"]))
        self._seed, self._seed_is_open = int(self._scorer.options["seed"]), False
        self._pending = _exchange.unpack(base64.b64decode(state["pending"])).scored
        self._next_epoch = state["epoch"]
        if self._shared is not None:
            # One that was saved without a group has drawn as many.
            self._shared.next = state.get("stream", state["epoch"])
        self._epoch = None
        self._order = array("I")
        self._rewind()
        self._announced.clear()
