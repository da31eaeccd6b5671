# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sampler where there is torch: as its Sampler, with torch.distributed and devices."""
import errno
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import torch
import torch.distributed
import torch.utils.data
from torch.utils.data.dataloader import _BaseDataLoaderIter

from . import _batch, _libs
from .sampler import Gather, Sampler
from ._errors import ShadeError


_side_group: Tuple[Any, Any] = (None, None)  # the default group that it was made in; ours


def _gather_group() -> Tuple[Any, str]:
    """The group in which ranks gather, None for the default one, and the device of its tensors.
    NCCL wants tensors on the GPU of each rank. A script need not have told torch which GPU that is,
    and if two ranks use the same one, NCCL may wait for ever. So instead of NCCL this takes a group
    of gloo, if torch has it."""
    global _side_group
    if torch.distributed.get_backend() != "nccl":
        return None, "cpu"
    world = torch.distributed.group.WORLD
    if _side_group[0] is not world:
        if not getattr(torch.distributed, "is_gloo_available", lambda: True)():
            return None, "cuda"
        _side_group = (world, torch.distributed.new_group(backend="gloo"))
    return _side_group[1], "cpu"


def all_gather(data: bytes) -> List[bytes]:
    """torch.distributed's, for bytes of any length."""
    world = torch.distributed.get_world_size()
    group, device = _gather_group()
    size = torch.tensor([len(data)], dtype=torch.int64, device=device)
    sizes = [torch.zeros_like(size) for _ in range(world)]
    torch.distributed.all_gather(sizes, size, group=group)
    lengths = [int(entry.item()) for entry in sizes]
    own = torch.zeros(max(1, *lengths), dtype=torch.uint8, device=device)
    if data:
        own[:len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    parts = [torch.zeros_like(own) for _ in range(world)]
    torch.distributed.all_gather(parts, own, group=group)
    return [_libs.tensor_bytes(part[:length]) for part, length in zip(parts, lengths)]


def _tell(iterator: Any, what: "Callable[[TorchSampler], None]") -> None:
    """Tells the sampler of ours that an iterator of a DataLoader draws from, if it is one."""
    batches = getattr(iterator, "_index_sampler", None)
    sampler = getattr(batches, "sampler", batches)
    sampler = getattr(sampler, "inner", sampler)
    if not isinstance(sampler, TorchSampler):
        return
    try:
        what(sampler)
    except Exception as failure:  # pylint: disable=broad-except
        sampler.watching_failed(failure)


def _entries_of(iterator: Any) -> int:
    """Of a batch, but for the last; 0: that cannot be known."""
    batches = iterator._index_sampler  # pylint: disable=protected-access
    size = getattr(batches, "batch_size", 0) if hasattr(batches, "sampler") else 1
    return size if isinstance(size, int) else 0


def _watch_loaders() -> None:
    """Has iterators of DataLoaders tell how long the training waits for a batch: nothing else of
    torch knows. All else about them stays as it is."""
    original = _BaseDataLoaderIter.__next__
    if hasattr(original, "watched_by_shade"):
        return

    def following(iterator: Any) -> Any:
        asked = time.monotonic()
        try:
            data = original(iterator)
        except StopIteration:
            _tell(iterator, lambda sampler: sampler.pace.end())
            raise
        now = time.monotonic()
        _tell(iterator, lambda sampler: sampler.batch_arrived(asked, now, _entries_of(iterator)))
        return data
    following.watched_by_shade = True  # type: ignore[attr-defined]
    _BaseDataLoaderIter.__next__ = following


class TorchSampler(Sampler, torch.utils.data.Sampler):
    """What shade.Sampler() makes if the program uses torch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._in_flight: Deque[Tuple[Any, int, _libs.Ids, List[Any], List[Any]]] = deque()
        super().__init__(*args, **kwargs)
        _watch_loaders()

    def watching_failed(self, failure: Exception) -> None:
        """The loader's batches come nevertheless."""
        self._warn("watching", f"the pace of the training is not known any more: {failure}")

    def _find_seed(self) -> int:
        return int(torch.initial_seed()) & (1 << 64) - 1

    def _find_gather(self) -> Optional[Gather]:
        if self._gather is not None:
            return self._gather
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return None
        if torch.distributed.get_world_size() != self.world or \
                torch.distributed.get_rank() != self.rank:
            raise RuntimeError(
                f"the sampler is rank {self.rank} of {self.world}, but torch.distributed is rank "
                f"{torch.distributed.get_rank()} of {torch.distributed.get_world_size()}")
        return all_gather

    def _score(self, number: int, ids: _libs.Ids, batch: _batch.Batch) -> None:
        if batch.device is None:
            super()._score(number, ids, batch)
            return
        # On the device nothing waits: scores come back on the stream, and the mount gets them
        # when a later batch finds them there.
        names = ["scores_out", "losses_out"] if self._sends_losses else ["scores_out"]
        there = [torch.empty(batch.samples, dtype=torch.float32, device=batch.device)
                 for _ in names]
        stream = torch.cuda.current_stream(batch.device)
        fields = {**batch.fields, "stream": stream.cuda_stream,
                  **{name: tensor.data_ptr() for name, tensor in zip(names, there)}}
        self._update_on_device(ids, fields)
        here = [torch.empty(batch.samples, dtype=torch.float32, pin_memory=True) for _ in names]
        for host, tensor in zip(here, there):
            host.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()
        event.record(stream)
        self._in_flight.append((event, number, ids, here, [*batch.keep, *there]))
        while self._in_flight and self._in_flight[0][0].query():
            self._land()

    def _update_on_device(self, ids: _libs.Ids, fields: Dict[str, Any]) -> None:
        try:
            self._update_batch(ids, fields)
        except ShadeError as failure:
            if failure.errno != errno.EAGAIN:
                raise
            self._scorer.sync()
            self._update_batch(ids, fields)

    def _land(self) -> None:
        event, number, ids, here, _ = self._in_flight.popleft()
        event.synchronize()
        values = [_libs.as_floats(host) for host in here]
        if values[0][0] >= 0:  # else the batch was left out, and _drain() tells why
            self._deliver(number, ids, *values)

    def _drain(self) -> None:
        while self._in_flight:
            self._land()
        if self._scorer.backend == "cuda":
            try:
                self._scorer.sync()
            except ShadeError as failure:
                self._warn("losses", f"batches were not scored: {failure}")
