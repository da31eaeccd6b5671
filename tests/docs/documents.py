# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every command in README.md, CONTRIBUTING.md, SECURITY.md and docs/*.md does what it says:
documents.py SOURCE BUILD. It is run here, over a small data set and a real mount, or table.py names
the test that covers it or says why none can. A command that is neither is a failure, and so is an
entry of the table that no document has any more.

All of it happens in namespaces of its own, where the programs of the build directory seem to be
installed: mounts, servers and files of /etc, /usr and /run go by themselves."""
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

import blocks
from stage import Stage
from table import CANNOT, COVERED

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
INSIDE = "SHADE_TEST_DOCUMENTS"
NEEDED = {"unshare": "util-linux", "ip": "iproute2", "ganesha.nfsd": "nfs-ganesha",
          "rpcbind": "rpcbind", "redis-server": "redis-server", "redis-cli": "redis-tools",
          "man": "man-db", "cc": "gcc"}
# What may be run unless the table has it: an unknown program is asked about, not tried.
RUNNABLE = {"cat", "chmod", "cp", "echo", "exit", "export", "ganesha.nfsd", "grep", "install", "man",
            "mkdir", "mount", "python3", "redis-cli", "redis-server", "rpcbind", "shade-score",
            "shadectl", "shadefs", "shadefs-metrics", "shadefs-unit", "sleep", "torchrun", "train",
            "umount", "unshare", "wait", "scripts/run", "scripts/bench", "build/client/shadectl",
            "build/fs/shadefs", "build/sim/shade-sim", "build/tests/cache/cache-test"}
MOUNT = "/mnt/imagenet"
MOUNTS = re.compile(rf"(build/fs/shadefs|shadefs|scripts/run|mount) (.* )?{MOUNT}$")
AGAIN = "shadefs -o capacity=64G,allow_other /nfs/imagenet /mnt/imagenet"  # after a daemon's death


def skip(reason):
    print("SKIP:", reason)
    sys.exit(77)


def read(path):
    with open(path) as file:
        return file.read()


def enter():
    """Begins again in namespaces of its own; what is in them ends with the first process there."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [package for name, package in NEEDED.items() if not shutil.which(name, path=path)]
    missing += [f"python3-{name.lower()}" for name in ("torch", "torchvision", "PIL")
                if not importlib.util.find_spec(name)]
    if missing:
        skip("missing: " + " ".join(missing))
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        skip("mounting needs root and /dev/fuse")
    with tempfile.TemporaryDirectory(prefix="shade-docs-") as folder:
        sys.exit(subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                                 "--mount-proc", "--propagation", "private", sys.executable,
                                 *sys.argv], env={**os.environ, INSIDE: folder},
                                check=False).returncode)


class Documents:
    """All blocks and commands, and what is known of them."""

    def __init__(self, texts, tests):
        self.blocks, self.mentioned, self.faults = [], [], []
        self.table = {}
        for rows, by_test in ((COVERED, True), (CANNOT, False)):
            for reason, commands in rows.items():
                if by_test and reason not in tests:
                    self.faults.append(f"table.py: there is no test '{reason}'")
                self.table.update(dict.fromkeys(commands, reason))
        self.used = set()
        for path, text in texts.items():
            self.take(path, text)

    def take(self, path, text):
        found, prose = blocks.split(text)
        for block in found:
            if block.language not in blocks.LANGUAGES:
                self.faults.append(f"{path}:{block.line}: '{block.language}' is no language of "
                                   f"blocks: {sorted(blocks.LANGUAGES)}")
            self.blocks.append((path, block))
        self.mentioned += [(path, key) for key in blocks.mentioned(prose)]

    def is_known(self, key):
        """The table has it: it is not for us."""
        if key in self.table:
            self.used.add(key)
        return key in self.table

    def is_runnable(self, where, key):
        words = [word for word in key.split() if not re.match(r"[A-Z_]+=", word)]
        if words[0] not in RUNNABLE:
            self.faults.append(f"{where}: '{key}' is neither run nor in tests/docs/table.py")
        return words[0] in RUNNABLE

    def check_table(self):
        self.faults += [f"table.py: no document has '{key}' any more"
                        for key in sorted(set(self.table) - self.used)]


