# SPDX-License-Identifier: LGPL-2.1-or-later
"""shade for a PyTorch script that must not be touched. install() changes three things of torch,
and says on standard error what came of it:

- a DataLoader that would draw at random (shuffle=True, RandomSampler, DistributedSampler) over
  files on a shadefs gets a shade.Sampler;
- the iterator of a DataLoader notes which samples the batches have that it hands out;
- cross_entropy and nll_loss, while gradients are wanted, are computed a second time without
  reduction, and those losses score the batch whose labels they were given. What the script gets
  is the first result.

Whatever goes wrong in here is reported; the script never sees it.
"""
import atexit
import functools
import inspect
import os
import sys
from array import array
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed
import torch.nn.functional
import torch.utils.data
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ._handed import Batch, Handed, run_of
from ._paths import paths_of
from ._torch import TorchSampler, all_gather
from .mount import Mount
from .sampler import SKIPPING

LOSSES = ("cross_entropy", "nll_loss")


class Settings(NamedTuple):
    """What install() is told."""
    mount: str = "auto"  # auto: where the files are; none: sample without one; or a path
    mode: str = "auto"
    seed: int = 0
    job: Optional[str] = None
    options: Dict[str, Any] = {}


def settings_from(environment: Any) -> Settings:
    """SHADE_MOUNT, SHADE_MODE, SHADE_SEED, SHADE_JOB. ValueError if the seed is not a number."""
    seed = environment.get("SHADE_SEED") or "0"
    try:
        number = int(seed)
    except ValueError:
        raise ValueError(f"SHADE_SEED is a number, not '{seed}'") from None
    return Settings(environment.get("SHADE_MOUNT") or "auto",
                    environment.get("SHADE_MODE") or "auto", number,
                    environment.get("SHADE_JOB") or None)


def _say(text: str) -> None:
    print("shade:", text, file=sys.stderr, flush=True)


class CarefulSampler(TorchSampler):
    """One whose troubles end in `report`, while the script gets what its own sampler draws."""

    def __init__(self, *args: Any, own: Any, report: Callable[[Exception], None],
                 **kwargs: Any) -> None:
        self._own, self._report = own, report
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[int]:
        try:
            return super().__iter__()
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)
        # Other ranks may have drawn: this one must go on as long as they do, and be there again
        # when the next epoch begins.
        if hasattr(self._own, "epoch"):
            self._own.epoch = self._next_epoch
        length = self._length_of(self._next_epoch)
        self._begin(self._next_epoch, array("I", self._own)[:length])
        return iter(self._order)

    def set_epoch(self, epoch: int) -> None:
        try:
            super().set_epoch(epoch)
        except ValueError as failure:
            self._report(failure)

    def _reconsider(self, position: int) -> None:
        try:
            super()._reconsider(position)
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)

    def _say_uses(self, before: float, uses: float) -> None:
        _say(f"a fetched sample is used {uses:.2f} times, no longer {before:.2f}")

    def _drain(self) -> None:
        # Before the ranks meet: one that failed here would leave the others waiting.
        try:
            super()._drain()
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)

    def _warn(self, what: str, text: str) -> None:
        # Not as a warning, which the script may have made an error.
        if what not in self._warned:
            self._warned.add(what)
            _say(text)


class Loader:
    """A DataLoader with our sampler."""

    def __init__(self, number: int, sampler: CarefulSampler) -> None:
        self.number, self.sampler = number, sampler
        self.batches = self.scored = 0


