# SPDX-License-Identifier: LGPL-2.1-or-later
"""Attributes of the source, as the mount shows them, and what they decide."""
import errno
import os
import struct
import subprocess
import tempfile
import time

from common import (MODE, Shade, Slow, make_tree, raises, read, reads_as, run_tests, running,
                    scratch, wait_until)


def mount_at(kind, path, options="rw"):
    """A file system of that kind, empty; with_mounts() unmounts it."""
    os.makedirs(path, exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, "none", path], check=True)
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


@with_mounts
def file_systems_inside():
    """Each of them numbers its files from 1: as if all were hard links of one, and the file system
    a loop."""
    root = tempfile.mkdtemp(dir=scratch)
    mount_at("tmpfs", root)
    for name in ("a", "b"):
        mount_at("tmpfs", os.path.join(root, name))
    contents = {}
    for folder in ("", "a", "b"):
        for name in ("one", "two"):
            path = os.path.join(folder, name)
            contents[path] = f"{path} has this inside".encode()
            put(root, path, data=contents[path])
            os.link(os.path.join(root, path), os.path.join(root, path + ".link"))
            contents[path + ".link"] = contents[path]
    # A single file of another file system, which a manifest cannot tell apart.
    elsewhere = tempfile.mkdtemp(dir=scratch)
    mount_at("tmpfs", elsewhere)
    contents["bound"] = contents["bound.link"] = b"bound has this inside"
    put(elsewhere, "one", data=contents["bound"])
    for name in ("bound", "bound.link"):
        subprocess.run(["mount", "--bind", os.path.join(elsewhere, "one"), put(root, name)],
                       check=True)
        mounted.append(os.path.join(root, name))
    assert os.stat(os.path.join(root, "a/one")).st_ino == \
        os.stat(os.path.join(root, "b/one")).st_ino, "the numbers are equal at the source"
    manifest = os.path.join(scratch, "spanning.manifest")
    wait_for_the_clock(root, os.path.join(root, "a"), os.path.join(root, "b"))
    for _ in range(2):
        fs = Shade(root, capacity="8M", manifest=manifest)
        assert os.stat(fs.at("one")).st_ino == os.stat(os.path.join(root, "one")).st_ino
        by_number = {}
        for path in contents:
            by_number.setdefault(os.stat(fs.at(path)).st_ino, []).append(path)
        assert sorted(map(sorted, by_number.values())) == \
            sorted([path, path + ".link"] for path in contents if not path.endswith(".link")), \
            by_number
        found = subprocess.run(["find", fs.path, "-name", "one"], capture_output=True, text=True)
        assert found.returncode == 0 and not found.stderr and len(found.stdout.split()) == 3, found
        with tempfile.TemporaryDirectory(dir=scratch) as copy:
            subprocess.run(["cp", "-a", fs.path + "/.", copy], check=True)
            for path, data in contents.items():
                assert read(os.path.join(copy, path)) == data, path
        fs.end()


def wait_for_the_clock(*folders):
    """A manifest leaves out directories that have changed just before they were read."""
    newest = max(os.stat(folder).st_ctime for folder in folders)
    wait_until(lambda: time.time() > newest + 3, "the directories are old enough")


@with_mounts
def a_file_system_without_direct_reads():
    """The others are still read around the page cache."""
    root, contents = make_tree(6, size=20000)
    slow = Slow(root)
    put(root, "nested/here")
    mount_at("ramfs", os.path.join(slow.path, "nested"))
    put(slow.path, "nested/file", data=b"x" * 10000)
    fs = Shade(slow.path, capacity="8M")
    assert read(fs.at("nested/file")) == b"x" * 10000
    before = slow.counts()
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    after = slow.counts()
    assert int(after["direct_opens"]) - int(before["direct_opens"]) == len(contents), after
    fs.end()
    subprocess.run(["umount", mounted.pop()], check=True)
    slow.end()


def keeps_atimes(kind, owner, *prefix):
    """Whether the source has no trace of having been read."""
    root = tempfile.mkdtemp(dir=scratch)
    mount_at(kind, root, "strictatime")
    names = [f"folder/{number}" for number in range(8)]
    for name in names:
        os.chown(put(root, name, data=b"x" * 10000), owner, owner)
    paths = [os.path.join(root, name) for name in (".", "folder", *names)]
    for path in paths:
        os.utime(path, ns=(10**9, 10**9))
    fs = Shade(root, prefix=prefix, capacity="8M")
    for name in names:
        assert read(fs.at(name)) == b"x" * 10000
    assert fs.stats()["fetch_errors"] == 0, fs.stats()
    fs.end()
    return all(os.stat(path).st_atime_ns == 10**9 for path in paths)


@with_mounts
def atimes_stay():
    assert keeps_atimes("tmpfs", 0)
    assert keeps_atimes("ramfs", 0), "without direct reads"
    assert keeps_atimes("tmpfs", 1000)
    # Who may not keep them, reads all the same.
    without = ("setpriv", "--bounding-set=-fowner", "--inh-caps=-fowner")
    assert not keeps_atimes("tmpfs", 1000, *without)
    assert keeps_atimes("tmpfs", 0, *without)


