# SPDX-License-Identifier: LGPL-2.1-or-later
"""The two libraries, loaded when they are first needed, and arrays that they can read."""
import array
import ctypes
import functools
import os
import typing
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Tuple

from ._errors import ShadeError

if TYPE_CHECKING:  # an array takes no parameters at run time before Python 3.12
    Ids = array.array[int]  # of 'I': unsigned numbers of four bytes
    Floats = array.array[float]  # of 'f'
else:
    Ids = Floats = array.array
Functions = Dict[str, Tuple[Any, List[Any]]]  # by name: the result, and the arguments

_IDS = POINTER(c_uint32)
_FLOATS = POINTER(c_float)
EACH_SAMPLE = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, c_char_p)


class SampleStruct(ctypes.Structure):
    """struct shade_sample"""
    _fields_ = [("size", c_uint64), ("score", c_float), ("frequency", c_uint32),
                ("resident", c_uint32)]


class GroupTurn(ctypes.Structure):
    """struct shade_group_turn"""
    _fields_ = [("first", c_uint64), ("offset", c_uint64)]


class ScorerOptions(ctypes.Structure):
    """struct shade_scorer_options"""
    _fields_ = [("size", c_uint32), ("samples", c_uint32), ("seed", c_uint64), ("mode", c_uint32),
                ("backend", c_uint32), ("lookahead", c_uint32), ("draws", c_uint32),
                ("rep", c_double), ("uses", c_double), ("most_uses", c_double),
                ("strength", c_double),
                ("max_repeats", c_uint32), ("cover_epochs", c_uint32), ("capacity", c_uint32),
                ("device", c_int32), ("keep", c_double), ("epochs", c_uint32),
                ("multiple", c_uint32), ("substitute", c_uint32), ("package", c_uint32)]


class ScoreBatch(ctypes.Structure):
    """struct shade_score_batch"""
    _fields_ = [("size", c_uint32), ("count", c_uint32), ("ids", _IDS), ("memory", c_uint32),
                ("dtype", c_uint32), ("logits", c_void_p), ("row_stride", c_uint64),
                ("classes", c_uint32), ("label_bytes", c_uint32), ("labels", c_void_p),
                ("losses", c_void_p), ("losses_out", c_void_p), ("scores_out", c_void_p),
                ("stream", c_void_p)]


class ScoreNodes(ctypes.Structure):
    """struct shade_score_nodes"""
    _fields_ = [("size", c_uint32), ("world", c_uint32), ("node_of", _IDS), ("block", c_uint32),
                ("capacity", c_uint32), ("mix", c_double)]


class ScoreSpan(ctypes.Structure):
    """struct shade_score_span"""
    _fields_ = [("seconds", c_double), ("waited", c_double), ("read", c_double),
                ("bytes", c_double), ("limited", c_double), ("limited_bytes", c_double),
                ("rate", c_double)]


def fields_of(structure: ctypes.Structure) -> List[str]:
    """The names of its fields."""
    return [field[0] for field in structure._fields_]  # pylint: disable=protected-access


# A handle is a c_void_p.
_SHADE: Functions = {
    "shade_open": (c_int, [c_char_p, c_char_p, POINTER(c_void_p)]),
    "shade_close": (None, [c_void_p]),
    "shade_error": (c_char_p, []),
    "shade_path": (c_char_p, [c_void_p]),
    "shade_wait": (c_int, [c_void_p, c_uint32]),
    "shade_register": (c_int, [c_void_p, POINTER(c_char_p), c_uint32]),
    "shade_scores": (c_int, [c_void_p, _IDS, _FLOATS, c_uint32]),
    "shade_order": (c_int, [c_void_p, c_uint64, _IDS, c_uint32]),
    "shade_epoch": (c_int, [c_void_p, c_uint64]),
    "shade_group_join": (c_int, [c_void_p, c_char_p]),
    "shade_group_begin": (c_int, [c_void_p, c_uint64, POINTER(GroupTurn)]),
    "shade_group_put": (c_int, [c_void_p, c_uint64, _IDS, _FLOATS, c_uint32]),
    "shade_group_order": (c_int, [c_void_p, c_uint64, POINTER(c_void_p), POINTER(c_void_p), _IDS]),
    "shade_group_importance": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_void_p), _IDS]),
    "shade_sample_count": (c_int, [c_void_p, _IDS]),
    "shade_samples": (c_int, [c_void_p, EACH_SAMPLE, c_void_p]),
    "shade_resident": (c_int, [c_void_p, POINTER(c_uint64), c_uint32]),
    "shade_query": (c_int, [c_void_p, c_uint32, POINTER(SampleStruct)]),
    "shade_stat": (c_int, [c_void_p, c_char_p, POINTER(c_double)]),
    "shade_read": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t)]),
    "shade_free": (None, [c_void_p]),
    "shade_warm": (c_int, [c_void_p, c_char_p]),
    "shade_evict": (c_int, [c_void_p, c_char_p]),
    "shade_pin": (c_int, [c_void_p, c_char_p]),
    "shade_unpin": (c_int, [c_void_p, c_char_p]),
    "shade_command": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t]),
}
_SCORE: Functions = {
    "shade_score_error": (c_char_p, []),
    "shade_scorer_defaults": (None, [POINTER(ScorerOptions)]),
    "shade_scorer_create": (c_int, [POINTER(c_void_p), POINTER(ScorerOptions)]),
    "shade_scorer_destroy": (None, [c_void_p]),
    "shade_scorer_backend": (c_char_p, [c_void_p]),
    "shade_scorer_get_options": (c_int, [c_void_p, POINTER(ScorerOptions)]),
    "shade_scorer_update": (c_int, [c_void_p, _IDS, _FLOATS, c_uint32, _FLOATS]),
    "shade_scorer_update_batch": (c_int, [c_void_p, POINTER(ScoreBatch)]),
    "shade_scorer_rank_batch": (c_int, [c_void_p, POINTER(ScoreBatch)]),
    "shade_scorer_sync": (c_int, [c_void_p]),
    "shade_scorer_merge": (c_int, [c_void_p, _IDS, _FLOATS, c_uint32]),
    "shade_scorer_scores": (c_int, [c_void_p, _FLOATS]),
    "shade_scorer_merge_losses": (c_int, [c_void_p, _IDS, _FLOATS, c_uint32]),
    "shade_scorer_losses": (c_int, [c_void_p, _FLOATS]),
    "shade_scorer_neighbours": (c_int, [c_void_p, _IDS]),
    "shade_scorer_nodes": (c_int, [c_void_p, POINTER(ScoreNodes)]),
    "shade_scorer_batch": (c_int, [c_void_p, c_uint32]),
    "shade_score_rate": (c_double, [c_double, POINTER(ScoreSpan)]),
    "shade_scorer_measured": (c_int, [c_void_p, POINTER(ScoreSpan), c_uint32]),
    "shade_scorer_redraw": (c_int, [c_void_p, c_uint64, c_uint32, c_char_p]),
    "shade_scorer_begin": (c_int, [c_void_p, c_uint64, c_char_p]),
    "shade_scorer_length": (c_uint32, [c_void_p, c_uint32, c_uint32]),
    "shade_scorer_order": (c_int64, [c_void_p, c_uint64, c_uint32, c_uint32, _IDS, c_uint64]),
    "shade_scorer_weights": (c_int, [c_void_p, c_uint64, _IDS, _FLOATS, c_uint32]),
    "shade_scorer_digest": (c_int, [c_void_p, c_uint64, POINTER(c_uint64)]),
    "shade_scorer_save": (c_int64, [c_void_p, c_void_p, c_uint64]),
    "shade_scorer_load": (c_int, [c_void_p, c_char_p, c_uint64]),
}


