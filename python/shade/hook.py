# SPDX-License-Identifier: LGPL-2.1-or-later
"""shade for a PyTorch script that must not be touched. install() changes four things of torch, and
says on standard error what came of it:

- a DataLoader that would draw at random (shuffle=True, RandomSampler, DistributedSampler) over
  files on a shadefs gets a sampler that begins with what the script's own one draws, and that has
  shade draw as soon as batches of the loader were seen to bring gradients;
- the iterator of a DataLoader notes which samples the batches have that it hands out;
- cross_entropy and nll_loss, while gradients are wanted, are computed a second time without
  reduction, and those losses score the batch whose labels they were given. What the script gets
  is the first result;
- where no such loss is seen, what the model gives is compared with the labels of the batch.

Whatever goes wrong in here is reported; the script never sees it.
"""
import functools
import inspect
import json
import multiprocessing.util
import os
import time
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed
import torch.nn.functional
import torch.utils.data
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _BaseDataLoaderIter

from . import _choice, _notes, _state, _traced
from ._handed import Batch, Handed, run_of
from ._jobs import NAME_MAX, own_name
from ._hooked import HookedSampler, LearningSampler, gains, say
from ._outputs import first_tensor, may_be_logits, own_losses
from ._pace import read_counters
from ._paths import paths_of
from ._ranks import NobodyError, Ranks
from ._torch import TorchSampler
from .mount import Mount
from .sampler import SKIPPING

LOSSES = ("cross_entropy", "nll_loss")
UNKNOWN = "the files of this data set are not known"
OFFER = ("a data set tells them by an attribute `samples`, one path for each index, or install() is "
         "given a function `paths`")
PathsOf = Callable[[Any], Optional[List[Any]]]


class Settings(NamedTuple):
    """What install() is told."""
    mount: str = "auto"  # auto: where the files are; none: sample without one; or a path
    mode: str = "auto"
    seed: Optional[int] = None  # None: the script's
    job: Optional[str] = None  # None: one of its own
    options: Dict[str, Any] = {}
    state: Optional[str] = None  # a file in which scores and draws are kept from run to run
    paths: Optional[PathsOf] = None  # from a data set to its files, None: it does not know them


def settings_from(environment: Any) -> Settings:
    """SHADE_MOUNT, SHADE_MODE, SHADE_SEED, SHADE_JOB, SHADE_STATE, SHADE_OPTIONS (JSON). ValueError
    if one of them makes no sense."""
    seed = environment.get("SHADE_SEED")
    try:
        number = int(seed) if seed else None
    except ValueError:
        raise ValueError(f"SHADE_SEED is a number, not '{seed}'") from None
    try:
        options = json.loads(environment.get("SHADE_OPTIONS") or "{}")
        if not isinstance(options, dict):
            raise ValueError
    except ValueError:
        raise ValueError("SHADE_OPTIONS is a JSON object") from None
    return Settings(environment.get("SHADE_MOUNT") or "auto",
                    environment.get("SHADE_MODE") or "auto", number,
                    environment.get("SHADE_JOB") or None, options,
                    environment.get("SHADE_STATE") or None)


class Loader:
    """A DataLoader with our sampler."""

    def __init__(self, number: int, key: str, sampler: Any) -> None:
        self.number, self.key = number, key
        self.given = sampler  # what the DataLoader has
        self.batches = self.scored = self.learnt = 0
        self.knows_loss = False  # a loss of a known name has scored one of its batches

    @property
    def sampler(self) -> Optional[HookedSampler]:
        """What scores and draws; None: the files are not known yet."""
        return self.given.inner if isinstance(self.given, LearningSampler) else self.given


class Waiting(NamedTuple):
    """What a model gave for a batch whose loss may still be seen."""
    batch: Batch
    logits: Any
    ahead: int  # batches that waited with it


