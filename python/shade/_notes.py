# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which file a data set opens for which index, where it cannot be asked. Whoever fetches samples,
the script itself or workers of a DataLoader, notes the files that Python opens inside __getitem__
(its audit event "open"), and leaves that in a folder; the process that draws reads it when an epoch
is over. What code in C opens the mount's trace tells (_traced.py). A data set that is noted has the folder in an attribute, which workers get with it, however
they are started."""
import json
import os
import shutil
import sys
import tempfile
import threading
import zlib
from collections import Counter
from typing import Any, Callable, Dict, List, Optional, Tuple

MARK = "_shade_notes"
PATHS_MAX = 16  # of one sample
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

_here = threading.local()  # .paths: what the sample that this thread fetches has opened
_listening = False


def _on_audit(event: str, arguments: Tuple[Any, ...]) -> None:
    if event != "open":
        return
    paths = getattr(_here, "paths", None)
    if paths is None or len(paths) >= PATHS_MAX:
        return
    path, _, flags = arguments
    if isinstance(path, (str, bytes)) and not (isinstance(flags, int) and flags & WRITING):
        paths.append(os.path.abspath(os.fsdecode(path)))


def _listen() -> None:
    """An audit hook stays for good, so there is one a process."""
    global _listening
    if not _listening:
        sys.addaudithook(_on_audit)
        _listening = True


class Noted:
    """A data set as whoever fetches sees it."""

    def __init__(self, dataset: Any, folder: str) -> None:
        self._dataset, self._folder = dataset, folder
        self._file: Any = None
        self._owner = 0
        _listen()

    def __getattr__(self, name: str) -> Any:
        if name == "__getitems__":  # which would not tell whose a file is
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        _here.paths = []
        try:
            return self._dataset[index]
        finally:
            paths, _here.paths = _here.paths, None
            self._note(index, paths)

    def _note(self, index: Any, paths: List[str]) -> None:
        try:
            if self._owner != os.getpid():  # a forked worker has a file of its own
                self._file = open(os.path.join(self._folder, str(os.getpid())), "a",
                                  encoding="utf-8", errors="surrogateescape", buffering=1)
                self._owner = os.getpid()
            self._file.write(json.dumps([int(index), paths, threading.get_native_id()]) + "\n")
        except Exception:  # pylint: disable=broad-except
            pass  # it stays unknown, and the script must not fail


def noted(dataset: Any) -> Any:
    """The data set that a fetcher is to use."""
    folder = getattr(dataset, "__dict__", {}).get(MARK)
    return Noted(dataset, folder) if folder and os.path.isdir(folder) else dataset


class Notes:
    """Those of one data set."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.count = dataset, len(dataset)
        self.known: Dict[int, List[str]] = {}
        self.fetched: Dict[int, List[int]] = {}  # indices, by the thread that fetched them
        self._folder = tempfile.mkdtemp(prefix="shade-notes-")
        self.paths: Optional[List[str]] = None  # by index, once they are known
        self.is_over = False
        self.tracer: Any = None  # whoever listens to what is opened without Python
        self._read: Dict[str, int] = {}  # by name: bytes
        try:
            setattr(dataset, MARK, self._folder)
        except (AttributeError, TypeError):
            self.end()
            raise ValueError("the files of this data set are not known, and it takes no attribute "
                             "to note them by") from None

    def end(self) -> None:
        """Notes no more."""
        self.is_over = True
        if self.tracer is not None:
            self.tracer.end()
        shutil.rmtree(self._folder, ignore_errors=True)
        if getattr(self.dataset, "__dict__", {}).get(MARK) == self._folder:
            delattr(self.dataset, MARK)

    def read(self) -> Dict[int, List[str]]:
        """All that was noted by now. A line that is being written counts the next time."""
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            with open(path, "rb") as file:
                file.seek(self._read.get(name, 0))
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[name] = self._read.get(name, 0) + whole
            for line in text[:whole].splitlines():
                index, paths, thread = json.loads(line)
                self.known[index] = paths
                self.fetched.setdefault(thread, []).append(index)
        return self.known


def exchanged(known: Dict[int, List[str]],
              gather: Callable[[bytes], List[bytes]]) -> Dict[int, List[str]]:
    """What all ranks know: each has fetched its part of the samples."""
    packed = zlib.compress(json.dumps(list(known.items())).encode(), 1)
    result: Dict[int, List[str]] = {}
    for part in gather(packed):
        result.update({index: paths for index, paths in json.loads(zlib.decompress(part))})
    return result


def choose_paths(known: Dict[int, List[str]], count: int, is_ours: Callable[[str], bool],
                 size_of: Callable[[str], int]) -> Optional[List[str]]:
    """One path for each index: the largest file that was opened for it and is on the mount. What
    most samples open, a list of labels, is none of theirs. None: some index has none."""
    opened = Counter(path for paths in known.values() for path in set(paths))
    shared = {path for path, times in opened.items() if times > max(8, len(known) // 2)}
    result = []
    for index in range(count):
        paths = [path for path in dict.fromkeys(known.get(index, ()))
                 if path not in shared and is_ours(path)]
        if not paths:
            return None
        result.append(paths[0] if len(paths) == 1 else max(paths, key=size_of))
    return result
