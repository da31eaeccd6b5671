# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which thread opens which file of a mount, for data sets whose files are opened by code in C, which
Python does not see. The mount's trace names the thread of each access; whoever fetches samples
notes which ones it has fetched, in their sequence. If a thread has opened as many files as it has
fetched samples, they belong together one by one."""
import os
import threading
import time
from typing import Dict, List, Tuple

from .mount import Mount

THREADS_MAX = 4096
LATE_SECONDS = 1.0  # that the mount may be behind

Opened = Tuple[str, int]  # mount point and id there


def mounts_here() -> List[str]:
    """The mount points of every shadefs that this process sees."""
    found = []
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    for line in lines:
        left, _, right = line.partition(" - ")
        if not right.startswith("fuse.shadefs "):
            continue
        point = left.split(" ")[4].encode().decode("unicode_escape", "surrogateescape")
        point = point[:-len("/.shade")] if point.endswith("/.shade") else point
        if os.path.exists(os.path.join(point, ".shade", "trace")):
            found.append(point)
    return found


class Tracer:
    """Listens to the traces of some mounts until end(). At most `most` accesses are kept of each
    thread."""

    def __init__(self, mounts: List[str], most: int) -> None:
        self._most = most
        self._opened: Dict[int, List[Opened]] = {}
        self._lock = threading.Lock()  # of _opened
        self._ends = False
        for mount in mounts:
            try:
                trace = os.open(os.path.join(mount, ".shade", "trace"), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            threading.Thread(target=self._listen, args=(mount, trace), daemon=True,
                             name="shade-trace").start()

    def _listen(self, mount: str, trace: int) -> None:
        """A read waits until there is something; the first one after end() is the last."""
        rest = b""
        try:
            while not self._ends:
                text = os.read(trace, 1 << 16)
                if not text:
                    break
                lines = (rest + text).split(b"\n")
                rest = lines.pop()
                self._take(mount, lines)
        except (OSError, ValueError):
            pass  # the mount is gone
        os.close(trace)

    def _take(self, mount: str, lines: List[bytes]) -> None:
        with self._lock:
            for line in lines:
                words = line.split()  # a ID SIZE # OUTCOME THREAD
                if len(words) != 6 or words[0] != b"a":
                    continue
                thread = int(words[5])
                known = thread in self._opened or len(self._opened) < THREADS_MAX
                opened = self._opened.setdefault(thread, []) if known else []
                if len(opened) <= self._most:
                    opened.append((mount, int(words[1])))

    def end(self) -> None:
        """Listens no more."""
        self._ends = True

    def opened(self) -> Dict[int, List[Opened]]:
        """By thread, as it was opened."""
        with self._lock:
            return {thread: list(opened) for thread, opened in self._opened.items()}

    def pair(self, fetched: Dict[int, List[int]]) -> Dict[int, List[str]]:
        """From indices to paths, as far as they are known: `fetched` has the indices by thread."""
        end = time.monotonic() + LATE_SECONDS
        found = pair(fetched, self.opened())
        while len(found) < sum(map(len, fetched.values())) and time.monotonic() < end:
            time.sleep(0.05)
            found = pair(fetched, self.opened())
        names: Dict[str, List[str]] = {}
        for mount, _ in found.values():
            if mount not in names:
                with Mount(mount) as opened:
                    names[mount] = opened.samples()
        return {index: [os.path.join(mount, names[mount][number])]
                for index, (mount, number) in found.items() if number < len(names[mount])}


def pair(fetched: Dict[int, List[int]], opened: Dict[int, List[Opened]]) -> Dict[int, Opened]:
    """What belongs together."""
    result: Dict[int, Opened] = {}
    for thread, indices in fetched.items():
        files = opened.get(thread, [])
        if len(files) == len(indices):
            result.update(zip(indices, files))
    return result