NOBODY = 65534
ACL = "system.posix_acl_access"


def as_nobody(path):
    return subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                           "cat", path], capture_output=True).returncode


def set_list(path, *, owner=7, nobody=None, group=5, mask=7, others=5):
    """With an entry for nobody, or for somebody else."""
    none = 0xffffffff
    user = (0x02, 0, 4711) if nobody is None else (0x02, nobody, NOBODY)
    entries = [(0x01, owner, none), user, (0x04, group, none), (0x10, mask, none),
               (0x20, others, none)]
    os.setxattr(path, ACL,
                struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries))


def for_others(fs):
    os.chmod(os.path.dirname(fs.path), 0o755)
    return fs


@with_mounts
def lists_below_a_top_without():
    """ramfs has no lists: its files go by their modes, and those of others by their lists."""
    root = tempfile.mkdtemp(dir=scratch)
    mount_at("ramfs", root)
    mount_at("tmpfs", os.path.join(root, "inside"))
    for folder in (root, os.path.join(root, "inside")):
        os.chmod(folder, 0o755)
    plain, closed = put(root, "plain"), put(root, "closed", mode=0o600)
    listed, allowed = put(root, "inside/listed"), put(root, "inside/allowed", mode=0o600)
    raises(errno.EOPNOTSUPP, lambda: set_list(plain))
    os.chown(listed, 0, NOBODY)
    set_list(listed, owner=6, group=0, mask=4, others=0)
    assert os.stat(listed).st_mode & 0o777 == 0o640, "the mask stands for the group"
    set_list(allowed, owner=6, nobody=4, group=0, mask=4, others=0)
    fs = for_others(Shade(root, capacity="8M", allow_other=True))
    for path in (plain, closed, listed, allowed):
        name = os.path.relpath(path, root)
        assert read(fs.at(name)) == b"data"
        refused = path in (closed, listed)
        assert as_nobody(path) == refused, f"{name} at the source"
        assert as_nobody(fs.at(name)) == refused, name
    fs.end()


@with_mounts
def no_lists_below_a_top_with():
    root = tempfile.mkdtemp(dir=scratch)
    mount_at("tmpfs", root)
    mount_at("ramfs", os.path.join(root, "inside"))
    os.chmod(root, 0o755)
    set_list(root)
    os.chmod(os.path.join(root, "inside"), 0o755)
    put(root, "inside/plain")
    put(root, "inside/closed", mode=0o600)
    fs = for_others(Shade(root, capacity="8M", allow_other=True))
    assert as_nobody(fs.at("inside/plain")) == 0
    assert as_nobody(fs.at("inside/closed")) == 1
    assert read(fs.at("inside/closed")) == b"data"
    fs.end()


def the_list_of_the_top():
    """Its mode is the same with nobody in it and without."""
    root, contents = make_tree(2, size=1000)
    path = next(iter(contents))
    set_list(root, nobody=5, group=0, mask=5, others=0)
    mode = os.stat(root).st_mode
    fs = for_others(Shade(root, capacity="8M", staleness=0.5, allow_other=True))
    assert as_nobody(fs.at(path)) == 0
    for nobody in (0, 5, None, 5):
        set_list(root, nobody=nobody, group=0, mask=5, others=0)
        assert os.stat(root).st_mode == mode
        wait_until(lambda: as_nobody(fs.at(path)) == (nobody != 5), f"noticed: {nobody}")
        assert read(fs.at(path)) == contents[path]
    os.removexattr(root, ACL)
    os.chmod(root, mode & 0o7777)
    wait_until(lambda: as_nobody(fs.at(path)) == 1, "noticed that there is none")
    assert read(fs.at(path)) == contents[path]
    fs.end()


class Inside:
    """Nobody, in a directory. It reads what it is told to, by relative paths."""

    SCRIPT = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(open(line.rstrip("\\n")).read(), flush=True)
    except OSError as failure:
        print("errno", failure.errno, flush=True)
