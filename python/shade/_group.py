# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trainings that read one shared order, each at its own pace: a member's part. The orders are a
stream that the mount keeps; an epoch of a member is a stretch of it."""
import errno
import math
from array import array
from typing import Any, Callable, NamedTuple, Optional

from . import _libs
from ._errors import ShadeError
from .mount import Mount
from .scorer import Scorer

NO_ID = 0xffffffff  # a sample of the group that this training does not have
TRIES = 5  # others may go on between two calls
# What a scorer makes of a percentile, if a batch has 64 samples.
SCORE_LEAST, SCORE_RANKS = 10, 63


class Order(NamedTuple):
    """An order of the stream, or a part of it."""
    ids: _libs.Ids
    weights: Optional[_libs.Floats]  # by entry; None: all are 1


class Turn(NamedTuple):
    """What an epoch of this training reads, and what is known of the next one."""
    order: Order
    ahead: Optional[_libs.Ids]


Draw = Callable[[int, int], Optional[Order]]  # of an epoch, when another one has begun


class StrangerError(ValueError):
    """The group reads samples that this training does not have."""


def check(group: Optional[str], job: Optional[str], world: int, mount: Any) -> None:
    """That a sampler can be in a group."""
    if group is None:
        return
    if not group:
        raise ValueError("group='' is an empty name: None is for a training without a group")
    if mount is None:
        raise ValueError(f"group='{group}' needs a mount, which keeps the orders of a group")
    if job is None:
        raise ValueError(f"group='{group}' needs job=, a name that only this training has")
    if world > 1:
        raise ValueError(f"group='{group}' is for trainings of one process, not of {world} ranks")


def uses_scores(scorer: Scorer) -> bool:
    """Whether its orders depend on them."""
    options = scorer.options
    if options["mode"] in ("echo", "auto"):
        return bool(options["strength"] > 0)
    return options["mode"] not in ("uniform", "replacement")


def merge_importance(scorer: Scorer, mount: Mount) -> None:
    """Has the scorer draw from what samples are worth to all members together."""
    ids, importance = mount.group_importance()
    known = [(number, value) for number, value in zip(ids, importance) if number != NO_ID]
    if known:
        scorer.merge(array("I", [number for number, _ in known]),
                     array("f", [math.log(SCORE_LEAST + SCORE_RANKS * value)
                                 for _, value in known]))


def weights_of(scorer: Scorer, epoch: int, ids: _libs.Ids) -> Optional[_libs.Floats]:
    """By entry; None if all are 1, or if the mode has none."""
    try:
        weights = scorer.weights(epoch, ids)
    except ShadeError as failure:
        if failure.errno != errno.ENOTSUP:
            raise
        return None
    return None if weights.count(1.0) == len(weights) else weights


def drawn(scorer: Scorer, epoch: int) -> Optional[Order]:
    """The scorer's own, if it has drawn it."""
    try:
        ids = scorer.order(epoch)
    except ShadeError as failure:
        if failure.errno != errno.ENOENT:
            raise
        return None
    return Order(ids, weights_of(scorer, epoch, ids))


def draw(scorer: Scorer, epoch: int, now: int, resident: Optional[bytes]) -> Optional[Order]:
    """The order of `epoch`, while `now` begins. None: it is drawn ahead, and the scorer does not
    want that yet."""
    if drawn(scorer, epoch) is None:
        scorer.begin(now if scorer.options["lookahead"] else epoch, resident)
    return drawn(scorer, epoch)


def _join(first: Order, offset: int, second: Optional[Order]) -> Order:
    """A stretch: the first one from an offset on, the second one up to it."""
    if second is None:
        return first
    ids = first.ids[offset:] + second.ids[:offset]
    if first.weights is None and second.weights is None:
        return Order(ids, None)
    ones = [order.weights if order.weights is not None else array("f", [1.0]) * len(order.ids)
            for order in (first, second)]
    return Order(ids, ones[0][offset:] + ones[1][:offset])


