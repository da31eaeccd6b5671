# SPDX-License-Identifier: LGPL-2.1-or-later
"""clang-tidy over all C files of a build: tidy.py CLANG_TIDY SOURCE_ROOT BUILD_ROOT [FOLDER...]

Files that were clean are not looked at again until they, a header, the configuration or their
command changes: the build directory keeps their hashes."""
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

TIDY, SOURCE, BUILD = sys.argv[1], os.path.realpath(sys.argv[2]), os.path.realpath(sys.argv[3])
FOLDERS = sys.argv[4:]
REMEMBERED = os.path.join(BUILD, "meson-private", "tidy.json")


def commands():
    """One command for each C file of the tree. Some files are compiled several times, for the
    library and for its tests, and clang-tidy would look at them as often."""
    found = {}
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
            name = os.path.relpath(path, SOURCE)
            if name.endswith(".c") and not name.startswith("..") and \
                    (not FOLDERS or name.startswith(tuple(FOLDERS))):
                found.setdefault(name, {**entry, "file": path})
    return found


def hash_of(*parts):
    """A hash of bytes and strings."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def read(path):
    """All of a file."""
    with open(path, "rb") as file:
        return file.read()


def shared_hash():
    """Of what every file depends on: the tool, its configuration, and all headers."""
    parts = [subprocess.run([TIDY, "--version"], check=True, stdout=subprocess.PIPE).stdout]
    for folder, folders, names in sorted(os.walk(SOURCE)):
        folders[:] = [name for name in folders if not name.startswith(("build", ".git"))]
        parts += [read(os.path.join(folder, name)) for name in sorted(names)
                  if name.endswith(".h") or name == ".clang-tidy"]
    return hash_of(*parts)


def recall():
    """The hashes of files that were clean."""
    try:
        return json.loads(read(REMEMBERED))
    except (OSError, ValueError):
        return {}


def check(database, name):
    """What clang-tidy finds in a file; "": nothing."""
    done = subprocess.run([TIDY, "-p", database, "--quiet", os.path.join(SOURCE, name)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0 and not done.stdout.strip():
        return ""
    answer = (done.stdout or done.stderr).replace(SOURCE + "/", "")
    for prefix in (os.path.relpath(BUILD, SOURCE) + "/", os.path.relpath(SOURCE, BUILD) + "/"):
        answer = re.sub("^" + re.escape(prefix), "", answer, flags=re.MULTILINE)
    return answer


def main():
    """Prints what was found; 1 if that is anything."""
    found, shared, clean = commands(), shared_hash(), recall()
    hashes = {name: hash_of(shared, entry["command"], read(entry["file"]))
              for name, entry in found.items()}
    wanted = sorted(name for name, value in hashes.items() if clean.get(name) != value)
    # The longest ones first, so that no core waits for them at the end.
    wanted.sort(key=lambda name: -os.path.getsize(found[name]["file"]))
    failed = 0
    with tempfile.TemporaryDirectory() as database, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        with open(os.path.join(database, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump(list(found.values()), file)
        for name, answer in zip(wanted, pool.map(lambda name: check(database, name), wanted)):
            if answer:
                failed += 1
                print(answer)
            else:
                clean[name] = hashes[name]
    with open(REMEMBERED, "w", encoding="utf-8") as file:
        json.dump(clean, file)
    print(f"{len(found)} files, {len(wanted)} looked at, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
