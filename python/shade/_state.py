# SPDX-License-Identifier: LGPL-2.1-or-later
"""The file in which the hook keeps what it knows from run to run: a JSON object, by the names of
DataLoaders. It is replaced as a whole, so that whoever is killed leaves the last one."""
import json
import os
from typing import Any, Dict, Optional

VERSION = 1


class States:
    """Those of a file; without one there are none."""

    def __init__(self, path: Optional[str]) -> None:
        self._path = path
        self._states: Dict[str, Any] = {}
        if path is not None and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self._states = _checked(path, file.read())

    def of(self, name: str) -> Optional[Dict[str, Any]]:
        """What is known of one DataLoader."""
        state = self._states.get(name)
        return state if isinstance(state, dict) else None

    def write(self, states: Dict[str, Any]) -> None:
        """Keeps these, and those of loaders that this run has not made."""
        if self._path is None:
            return
        self._states.update(states)
        new = f"{self._path}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump({"shade_hook": VERSION, "loaders": self._states}, file)
        os.replace(new, self._path)


def _checked(path: str, text: str) -> Dict[str, Any]:
    try:
        found = json.loads(text)
        if found["shade_hook"] == VERSION and isinstance(found["loaders"], dict):
            return dict(found["loaders"])
    except (ValueError, TypeError, KeyError):
        pass
    raise ValueError(f"{path} is not a state of `shade run`: name another file, or remove it")