class Group:
    """The group `name` as one of its members sees it."""

    def __init__(self, name: str, next_epoch: int = 0) -> None:
        self.name = name
        self.next = next_epoch  # the stream's epoch that comes next here, if nobody knows better
        self.left = False  # for good: this training reads alone
        self._has_begun = False

    def join(self, mount: Mount) -> None:
        """Until the mount is closed."""
        if not self.left:
            mount.group_join(self.name)

    def begin(self, mount: Mount, epoch: int, make: Draw, ahead: bool) -> Turn:
        """This training begins its epoch `epoch`. What the group lacks is drawn with `make`."""
        for _ in range(TRIES):
            first, offset = mount.group_begin(epoch, self.next)
            try:
                turn = self._read(mount, make, first, offset, ahead)
            except ShadeError as failure:
                if failure.errno != errno.ERANGE:
                    raise
                continue  # the others are far ahead by now: it begins where they are
            self.next = first + 1
            self._has_begun = True
            return turn
        raise ShadeError(errno.ERANGE, f"the orders of group '{self.name}' are gone before they "
                         "can be read")

    @property
    def has_begun(self) -> bool:
        """Whether the group has told it what to read, at least once."""
        return self._has_begun

    def _read(self, mount: Mount, make: Draw, first: int, offset: int, ahead: bool) -> Turn:
        order = self._get(mount, make, first, first)
        following = self._get(mount, make, first + 1, first) if ahead or offset else None
        if offset and following is None:
            following = self._get(mount, make, first + 1, first + 1)
        assert order is not None and (following is not None or not offset)
        turn = _join(order, offset, following if offset else None)
        # What the next epoch reads after that is drawn when it begins.
        return Turn(turn, following.ids[offset:] if ahead and following is not None else None)

    def _get(self, mount: Mount, make: Draw, epoch: int, now: int) -> Optional[Order]:
        """The group's order, which this training may be the first to need."""
        found = self._find(mount, epoch)
        if found is not None:
            return found
        made = make(epoch, now)
        if made is None:
            return None
        try:
            mount.group_put(epoch, made.ids, made.weights)
        except ShadeError as failure:
            if failure.errno != errno.EEXIST:  # another one was faster: that one's counts
                raise
        return self._find(mount, epoch)

    def _find(self, mount: Mount, epoch: int) -> Optional[Order]:
        try:
            ids, weights = mount.group_order(epoch)
        except ShadeError as failure:
            if failure.errno != errno.ENOENT:
                raise
            return None
        if NO_ID in ids:
            raise StrangerError(f"group '{self.name}' reads files that this training does not "
                                "have: all its members must have the same")
        return Order(ids, weights)


def weights_from(scorer: Scorer, group: Group, weights: Optional[_libs.Floats], cursor: int,
                 count: int) -> _libs.Floats:
    """Those of some entries of the present epoch. Raises ENOTSUP in modes that have none."""
    if weights is not None:
        return weights[cursor:cursor + count]
    try:
        scorer.weights(group.next - 1, array("I"))
    except ShadeError as failure:
        if failure.errno != errno.ENOENT:  # another member has drawn it
            raise
    return array("f", [1.0]) * count


def alone(scorer: Scorer, group: Group, resident: Optional[bytes]) -> Turn:
    """What an epoch reads where there is no group."""
    scorer.begin(group.next, resident)
    order, ahead = drawn(scorer, group.next), drawn(scorer, group.next + 1)
    assert order is not None
    group.next += 1
    return Turn(order, None if ahead is None else ahead.ids)


def take_turn(scorer: Scorer, group: Group, mount: Mount, epoch: int,
              resident: Optional[bytes]) -> Turn:
    """What epoch `epoch` of this training reads, drawn with its scorer if the group lacks it."""
    merged = False

    def make(wanted: int, now: int) -> Optional[Order]:
        nonlocal merged
        if not merged and uses_scores(scorer):
            merge_importance(scorer, mount)
        merged = True
        return draw(scorer, wanted, now, resident)
    return group.begin(mount, epoch, make, bool(scorer.options["lookahead"]))
