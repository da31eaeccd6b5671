# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sampler: draws what an epoch reads, tells the mount, and scores the samples of batches."""
import base64
import errno
import sys
import warnings
from array import array
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from . import _batch, _exchange, _libs
from ._errors import MountWarning, ShadeError
from ._paths import paths_of
from .mount import Mount, PathLike
from .scorer import Scorer

Gather = Callable[[bytes], List[bytes]]
AGAIN_SECONDS = 10  # that a mount which is back may take to know its samples


class Sampler:
    """An iterable of indices into `data`, for a DataLoader or a plain loop; a torch Sampler if
    the program uses torch.

    data     a data set whose files are known (ImageFolder, a Subset of it...), a list of paths,
             or, without a mount, a number of samples or anything with a length
    mount    the mount point, or anything below it; "auto": the one that has the files, if they
             are on one; None: none, and it only samples
    mode     pads, echo, paper, uniform, replacement
    rank     this process among `world` ones, which all give the same seed and options
    job      the name of this training, if several share the mount
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

    def __init__(self, data: Any, mount: Optional[PathLike] = None, mode: str = "pads",
                 seed: int = 0, rank: int = 0, world: int = 1, *, job: Optional[str] = None,
                 lookahead: int = 1, backend: str = "auto", gather: Optional[Gather] = None,
                 block: int = 0, mix: float = 0.0, batch: int = 0, scan_seconds: float = 600,
                 **options: Any) -> None:
        if world < 1 or not 0 <= rank < world:
            raise ValueError(f"there is no rank {rank} of {world}")
        if not 0 <= mix <= 1:
            raise ValueError(f"mix is a share from 0 to 1, not {mix}")
        if not isinstance(block, int) or not 0 <= block < 1 << 20:
            raise ValueError(f"block is a number from 0 to {(1 << 20) - 1}, not {block}")
        if not isinstance(batch, int) or not 0 <= batch <= 1 << 20:
            raise ValueError(f"batch is a number from 0 to {1 << 20}, not {batch}")
        self._block, self._mix = block, mix
        self._given_batch = self._seen_batch = batch  # 0: not known
        self.rank, self.world, self.job = rank, world, job
        self._paths = None if isinstance(data, int) else paths_of(data)
        self._samples = data if isinstance(data, int) else len(data)
        self._scan_seconds = scan_seconds
        self._mount: Optional[Mount] = None
        self._mount_path: Optional[PathLike] = None
        self._device = 0  # the number of the mount
        self._warned: Set[str] = set()
        self._announced: Set[int] = set()
        self._connect_first(mount)
        self._capacity = 0  # that of this rank's mount, if it was not given
        if mode == "echo" and options.get("capacity") is None and self._mount:
            options["capacity"] = self._capacity = self._estimate_capacity(self._mount)
        # Ranks that wait for each other in every step must have as many steps.
        if world > 1 and options.get("draws") is None:
            options["draws"] = (self._samples + world - 1) // world * world
        self._scorer = Scorer(self._samples, mode=mode, seed=seed, backend=backend,
                              lookahead=lookahead, **options)
        self._gather = gather
        self._pending: List[_exchange.Scored] = []
        self._group = [rank] if world == 1 else list(range(world))
        self._node_of: Optional[List[int]] = None  # by rank, in the last epoch
        self._epoch: Optional[int] = None
        self._next_epoch = 0
        self._order = array("I")
        self._cursor = 0
        self._batches = 0
        self._batch_size = 0  # of the batches of this epoch; 0: none came yet
        self._lost = False  # a batch had another size: which samples follow is not known

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
            self._mount_path = None

    def _connect(self, scan_seconds: float) -> Mount:
        assert self._mount_path is not None and self._paths is not None
        mount = Mount(self._mount_path, self.job)
        try:
            mount.wait(scan_seconds)
            mount.register(self._paths)
            self._device = _exchange.device_of(mount.path)
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
            self._warned.discard("mount")

    def _look(self) -> Optional[bytes]:
        """What is resident. A daemon that was restarted between two epochs is met here first."""
        if self._mount is not None:
            try:
                # An open handle keeps a daemon alive that was unmounted lazily.
                if _exchange.device_of(self._mount.path) == self._device:
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

    @staticmethod
    def _estimate_capacity(mount: Mount) -> int:
        """How many samples the cache holds, from the sizes of some."""
        count = mount.sample_count()
        sizes = [mount.query(number).size for number in range(0, count, max(1, count // 256))]
        mean = max(1.0, sum(sizes) / len(sizes))
        return max(1, min(count, int(mount.stat("capacity_bytes") / mean)))

    @property
    def mount(self) -> Optional[Mount]:
        """The open mount, or None."""
        return self._mount

    @property
    def mode(self) -> str:
        """How it draws; that of the state that was loaded, if one was."""
        return str(self._scorer.options["mode"])

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

    def __len__(self) -> int:
        return self._scorer.length(self.rank, self.world)

    def __iter__(self) -> Iterator[int]:
        epoch = self._next_epoch
        self._drain()
        resident = self._look()
        if self.world > 1:
            resident = self._agree(epoch, resident)
        else:
            self._tell_batch(self._seen_batch)
        self._scorer.begin(epoch, resident)
        self._announce(epoch)
        self._begin(epoch, self._scorer.order(epoch, self.rank, self.world))
        return iter(self._order)

    def _tell_batch(self, size: int) -> None:
        """Of one rank. If it is not known, the scorer goes on with what it was told."""
        if size:
            self._scorer.batch(min(size * self.world, self._samples))

    def _begin(self, epoch: int, order: _libs.Ids) -> None:
        self._order = order
        self._epoch, self._next_epoch = epoch, epoch + 1
        self._rewind()

    def _rewind(self) -> None:
        """The first batch comes next."""
        self._cursor = self._batches = self._batch_size = 0
        self._lost = False

    def _announce(self, epoch: int) -> None:
        """One rank does it for all that share its mount."""
        if self._mount is None or self.rank != self._group[0]:
            return
        self._tell(Mount.epoch, epoch)
        lookahead = self._scorer.options["lookahead"]
        for ahead in range(epoch, epoch + 1 + lookahead):
            if ahead in self._announced:
                continue
            ids = _exchange.interleave([self._scorer.order(ahead, rank, self.world)
                                        for rank in self._group])
            self._tell(Mount.order, ahead, ids)
        self._announced = {epoch + 1} if lookahead else set()

    # --- ranks

    def _find_gather(self) -> Optional[Gather]:
        """Overridden where there is torch."""
        return self._gather

    def _agree(self, epoch: int, resident: Optional[bytes]) -> Optional[bytes]:
        """Tells all ranks what this one has, takes what they have, and returns what is resident
        on one of them."""
        gather = self._find_gather()
        if gather is None:
            self._warn("ranks", f"rank {self.rank} of {self.world} cannot reach the others: their "
                       "parts are exact, but orders do not follow the scores; initialise "
                       "torch.distributed, or give gather=")
            self._pending.clear()
            return None
        name = self._tell(lambda mount: _exchange.mount_name(mount.path)) or ""
        own = _exchange.News(epoch, name, resident, self._capacity, self._pending,
                             self._plan(epoch), self._seen_batch)
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
        self._merge(all_news)
        self._tell_batch(max(news.batch for news in all_news))
        nodes = _exchange.find_nodes(all_news, self._node_of)
        self._node_of = nodes.node_of
        self._scorer.nodes(nodes.node_of, block=self._block, mix=self._mix,
                           capacity=min(self._samples, nodes.capacity))
        return _exchange.resident_somewhere(all_news)

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
        return {"world": self.world, "block": self._block, "mix": self._mix, **options,
                "digest of the last draw": digest}

    def _merge(self, all_news: List[_exchange.News]) -> None:
        for rank, entry in _exchange.in_sequence(all_news):
            self._scorer.merge(entry.ids, entry.scores)
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
        if not self._given_batch:
            self._seen_batch = max(self._seen_batch, batch.samples)
        try:
            self._score(number, named, batch)
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
            self._lost = True
            self._warn("size", f"a batch of {count} after batches of {size}: which samples it has "
                       f"is not known, and the rest of epoch {self._epoch} is not scored; name "
                       "them: update(losses, ids=...)")
            return None
        self._batch_size = size
        self._cursor += count
        return ids

    def _score(self, number: int, ids: _libs.Ids, batch: _batch.Batch) -> None:
        scores = array("f", bytes(4 * batch.samples))
        self._update_batch(ids, {**batch.fields, "scores_out": scores.buffer_info()[0]})
        self._deliver(number, ids, scores)

    def _update_batch(self, ids: _libs.Ids, fields: Dict[str, Any]) -> None:
        """One of several ranks keeps no score yet: it merges those of all ranks when an epoch
        begins, for otherwise the orders of the ranks would differ."""
        self._scorer.update_batch(ids, keep=self.world == 1, **fields)

    def _deliver(self, number: int, ids: _libs.Ids, scores: _libs.Floats) -> None:
        self._tell(Mount.scores, ids, scores)
        if self.world > 1:
            self._pending.append(_exchange.Scored(number, ids, scores))

    def _drain(self) -> None:
        """Waits for batches that are in flight on a device."""

    # --- saving

    def state_dict(self) -> Dict[str, Any]:
        """All that the next orders depend on, as numbers and strings."""
        self._drain()
        pending = _exchange.pack(_exchange.News(self._next_epoch, "", None, 0, self._pending, {}))
        return {"version": 1, "epoch": self._next_epoch,
                "scorer": base64.b64encode(self._scorer.save()).decode(),
                "pending": base64.b64encode(pending).decode()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where that was."""
        if state.get("version") != 1:
            raise ValueError("this is not the state of a shade.Sampler")
        self._scorer.load(base64.b64decode(state["scorer"]))
        self._pending = _exchange.unpack(base64.b64decode(state["pending"])).scored
        self._next_epoch = state["epoch"]
        self._epoch = None
        self._order = array("I")
        self._rewind()
        self._announced.clear()
