# SPDX-License-Identifier: LGPL-2.1-or-later
"""Scores and orders: libshade-score for Python."""
import ctypes
import errno
from array import array
from typing import Any, Dict, Iterable, Optional

from . import _libs
from ._pace import Span

MODES = {"uniform": 0, "replacement": 1, "paper": 2, "pads": 3, "echo": 4, "auto": 5,
         "prune": 6, "iis": 7}
BACKENDS = {"auto": 0, "cpu": 1, "cuda": 2}
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
# Options that orders do not depend on: ranks and runs may differ in them.
_NOT_OF_ORDERS = {"size", "backend", "device"}


def _choose(what: str, name: str, table: "dict[str, int]") -> int:
    if name not in table:
        raise ValueError(f"{what} is one of {', '.join(table)}, not '{name}'")
    return table[name]


def _as_struct(span: Optional[Span]) -> _libs.ScoreSpan:
    """None is one that tells nothing."""
    if span is None:
        return _libs.ScoreSpan()
    return _libs.ScoreSpan(*(getattr(span, name) for name in _libs.fields_of(_libs.ScoreSpan())))


class Scorer:
    """The scores of `samples` samples, and the orders that are drawn from them. The options are
    those of score.h: lookahead, draws, rep, uses, most_uses, strength, max_repeats, cover_epochs,
    capacity, device, keep, epochs, multiple, substitute, package. Threads may share it."""

    def __init__(self, samples: int, *, mode: str = "pads", seed: int = 0, backend: str = "auto",
                 **options: Any) -> None:
        self._lib = _libs.libscore()
        self._handle: Optional[ctypes.c_void_p] = None
        given = _libs.ScorerOptions()
        self._lib.shade_scorer_defaults(ctypes.byref(given))
        known = set(_libs.fields_of(given)) - {"size"}
        if samples < 1:
            raise ValueError("there are no samples")
        options.update(samples=samples, seed=seed, mode=_choose("mode", mode, MODES),
                       backend=_choose("backend", backend, BACKENDS))
        for name, value in options.items():
            if name not in known:
                raise TypeError(f"a scorer has no option '{name}'")
            if value is None:
                continue
            setattr(given, name, value)
            if isinstance(value, int) and getattr(given, name) != value:
                raise ValueError(f"{name} is out of range: {value}")
        handle = ctypes.c_void_p()
        self._lib.check(self._lib.shade_scorer_create(ctypes.byref(handle), ctypes.byref(given)))
        self._handle = handle
        self.samples = samples

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            self._lib.shade_scorer_destroy(handle)
            self._handle = None

    @property
    def backend(self) -> str:
        """cpu or cuda"""
        return str(self._lib.shade_scorer_backend(self._handle), "ascii")

    @property
    def options(self) -> Dict[str, Any]:
        """Those that orders depend on, as they are in force: load() may have changed them."""
        found = _libs.ScorerOptions(size=ctypes.sizeof(_libs.ScorerOptions))
        self._lib.check(self._lib.shade_scorer_get_options(self._handle, ctypes.byref(found)))
        options = {name: getattr(found, name) for name in _libs.fields_of(found)
                   if name not in _NOT_OF_ORDERS}
        names = {number: name for name, number in MODES.items()}
        return {**options, "mode": names[found.mode]}

    def update(self, ids: Any, losses: Any) -> _libs.Floats:
        """Scores a batch by its losses. Returns the scores."""
        ids, losses = _libs.as_ids(ids), _libs.as_floats(losses)
        if len(ids) != len(losses):
            raise ValueError(f"{len(ids)} samples, but {len(losses)} losses")
        scores = array("f", bytes(4 * len(ids)))
        self._lib.check(self._lib.shade_scorer_update(
            self._handle, _libs.ids_pointer(ids), _libs.floats_pointer(losses), len(ids),
            _libs.floats_pointer(scores)))
        return scores

    def update_batch(self, ids: Any, *, keep: bool = True, **fields: Any) -> None:
        """shade_scorer_update_batch() with these fields; pointers are numbers. With keep=False it
        is shade_scorer_rank_batch(): scores go to `scores_out`, and the scorer keeps none."""
        ids = _libs.as_ids(ids)
        batch = _libs.ScoreBatch(size=ctypes.sizeof(_libs.ScoreBatch), count=len(ids),
                                 ids=_libs.ids_pointer(ids), **fields)
        call = self._lib.shade_scorer_update_batch if keep else self._lib.shade_scorer_rank_batch
        self._lib.check(call(self._handle, ctypes.byref(batch)))

    def sync(self) -> None:
        """Waits for batches on the device."""
        self._lib.check(self._lib.shade_scorer_sync(self._handle))

    def merge(self, ids: Any, scores: Any) -> None:
        """Takes scores that were made elsewhere."""
        ids, scores = _libs.as_ids(ids), _libs.as_floats(scores)
        if len(ids) != len(scores):
            raise ValueError(f"{len(ids)} ids, but {len(scores)} scores")
        self._lib.check(self._lib.shade_scorer_merge(
            self._handle, _libs.ids_pointer(ids), _libs.floats_pointer(scores), len(ids)))

    def scores(self) -> _libs.Floats:
        """All scores by id; -1: never scored."""
        scores = array("f", bytes(4 * self.samples))
        self._lib.check(self._lib.shade_scorer_scores(self._handle, _libs.floats_pointer(scores)))
        return scores

    def merge_losses(self, ids: Any, losses: Any) -> None:
        """Takes last losses that were made elsewhere, where samples are left out."""
        ids, losses = _libs.as_ids(ids), _libs.as_floats(losses)
        if len(ids) != len(losses):
            raise ValueError(f"{len(ids)} ids, but {len(losses)} losses")
        self._lib.check(self._lib.shade_scorer_merge_losses(
            self._handle, _libs.ids_pointer(ids), _libs.floats_pointer(losses), len(ids)))

    def losses(self) -> _libs.Floats:
        """The last losses by id, where samples are left out; a NaN: none."""
        losses = array("f", bytes(4 * self.samples))
        self._lib.check(self._lib.shade_scorer_losses(self._handle, _libs.floats_pointer(losses)))
        return losses

    def neighbours(self, ids: Any) -> None:
        """All ids, as they are near at the source, for packages; None: as they are numbered."""
        given = None if ids is None else _libs.as_ids(ids)
        if given is not None and len(given) != self.samples:
            raise ValueError(f"{len(given)} neighbours, but {self.samples} samples")
        self._lib.check(self._lib.shade_scorer_neighbours(
            self._handle, None if given is None else _libs.ids_pointer(given)))

    def nodes(self, node_of: Any, *, block: int = 0, mix: float = 0.0, capacity: int = 0) -> None:
        """Which node each rank is on: orders that are drawn from now on are assigned to the nodes
        that have read their samples last. `capacity` is that of all of them together."""
        ids = _libs.as_ids(node_of)
        nodes = _libs.ScoreNodes(size=ctypes.sizeof(_libs.ScoreNodes), world=len(ids),
                                 node_of=_libs.ids_pointer(ids), block=block, capacity=capacity,
                                 mix=mix)
        self._lib.check(self._lib.shade_scorer_nodes(self._handle, ctypes.byref(nodes)))

    def batch(self, entries: int) -> None:
        """How many entries one training step of all ranks has: in orders of mode echo that are drawn
        from now on a sample comes again so many later at the earliest. 0: not known, as 1024."""
        if not 0 <= entries < 1 << 30:
            raise ValueError(f"a step cannot have {entries} entries")
        self._lib.check(self._lib.shade_scorer_batch(self._handle, entries))

    def rate(self, before: float, span: Span) -> float:
        """What the source gives at most, in bytes a second; 0: it is not known."""
        return float(self._lib.shade_score_rate(before, ctypes.byref(_as_struct(span))))

    def measured(self, spans: Iterable[Optional[Span]]) -> bool:
        """Mode auto: one span for each rank, of the epoch that was begun last. True: the uses are
        others now than those of that epoch's order."""
        structs = [_as_struct(span) for span in spans]
        given = (_libs.ScoreSpan * len(structs))(*structs)
        return bool(self._lib.check(self._lib.shade_scorer_measured(self._handle, given,
                                                                    len(structs))))

    def redraw(self, epoch: int, position: int, resident: Optional[bytes] = None) -> None:
        """Draws the rest of the epoch that was begun last once more."""
        self._lib.check(self._lib.shade_scorer_redraw(self._handle, epoch, position, resident))

    def begin(self, epoch: int, resident: Optional[bytes] = None) -> None:
        """An epoch begins: draws."""
        if resident is not None and len(resident) < (self.samples + 7) // 8:
            raise ValueError("the bitmap of residents is too short")
        self._lib.check(self._lib.shade_scorer_begin(self._handle, epoch, resident))

    @property
    def needs_losses(self) -> bool:
        """Whether orders depend on the last loss of each sample."""
        options = self.options
        return options["mode"] in ("prune", "iis") or \
            (options["mode"] in ("echo", "auto") and options["keep"] > 0)

    def length(self, rank: int = 0, world: int = 1, epoch: Optional[int] = None) -> int:
        """Entries of that part of an epoch that was drawn; without one of any epoch, at most."""
        if epoch is None:
            return int(self._lib.shade_scorer_length(self._handle, rank, world))
        return self._lib.check(self._lib.shade_scorer_order(self._handle, epoch, rank, world, None,
                                                            0))

    def order(self, epoch: int, rank: int = 0, world: int = 1) -> _libs.Ids:
        """That part of an order that was drawn."""
        length = self.length(rank, world, epoch)
        ids = array("I", bytes(4 * length))
        got = self._lib.check(self._lib.shade_scorer_order(self._handle, epoch, rank, world,
                                                           _libs.ids_pointer(ids), length))
        return ids[:got]

    def weights(self, epoch: int, ids: Any) -> _libs.Floats:
        """For each id the factor of its loss that keeps the gradient unbiased."""
        ids = _libs.as_ids(ids)
        weights = array("f", bytes(4 * len(ids)))
        self._lib.check(self._lib.shade_scorer_weights(
            self._handle, epoch, _libs.ids_pointer(ids), _libs.floats_pointer(weights), len(ids)))
        return weights

    def digest(self, epoch: int) -> int:
        """The same on two ranks if they draw the same."""
        digest = ctypes.c_uint64()
        self._lib.check(self._lib.shade_scorer_digest(self._handle, epoch, ctypes.byref(digest)))
        return digest.value

    def save(self) -> bytes:
        """The whole state."""
        size = self._lib.check(self._lib.shade_scorer_save(self._handle, None, 0))
        while True:
            buffer = ctypes.create_string_buffer(size)
            found = self._lib.shade_scorer_save(self._handle, buffer, size)
            if found != -errno.ENOSPC:
                return buffer.raw[:self._lib.check(found)]
            size *= 2  # another thread has begun an epoch meanwhile

    def load(self, state: bytes) -> None:
        """Becomes what was saved."""
        self._lib.check(self._lib.shade_scorer_load(self._handle, state, len(state)))