class Hook:
    """What is changed, and how it was."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.loaders: List[Loader] = []
        self.seen = 0
        self.handed = Handed()
        self.doubtful = self.strange = 0
        self.trouble: Optional[str] = None
        self.process = os.getpid()
        self.originals: List[Tuple[Any, str, Any]] = []

    # --- changing torch

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces an attribute by make(original)."""
        original = getattr(owner, name)
        self.originals.append((owner, name, original))
        setattr(owner, name, functools.wraps(original)(make(original)))

    def install(self) -> None:
        """Changes torch."""
        self.replace(torch.utils.data.DataLoader, "__init__", self.make_init)
        self.replace(_BaseDataLoaderIter, "_next_index", self.make_next_index)
        self.replace(_BaseDataLoaderIter, "__next__", self.make_next)
        for name in LOSSES:
            self.replace(torch.nn.functional, name, self.make_loss)

    def uninstall(self) -> None:
        """Puts everything back."""
        while self.originals:
            setattr(*self.originals.pop())

    def guarded(self, work: Callable[[], None]) -> None:
        """The script must not fail because of us."""
        try:
            work()
        except Exception as failure:  # pylint: disable=broad-except
            self.failed(failure)

    def failed(self, failure: Exception) -> None:
        """Says so, the first time."""
        if self.trouble is None:
            self.trouble = f"{type(failure).__name__}: {failure}"
            _say(f"something failed, the script goes on without it: {self.trouble}")

    # --- loaders

    def make_init(self, original: Any) -> Any:
        """DataLoader.__init__ that may be given our sampler."""
        signature = inspect.signature(original)

        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(loader, *args, **kwargs)
            self.guarded(lambda: self.on_loader(bound.arguments))
            original(*bound.args, **bound.kwargs)
        return init

    def on_loader(self, arguments: Dict[str, Any]) -> None:
        """Changes the arguments of a DataLoader, or says why not."""
        self.seen += 1
        what = f"DataLoader {self.seen} ({type(arguments['dataset']).__name__})"
        old, reason = _random_sampler(arguments)
        sampler = None if reason else self.make_sampler(arguments, old)
        if isinstance(sampler, str):
            reason, sampler = sampler, None
        if sampler is None:
            _say(f"{what} is left alone: {reason}")
            return
        _put_sampler(arguments, sampler)
        if old is not None:
            _follow_epochs(old, sampler)
        self.loaders.append(Loader(self.seen, sampler))
        old_name = type(old).__name__ if old is not None else "shuffle=True"
        where = sampler.mount.path if sampler.mount else "no mount"
        _say(f"{what}: {old_name} became shade.Sampler, mode {self.settings.mode}, seed "
             f"{self.settings.seed}, rank {sampler.rank} of {sampler.world}, {where}")

    def make_sampler(self, arguments: Dict[str, Any], old: Any) -> Any:
        """The sampler, or why there can be none."""
        dataset = arguments["dataset"]
        rank, world = getattr(old, "rank", 0), getattr(old, "num_replicas", 1)
        wrong = _wrong_ranks(rank, world)
        if wrong:
            return wrong
        own = old if old is not None else torch.utils.data.RandomSampler(dataset)
        try:
            made = self.try_sampler(dataset, own, rank, world, _batch_size(arguments))
        except Exception as failure:  # pylint: disable=broad-except
            made = str(failure) or repr(failure)
        return _agreed(made) if world > 1 else made

    def try_sampler(self, dataset: Any, own: Any, rank: int, world: int, batch: int) -> Any:
        """The sampler as far as this rank is concerned, or why there can be none."""
        if paths_of(dataset) is None:
            return "the files of this data set are not known"
        settings = self.settings
        # A second one must not replace the orders of the first.
        job = settings.job if not self.loaders else \
            f"{settings.job or 'hook'}-{len(self.loaders) + 1}"
        sampler = CarefulSampler(
            dataset, None if settings.mount == "none" else settings.mount, settings.mode,
            settings.seed, rank, world, job=job, own=own, report=self.failed,
            draws=None if settings.mode in SKIPPING else getattr(own, "total_size", None),
            **{"batch": batch, **settings.options})
        if settings.mount == "auto" and sampler.mount is None:
            return "its files are not on a shadefs"
        return sampler

    # --- batches

    def loader_of(self, iterator: Any) -> Optional[Loader]:
        """Which of ours it iterates over, if one."""
        batches = iterator._index_sampler  # pylint: disable=protected-access
        sampler = getattr(batches, "sampler", batches)
        return next((loader for loader in self.loaders if loader.sampler is sampler), None)

    def make_next_index(self, original: Any) -> Any:
        """_next_index of a DataLoader's iterator that notes what is drawn."""
        def following(iterator: Any) -> Any:
            index = original(iterator)
            self.guarded(lambda: self.on_index(iterator, index))
            return index
        return following

    def on_index(self, iterator: Any, index: Any) -> None:
        """Notes the samples of a batch to come. Workers hand out in the sequence of the draws."""
        run = run_of(iterator)
        if run.ids is not None and self.loader_of(iterator) is not None:
            run.ids.append(array("I", [index] if isinstance(index, int) else index))

    def make_next(self, original: Any) -> Any:
        """__next__ of a DataLoader's iterator that notes the batch."""
        def following(iterator: Any) -> Any:
            try:
                data = original(iterator)
            except BaseException as failure:
                self.guarded(lambda: self.on_end(iterator, isinstance(failure, StopIteration)))
                raise
            self.guarded(lambda: self.on_batch(iterator, data))
            return data
        return following

    @staticmethod
    def on_end(iterator: Any, regular: bool) -> None:
        """Nothing more comes; or a batch failed, and what comes if the script goes on is open."""
        run = run_of(iterator)
        run.ended = run.ended or regular
        if not regular:
            run.ids = None

    def on_batch(self, iterator: Any, data: Any) -> None:
        """Notes which samples were handed out."""
        loader, run = self.loader_of(iterator), run_of(iterator)
        ids = None
        if loader is not None:
            loader.batches += 1
            if not run.ids:
                return
            ids = run.ids.popleft()
        self.handed.add(Batch(run, loader, ids, data))

    # --- losses

    def make_loss(self, original: Any) -> Any:
        """A loss that also scores the batch."""
        signature = inspect.signature(original)

        def loss(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self.handed.batches and torch.is_grad_enabled():
                self.guarded(lambda: self.on_loss(original, signature.bind(*args, **kwargs)))
            return result
        return loss

    def on_loss(self, original: Any, bound: inspect.BoundArguments) -> None:
        """Scores the batch that these are the losses of, if it is beyond doubt."""
        given = bound.arguments["input"]
        if not given.requires_grad or given.dim() < 2:
            return
        found = self.handed.find(given.shape[0], bound.arguments["target"])
        if found is None:
            return
        if found.batch is None:
            self.doubtful += found.fitting > 1
            self.strange += found.fitting == 0
            return
        self.handed.take(found.batch)
        if found.batch.loader is not None:
            self.score(found.batch, original, bound)

    @staticmethod
    def score(batch: Batch, original: Any, bound: inspect.BoundArguments) -> None:
        """Computes the loss of each sample."""
        bound.arguments.update(input=bound.arguments["input"].detach(), reduction="none",
                               size_average=None, reduce=None)
        with torch.no_grad():
            losses = original(*bound.args, **bound.kwargs)
            losses = losses.reshape(batch.size, -1).mean(1)
        batch.scored = True
        batch.loader.sampler.update(losses, ids=batch.ids)
        batch.loader.scored += 1

    # --- the report

    def report(self) -> None:
        """What was done, at the end."""
        if os.getpid() != self.process:
            return
        if not self.loaders:
            _say("at the end: no DataLoader was changed")
        for loader in self.loaders:
            left = loader.batches - loader.scored
            _say(f"at the end: DataLoader {loader.number}: {loader.sampler.summary()}")
            _say(f"at the end: DataLoader {loader.number}: {loader.batches} batches, "
                 f"{loader.scored} scored, {left} not" + (
                     " (no cross_entropy or nll_loss with gradients, of as many samples)"
                     if left else ""))
        if self.doubtful:
            _say(f"at the end: {self.doubtful} losses could be of more than one batch, and scored "
                 "none")
        if self.strange:
            _say(f"at the end: {self.strange} losses had other targets than the labels of the "
                 "batches at hand, and scored none")
        if self.trouble:
            _say(f"at the end: failed once or more: {self.trouble}")


def _random_sampler(arguments: Dict[str, Any]) -> Tuple[Any, Optional[str]]:
    """The sampler that draws at random (None: shuffle=True), or why there is none to replace."""
    if isinstance(arguments["dataset"], torch.utils.data.IterableDataset):
        return None, "it has no indices"
    if not arguments.get("in_order", True):
        return None, "its batches come in any sequence"
    batches = arguments.get("batch_sampler")
    if batches is not None and type(batches) is not torch.utils.data.BatchSampler:
        return None, f"its batches come from {type(batches).__name__}"
    old = arguments.get("sampler") if batches is None else batches.sampler
    if old is None:
        return None, None if arguments.get("shuffle") else "it does not shuffle"
    if type(old) is torch.utils.data.distributed.DistributedSampler and \
            len(old.dataset) == len(arguments["dataset"]):
        return old, None if old.shuffle else "it does not shuffle"
    if type(old) is torch.utils.data.RandomSampler and not old.replacement and \
            old.num_samples == len(arguments["dataset"]):
        return old, None
    return None, f"it draws by {type(old).__name__}"


def _batch_size(arguments: Dict[str, Any]) -> int:
    """Of a DataLoader; 0: it has no batches."""
    batches = arguments.get("batch_sampler")
    size = arguments.get("batch_size", 1) if batches is None else batches.batch_size
    return size if isinstance(size, int) and 0 < size <= 1 << 20 else 0


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _wrong_ranks(rank: int, world: int) -> Optional[str]:
    """Why ranks cannot draw together: then each would wait for others that never come."""
    if _is_distributed():
        own, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    elif "RANK" in os.environ and "WORLD_SIZE" in os.environ:  # a launcher's, to be used later
        own, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    else:
        return None
    if (rank, world) == (own, ranks):
        return None
    return f"it draws for rank {rank} of {world}, but this is rank {own} of {ranks}"


def _agreed(made: Any) -> Any:
    """What all ranks can do: one that goes without would leave the others waiting for it when an
    epoch begins. All of them make the same DataLoader, so here they can meet."""
    if not _is_distributed():
        return made
    reasons = all_gather(made.encode() if isinstance(made, str) else b"")
    if isinstance(made, str) or not any(reasons):
        return made
    if made.mount is not None:
        made.mount.close()
    rank = next(rank for rank, reason in enumerate(reasons) if reason)
    return f"rank {rank} leaves it alone: {reasons[rank].decode()}"


def _put_sampler(arguments: Dict[str, Any], sampler: CarefulSampler) -> None:
    batches = arguments.get("batch_sampler")
    if batches is not None:
        batches.sampler = sampler
        return
    arguments["shuffle"] = None
    arguments["sampler"] = sampler


def _follow_epochs(old: Any, sampler: CarefulSampler) -> None:
    """What the script tells its own sampler, ours must hear."""
    if not hasattr(old, "set_epoch"):
        return
    set_epoch = old.set_epoch

    def both(epoch: int) -> None:
        set_epoch(epoch)
        sampler.set_epoch(epoch)
    old.set_epoch = both


_installed: Optional[Hook] = None


def install(settings: Optional[Settings] = None) -> Hook:
    """Changes torch, once. Settings are those of the environment unless given. ShadeError if a
    mount is named where there is none, ValueError if no sampler could be made of them."""
    global _installed
    if _installed is not None:
        return _installed
    settings = settings or settings_from(os.environ)
    TorchSampler(1, None, settings.mode, settings.seed, capacity=1, **settings.options)
    if settings.mount not in ("auto", "none"):
        Mount(settings.mount).close()
    hook = Hook(settings)
    hook.install()
    atexit.register(hook.report)
    _say("DataLoader's random sampling, cross_entropy and nll_loss are watched: mount "
         f"{settings.mount}, mode {settings.mode}")
    if settings.mode in SKIPPING:
        _say(f"mode {settings.mode} leaves samples out, and a script that knows nothing of weights "
             "does not make up for it")
    _installed = hook
    return hook


def uninstall() -> None:
    """Puts torch back."""
    global _installed
    if _installed is not None:
        _installed.uninstall()
        atexit.unregister(_installed.report)
        _installed = None
