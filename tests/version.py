# SPDX-License-Identifier: LGPL-2.1-or-later
"""The version stands in meson.build alone, and all say the same one:
version.py VERSION ROOT PACKAGES PROGRAM...; PACKAGES is the folder of the Python package."""
import os
import re
import subprocess
import sys

VERSION, ROOT, PACKAGES = sys.argv[1:4]
PROGRAMS = sys.argv[4:]
# The changelog has a heading for it.
MAY_NAME_IT = {"meson.build", "CHANGELOG.md"}


def output(*words, **environment):
    """What a command prints."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env={**os.environ, **environment})
    return done.stdout.strip()


def check_programs():
    """Each says its name and the version."""
    for program in PROGRAMS:
        said, wanted = output(program, "--version"), f"{os.path.basename(program)} {VERSION}"
        assert said == wanted, f"{program} says '{said}', not '{wanted}'"


def check_package():
    """So does the Python package."""
    for words in (["-c", "import shade; print('shade', shade.__version__)"],
                  ["-m", "shade", "--version"]):
        said = output("/usr/bin/python3", *words, PYTHONPATH=PACKAGES, PYTHONDONTWRITEBYTECODE="1")
        assert said == f"shade {VERSION}", f"python3 {words}: {said}"


def check_changelog():
    """Its newest heading is this version."""
    with open(os.path.join(ROOT, "CHANGELOG.md"), encoding="utf-8") as file:
        newest = re.search(r"^## (\S+)", file.read(), re.M)
    assert newest and newest.group(1) == VERSION, f"CHANGELOG.md begins with {newest}"


def check_sources():
    """No other file names it: it would be forgotten when the version changes."""
    named = re.compile(rb"(?<![\w.])" + re.escape(VERSION.encode()) + rb"(?![\w.]*\d)")
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders
                      if not name.startswith((".git", "build", ".mypy_cache", "__pycache__"))]
        for name in names:
            path = os.path.join(folder, name)
            short = os.path.relpath(path, ROOT)
            if short in MAY_NAME_IT or os.path.islink(path):
                continue
            with open(path, "rb") as file:
                found += [short] if named.search(file.read()) else []
    assert not found, f"these name the version {VERSION}: {sorted(found)}"


check_programs()
check_package()
check_changelog()
check_sources()
