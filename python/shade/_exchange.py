# SPDX-License-Identifier: LGPL-2.1-or-later
"""What ranks tell each other when an epoch begins, so that all draw the same order."""
import json
import os
import zlib
from array import array
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from ._libs import Floats, Ids
from ._pace import Span


class Scored(NamedTuple):
    """Scores of one batch."""
    batch: int  # its number within the epoch
    ids: Ids
    scores: Floats
    losses: Optional[Floats] = None  # where samples are left out by them


class News(NamedTuple):
    """What one rank has to say."""
    epoch: int  # the one that begins
    mount: str  # which one it uses; "": none
    resident: Optional[bytes]
    capacity: int  # samples that the mount holds; 0: it does not matter
    scored: List[Scored]
    plan: Dict[str, Any]  # what must be the same on all: options, and a digest of the last draw
    batch: int = 0  # samples of its batches; 0: it does not know
    span: Optional[Span] = None  # what it has measured since the last epoch
    neighbours: int = 0  # a checksum of what is near at its source; 0: it does not matter
    seed: int = 0  # that it would draw with
    job: str = ""  # of the training on its mount


def pack(news: News) -> bytes:
    """As bytes."""
    head = json.dumps({"epoch": news.epoch, "mount": news.mount, "plan": news.plan,
                       "capacity": news.capacity, "batch": news.batch, "span": news.span,
                       "neighbours": news.neighbours, "seed": news.seed, "job": news.job,
                       "resident": None if news.resident is None else len(news.resident),
                       "scored": [[entry.batch, len(entry.ids), entry.losses is not None]
                                  for entry in news.scored]})
    parts = [len(head).to_bytes(8, "little"), head.encode(), news.resident or b""]
    for entry in news.scored:
        parts += [entry.ids.tobytes(), entry.scores.tobytes()]
        if entry.losses is not None:
            parts.append(entry.losses.tobytes())
    return b"".join(parts)


def unpack(data: bytes) -> News:
    """Undoes that."""
    at = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:at])

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size:at]
    resident = None if head["resident"] is None else take(head["resident"])

    def take_scored(batch: int, count: int, losses: bool = False) -> Scored:
        return Scored(batch, array("I", take(4 * count)), array("f", take(4 * count)),
                      array("f", take(4 * count)) if losses else None)
    scored = [take_scored(*entry) for entry in head["scored"]]  # older states had no losses
    span = head.get("span")
    return News(head["epoch"], head["mount"], resident, head["capacity"], scored, head["plan"],
                head.get("batch", 0), Span(*span) if span else None, head.get("neighbours", 0),
                head.get("seed", 0), head.get("job", ""))


def checksum(ids: Optional[Ids]) -> int:
    """Not 0 if there are any."""
    return 0 if ids is None else zlib.crc32(ids.tobytes()) or 1


def disagreement(all_news: List[News]) -> Optional[str]:
    """What ranks do not have in common though they must, if anything."""
    plans = [{"epoch": news.epoch, **news.plan} for news in all_news]
    for name in plans[0]:
        values = [plan.get(name) for plan in plans]
        if any(value != values[0] for value in values):
            return f"{name} is {', '.join(map(str, values))}"
    return None


def device_of(folder: str) -> int:
    """The number of the mount whose .shade is there now."""
    return os.stat(folder).st_dev


def mount_name(folder: str) -> str:
    """The same for two processes if they use the same mount."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot}:{device_of(folder)}"


def resident_somewhere(all_news: Iterable[News]) -> Optional[bytes]:
    """What one of the ranks has in memory."""
    result: Optional[int] = None
    length = 0
    for news in all_news:
        if news.resident is not None:
            length = len(news.resident)
            result = (result or 0) | int.from_bytes(news.resident, "little")
    return None if result is None else result.to_bytes(length, "little")


class Nodes(NamedTuple):
    """The ranks that share a mount are a node. All ranks find the same ones."""
    node_of: List[int]  # by rank
    capacity: int  # samples that all of them hold together


def find_nodes(all_news: List[News], before: Optional[List[int]] = None) -> Nodes:
    """Those without a mount are one, too. But one that had a mount may have it again in the next
    epoch: meanwhile all stay where they were, or the numbers of all others would change."""
    numbers: Dict[str, int] = {}
    node_of = [numbers.setdefault(news.mount, len(numbers)) for news in all_news]
    if before and "" in numbers:
        node_of = before
    return Nodes(node_of, sum(all_news[node_of.index(number)].capacity
                              for number in set(node_of)))


def in_sequence(all_news: List[News]) -> Iterable[Tuple[int, Scored]]:
    """All scores with their ranks, in one sequence that is the same on all: the last wins."""
    entries = [(entry.batch, rank, entry) for rank, news in enumerate(all_news)
               for entry in news.scored]
    return [(rank, entry) for _, rank, entry in sorted(entries, key=lambda e: e[:2])]


def interleave(parts: List[Ids]) -> Ids:
    """What a mount sees of ranks that read side by side."""
    if len(parts) == 1:
        return parts[0]
    result = array("I")
    shortest = min(map(len, parts))
    for index in range(shortest):
        result.extend(part[index] for part in parts)
    for part in parts:
        result.extend(part[shortest:])
    return result
