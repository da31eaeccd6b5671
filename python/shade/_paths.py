# SPDX-License-Identifier: LGPL-2.1-or-later
"""The files of a data set, by its index."""
import os
from array import array
from collections.abc import Sequence
from typing import Any, Dict, List, Optional, Tuple

from ._libs import Ids


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))


def paths_of(data: Any) -> Optional[List[Any]]:
    """One path for each index: of torchvision's folder data sets (`samples`, `imgs`: path and
    class, or the path alone), Subset, ConcatDataset, or a list of paths. None if they cannot be
    known."""
    if _is_path(data):
        raise TypeError("a list of paths or a data set is wanted, not one path")
    for name in ("samples", "imgs"):
        entries = getattr(data, name, None)
        if not isinstance(entries, Sequence) or not len(entries) or len(entries) != len(data):
            continue
        first = entries[0]
        if _is_path(first):
            return list(entries)
        if isinstance(first, Sequence) and len(first) and _is_path(first[0]):
            return [entry[0] for entry in entries]
    if hasattr(data, "dataset") and hasattr(data, "indices"):
        inner = paths_of(data.dataset)
        return None if inner is None else [inner[index] for index in data.indices]
    if hasattr(data, "datasets"):
        parts = [paths_of(part) for part in data.datasets]
        if any(part is None for part in parts):
            return None
        return [path for part in parts if part is not None for path in part]
    if isinstance(data, Sequence) and len(data) and _is_path(data[0]):
        return list(data)
    return None


def _inodes_in(folder: str) -> Dict[str, int]:
    """By name. A directory that cannot be read tells nothing."""
    try:
        with os.scandir(folder or ".") as entries:
            return {entry.name: entry.inode() for entry in entries}
    except OSError:
        return {}


def neighbours_of(paths: List[Any]) -> Ids:
    """All indices, so that files that are near at the source are near here: those of a directory
    together, by inode."""
    inodes: Dict[str, Dict[str, int]] = {}
    places: List[Tuple[str, int, int]] = []
    for index, path in enumerate(paths):
        folder, name = os.path.split(os.fsdecode(path))
        if folder not in inodes:
            inodes[folder] = _inodes_in(folder)
        places.append((folder, inodes[folder].get(name, 0), index))
    return array("I", (index for _, _, index in sorted(places)))
