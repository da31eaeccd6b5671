# SPDX-License-Identifier: LGPL-2.1-or-later
"""How a training reads: how long an epoch takes, how much of it the training waits, and what the
source gives. A span is a part of an epoch."""
import os
import time
from typing import Dict, NamedTuple, Optional

_OWN = ("accesses", "hits", "backend_bytes", "waiting_ms")  # a job has its own of these
_SOURCE = ("limited_ms", "limited_bytes")  # all trainings of a mount share the source
_COUNTERS = (*_OWN, *_SOURCE)


class Span(NamedTuple):
    """struct shade_score_span, but for the rate; and what else is told of an epoch."""
    seconds: float
    waited: float  # for the source
    read: float
    bytes: float
    limited: float
    limited_bytes: float
    rate: float = 0
    accesses: float = 0
    hits: float = 0


class _Mark(NamedTuple):
    """What all clocks and counters say at one moment."""
    time: float
    waited: float
    counters: Dict[str, float]


class Pace:
    """The clocks of one sampler. It is told when batches arrive, or are done with."""

    def __init__(self) -> None:
        self.sample_bytes = 0.0  # of a sample, on the mean
        self._folder: Optional[str] = None  # .shade of the mount
        self._job: Optional[str] = None
        self._waited = 0.0
        self._knows_waiting = False
        self._first: Optional[_Mark] = None  # of the epoch
        self._start: Optional[_Mark] = None  # of the span
        self._end: Optional[_Mark] = None

    def begin(self, folder: Optional[str], job: Optional[str] = None) -> None:
        """An epoch begins. Its clock runs from the first batch on: before that loaders start.
        `folder`: .shade of the mount; `job`: whose figures tell; None: those of the whole mount."""
        self._folder, self._job = folder, job
        self._waited, self._knows_waiting = 0.0, False
        self._first = self._start = self._end = None

    def arrived(self, asked: float, now: float) -> None:
        """The training has got a batch that it asked for."""
        if self._first is None:
            self._first = self._start = self._take(now)
        else:
            self._waited += now - asked
        self._knows_waiting = True

    def stepped(self) -> None:
        """It is done with a batch. This is all that is known where nobody sees it asking."""
        if self._first is None:
            self._first = self._start = self._take(time.monotonic())

    def end(self) -> None:
        """The epoch is over. What the training does now, such as validation, is not part of it."""
        if self._first is not None and self._end is None:
            self._end = self._take(time.monotonic())

    def restart(self) -> None:
        """Another span begins."""
        self._start = self._take(time.monotonic())

    def span(self, least_seconds: float) -> Optional[Span]:
        """The present one, up to the end of the epoch; None: it is too short."""
        return self._between(self._start, least_seconds)

    def epoch(self) -> Optional[Span]:
        """All of the epoch."""
        return self._between(self._first, 0)

    def seconds(self) -> float:
        """Since the first batch of the epoch."""
        return 0.0 if self._first is None else time.monotonic() - self._first.time

    @property
    def is_over(self) -> bool:
        """The epoch was read to its end."""
        return self._end is not None

    def _take(self, now: float) -> _Mark:
        counters: Dict[str, float] = {}
        if self._folder is not None:
            counters = read_counters(self._folder, self._job)
        return _Mark(now, self._waited, counters)

    def _between(self, start: Optional[_Mark], least_seconds: float) -> Optional[Span]:
        if start is None or not start.counters:
            return None
        end = self._end or self._take(time.monotonic())
        seconds = end.time - start.time
        if seconds < least_seconds or not end.counters:
            return None
        grown = {key: max(0.0, end.counters[key] - start.counters[key]) for key in _COUNTERS}
        waiting = grown["waiting_ms"] / 1000
        waited = min(waiting, end.waited - start.waited) if self._knows_waiting else waiting
        return Span(seconds, min(waited, seconds), grown["accesses"] * self.sample_bytes,
                    grown["backend_bytes"], grown["limited_ms"] / 1000, grown["limited_bytes"],
                    accesses=grown["accesses"], hits=grown["hits"])


def read_counters(folder: str, job: Optional[str]) -> Dict[str, float]:
    """Of a job, or of the whole mount whose .shade that is; none if one is missing."""
    try:
        found = _parse(os.path.join(folder, "stats"))
        if job is not None:
            of_job = _parse(os.path.join(folder, "jobs", job, "stats"))
            found = {**{key: found[key] for key in _SOURCE if key in found},
                     **{key: of_job[key] for key in _OWN if key in of_job}}
    except (OSError, ValueError):
        return {}
    return found if len(found) == len(_COUNTERS) else {}


def _parse(path: str) -> Dict[str, float]:
    found = {}
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file.read(1 << 20).splitlines():
            key, _, value = line.partition(" ")
            if key in _COUNTERS:
                found[key] = float(value)
    return found
