# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which DataLoaders draw at random, in a way that shade can take over."""
import os
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
import torch.distributed
import torch.utils.data


class Random(NamedTuple):
    """What a DataLoader draws with."""
    sampler: Any  # None: shuffle=True
    rank: int = 0
    world: int = 1
    shards: Any = None  # an object that deals whole batches out to ranks


def _inner_batches(batches: Any) -> Any:
    """accelerate's BatchSamplerShard has a BatchSampler of all batches inside."""
    inner = getattr(batches, "batch_sampler", None)
    if type(inner) is torch.utils.data.BatchSampler and \
            isinstance(getattr(batches, "num_processes", None), int) and \
            isinstance(getattr(batches, "process_index", None), int) and \
            not getattr(batches, "split_batches", False):
        return inner
    return None


def random_sampler(arguments: Dict[str, Any]) -> Tuple[Optional[Random], str]:
    """The sampler that draws at random, or why there is none to replace."""
    dataset = arguments["dataset"]
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return None, "it has no indices"
    if not arguments.get("in_order", True):
        return None, "its batches come in any sequence"
    batches, shards = arguments.get("batch_sampler"), None
    if batches is not None and type(batches) is not torch.utils.data.BatchSampler:
        shards, batches = batches, _inner_batches(batches)
        if batches is None:
            return None, f"its batches come from {type(shards).__name__}"
    old = arguments.get("sampler") if batches is None else batches.sampler
    if old is None:
        return (Random(None), "") if arguments.get("shuffle") else (None, "it does not shuffle")
    if type(old) is torch.utils.data.distributed.DistributedSampler and shards is None and \
            len(old.dataset) == len(dataset):
        return (Random(old, old.rank, old.num_replicas), "") if old.shuffle else \
            (None, "it does not shuffle")
    if type(old) is torch.utils.data.RandomSampler and not old.replacement and \
            old.num_samples == len(dataset):
        return (Random(old) if shards is None else
                Random(old, shards.process_index, shards.num_processes, shards)), ""
    if hasattr(old, "trains"):
        return None, "shade draws for it already"
    return None, f"it draws by {type(old).__name__}"


def batch_size(arguments: Dict[str, Any]) -> int:
    """Of a DataLoader; 0: it has no batches."""
    batches = arguments.get("batch_sampler")
    size = arguments.get("batch_size", 1) if batches is None else getattr(batches, "batch_size", 0)
    return size if isinstance(size, int) and 0 < size <= 1 << 20 else 0


def wrong_ranks(rank: int, world: int) -> Optional[str]:
    """Why ranks cannot draw together: then each would wait for others that never come."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        own, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    elif "RANK" in os.environ and "WORLD_SIZE" in os.environ:  # a launcher's, to be used later
        own, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    else:
        return None
    if (rank, world) == (own, ranks):
        return None
    return f"it draws for rank {rank} of {world}, but this is rank {own} of {ranks}"


class Dealt:
    """What one rank reads where a script deals whole batches out: the script's own way, as one
    sampler of that rank's entries."""

    def __init__(self, shards: Any) -> None:
        self.shards = shards
        self.batch_size = shards.batch_sampler.batch_size
        self.drop_last = bool(getattr(shards.batch_sampler, "drop_last", False))

    def __iter__(self) -> Any:
        for batch in self.shards:
            yield from batch

    def __len__(self) -> int:
        return len(self.shards) * int(self.batch_size)


def put_sampler(arguments: Dict[str, Any], sampler: Any) -> None:
    """Has the DataLoader draw with it."""
    batches = arguments.get("batch_sampler")
    if type(batches) is torch.utils.data.BatchSampler:
        batches.sampler = sampler
    elif batches is not None:  # each rank's own batches, instead of its share of all
        arguments["batch_sampler"] = torch.utils.data.BatchSampler(
            sampler, batches.batch_sampler.batch_size,
            bool(getattr(batches.batch_sampler, "drop_last", False)))
    else:
        arguments["shuffle"] = None
        arguments["sampler"] = sampler


def follow_epochs(old: Any, sampler: Any) -> None:
    """What the script tells its own sampler, ours must hear."""
    if not hasattr(old, "set_epoch"):
        return
    set_epoch = old.set_epoch

    def both(epoch: int) -> None:
        set_epoch(epoch)
        sampler.set_epoch(epoch)
    old.set_epoch = both
