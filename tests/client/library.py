# SPDX-License-Identifier: LGPL-2.1-or-later
"""libshade against a real mount: library.py SHADEFS SLOWFS PROGRAM."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
from common import Shade, make_tree, run_tests, scratch  # pylint: disable=wrong-import-position

PROGRAM = os.path.abspath(sys.argv[3])


def run(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip())


def test_library():
    source, _ = make_tree(200, size=2000, folders=12)
    os.symlink("class0", os.path.join(source, "linked"))
    os.symlink("../class1/sample00001.bin", os.path.join(source, "class2", "one.bin"))
    plain = os.path.join(scratch, "plain")
    os.makedirs(os.path.join(plain, ".shade"))
    with open(os.path.join(plain, ".shade", "control"), "w"):
        pass  # a folder that only looks like a mount
    shade = Shade(source, capacity="64M")
    link = os.path.join(scratch, "link")
    os.symlink(shade.path, link)
    run(shade.path, link, plain)
    shade.end()


def test_other_mount_inside():
    """Something else that is mounted below a shadefs is no part of it."""
    source, _ = make_tree(8)
    shade = Shade(source)
    place = shade.at("class1")
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    try:
        run(place, "other", "-")
    finally:
        subprocess.run(["umount", place], check=True)
    shade.end()


def test_daemon_gone():
    source, _ = make_tree(4)
    shade = Shade(source)
    shade.die()
    run(shade.path, "gone", "-")


run_tests([test_library, test_other_mount_inside, test_daemon_gone])