class Hook:
    """What is changed, and how it was."""

    def __init__(self, settings: Settings, quiet: bool = False) -> None:
        self.settings, self.quiet = settings, quiet
        self.loaders: List[Loader] = []
        self.seen = 0
        self.handed = Handed()
        self.doubtful = self.strange = 0
        self.trouble: Optional[str] = None
        self.process = os.getpid()
        self.seconds = 0.0  # that the hook took
        self.originals: List[Tuple[Any, str, Any]] = []
        self.waiting: Optional[Waiting] = None
        self.losses_seen = 0
        self.is_inside = False  # a module is running
        self.notes: List[_notes.Notes] = []
        self.states = _state.States(settings.state)
        self.at_end: Any = None

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
        self.replace(_MapDatasetFetcher, "__init__", self.make_fetcher)
        self.replace(torch.nn.Module, "__call__", self.make_call)
        for name in LOSSES:
            self.replace(torch.nn.functional, name, self.make_loss)

    def uninstall(self) -> None:
        """Puts everything back."""
        while self.originals:
            setattr(*self.originals.pop())
        self.at_end.cancel()
        for notes in self.notes:
            notes.end()

    def guarded(self, work: Callable[[], Any]) -> bool:
        """The script must not fail because of us. Whether it was done."""
        begin = time.perf_counter()
        try:
            work()
        except Exception as failure:  # pylint: disable=broad-except
            self.failed(failure)
            return False
        finally:
            self.seconds += time.perf_counter() - begin
        return True

    def failed(self, failure: Exception) -> None:
        """Says so, the first time."""
        if self.trouble is None:
            self.trouble = f"{type(failure).__name__}: {failure}"
            say(f"something failed, the script goes on without it: {self.trouble}")

    # --- loaders

    def make_init(self, original: Any) -> Any:
        """DataLoader.__init__ that may be given our sampler."""
        signature = inspect.signature(original)

        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(loader, *args, **kwargs)
            except TypeError:  # as the script will hear from torch
                original(loader, *args, **kwargs)
                return
            changed = dict(bound.arguments)
            if self.guarded(lambda: self.on_loader(changed)):
                bound.arguments.update(changed)
            original(*bound.args, **bound.kwargs)
        return init

    def on_loader(self, arguments: Dict[str, Any]) -> None:
        """Changes the arguments of a DataLoader, or says why not."""
        self.seen += 1
        dataset = arguments["dataset"]
        what = f"DataLoader {self.seen} ({type(dataset).__name__})"
        found, reason = _choice.random_sampler(arguments)
        if found is not None:
            reason = _choice.wrong_ranks(found.rank, found.world) or ""
        sampler = None if reason or found is None else self.make_sampler(arguments, found)
        if isinstance(sampler, str):
            reason, sampler = sampler, None
        if sampler is None or found is None:
            say(f"{what} is left alone: {reason}")
            return
        self.take_loader(arguments, found, sampler, what)

    def take_loader(self, arguments: Dict[str, Any], found: _choice.Random, sampler: Any,
                    what: str) -> None:
        """Gives the DataLoader our sampler."""
        _choice.put_sampler(arguments, sampler)
        if found.sampler is not None:
            _choice.follow_epochs(found.sampler, sampler)
        loader = Loader(self.seen, self.key_of(arguments["dataset"]), sampler)
        self.loaders.append(loader)
        if isinstance(sampler, HookedSampler):
            self.resume(loader)
        self.say_taken(loader, found, what)

    def say_taken(self, loader: Loader, found: _choice.Random, what: str) -> None:
        """What became of it."""
        old = type(found.sampler).__name__ if found.sampler is not None else "shuffle=True"
        if found.shards is not None:
            old = type(found.shards).__name__
        sampler = loader.sampler
        if sampler is None:
            say(f"{what}: {UNKNOWN} ({OFFER}); they are noted while the first epoch reads them, as "
                f"{old} draws it")
            return
        where = sampler.mount.path if sampler.mount else "no mount"
        job = f", job {sampler.job}" if sampler.mount and sampler.job else ""
        say(f"{what}: {old} became shade.Sampler, mode {self.settings.mode}, seed "
            f"{sampler.seed}, rank {sampler.rank} of {sampler.world}, {where}{job}"
            + ("" if sampler.trains else "; it draws from the epoch after the first that trains"))

    def key_of(self, dataset: Any) -> str:
        """The same on all ranks, and from run to run."""
        alike = f"{type(dataset).__name__}-{len(dataset)}"
        return f"{alike}-{sum(loader.key.startswith(alike + '-') for loader in self.loaders)}"

    def make_sampler(self, arguments: Dict[str, Any], found: _choice.Random) -> Any:
        """The sampler, or why there can be none."""
        dataset = arguments["dataset"]
        own = found.sampler
        if own is None:
            own = torch.utils.data.RandomSampler(dataset, generator=arguments.get("generator"))
        if found.shards is not None:
            own = _choice.Dealt(found.shards)
        size = _choice.batch_size(arguments)
        paths = self.settings.paths(dataset) if self.settings.paths else None
        paths = paths_of(dataset) if paths is None else paths
        try:
            if paths is not None:
                return self.try_sampler(self.key_of(dataset), paths, own, found, size)
            return self.learn(dataset, own, found, size)
        except Exception as failure:  # pylint: disable=broad-except
            return str(failure) or repr(failure)

    def try_sampler(self, key: str, paths: List[Any], own: Any, found: _choice.Random,
                    size: int) -> Any:
        """A sampler over these files, or why there can be none."""
        settings, rank, world = self.settings, found.rank, found.world
        first = not any(loader.sampler is not None for loader in self.loaders)
        # A second one must not replace the orders of the first.
        second = None if first else f"{settings.job or own_name(world)}-{key}"[-NAME_MAX:]
        seed = settings.seed
        generator = getattr(own, "generator", None)
        if seed is None and generator is not None:
            seed = int(generator.initial_seed()) & (1 << 64) - 1
        draws = getattr(own, "total_size", None)
        if found.shards is not None:
            draws = len(own) * world
        sampler = HookedSampler(
            paths, None if settings.mount == "none" else settings.mount, settings.mode, seed, rank,
            world, job=settings.job, own=own, report=self.failed, begins=self.save,
            ranks=Ranks(key, rank, world) if world > 1 else None, announces=first, job_when_trains=second,
            draws=None if settings.mode in SKIPPING else draws,
            **{"batch": size, **settings.options})
        if settings.mount == "auto" and sampler.mount is None:
            return "its files are not on a shadefs"
        return sampler

    # --- files that are learnt

    def learn(self, dataset: Any, own: Any, found: _choice.Random, size: int) -> Any:
        """A sampler that finds the files out, or why it cannot."""
        if self.settings.mount == "none":
            return f"{UNKNOWN}; {OFFER}"
        if len(dataset) == 0:
            return "it is empty"
        notes = next((notes for notes in self.notes if notes.dataset is dataset), None)
        if notes is None:
            mounts = _traced.mounts_here() if self.settings.mount == "auto" else \
                [self.settings.mount]
            if not mounts:
                return f"{UNKNOWN}, and there is no shadefs here"
            notes = _notes.Notes(dataset)
            notes.tracer = _traced.Tracer(mounts, 4 * notes.count)
            self.notes.append(notes)
        return LearningSampler(own, functools.partial(self.build_learnt, notes,
                                                      self.key_of(dataset), own, found, size),
                               self.failed)

    def build_learnt(self, notes: _notes.Notes, key: str, own: Any, found: _choice.Random,
                     size: int, begun: int) -> Optional[HookedSampler]:
        """The sampler, once every index has a file. `begun`: so many epochs were."""
        if not begun and found.world > 1:  # what draws later will meet by the name of the loader
            Ranks(key, found.rank, found.world).join()
        if not notes.is_over:
            self.look_at_notes(notes, Ranks(f"{key}-files", found.rank, found.world), begun)
        if notes.paths is None:
            return None
        sampler = self.try_sampler(key, notes.paths, own, found, size)
        if isinstance(sampler, str):
            notes.paths = None
            say(f"{UNKNOWN}: {sampler}")
            return None
        assert isinstance(sampler, HookedSampler) and sampler.mount is not None
        say(f"the files of {type(notes.dataset).__name__} were learnt: shade.Sampler, mode "
            f"{self.settings.mode}, seed {sampler.seed}, {sampler.mount.path}")
        return sampler

    def look_at_notes(self, notes: _notes.Notes, ranks: Ranks, begun: int) -> None:
        """Ranks tell each other what they have seen: each has fetched its part."""
        if ranks.world > 1:
            ranks.join()
        known = notes.read()
        if not begun:
            return
        if notes.tracer is not None and not any(map(self.on_mount(known), _some(known))):
            known.update(notes.tracer.pair(notes.fetched))
        if ranks.world > 1:
            try:
                known = _notes.exchanged(known, functools.partial(ranks.gather, str(begun)))
            except NobodyError as failure:
                notes.end()
                say(f"{UNKNOWN}, and ranks cannot find them out together: {failure}")
                return
        notes.paths = _notes.choose_paths(known, notes.count, self.on_mount(known),
                                          os.path.getsize)
        if notes.paths is not None:
            notes.end()
        elif len(known) >= notes.count:
            notes.end()
            say(f"{UNKNOWN}: not every sample opened one of its own on a shadefs; {OFFER}")

    def on_mount(self, known: Dict[int, List[str]]) -> Callable[[str], bool]:
        """Whether a path is on the mount that the files are on."""
        tops: Dict[str, bool] = {}
        candidates = _some(known) if self.settings.mount == "auto" else [self.settings.mount]
        for path in candidates:
            try:
                with Mount(path) as mount:
                    tops[mount.path] = True
            except OSError:
                continue
        return lambda path: any(os.path.realpath(path).startswith(top + "/") for top in tops)

    def make_fetcher(self, original: Any) -> Any:
        """_MapDatasetFetcher.__init__ that notes what samples open, if that is to be learnt."""
        def init(fetcher: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
            given = [dataset]
            self.guarded(lambda: given.append(_notes.noted(dataset)))
            original(fetcher, given[-1], *args, **kwargs)
        return init

    # --- batches

    def loader_of(self, iterator: Any) -> Optional[Loader]:
        """Which of ours it iterates over, if one."""
        batches = iterator._index_sampler  # pylint: disable=protected-access
        sampler = getattr(batches, "sampler", batches)
        return next((loader for loader in self.loaders if loader.given is sampler), None)

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
                regular = isinstance(failure, StopIteration)
                self.guarded(lambda: self.on_end(iterator, regular))
                raise
            self.guarded(lambda: self.on_batch(iterator, data))
            return data
        return following

    def on_end(self, iterator: Any, regular: bool) -> None:
        """Nothing more comes; or a batch failed, and what comes if the script goes on is open."""
        run = run_of(iterator)
        run.ended = run.ended or regular
        if not regular:
            run.ids = None
        elif self.waiting is not None and self.waiting.batch.run is run:
            self.settle(None)

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

    # --- losses of known names

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
        batch = self.find(given.shape[0], bound.arguments["target"])
        if batch is None:
            return
        self.losses_seen += 1
        self.handed.take(batch)
        if batch.loader is not None:
            batch.loader.knows_loss = True
            bound.arguments.update(input=given.detach(), reduction="none", size_average=None,
                                   reduce=None)
            with torch.no_grad():
                losses = original(*bound.args, **bound.kwargs)
                self.score(batch, losses.reshape(batch.size, -1).mean(1))

    def find(self, rows: int, target: Any) -> Optional[Batch]:
        """The batch that a loss is of; None: there is none, or more than one it may be of."""
        found = self.handed.find(rows, target)
        if found is not None and found.batch is None:
            self.doubtful += found.fitting > 1
            self.strange += found.fitting == 0
        return None if found is None else found.batch

    @staticmethod
    def score(batch: Batch, losses: Any) -> None:
        """By the loss of each sample. That of a loader whose files are being learnt shows that it
        trains, and no more."""
        loader: Loader = batch.loader
        batch.scored = True
        loader.given.trains = True
        if loader.sampler is None:
            loader.learnt += 1
            return
        loader.sampler.trains = True
        loader.sampler.update(losses, ids=batch.ids)
        loader.scored += 1

    # --- what models give

    def make_call(self, original: Any) -> Any:
        """Module.__call__ that looks at what the outermost module gives."""
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_inside or not self.handed.batches:
                return original(module, *args, **kwargs)
            seen = self.losses_seen
            self.is_inside = True
            try:
                result = original(module, *args, **kwargs)
            finally:
                self.is_inside = False
            if seen == self.losses_seen and torch.is_grad_enabled():
                self.guarded(lambda: self.on_output([*args, *kwargs.values()], result))
            return result
        return call

    def on_output(self, given: List[Any], result: Any) -> None:
        """A criterion was given logits and targets; a model gave logits."""
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        logits = next((tensor for tensor in tensors if may_be_logits(tensor)), None)
        targets = [tensor for tensor in tensors if not tensor.requires_grad and tensor.dim()]
        if logits is not None and len(targets) == 1 and \
                targets[0].shape[0] == logits.shape[0]:
            self.on_criterion(logits, targets[0])
            return
        logits = first_tensor(result)
        if may_be_logits(logits):
            self.on_logits(logits)

    def on_criterion(self, logits: Any, target: Any) -> None:
        """A loss that is a module of the script's own."""
        batch = self.find(logits.shape[0], target)
        if batch is None or batch.loader is None:
            return
        losses = own_losses(logits, [target])
        if losses is not None:
            self.handed.take(batch)
            self.forget_waiting(batch)
            self.score(batch, losses)

    def on_logits(self, logits: Any) -> None:
        """A model was run on one of the batches that wait, the oldest one unless the script leaves
        some out. Its loss may still come, so it is scored when the next batch is under way."""
        rows = logits.shape[0]
        self.settle(rows)
        batches = [batch for batch in self.handed.batches if batch.size == rows]
        if not batches or len({id(batch.run) for batch in batches}) > 1:
            return
        batch = batches[0]
        if batch.loader is None or batch.loader.knows_loss or batch.run.outputs_lost:
            return
        if batch.run.ahead is None:
            batch.run.ahead = len(batches)
        self.waiting = Waiting(batch, logits.detach(), len(batches))

    def settle(self, rows: Optional[int]) -> None:
        """The model is run on another batch: if no loss was seen for the last one, what the model
        gave scores it. `rows`: of the batch that it is run on; None: the pass is over."""
        waiting, self.waiting = self.waiting, None
        if waiting is None or waiting.batch.scored or waiting.batch not in self.handed.batches:
            return
        batch = waiting.batch
        left = sum(other.size == rows and other.run is batch.run and other is not batch
                   for other in self.handed.batches)
        if rows is not None and batch.run.ahead is not None and left > batch.run.ahead:
            batch.run.outputs_lost = True  # more and more wait: some are never used
            self.doubtful += 1
            return
        self.handed.take(batch)
        losses = own_losses(waiting.logits, batch.labels)
        if losses is not None:
            self.score(batch, losses)

    def forget_waiting(self, batch: Batch) -> None:
        """Its loss was seen."""
        if self.waiting is not None and self.waiting.batch is batch:
            self.waiting = None

    # --- from run to run

    def resume(self, loader: Loader) -> None:
        """Goes on with what an earlier run has left."""
        sampler = loader.sampler
        state = self.states.of(loader.key)
        if sampler is None or state is None:
            return
        try:
            sampler.load_state_dict(state["sampler"])
            sampler.trains = bool(state["trains"])
            say(f"goes on with the scores of {self.settings.state}")
        except (OSError, ValueError, KeyError, TypeError) as failure:
            say(f"{self.settings.state} is of another training: {failure}")

    def save(self) -> None:
        """When an epoch begins, and at the end."""
        if not self.settings.state:
            return
        states = {loader.key: {"sampler": loader.sampler.state_dict(),
                               "trains": loader.sampler.trains}
                  for loader in self.loaders
                  if loader.sampler is not None and loader.sampler.rank == 0}
        if states:
            self.states.write(states)

    # --- the report

    def report_at_end(self) -> None:
        """Of this process: multiprocessing ends its children without atexit."""
        self.at_end = multiprocessing.util.Finalize(None, self.guarded, (self.report,),
                                                    exitpriority=100)

    def begin_child(self) -> None:
        """In a process that was forked: what its parent has is not its own."""
        self.process, self.quiet = os.getpid(), True
        self.loaders, self.seen, self.handed, self.waiting = [], 0, Handed(), None
        self.doubtful = self.strange = 0
        self.seconds = 0.0
        self.report_at_end()

    def report(self) -> None:
        """What was done, at the end."""
        if os.getpid() != self.process or (self.quiet and not self.loaders):
            return
        self.guarded(lambda: self.settle(None))
        self.guarded(self.save)
        if not self.loaders:
            say("at the end: no DataLoader was changed in this process")
        for loader in self.loaders:
            self.report_loader(loader)
        if self.doubtful:
            say(f"at the end: {self.doubtful} losses could be of more than one batch, and scored "
                "none")
        if self.strange:
            say(f"at the end: {self.strange} losses had other targets than the labels of the "
                "batches at hand, and scored none")
        batches = sum(loader.batches for loader in self.loaders)
        if batches:
            say(f"at the end: watching took {1000 * self.seconds / batches:.2f} ms a batch")
        if self.trouble:
            say(f"at the end: failed once or more: {self.trouble}")

    def report_loader(self, loader: Loader) -> None:
        """One of them."""
        head = f"at the end: DataLoader {loader.number}:"
        sampler = loader.sampler
        if sampler is None:
            say(f"{head} {loader.batches} batches, and the files were never known")
            return
        if not sampler.trains:
            say(f"{head} {loader.batches} batches; none was seen to bring gradients, so the script's "
                "own sampler has drawn all of them")
            return
        say(f"{head} {sampler.summary()}")
        for line in self.gains_of(sampler):
            say(f"{head} {line}")
        left = loader.batches - loader.scored - loader.learnt
        say(f"{head} {loader.batches} batches, {loader.scored} scored, {left} not"
            + (f", {loader.learnt} while files were learnt" if loader.learnt else ""))

    @staticmethod
    def gains_of(sampler: HookedSampler) -> List[str]:
        """Against a mount that is told nothing."""
        if sampler.mount is None or not sampler.pace.sample_bytes:
            return []
        samples, size = sampler.mount.sample_count(), sampler.pace.sample_bytes
        page = os.sysconf("SC_PAGE_SIZE")  # memory has whole ones only
        in_memory = samples * -(-size // page) * page
        fits = min(1.0, sampler.mount.stat("capacity_bytes") / in_memory)
        return gains(read_counters(sampler.mount.folder, sampler.job), samples, size, fits)


def _some(known: Dict[int, List[str]]) -> List[str]:
    """Paths that some samples have opened."""
    return [path for paths in list(known.values())[:64] for path in paths]


_installed: Optional[Hook] = None


def install(settings: Optional[Settings] = None, paths: Optional[PathsOf] = None,
            quiet: bool = False) -> Hook:
    """Changes torch, once. Settings are those of the environment unless given; `paths` tells the
    files of a data set that does not; `quiet`: nothing is said while no DataLoader is made.
    ShadeError if a mount is named where there is none, ValueError if no sampler could be made of
    the settings."""
    global _installed
    if _installed is not None:
        return _installed
    settings = settings or settings_from(os.environ)
    if paths is not None:
        settings = settings._replace(paths=paths)
    TorchSampler(1, None, settings.mode, settings.seed, capacity=1, **settings.options)
    if settings.mount not in ("auto", "none"):
        Mount(settings.mount).close()
    hook = Hook(settings, quiet)
    hook.install()
    hook.report_at_end()
    multiprocessing.util.register_after_fork(hook, Hook.begin_child)
    if not quiet:
        say("DataLoader's random sampling, cross_entropy, nll_loss and what models give are watched: "
            f"mount {settings.mount}, mode {settings.mode}")
        if settings.mode in SKIPPING:
            say(f"mode {settings.mode} leaves samples out, and a script that knows nothing of "
                "weights does not make up for it")
    _installed = hook
    return hook


def uninstall() -> None:
    """Puts torch back."""
    global _installed
    if _installed is not None:
        _installed.uninstall()
        _installed = None
