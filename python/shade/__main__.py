# SPDX-License-Identifier: LGPL-2.1-or-later
"""python -m shade run SCRIPT: runs a PyTorch script with shade's sampler and scores."""
import argparse
import importlib.util
import json
import os
import runpy
import sys
from typing import Any, Dict, List, Optional

from . import __version__
from ._jobs import own_name
from .scorer import MODES

# What the command line passes on to the sampler as it is.
OPTIONS = ("rep", "uses", "most_uses", "keep", "epochs", "substitute", "package", "lookahead", "mix")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shade",
        description="Gives an unmodified PyTorch script shade's sampler and scores, and says on "
                    "standard error what it changed.")
    parser.add_argument("--version", action="version", version=f"shade {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="run a script", description="Runs a script.")
    run.add_argument("--mount", help="a shadefs; auto: where the files are; none: sample without "
                                     "one (SHADE_MOUNT; auto)")
    run.add_argument("--mode", choices=MODES, help="how orders are drawn (SHADE_MODE; auto)")
    run.add_argument("--seed", type=int, help="of the draws (SHADE_SEED; that of the script)")
    run.add_argument("--job", help="the name of this training on the mount (SHADE_JOB; one of its "
                                   "own)")
    run.add_argument("--state", help="a file that keeps scores and draws for the next run "
                                     "(SHADE_STATE)")
    run.add_argument("--rep", type=float, help="how often a resident that was drawn is repeated")
    run.add_argument("--uses", type=float, help="echo: mean uses of a fetched sample (4); auto: "
                                                "those that it begins with (1)")
    run.add_argument("--most-uses", type=float, help="auto: they never get above this (8)")
    run.add_argument("--keep", type=float,
                     help="prune: the chance of a sample whose loss is below the mean (0.5); echo, "
                          "auto: of one that is to be fetched (all come)")
    run.add_argument("--epochs", type=int,
                     help="of the training: with --keep the last eighth reads everything")
    run.add_argument("--substitute", type=int, choices=(0, 1),
                     help="iis: residents stand in for absent samples of low loss (0)")
    run.add_argument("--package", type=int,
                     help="iis: absent samples of low loss come in runs of so many (0)")
    run.add_argument("--lookahead", type=int, choices=(0, 1),
                     help="epochs that an order is announced ahead (1)")
    run.add_argument("--mix", type=float,
                     help="several machines: the share of samples that any of them may read (0)")
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module")
    run.add_argument("script")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _install(given: argparse.Namespace) -> None:
    """The hook, with what the environment and the command line say."""
    try:
        from . import hook  # pylint: disable=import-outside-toplevel
    except ImportError as failure:
        raise ValueError(f"the hook needs PyTorch: {failure}") from failure
    environment = dict(os.environ)
    if given.seed is not None:
        environment["SHADE_SEED"] = ""  # which need not be good then
    named = {name: getattr(given, name) for name in ("mount", "mode", "seed", "job", "state")
             if getattr(given, name) is not None}
    settings = hook.settings_from(environment)
    options: Dict[str, Any] = {**settings.options,
                               **{name: getattr(given, name) for name in OPTIONS
                                  if getattr(given, name) is not None}}
    if "state" in named:
        named["state"] = os.path.abspath(named["state"])
    settings = settings._replace(**named, options=options)
    hook.install(settings)
    os.environ.update(_for_children(settings))


def _for_children(settings: Any) -> Dict[str, str]:
    """The environment in which processes that the script starts get the hook, too: Python runs what
    is called sitecustomize in a folder of PYTHONPATH."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
    before = os.environ.get("PYTHONPATH")
    found = {"SHADE_HOOK": "1", "PYTHONPATH": folder + (os.pathsep + before if before else ""),
             "SHADE_MOUNT": settings.mount, "SHADE_MODE": settings.mode,
             "SHADE_OPTIONS": json.dumps(settings.options)}
    for name in ("seed", "job", "state"):
        value = getattr(settings, name)
        found[f"SHADE_{name.upper()}"] = "" if value is None else str(value)
    # What one command starts is one training, unless a launcher has started several commands.
    if "RANK" not in os.environ and "SHADE_RUN" not in os.environ:
        found["SHADE_RUN"] = own_name()
    return found


def _check_script(given: argparse.Namespace) -> None:
    """What runpy would say with a traceback."""
    if given.module:
        try:
            found = importlib.util.find_spec(given.script) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            raise ValueError(f"there is no module '{given.script}'")
        return
    if not os.path.isdir(given.script):  # runpy takes a folder with a __main__.py
        with open(given.script, "rb"):
            pass


def _run(given: argparse.Namespace) -> int:
    arguments, sys.argv = sys.argv, [given.script, *given.arguments]
    try:
        _check_script(given)
        _install(given)
    except (OSError, ValueError) as failure:
        sys.argv = arguments
        print(f"shade: {failure}", file=sys.stderr)
        return 2
    if given.module:
        runpy.run_module(given.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(given.script))
        runpy.run_path(given.script, run_name="__main__")
    return 0


def main(arguments: Optional[List[str]] = None) -> int:
    """The command."""
    return _run(_parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
