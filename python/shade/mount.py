# SPDX-License-Identifier: LGPL-2.1-or-later
"""A mounted shadefs: libshade for Python."""
import ctypes
import os
import sys
from array import array
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _libs

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Sample(NamedTuple):
    """What a mount knows of one sample."""
    size: int
    score: Optional[float]  # None: none yet
    frequency: int
    resident: bool


class Mount:
    """An open mount; `path` is its mount point or anything below. Threads may share it.

    Raises ShadeError where there is no shadefs (ENODEV), its daemon is gone (ENOTCONN), or it
    refuses something (EINVAL, with its own sentence).
    """

    def __init__(self, path: PathLike, job: Optional[str] = None) -> None:
        self._lib = _libs.libshade()
        self._handle: Optional[ctypes.c_void_p] = None
        handle = ctypes.c_void_p()
        name = None if job is None else os.fsencode(job)
        self._lib.check(self._lib.shade_open(os.fsencode(path), name, ctypes.byref(handle)))
        self._handle = handle
        self.job = job

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the mount was closed")
        return self._handle

    def close(self) -> None:
        """Further calls raise ValueError."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._lib.shade_close(handle)

    def __enter__(self) -> "Mount":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    @property
    def path(self) -> str:
        """The mount point, without symbolic links."""
        return os.fsdecode(self._lib.shade_path(self._open()))

    @property
    def folder(self) -> str:
        """Where its .shade is. If `path` is a folder of the mount that is bound there, as in a
        container, the environment variable SHADE_CONTROL names it."""
        here = os.path.join(self.path, ".shade")
        return here if os.path.isdir(here) else os.environ.get("SHADE_CONTROL", here)

    def wait(self, seconds: float) -> None:
        """Until the mount knows all its samples; ETIMEDOUT."""
        self._lib.check(self._lib.shade_wait(self._open(), int(seconds * 1000)))

    def register(self, paths: Sequence[PathLike]) -> None:
        """From now on the ids of this object mean these files; none: the mount's own again."""
        names = (ctypes.c_char_p * len(paths))(*map(os.fsencode, paths))
        self._lib.check(self._lib.shade_register(self._open(), names, len(paths)))

    def scores(self, ids: Any, scores: Any) -> None:
        """How important these samples are."""
        ids, scores = _libs.as_ids(ids), _libs.as_floats(scores)
        if len(ids) != len(scores):
            raise ValueError(f"{len(ids)} ids, but {len(scores)} scores")
        self._lib.check(self._lib.shade_scores(self._open(), _libs.ids_pointer(ids),
                                               _libs.floats_pointer(scores), len(ids)))

    def order(self, epoch: int, ids: Any) -> None:
        """What that epoch will read."""
        ids = _libs.as_ids(ids)
        self._lib.check(self._lib.shade_order(self._open(), epoch, _libs.ids_pointer(ids),
                                              len(ids)))

    def epoch(self, epoch: int) -> None:
        """That epoch begins."""
        self._lib.check(self._lib.shade_epoch(self._open(), epoch))

    def group_join(self, name: Optional[str]) -> None:
        """The job reads the orders of this group until the mount is closed; None: of none."""
        self._lib.check(self._lib.shade_group_join(
            self._open(), None if name is None else os.fsencode(name)))

    def group_begin(self, epoch: int, first: int = 0) -> Tuple[int, int]:
        """The job begins this epoch: with which order of the group, and where in it. `first`: what
        the group counts from if it has none."""
        turn = _libs.GroupTurn(first=first)
        self._lib.check(self._lib.shade_group_begin(self._open(), epoch, ctypes.byref(turn)))
        return turn.first, turn.offset

    def group_put(self, epoch: int, ids: Any, weights: Any = None) -> None:
        """An order for the group; EEXIST: it has one."""
        ids = _libs.as_ids(ids)
        floats = None if weights is None else _libs.as_floats(weights)
        self._lib.check(self._lib.shade_group_put(self._open(), epoch, _libs.ids_pointer(ids),
                                                  _libs.floats_pointer(floats), len(ids)))

    def _pairs(self, call: Any, *words: Any) -> Tuple[_libs.Ids, Optional[_libs.Floats]]:
        """Calls what fills in an array of ids and one of floats."""
        ids, floats, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint32()
        self._lib.check(call(self._open(), *words, ctypes.byref(ids), ctypes.byref(floats),
                             ctypes.byref(count)))
        found, values = array("I"), None
        try:
            found.frombytes(ctypes.string_at(ids, 4 * count.value))
            if floats:
                values = array("f")
                values.frombytes(ctypes.string_at(floats, 4 * count.value))
        finally:
            self._lib.shade_free(ids)
            self._lib.shade_free(floats)
        return found, values

    def group_order(self, epoch: int) -> Tuple[_libs.Ids, Optional[_libs.Floats]]:
        """An order of the group and its weights, None if all are 1; ENOENT: there is none."""
        return self._pairs(self._lib.shade_group_order, epoch)

    def group_importance(self) -> Tuple[_libs.Ids, _libs.Floats]:
        """Samples that a member has scored, and what they are worth to all, 0 to 1."""
        ids, importance = self._pairs(self._lib.shade_group_importance)
        return ids, array("f") if importance is None else importance

    def sample_count(self) -> int:
        """The samples that ids of this object can mean."""
        count = ctypes.c_uint32()
        self._lib.check(self._lib.shade_sample_count(self._open(), ctypes.byref(count)))
        return count.value

    def samples(self) -> List[str]:
        """The paths of all samples of the mount, by its own ids."""
        paths: List[str] = []

        def add(_context: Any, _number: int, path: bytes) -> int:
            paths.append(os.fsdecode(path))
            return 0
        self._lib.check(self._lib.shade_samples(self._open(), _libs.EACH_SAMPLE(add), None))
        return paths

    def resident(self, count: Optional[int] = None) -> bytes:
        """What is in memory: sample i is bit i % 8 of byte i // 8."""
        if count is None:
            count = self.sample_count()
        words = array("Q", bytes((count + 63) // 64 * 8))
        pointer = ctypes.cast(words.buffer_info()[0], ctypes.POINTER(ctypes.c_uint64))
        self._lib.check(self._lib.shade_resident(self._open(), pointer, count))
        if sys.byteorder == "big":
            words.byteswap()
        return words.tobytes()[:(count + 7) // 8]

    def query(self, sample: int) -> Sample:
        """One sample."""
        answer = _libs.SampleStruct()
        self._lib.check(self._lib.shade_query(self._open(), sample, ctypes.byref(answer)))
        return Sample(answer.size, None if answer.score < 0 else answer.score, answer.frequency,
                      bool(answer.resident))

    def read(self, name: str, limit: int = 1 << 30) -> bytes:
        """All of a file of .shade; EFBIG if it has more bytes than `limit`; 0: no limit."""
        text, length = ctypes.c_void_p(), ctypes.c_size_t()
        self._lib.check(self._lib.shade_read(self._open(), os.fsencode(name), limit,
                                             ctypes.byref(text), ctypes.byref(length)))
        try:
            return ctypes.string_at(text, length.value)
        finally:
            self._lib.shade_free(text)

    def stats(self) -> Dict[str, Union[float, str]]:
        """Figures of the mount, or of the job."""
        result: Dict[str, Union[float, str]] = {}
        for line in self.read("stats", 1 << 20).decode(errors="surrogateescape").splitlines():
            key, _, value = line.partition(" ")
            try:
                result[key] = float(value)
            except ValueError:
                result[key] = value
        return result

    def stat(self, key: str) -> float:
        """One of them."""
        value = ctypes.c_double()
        self._lib.check(self._lib.shade_stat(self._open(), key.encode(), ctypes.byref(value)))
        return value.value

    def warm(self, path: PathLike) -> None:
        """Fetches a file, or all below a folder."""
        self._lib.check(self._lib.shade_warm(self._open(), os.fsencode(path)))

    def evict(self, path: PathLike) -> None:
        """Drops it."""
        self._lib.check(self._lib.shade_evict(self._open(), os.fsencode(path)))

    def pin(self, path: PathLike) -> None:
        """Keeps it."""
        self._lib.check(self._lib.shade_pin(self._open(), os.fsencode(path)))

    def unpin(self, path: PathLike) -> None:
        """No longer keeps it."""
        self._lib.check(self._lib.shade_unpin(self._open(), os.fsencode(path)))

    def command(self, lines: str) -> str:
        """Sends text commands as in control.h, and returns the answer."""
        data = os.fsencode(lines if lines.endswith("\n") else lines + "\n")
        answer = ctypes.create_string_buffer(4096)
        self._lib.check(self._lib.shade_command(self._open(), data, len(data), answer, 4096))
        return os.fsdecode(answer.value)
