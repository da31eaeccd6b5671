# SPDX-License-Identifier: LGPL-2.1-or-later
"""The samplers that the hook gives to DataLoaders. They begin with what the script's own sampler
draws, so that a loader which only validates reads what it always did. Once its batches were seen to
bring gradients, shade draws. Whatever fails in here is reported, and the script's own sampler draws
on."""
import functools
import sys
from array import array
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
import torch.utils.data

from ._ranks import NobodyError, Ranks
from ._torch import TorchSampler
from .mount import Mount
from .sampler import Gather


def say(text: str) -> None:
    """To whoever runs the script. Not by print(), which scripts replace on all ranks but one."""
    sys.stderr.write(f"shade: {text}\n")
    sys.stderr.flush()


class HookedSampler(TorchSampler):
    """One that draws when its loader trains. `report` gets its troubles, `begins` is called when an
    epoch begins. `announces`: it tells the mount its orders before it is seen to train, too;
    `job_when_trains`: the job that it has from then on, if it is another."""

    def __init__(self, *args: Any, own: Any, report: Callable[[Exception], None],
                 begins: Callable[[], None], ranks: Optional[Ranks], announces: bool,
                 job_when_trains: Optional[str], **kwargs: Any) -> None:
        self.own, self._report, self._begins, self._ranks = own, report, begins, ranks
        self.trains = False
        self._announces, self._job_when_trains = announces, job_when_trains
        self._is_alone = False  # it has waited for other ranks in vain
        self._is_own = False  # what is read now is what the script's sampler has drawn
        self._taken_over: Optional[int] = None  # an epoch of the script's whose rest may be ours
        self._begun: Dict[int, int] = {}  # how often, by epoch
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[int]:
        try:
            epoch = self._next_epoch
            self._begun[epoch] = self._begun.get(epoch, 0) + 1
            drawn = self._try_to_draw()
            return self._iterate_own(epoch) if drawn is None else drawn
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)
        return iter(self.own)

    def _try_to_draw(self) -> Optional[Iterator[int]]:
        """What shade draws; None: it does not, and the script's own sampler is to."""
        try:
            self._begins()
            if self.trains and not self._is_alone:
                self._take_place()
                drawn = super().__iter__()
                self._is_own = False
                self._keep_in_step()
                return drawn
            self._stay_away()
        except NobodyError as failure:
            self._is_alone = failure.for_good
            say(f"{'from now on' if failure.for_good else 'in this epoch'} the script's own sampler "
                f"draws: {failure}")
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)
        return None

    def _iterate_own(self, epoch: int) -> Iterator[int]:
        """What the script would read without us."""
        order = array("I", self.own)
        if self.trains:  # other ranks may have drawn, and must not wait for more than they have
            order = order[:self._length_of(epoch)]
        self._is_own = True
        self._begin(epoch, order)
        try:
            self._announce_own(epoch)
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)
        return self._hand_out(self._order)

    def _take_place(self) -> None:
        """One of several loaders shares the job of the first until it trains: a process that has
        several jobs open does not show which one it reads for."""
        if self._job_when_trains is not None:
            name, self._job_when_trains = self._job_when_trains, None
            if self._mount is not None:
                self._mount.close()
                self._mount, self.job = None, name
                self._connect_again()

    def _announce_own(self, epoch: int) -> None:
        """Of several ranks each knows its part alone, and the mount takes one order an epoch."""
        if self.world > 1 or not (self._announces or self.trains):
            return
        self._connect_again()
        self._announced.clear()
        self._tell(Mount.epoch, epoch)
        self._tell(Mount.order, epoch, self._order)

    def _keep_in_step(self) -> None:
        """A RandomSampler takes its seed out of torch's generator. What else the script draws from
        that, augmentations for example, is to be what it was without us."""
        if type(self.own) is torch.utils.data.RandomSampler and self.own.generator is None:
            torch.empty((), dtype=torch.int64).random_()

    def __len__(self) -> int:
        try:
            if self.trains or self._epoch is not None:
                return super().__len__()
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)
        return len(self.own)

    def set_epoch(self, epoch: int) -> None:
        try:
            super().set_epoch(epoch)
        except ValueError as failure:
            self._report(failure)

    # --- ranks

    def _meeting(self) -> str:
        """What all ranks call the beginning of this epoch."""
        return f"{self._next_epoch}.{self._begun[self._next_epoch]}"

    def _stay_away(self) -> None:
        if self._ranks is not None:
            self._ranks.join()
            self._ranks.stay_away(self._meeting())

    def _find_gather(self) -> Optional[Gather]:
        if self._ranks is None:
            raise NobodyError("the ranks cannot meet")
        self._ranks.join()
        return functools.partial(self._ranks.gather, self._meeting())

    # --- troubles

    def _reconsider(self, position: int) -> None:
        try:
            if self._is_own and not self._take_over():
                return
            super()._reconsider(position)
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)

    def _take_over(self) -> bool:
        """Whether the rest of an epoch that the script's sampler has drawn may be drawn anew."""
        if not self.trains or self.world > 1 or self._epoch is None:
            return False
        if self._taken_over != self._epoch:
            self._scorer.begin(self._epoch, self._tell(Mount.resident, self._samples))
            self._taken_over = self._epoch
        return True

    def watching_failed(self, failure: Exception) -> None:
        self._report(failure)

    def _say_uses(self, before: float, uses: float) -> None:
        say(f"a fetched sample is used {uses:.2f} times, no longer {before:.2f}")

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
            say(text)


class LearningSampler(torch.utils.data.Sampler):
    """What the script draws, until `build` knows the files of the data set; then `inner` draws."""

    def __init__(self, own: Any, build: Callable[[int], Optional[HookedSampler]],
                 report: Callable[[Exception], None]) -> None:
        super().__init__(None)
        self.own, self._build, self._report = own, build, report
        self.trains = False
        self.inner: Optional[HookedSampler] = None
        self._epoch: Optional[int] = None
        self._begun = 0

    def __iter__(self) -> Iterator[int]:
        try:
            if self.inner is None:
                self.inner = self._build(self._begun)
                if self.inner is not None:
                    self.inner.set_epoch(self._begun if self._epoch is None else self._epoch)
                self._begun += 1
            if self.inner is not None:
                self.inner.trains = self.inner.trains or self.trains
        except Exception as failure:  # pylint: disable=broad-except
            self._report(failure)
        return iter(self.inner if self.inner is not None else self.own)

    def __len__(self) -> int:
        return len(self.inner if self.inner is not None else self.own)

    def set_epoch(self, epoch: int) -> None:
        """What the script tells its own sampler."""
        self._epoch = epoch
        if self.inner is not None:
            self.inner.set_epoch(epoch)


def gains(totals: Dict[str, float], samples: int, sample_bytes: float, fits: float) -> List[str]:
    """What the training has gained: `totals` are the counters of its job, `fits` the share of its
    data that the cache holds. A cache that is told nothing keeps what it has got first, and hits
    that from the second epoch on."""
    reads = totals.get("accesses", 0.0)
    if not reads:
        return []
    told_nothing = max(0.0, reads - samples) * fits
    source = totals["backend_bytes"], (reads - told_nothing) * sample_bytes
    return [f"{min(1.0, totals['hits'] / reads):.2f} of {reads:.0f} reads were hits; where nothing "
            f"is known of the order it is {told_nothing / reads:.2f}",
            f"the source gave {source[0] / 1e6:.1f} MB; where nothing is known of the order it is "
            f"{source[1] / 1e6:.1f} MB"]