class Library:
    """A loaded library whose functions raise what they say in C."""

    def __init__(self, handle: ctypes.CDLL, functions: Functions, error: str) -> None:
        for name, (result, arguments) in functions.items():
            function = getattr(handle, name)
            function.restype, function.argtypes = result, arguments
        self._handle = handle
        self._error: Callable[[], bytes] = getattr(handle, error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def check(self, result: int) -> int:
        """The result, unless it is an error."""
        if result < 0:
            raise ShadeError(-result, os.fsdecode(self._error()))
        return result


def _candidates(name: str) -> Iterable[str]:
    """SHADE_LIBRARY_DIR, what the build knows, then what the system's loader finds."""
    soname = f"lib{name}.so.1"
    for folder in filter(None, os.environ.get("SHADE_LIBRARY_DIR", "").split(":")):
        yield os.path.join(folder, soname)
    try:
        from ._built import LIBRARY_DIRS  # pylint: disable=import-outside-toplevel
    except ImportError:
        LIBRARY_DIRS = []
    yield from (os.path.join(folder, soname) for folder in LIBRARY_DIRS)
    yield soname


def _load(name: str, functions: Functions, error: str) -> Library:
    tried: List[str] = []
    for path in _candidates(name):
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(path)
            continue
        try:
            return Library(ctypes.CDLL(path), functions, error)
        except OSError as failure:
            tried.append(str(failure))
    raise ImportError(f"lib{name} was not found; SHADE_LIBRARY_DIR can name its folder. Tried: "
                      + "; ".join(tried))


@functools.lru_cache(maxsize=None)
def libshade() -> Library:
    """The client of a mount."""
    return _load("shade", _SHADE, "shade_error")


@functools.lru_cache(maxsize=None)
def libscore() -> Library:
    """The scorer."""
    return _load("shade-score", _SCORE, "shade_score_error")


def as_ids(values: Any) -> Ids:
    """Sample ids as the libraries read them; copied only if they are something else."""
    if isinstance(values, array.array) and values.typecode == "I":
        return values
    if hasattr(values, "tolist"):
        values = values.tolist()
    try:
        return array.array("I", values)
    except OverflowError as failure:
        raise ValueError("a sample id is a number from 0 to 4294967295") from failure


def tensor_bytes(tensor: Any) -> bytes:
    """What is in a tensor of torch, which may have been built without numpy."""
    tensor = tensor.cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def as_floats(values: Any) -> Floats:
    """The same for scores and losses: sequences, tensors and arrays of any kind."""
    if isinstance(values, array.array) and values.typecode == "f":
        return typing.cast(Floats, values)
    if hasattr(values, "detach"):
        result = array.array("f")
        result.frombytes(tensor_bytes(values.detach().float()))
        return result
    if hasattr(values, "tobytes") and hasattr(values, "astype"):
        result = array.array("f")
        result.frombytes(values.astype("f4").tobytes())
        return result
    return array.array("f", values)


def ids_pointer(values: Ids) -> Any:
    """For an argument uint32_t *; the array must live as long."""
    return ctypes.cast(values.buffer_info()[0], _IDS)


def floats_pointer(values: Optional[Floats]) -> Any:
    """For an argument float *."""
    return None if values is None else ctypes.cast(values.buffer_info()[0], _FLOATS)
