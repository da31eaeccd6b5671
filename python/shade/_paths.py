# SPDX-License-Identifier: LGPL-2.1-or-later
"""The files of a data set, by its index."""
import os
from array import array
from collections.abc import Sequence
from typing import Any, Dict, List, Optional, Tuple

from ._libs import Ids


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))


# Where data sets keep their paths, or tuples that begin with one: torchvision, timm, and what
# people call them in classes of their own.
_LISTS = ("samples", "imgs", "file_names", "filenames", "files", "paths", "image_paths",
          "img_paths", "image_files")
_INSIDE = ("reader", "parser")  # of timm
_FOLDERS = ("root", "root_dir", "img_dir", "image_dir", "data_dir")


def _first_of(entry: Any) -> Any:
    """Of a tuple of path and class, or the path itself."""
    if not _is_path(entry) and isinstance(entry, Sequence) and len(entry):
        return entry[0]
    return entry


def _listed(entries: Any, count: int) -> Optional[List[Any]]:
    """The paths, if it is a list of so many."""
    if hasattr(entries, "tolist") and not isinstance(entries, Sequence):  # of numpy or pandas
        entries = entries.tolist()
    if not isinstance(entries, Sequence) or not count or len(entries) != count:
        return None
    paths = [_first_of(entry) for entry in (entries[0], entries[-1])]
    return [_first_of(entry) for entry in entries] if all(map(_is_path, paths)) else None


def _found(data: Any, paths: List[Any]) -> Optional[List[Any]]:
    """With the data set's folder before them if they are relative to that; None: there are no such
    files. An absolute path is believed: whoever needs the file will say what is wrong."""
    first, last = os.fsdecode(paths[0]), os.fsdecode(paths[-1])
    if os.path.isabs(first) or (os.path.exists(first) and os.path.exists(last)):
        return paths
    folders: List[Any] = [getattr(data, name, None) for name in _FOLDERS]
    for folder in filter(_is_path, folders):
        if all(os.path.exists(os.path.join(os.fsdecode(folder), name)) for name in (first, last)):
            return [os.path.join(os.fsdecode(folder), os.fsdecode(path)) for path in paths]
    return None


def _from_attributes(data: Any) -> Optional[List[Any]]:
    count = len(data)
    owners = [data, *(getattr(data, name) for name in _INSIDE if hasattr(data, name))]
    for owner in owners:
        for name in _LISTS:
            value = getattr(owner, name, None)
            paths = None if value is None or callable(value) else _listed(value, count)
            paths = None if paths is None else _found(owner, paths)
            if paths is not None:
                return paths
    for owner in owners:  # timm's filenames() are relative unless told otherwise
        try:
            paths = _listed(owner.filenames(absolute=True), count)
        except (AttributeError, TypeError):
            continue
        if paths is not None:
            return _found(owner, paths)
    return None


def paths_of(data: Any) -> Optional[List[Any]]:
    """One path for each index: of data sets that keep them in an attribute (torchvision's, timm's,
    and others that call it by a usual name), of Subset, ConcatDataset, or a list of paths. None if
    they cannot be known."""
    if _is_path(data):
        raise TypeError("a list of paths or a data set is wanted, not one path")
    if isinstance(data, Sequence) and len(data) and _is_path(data[0]):
        return list(data)
    if hasattr(data, "dataset") and hasattr(data, "indices"):
        inner = paths_of(data.dataset)
        return None if inner is None else [inner[index] for index in data.indices]
    if hasattr(data, "datasets"):
        parts = [paths_of(part) for part in data.datasets]
        if any(part is None for part in parts):
            return None
        return [path for part in parts if part is not None for path in part]
    return _from_attributes(data) if hasattr(data, "__len__") else None


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
