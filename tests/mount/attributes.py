# SPDX-License-Identifier: LGPL-2.1-or-later
"""Attributes of the source, as the mount shows them, and what they decide."""
import os
import subprocess
import tempfile

from common import Shade, make_tree, run_tests, scratch, wait_until


def mount_at(kind, path):
    """A file system of that kind, empty; it goes with the scratch folder."""
    os.makedirs(path, exist_ok=True)
    subprocess.run(["mount", "-t", kind, "none", path], check=True)
    mounted.append(path)


mounted = []


def with_mounts(test):
    """Unmounts what the test has mounted inside the source, whatever came of it."""
    def run():
        try:
            test()
        finally:
            while mounted:
                subprocess.run(["umount", "-l", mounted.pop()], check=True)
    run.__name__ = test.__name__
    return run


def put(*names, data=b"data", mode=0o644):
    path = os.path.join(*names)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)
    return path


def mtime(path):
    """The seconds and the nanoseconds, exactly."""
    return os.stat(path).st_mtime_ns


@with_mounts
def times_far_away():
    """64 bits of nanoseconds end in 2262 and begin in 1677. tmpfs keeps any time."""
    root = tempfile.mkdtemp(dir=scratch)
    mount_at("tmpfs", root)
    times = {"1970": 0, "1969": -1, "1900": -2208988800 * 10**9 + 250_000_000, "1677": -2**63,
             "1600": -11676096000 * 10**9 - 1, "2262": 2**63 - 1, "2263": 2**63,
             "2500": 16725225600 * 10**9 + 7, "9999": 253402300799 * 10**9 + 999_999_999}
    for name, ns in times.items():
        os.utime(put(root, name), ns=(ns, ns))
        assert mtime(os.path.join(root, name)) == ns, name
    manifest = os.path.join(scratch, "times.manifest")
    for _ in range(2):
        fs = Shade(root, capacity="8M", manifest=manifest)
        for name, ns in times.items():
            shown = mtime(fs.at(name))
            assert shown == ns, f"{name}: {shown} instead of {ns}"
            with open(fs.at(name), "rb") as file:
                assert file.read() == b"data"
        fs.end()


run_tests([times_far_away])
