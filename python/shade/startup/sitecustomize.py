# SPDX-License-Identifier: LGPL-2.1-or-later
"""Python runs this when it starts, in processes that a script below `python3 -m shade run` has
started: ranks that a launcher or multiprocessing makes. If such a process imports torch, it gets
the hook. Nothing in here may fail, or be slow: most of these processes have nothing to do with
training."""
import importlib.machinery
import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _run_next():
    """The sitecustomize that would have been run without this one."""
    path = [folder for folder in sys.path
            if os.path.abspath(folder or ".") != _FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _install():
    package = os.path.dirname(os.path.dirname(_FOLDER))
    if package not in sys.path:
        sys.path.append(package)
    from shade import hook
    hook.install(quiet=True)


class _Watcher:
    """Finds nothing; it waits until somebody imports torch."""

    def find_spec(self, name, path=None, _target=None):
        """As importlib calls it."""
        if name != "torch" or path is not None:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _after(spec.loader)
        return spec


def _after(loader):
    """Has the hook installed when the module was executed."""
    execute = loader.exec_module

    def both(module):
        execute(module)
        try:
            _install()
        except Exception as failure:  # pylint: disable=broad-except
            print("shade: this process goes without the hook:", failure, file=sys.stderr)
    loader.exec_module = both


if os.environ.get("SHADE_HOOK"):
    sys.meta_path.insert(0, _Watcher())
try:
    _run_next()
except Exception:  # pylint: disable=broad-except
    pass  # Python itself would only print it
