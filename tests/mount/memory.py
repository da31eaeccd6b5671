# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the daemon needs for each file that it knows, beside the capacity: at most 300 bytes when
all were scanned and listed, have scores, and are in two orders. scripts/bench memory measures it
with a million files; here are as many as can be made in a moment."""
import os
import subprocess
import sys
import tempfile

from common import MODE, Shade, is_sanitized, run_tests, scratch, skip, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import control_records  # pylint: disable=wrong-import-position

FOLDERS, FILES = 200, 1000  # files in each folder
LIMIT = 300


def private_bytes(pid):
    """Memory that is the process's own. Cached samples are not: they belong to the kernel."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if "kB" in line}
    return sizes.get("Pss_Anon", sizes["Private_Dirty"])


def list_all(path):
    """Files that the kernel knows then."""
    return sum(entry.stat(follow_symlinks=False).st_size == 0
               for folder in os.scandir(path) for entry in os.scandir(folder.path))


def moments(source, files):
    """Private bytes of a mount when its files were scanned, listed, scored and announced."""
    fs = Shade(source, capacity="8M")
    assert fs.stats()["samples"] == files
    found = {"scanned": private_bytes(fs.daemon())}
    assert list_all(fs.path) == files
    found["listed"] = private_bytes(fs.daemon())
    if files:
        with control_records.Control(fs.path) as control:
            control.write(control_records.scores(range(files), [3.5] * files))
            for epoch in range(2):
                control.write(control_records.order(epoch, range(files)))
        wait_until(lambda: fs.stats()["order_ahead"] == 2 * files, "both orders are announced")
    found["scored, two orders announced"] = private_bytes(fs.daemon())
    fs.end()
    return found


def a_file_costs_300_bytes():
    source, empty = (tempfile.mkdtemp(dir=scratch) for _ in range(2))
    count = FOLDERS * FILES
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=0", "tmpfs", source], check=True)
    try:
        for folder in range(FOLDERS):
            os.mkdir(f"{source}/class{folder:04}")
            for number in range(FILES):
                os.mknod(f"{source}/class{folder:04}/sample{number:06}.jpg")
        base, full = moments(empty, 0), moments(source, count)
    finally:
        subprocess.run(["umount", "-l", source], check=True)
    for moment in full:
        each = (full[moment] - base[moment]) / count
        print("   %s, %d files, %s: %.0f bytes each" % (MODE, count, moment, each), flush=True)
        assert 50 < each <= LIMIT, (moment, each)


if is_sanitized():
    skip("a sanitizer needs many times the memory of what it watches")
run_tests([a_file_costs_300_bytes])