class Run:
    """Runs what is to be run, block by block."""

    def __init__(self, documents, stage):
        self.documents, self.stage = documents, stage
        self.done, self.count = set(), 0
        self.entered = None  # the command that has begun a shell, for the next block

    def all(self):
        for path, block in self.documents.blocks:
            where = f"{path}:{block.line}"
            try:
                getattr(self, "take_" + block.language, self.take_text)(where, path, block)
            except Exception as failure:  # pylint: disable=broad-except
                self.documents.faults.append(f"{where}: {failure}")
                traceback.print_exc(file=sys.stdout)
        for path, key in self.documents.mentioned:
            if not self.documents.is_known(key) and key not in self.done and \
                    self.documents.is_runnable(path, key):
                try:
                    self.run_shell(f"{path}: {key}", None, [key])
                except AssertionError as failure:
                    self.documents.faults.append(f"{path}: {failure}")

    def take_shell(self, where, path, block):
        commands = []
        for command in blocks.shell_commands(block.text):
            key = blocks.key_of(command)
            if key.startswith("unshare ") and key.endswith(" bash"):
                self.entered = key
            elif not self.documents.is_known(key) and self.documents.is_runnable(where, key):
                commands.append(command)
        if commands:
            self.run_shell(where, path, commands)

    def run_shell(self, where, path, commands):
        keys = [blocks.key_of(command) for command in commands]
        self.done.update(keys)
        self.count += len(keys)
        if keys[0].startswith("scripts/bench"):
            self.stage.check_bench(keys)
            return
        if keys[0].startswith("redis-server "):
            self.stage.start_cluster(self.settings(path))
            return
        first = next((key for key in keys if re.search(rf"{MOUNT}\b| MNT\b", key)
                      and not key.startswith("mkdir")), None)
        if first == AGAIN:
            self.stage.kill_daemon()
        elif first:
            self.stage.have_mount(not MOUNTS.match(first))
        if f"mount {MOUNT}" in keys:
            self.stage.write_fstab(self.fstab(path))
        self.stage.shell(where, path, commands, self.entered)
        self.entered = None

    def settings(self, path):
        """What the document says that redis.conf must have."""
        return next(block.text for other, block in self.documents.blocks
                    if other == path and block.text.startswith("bind "))

    def fstab(self, path):
        """The line that the document has for it."""
        return next(block.text for other, block in self.documents.blocks
                    if path in (other, None) and block.language == "fstab")

    def take_python(self, where, _, block):
        if block.text not in self.done:
            self.done.add(block.text)
            self.stage.python.append((where, block.text))

    def take_c(self, where, _, block):
        self.stage.compile(where, block.text)
        self.count += 1

    def take_fstab(self, where, _, block):
        self.stage.have_mount(False)
        self.stage.mount_by_fstab(where, block.text)
        self.count += 1

    def take_output(self, *_):
        pass

    def take_text(self, where, _, block):
        for key in blocks.shown(block):
            if key.startswith("scripts/bench"):
                self.stage.check_names(block.text)
            elif "-m shade run" in key:
                self.stage.check_options(block.text)
            elif not self.documents.is_known(key):
                self.documents.faults.append(f"{where}: '{key}' is in no table")


SAMPLE = """Text with `shadectl frobnicate MNT` and `a word`.

    known --command \\
        here   # why
    cat <<'END' > file
    body
    END

- A list

  whose text goes on

      in a list

```python
import shade
```
"""


def check_reading():
    """The documents are read as they are meant, or nothing below is worth anything."""
    found, prose = blocks.split(SAMPLE)
    assert [(block.line, block.language) for block in found] == \
        [(3, "shell"), (13, "shell"), (16, "python")], found
    assert [blocks.key_of(command) for command in blocks.shell_commands(found[0].text)] == \
        ["known --command here", "cat <<'END' > file"], found
    assert blocks.shell_commands(found[0].text)[1].endswith("body\nEND")
    assert blocks.mentioned(prose) == ["shadectl frobnicate MNT"], prose
    documents = Documents({"sample.md": SAMPLE}, set())
    assert not documents.is_runnable("sample.md:3", "frobnicate --all")
    documents.check_table()
    text = "\n".join(documents.faults)
    for fault in ("'frobnicate --all' is neither run nor in", "there is no test 'demo'",
                  "no document has 'scripts/fuzz' any more"):
        assert fault in text, text


def main():
    if INSIDE not in os.environ:
        enter()
    check_reading()
    paths = [os.path.join(SOURCE, name) for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    paths += sorted(glob.glob(os.path.join(SOURCE, "docs", "*.md")))
    with open(os.path.join(BUILD, "meson-info", "intro-tests.json")) as file:
        tests = {test["name"] for test in json.load(file)}
    documents = Documents({os.path.relpath(path, SOURCE): read(path) for path in paths}, tests)
    stage = Stage(SOURCE, BUILD, os.environ[INSIDE], skip)
    run = Run(documents, stage)
    run.all()
    try:
        stage.run_python()
    except AssertionError as failure:
        documents.faults.append(str(failure))
    if AGAIN not in run.done:
        documents.faults.append(f"documents.py: no document has '{AGAIN}', for a daemon that died")
    documents.check_table()
    for fault in documents.faults:
        print("FAILED", fault)
    print(f"{run.count} commands and {len(stage.python)} blocks of Python run, "
          f"{len(documents.used)} in the table, {len(documents.faults)} faults")
    sys.exit(1 if documents.faults else 0)


main()
