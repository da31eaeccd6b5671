# SPDX-License-Identifier: LGPL-2.1-or-later
"""How the ranks of a script meet that knows nothing of shade: through the store of
torch.distributed, and never by a collective, which a rank without the hook would not join. Nobody
waits for a rank that has never said that it is there, and for none without an end.

Each rank posts what it has to say, or that it will not take part. Rank 0 looks until all have, and
says what all of them do: so they do the same, unless one is so late that it has given up.
"""
import time
from typing import Any, List, Optional

import torch
import torch.distributed

SECONDS_MAX = 600.0  # one rank may evaluate while the others begin the next epoch
GO, STAY = 1, 2


class NobodyError(RuntimeError):
    """The ranks did not meet; the script goes on in its own way, `for_good` unless they may meet the
    next time."""

    def __init__(self, text: str, for_good: bool = True) -> None:
        super().__init__(text)
        self.for_good = for_good


def default_store() -> Optional[Any]:
    """Of the process group that the script has made; None: there is none, or it has none."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    try:
        from torch.distributed.distributed_c10d import _get_default_store
        return torch.distributed.PrefixStore("shade", _get_default_store())
    except (ImportError, RuntimeError, AttributeError):
        return None


class Ranks:
    """Those that have one DataLoader in common; `name` is what they call it."""

    def __init__(self, name: str, rank: int, world: int, seconds: float = SECONDS_MAX) -> None:
        self.name, self.rank, self.world, self.seconds = name, rank, world, seconds
        self._joined = False
        self._last: List[str] = []  # keys of the last meeting, rank 0 alone

    def join(self) -> None:
        """Says that this rank is hooked, if the script has made its process group by now."""
        store = None if self._joined else default_store()
        if store is not None:
            store.add(f"{self.name}/hooked/{self.rank}", 1)
            self._joined = True

    def missing(self) -> Optional[int]:
        """A rank that has never joined."""
        store = default_store()
        if store is None:
            return 0 if self.rank else 1
        return next((rank for rank in range(self.world)
                     if not store.add(f"{self.name}/hooked/{rank}", 0)), None)

    def stay_away(self, meeting: str) -> None:
        """This rank does not come to that meeting: nobody is to wait for it."""
        store = default_store()
        if store is None:
            return
        self._post(store, meeting, b"")
        if self.rank == 0:
            self._decide(store, meeting, STAY)

    def gather(self, meeting: str, data: bytes) -> List[bytes]:
        """What all ranks have to say. NobodyError if one does not come."""
        store = default_store()
        if store is None:
            raise NobodyError("the ranks have no store to meet at")
        absent = self.missing()
        if absent is not None:
            self.stay_away(meeting)
            raise NobodyError(f"rank {absent} does not take part")
        self._post(store, meeting, data)
        if self.rank == 0:
            all_came = self._wait(store, f"{self._key(meeting)}/posted", self.world)
            posts = self._posts(store, meeting) if all_came else []
            self._decide(store, meeting, GO if all_came and all(posts) else STAY)
        verdict = self._wait(store, f"{self._key(meeting)}/verdict", 1)
        if verdict != GO:
            raise NobodyError("not all ranks take part", False) if verdict else NobodyError(
                f"the other ranks did not come within {self.seconds:.0f} s")
        posts = self._posts(store, meeting)
        self._forget(store, meeting)
        return posts

    # --- keys

    def _key(self, meeting: str) -> str:
        return f"{self.name}/{meeting}"

    def _post(self, store: Any, meeting: str, data: bytes) -> None:
        store.set(f"{self._key(meeting)}/{self.rank}", b"1" + data if data else b"0")
        store.add(f"{self._key(meeting)}/posted", 1)

    def _posts(self, store: Any, meeting: str) -> List[bytes]:
        found = [bytes(store.get(f"{self._key(meeting)}/{rank}")) for rank in range(self.world)]
        return [post[1:] for post in found]

    def _decide(self, store: Any, meeting: str, verdict: int) -> None:
        store.add(f"{self._key(meeting)}/verdict", verdict)

    def _wait(self, store: Any, key: str, least: int) -> int:
        """Until a counter is so high: then it; 0: the time is up. A store's own wait() may leave
        its connection in disorder when it times out."""
        end, pause = time.monotonic() + self.seconds, 0.001
        while True:
            value = int(store.add(key, 0))
            if value >= least:
                return value
            if time.monotonic() > end:
                return 0
            time.sleep(pause)
            pause = min(0.05, pause * 1.5)

    def _forget(self, store: Any, meeting: str) -> None:
        """Whoever comes to this meeting is done with the last one."""
        if self.rank:
            return
        for key in self._last:
            store.delete_key(key)
        self._last = [f"{self._key(meeting)}/{rank}" for rank in range(self.world)]