"""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
             "/usr/bin/python3", "-c", self.SCRIPT], cwd=folder, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def read(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(20) == 0


def a_directory_is_closed_while_somebody_is_in_it():
    root, _ = make_tree(2, size=1000)
    os.chmod(root, 0o755)
    folder = os.path.join(root, "folder")
    old, deep = put(folder, "old"), put(folder, "open/deep")
    for path in (folder, os.path.dirname(deep)):
        os.chmod(path, 0o755)
    fs = for_others(Shade(root, capacity="8M", staleness=0.5, allow_other=True))
    inside, deeper = Inside(fs.at("folder")), Inside(fs.at("folder/open"))
    assert inside.read("old") == "data" and deeper.read("deep") == "data"
    os.chmod(folder, 0o700)
    if MODE == "native":
        wait_until(lambda: as_nobody(fs.at("folder/old")) == 1, "closed by its path")
        wait_until(lambda: inside.read("missing") != f"errno {errno.ENOENT}", "closed from inside")
    else:
        time.sleep(2)  # nobody asks meanwhile
    put(folder, "new")
    for name in ("new", "old", "./new", "open/deep"):
        assert inside.read(name).startswith("errno"), name
    time.sleep(1)
    for name in ("new", "old"):
        assert inside.read(name).startswith("errno"), name
        assert as_nobody(fs.at("folder", name)) == 1, name
    # Who is farther down has passed already.
    assert deeper.read("deep") == "data"
    inside.end()
    deeper.end()
    for path in (old, os.path.join(folder, "new"), deep):
        name = os.path.relpath(path, root)
        wait_until(lambda: reads_as(fs.at(name), b"data"), f"root reads {name}")
    os.chmod(folder, 0o755)
    wait_until(lambda: as_nobody(fs.at("folder/new")) == 0, "open again")
    fs.end()


def the_top_is_closed():
    """The first who comes after a long time is refused. Native mode ends; see native.py."""
    if MODE == "native":
        return
    root, contents = make_tree(2, size=1000)
    os.chmod(root, 0o755)
    path = next(iter(contents))
    fs = for_others(Shade(root, capacity="8M", staleness=0.5, allow_other=True))
    assert as_nobody(fs.at(path)) == 0
    os.chmod(root, 0o700)
    time.sleep(2)
    assert as_nobody(fs.at(path)) == 1
    assert read(fs.at(path)) == contents[path]
    fs.end()


class Nested(Slow):
    """Inside a source, where its log is not to be."""
    log = os.path.join(scratch, "nested.log")


def kill_server(slow):
    """Its mount stays, and is dead."""
    slow.process.kill()
    slow.process.wait(60)
    raises(errno.ENOTCONN, lambda: os.stat(slow.path))


@with_mounts
def a_dead_mount_inside():
    """It is left out, and all else is there."""
    root, contents = make_tree(12, size=1000)
    other, inside = make_tree(4, size=1000, seed=2)
    point = os.path.join(root, "class0", "nested")
    os.mkdir(point)
    slow = Nested(other, point=point)
    kill_server(slow)
    manifest = os.path.join(scratch, "dead.manifest")
    wait_for_the_clock(root, os.path.join(root, "class0"))
    fs = Shade(root, capacity="8M", staleness=0.3, manifest=manifest)
    assert fs.stats()["names_left_out"] == 1, fs.stats()
    assert sorted(fs.samples()) == sorted(contents)
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    assert "nested" not in os.listdir(fs.at("class0"))
    raises(errno.ENOENT, lambda: os.stat(fs.at("class0", "nested")))
    end = time.monotonic() + 2
    while time.monotonic() < end:
        os.listdir(fs.at("class0"))
    told = fs.read_log().count("nested cannot be looked at")
    assert told == 1, fs.read_log()
    # It lives again, and is found by this mount and by the next one.
    for again in (False, True):
        if again:
            fs = Shade(root, capacity="8M", staleness=0.3, manifest=manifest)
        else:
            slow.kill()
            running.remove(slow)
            slow = Nested(other, point=point)
        wait_until(lambda: os.path.isdir(fs.at("class0", "nested")), "it is there again")
        # What was below the dead mount may have been looked at in between, and is another directory.
        for path, data in inside.items():
            at = fs.at("class0", "nested", path)
            wait_until(lambda: reads_as(at, data), f"{at} is read")
        assert fs.stats()["names_left_out"] == 0, fs.stats()
        if not again:
            fs.end()
    # It dies while it is in use.
    kill_server(slow)
    wait_until(lambda: "nested" not in os.listdir(fs.at("class0")), "left out")
    assert fs.stats()["names_left_out"] == 1, fs.stats()
    assert fs.control("rescan\n").startswith("ok")
    wait_until(lambda: sorted(fs.samples()) == sorted(contents), "numbered without it")
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    fs.end()


def fetching_ahead_renews_no_permissions():
    """The daemon looks up what it fetches ahead, and answers itself with what it knows. Nobody else
    may go by that."""
    root, contents = make_tree(40, size=5000)
    os.chmod(root, 0o755)
    fs = for_others(Shade(root, capacity="8M", staleness=0.5, allow_other=True))
    folder = os.path.dirname(next(iter(contents)))
    closed = [path for path in contents if os.path.dirname(path) == folder]
    assert as_nobody(fs.at(closed[0])) == 0
    os.chmod(os.path.join(root, folder), 0o700)
    time.sleep(1.5)  # nobody looks meanwhile, so the mount does not know
    fs.control("order 0 begin\n" + "".join(f"order 0 {fs.samples()[path]}\n" for path in closed) +
               "order 0 end\n")
    wait_until(lambda: fs.stats()["resident_samples"] == len(closed), "fetched ahead")
    for path in closed:
        assert as_nobody(fs.at(path)) == 1, path
    fs.end()


run_tests([fetching_ahead_renews_no_permissions,
           a_directory_is_closed_while_somebody_is_in_it, the_top_is_closed,
           lists_below_a_top_without, no_lists_below_a_top_with, the_list_of_the_top,
           a_dead_mount_inside, times_far_away, atimes_stay, file_systems_inside,
           a_file_system_without_direct_reads])
