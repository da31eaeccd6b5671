# SPDX-License-Identifier: LGPL-2.1-or-later
"""There is no room for the log, while there is much to say: the mount serves on."""
import errno
import os
import subprocess
import tempfile
import time

from common import Shade, Slow, make_tree, raises, read, run_tests, scratch, wait_until


class Unheard(Shade):
    """One whose log goes where nothing can be written."""

    def __init__(self, log, source, **options):
        self.log = log
        super().__init__(source, log="debug", **options)

    def read_log(self):
        return ""


def serve_without_a_log(log):
    root, contents = make_tree(60)
    slow = Slow(root)
    fs = Unheard(log, slow.path, capacity="1M", deadline=1)
    paths = sorted(contents)
    for number, fault in enumerate(("eio", "estale", "short", "hang")):
        slow.tell(f"fault {fault} {paths[number]}")
        raises((errno.EIO, errno.ESTALE, errno.ETIMEDOUT), lambda: read(fs.at(paths[number])))
    slow.tell("clear all")
    fs.control("rescan\n")
    time.sleep(0.3)

    def well(path):
        try:
            return read(fs.at(path)) == contents[path]
        except OSError:
            return False

    for path in paths:
        wait_until(lambda: well(path), f"{path} as it is")
    assert fs.stats()["fetch_errors"] >= 4
    fs.end()
    slow.end()


def the_device_is_full():
    serve_without_a_log("/dev/full")


def the_disk_is_full():
    place = tempfile.mkdtemp(prefix="full-", dir=scratch)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], check=True)
    try:
        with open(os.path.join(place, "ballast"), "wb") as file:
            file.write(b"x" * 4096)
        serve_without_a_log(os.path.join(place, "log"))
        assert os.path.getsize(os.path.join(place, "log")) == 0, "it was not full"
    finally:
        subprocess.run(["umount", "-l", place], check=True)


run_tests([the_device_is_full, the_disk_is_full])
