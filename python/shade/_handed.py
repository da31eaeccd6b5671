# SPDX-License-Identifier: LGPL-2.1-or-later
"""The batches that a script was handed and that no loss is known of yet. A script may fetch ahead,
skip some, or have several loaders at work, so that the newest one need not be the one that a loss
belongs to."""
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, Deque, List, NamedTuple, Optional

import torch

from ._libs import Ids

BATCHES_MAX = 32  # a script that gathers a step out of many small batches fetches so far ahead
LABELS_MAX_BYTES = 64 << 20
TENSOR_MAX_BYTES = 32 << 20
DEPTH_MAX = 3


class Run:
    """One pass of a DataLoader's iterator over its sampler."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = weakref.ref(iterator)
        self.drawn = _pass_of(iterator)
        self.ids: Optional[Deque[Ids]] = deque()  # drawn and not handed out; None: lost track
        self.ended = False
        # Batches of which only what the model gives is seen:
        self.ahead: Optional[int] = None  # that waited when the model was first run
        self.outputs_lost = False  # the script leaves some out, and which ones is not known

    def over(self) -> bool:
        """Whether it hands nothing out any more."""
        iterator = self.iterator()
        return self.ended or iterator is None or _pass_of(iterator) is not self.drawn


def _pass_of(iterator: Any) -> Any:
    return iterator._sampler_iter  # pylint: disable=protected-access


def run_of(iterator: Any) -> Run:
    """The one at hand: workers that persist begin anew with the same iterator."""
    run = getattr(iterator, "_shade_run", None)
    if run is None or run.drawn is not _pass_of(iterator):
        run = iterator._shade_run = Run(iterator)  # pylint: disable=protected-access
    return run


def _tensors_in(data: Any, depth: int = 0) -> List[torch.Tensor]:
    if isinstance(data, torch.Tensor):
        return [data]
    if depth == DEPTH_MAX or not isinstance(data, (Mapping, tuple, list)):
        return []
    parts = data.values() if isinstance(data, Mapping) else data
    return [tensor for part in parts for tensor in _tensors_in(part, depth + 1)]


def _bytes_of(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _may_be_targets(tensor: torch.Tensor, size: int) -> bool:
    """Of a loss. Images are not, and it would cost memory to keep them."""
    dims = 2 if tensor.is_floating_point() else 3 if tensor.dtype == torch.uint8 else 8
    return 0 < tensor.dim() <= dims and tensor.shape[0] == size and \
        _bytes_of(tensor) <= TENSOR_MAX_BYTES


def _labels_in(data: Any, size: int) -> List[torch.Tensor]:
    """A tensor that is alone is what the model gets."""
    tensors = _tensors_in(data)
    return [tensor for tensor in tensors if len(tensors) > 1 and _may_be_targets(tensor, size)]


def _are_targets(labels: List[torch.Tensor], target: torch.Tensor) -> Optional[bool]:
    """None: nothing to compare with."""
    alike = [label for label in labels if label.shape == target.shape
             and label.is_floating_point() == target.is_floating_point()]
    if not alike:
        return None
    return any(label is target or torch.equal(label.to(target.device, target.dtype), target)
               for label in alike)


class Batch:
    """One of them. `loader` is None if it is not one of ours; then its ids do not matter."""

    def __init__(self, run: Run, loader: Any, ids: Optional[Ids], data: Any) -> None:
        self.run, self.loader, self.ids, self.scored = run, loader, ids, False
        tensors = _tensors_in(data)
        self.size = len(ids) if ids is not None else \
            len(tensors[0]) if tensors and tensors[0].dim() else 0
        self.labels = _labels_in(data, self.size)

    def label_bytes(self) -> int:
        """Memory that is kept from being freed."""
        return sum(map(_bytes_of, self.labels))


class Found(NamedTuple):
    """Whose loss it is."""
    batch: Optional[Batch]
    fitting: int  # how many it may be of


class Handed:
    """Them all, oldest first. A thread may fetch while another one learns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.batches: List[Batch] = []  # replaced under the lock, never changed

    def add(self, batch: Batch) -> None:
        """One more was handed out."""
        with self._lock:
            # The last one of a pass may be used after its end, but not after the next one's first.
            batches = [other for other in self.batches
                       if other.run is batch.run or not other.run.over()]
            batches = [*batches, batch][-BATCHES_MAX:]
            kept = sum(other.label_bytes() for other in batches)
            while len(batches) > 1 and kept > LABELS_MAX_BYTES:
                kept -= batches.pop(0).label_bytes()
            self.batches = batches

    def find(self, rows: int, target: torch.Tensor) -> Optional[Found]:
        """The batch that a loss of so many rows is of: the one whose labels are its targets, or
        the only one whose labels cannot be known. None: none of ours has that size."""
        sized = [batch for batch in self.batches if batch.size == rows]
        if not any(batch.loader for batch in sized):
            return None
        verdicts = [(batch, _are_targets(batch.labels, target)) for batch in sized]
        fitting = [batch for batch, verdict in verdicts if verdict] or \
            [batch for batch, verdict in verdicts if verdict is None]
        return Found(fitting[0] if len(fitting) == 1 else None, len(fitting))

    def take(self, batch: Batch) -> None:
        """Its loss is known. Those before it in its pass will not be used any more."""
        with self._lock:
            if batch not in self.batches:
                return
            at = self.batches.index(batch)
            self.batches = [other for number, other in enumerate(self.batches)
                            if number > at or other.run is not batch.run]
