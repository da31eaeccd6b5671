# SPDX-License-Identifier: LGPL-2.1-or-later
"""Users who may rename, mount and make things in a part of the source: what they may not read at the
source, they may not read through the mount; and they take nothing away from others."""
import ctypes
import errno
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile

from common import (Shade, Slow, make_tree, raises, read, reads_as, run_tests,
                    scratch, wait_until)

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
RENAME_EXCHANGE = 2

os.chmod(scratch, 0o755)  # others come to the mounts

EXCHANGE = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
a, b = (os.fsencode(name) for name in sys.argv[1:])
if libc.renameat2(-100, a, -100, b, {RENAME_EXCHANGE}):
    raise OSError(ctypes.get_errno(), "renameat2")
"""


def as_nobody(code, *arguments, **how):
    """Starts Python as another user, without the variables that are for root's."""
    return subprocess.Popen([*AS_NOBODY, sys.executable, "-I", "-c", code, *arguments],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **how)


def exchange(root, a, b):
    process = as_nobody(EXCHANGE, os.path.join(root, a), os.path.join(root, b))
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def put(path, data, mode=0o604):
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def make_shared(sizes):
    """A directory where everybody may rename, with one that all may enter and one that is closed.
    Both have files of the same names and sizes. Nowhere has the group a right, so that the kernel
    asks for no access control list, which would show first that a file is another."""
    root = tempfile.mkdtemp(prefix="source-", dir=scratch)
    os.chmod(root, 0o755)
    os.mkdir(os.path.join(root, "shared"))
    os.chmod(os.path.join(root, "shared"), 0o777)
    for folder, letter in (("open", b"o"), ("closed", b"c")):
        path = os.path.join(root, "shared", folder)
        os.mkdir(path)
        for name, size in sizes.items():
            put(os.path.join(path, name), letter * size)
        put(os.path.join(path, f"only-{folder}"), letter * 100)
        os.symlink(f"target-{folder}", os.path.join(path, "link"))
        os.chmod(path, 0o705)
    os.chmod(os.path.join(root, "shared", "closed"), 0o700)
    return root


READ = """
import sys
try:
    sys.stdout.write(open(sys.argv[1]).read())
except OSError as failure:
    sys.stderr.write(str(failure.errno))
"""


def names_that_are_exchanged_during_a_read():
    """A fetch opens the closed directory's file, and that has another path when it is compared. What
    was renamed is a directory, so the file's own times are what they were."""
    sizes = {"small": 5000, "large": 3 << 20}
    root = make_shared(sizes)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=60, allow_other=True)
    for name, size in sizes.items():
        path = f"shared/open/{name}"
        os.stat(fs.at(path))
        slow.tell(f"fault hang /{path}")
        exchange(root, "shared/open", "shared/closed")
        reader = as_nobody(READ, fs.at(path))
        wait_until(slow.hangs, "the file that is there now is being read")
        exchange(root, "shared/open", "shared/closed")
        slow.tell("clear all")
        text, errors = reader.communicate(timeout=60)
        assert "c" not in text, f"{name}: {text.count('c')} bytes of a closed directory"
        assert text == "o" * size or errors in map(str, (errno.ESTALE, errno.EIO)), errors
        wait_until(lambda: reads_as(fs.at(path), b"o" * size), "it is read as it is")
    wait_until(lambda: not open_below(fs, slow.path), "nothing is open")
    fs.end()
    slow.end()


def open_below(fs, path):
    """What the daemon has open there."""
    folder = f"/proc/{fs.process.pid}/fd"
    found = []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(os.path.join(folder, name)))
        except FileNotFoundError:
            pass
    return [target for target in found if target.startswith(path + "/")]


def reads_that_are_given_up_leave_nothing_open():
    """Both while the path is resolved and while the file is read."""
    root, contents = make_tree(8)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=60, deadline=1)
    first, second, *others = contents
    for path in contents:
        os.stat(fs.at(path))
    slow.tell(f"fault hang /{first}")
    raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(first)))
    slow.tell("clear all")
    slow.pause()
    try:
        raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(second)))
    finally:
        slow.resume()
    for path in (first, second, *others):
        wait_until(lambda: reads_as(fs.at(path), contents[path]), f"{path} is read")
    wait_until(lambda: not open_below(fs, slow.path), "nothing is open")
    fs.end()
    slow.end()


# In the directory that was open, and by its path, until the time has passed: what can be seen.
LOOK = """
import os, sys, time
os.chdir(sys.argv[1])
names = set(os.listdir())
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + float(sys.argv[2])
def attempt(work, *arguments):
    try:
        return work(*arguments)
    except OSError:
        return ""
def read(path):
    with open(path) as file:
        return file.read()
seen = set()
while time.monotonic() < end:
    for base in (".", sys.argv[1]):
        names.update(attempt(os.listdir, base))
        seen.add(attempt(os.readlink, base + "/link"))
        for name in ("small", "only-closed", "only-open"):
            seen.add(attempt(read, base + "/" + name)[:1])
            attempt(os.stat, base + "/" + name)
print(*sorted(names | seen))
"""


def directories_that_are_exchanged():
    """Nobody hurries: whoever was let into a directory finds in it what is in that one."""
    root = make_shared({"small": 5000})
    fs = Shade(root, capacity="8M", staleness=0.2, allow_other=True)
    for first in ("open", "closed"):  # the second time all is as it was, for whoever is inside
        looker = as_nobody(LOOK, fs.at("shared", "open"), "1")
        assert looker.stdout.readline() == "ready\n", looker.communicate()
        exchange(root, "shared/open", "shared/closed")
        if first == "closed":
            exchange(root, "shared/open", "shared/closed")
        seen, errors = looker.communicate("\n", timeout=60)
        assert looker.returncode == 0, errors
        found = set(seen.split())
        assert not found & {"c", "only-closed", "target-closed"}, found
        assert {"small", "only-open"} <= found, found
        if first == "open":
            # Names find what is there now: the one is closed, the other has become readable.
            for name, text, error in (("open", "", errno.EACCES), ("closed", "o" * 5000, "")):
                wait_until(lambda: as_nobody(READ, fs.at("shared", name, "small")).communicate()
                           == (text, str(error)), f"{name} is the other directory")
            exchange(root, "shared/open", "shared/closed")
            wait_until(lambda: as_nobody(READ, fs.at("shared/open/small")).communicate()[0]
                       == "o" * 5000, "all is as it was")
    fs.end()


def a_list_of_another_directory():
    """An access control list counts for the directory that has it."""
    root = make_shared({"small": 5000})
    mine, closed = (os.path.join(root, "shared", name) for name in ("mine", "closed"))
    os.mkdir(mine)
    os.chmod(mine, 0o770)
    os.chmod(closed, 0o770)  # the kernel asks for a list only if the group has some right
    everybody = 0xffffffff
    entries = [(0x01, 7, everybody), (0x02, 7, NOBODY), (0x04, 0, everybody), (0x10, 7, everybody),
               (0x20, 0, everybody)]  # nobody may do what the owner may
    os.setxattr(mine, "system.posix_acl_access", struct.pack("<I", 2) +
                b"".join(struct.pack("<HHI", *entry) for entry in entries))
    fs = Shade(root, capacity="8M", staleness=60, allow_other=True)
    path = fs.at("shared", "closed")
    for _ in range(2):
        exchange(root, "shared/mine", "shared/closed")
        names = as_nobody("import os, sys; print(*os.listdir(sys.argv[1]))", path).communicate()[0]
        assert "only-closed" not in names, "the list of another directory counts"
        assert as_nobody(READ, os.path.join(path, "small")).communicate()[0] == ""
    fs.end()


def users_mount(point):
    """What fusermount3 does for a user who is to be the only one to enter; users may have no
    /dev/fuse here. Nobody serves it, and nobody else is let in far enough to wait for that."""
    libc = ctypes.CDLL(None, use_errno=True)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id={NOBODY},group_id={NOBODY}"
    if libc.mount(b"mine", os.fsencode(point), b"fuse", 6, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    return fuse


def a_users_mount_in_the_source():
    """Root itself cannot look at it. What is beside it stays, also when it is gone."""
    root, contents = make_tree(8, folders=2)
    os.chmod(root, 0o755)
    point = os.path.join(root, "class0", "mine")
    os.mkdir(point)
    os.chown(point, NOBODY, NOBODY)
    put(os.path.join(point, "below"), b"below")
    fs = Shade(root, capacity="8M", staleness=0.2, allow_other=True)
    assert read(fs.at("class0/mine/below")) == b"below"
    fuse = users_mount(point)
    try:
        raises(errno.EACCES, lambda: os.stat(point))
        wait_until(lambda: os.listdir(fs.at("class0")) and fs.stats()["names_left_out"] == 1,
                   "it is left out")
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        wait_until(lambda: sorted(os.listdir(fs.at("class0"))) ==
                   sorted(os.path.basename(path) for path in contents if "class0" in path),
                   "the others are listed")
        raises(errno.ENOENT, lambda: os.stat(fs.at("class0/mine")))
    finally:
        subprocess.run(["umount", point], check=True)
        os.close(fuse)
    wait_until(lambda: reads_as(fs.at("class0/mine/below"), b"below"), "it is back")
    assert fs.stats()["names_left_out"] == 0
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path
    fs.end()


def look_like(mounted, source):
    """Names, types and numbers of devices. An overlay hides the device 0/0, so that one has another
    number in both modes."""
    assert sorted(os.listdir(mounted)) == sorted(os.listdir(source))
    for entry in os.scandir(source):
        there, here = os.lstat(os.path.join(mounted, entry.name)), entry.stat(follow_symlinks=False)
        assert stat.S_IFMT(there.st_mode) == stat.S_IFMT(here.st_mode), entry.name
        wanted = here.st_rdev or (1 if stat.S_ISCHR(here.st_mode) else 0)
        assert there.st_rdev == wanted, (entry.name, there.st_rdev)
        assert there.st_size == here.st_size or entry.is_dir(), entry.name


def devices_and_the_like():
    """An overlay takes some of them for marks of its own. None disappears, none opens a device."""
    root, contents = make_tree(4, folders=2)
    for number, (kind, major, minor) in enumerate([(stat.S_IFCHR, 0, 0), (stat.S_IFCHR, 1, 3),
                                                   (stat.S_IFCHR, 255, 70000),
                                                   (stat.S_IFBLK, 0, 0), (stat.S_IFBLK, 7, 1),
                                                   (stat.S_IFIFO, 0, 0)]):
        for folder in ("", "class0"):
            os.mknod(os.path.join(root, folder, f"node{number}"), kind | 0o666,
                     os.makedev(major, minor))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.join(root, "class0", "socket"))
    fs = Shade(root, capacity="8M", staleness=0.2, allow_other=True)
    for _ in range(2):
        for folder in ("", "class0", "class1"):
            here, there = os.path.join(root, folder), fs.at(folder)
            if not folder:  # .shade is the mount's own
                names = set(os.listdir(there)) - {".shade"}
                assert names == set(os.listdir(here)), names
            else:
                look_like(there, here)
        for number in range(5):
            raises((errno.EACCES, errno.ENXIO), lambda: os.open(fs.at(f"node{number}"),
                                                                os.O_RDONLY | os.O_NONBLOCK))
            assert os.lstat(fs.at(f"node{number}")).st_rdev != 0 or number == 3
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        # Another device takes the name of one.
        path = os.path.join(root, "class0", "node1")
        os.unlink(path)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        wait_until(lambda: os.lstat(fs.at("class0/node1")).st_rdev == os.makedev(1, 5),
                   "the new device is seen")
    fs.end()


def marks_of_an_overlay():
    """Attributes that would hide files, or show others in their place, do not reach the overlay."""
    root, contents = make_tree(6, folders=3)
    marks = {"class0": {"opaque": b"y", "redirect": b"/class1"}, "class1": {"opaque": b"x"},
             "class2": {"redirect": b"class0", "impure": b"y"}}
    for path in contents:
        marks[path] = {"metacopy": b"", "whiteout": b"y", "redirect": b"/class0/none"}
    libc = ctypes.CDLL(None, use_errno=True)
    for path, attributes in marks.items():
        for name, value in attributes.items():
            for space in ("trusted", "user"):
                full = f"{space}.overlay.{name}".encode()
                if libc.setxattr(os.fsencode(os.path.join(root, path)), full, value, len(value), 0):
                    assert ctypes.get_errno() in (errno.EOPNOTSUPP, errno.EPERM)
    fs = Shade(root, capacity="8M", allow_other=True)
    assert set(os.listdir(fs.path)) - {".shade"} == {"class0", "class1", "class2"}
    for folder in ("class0", "class1", "class2"):
        look_like(fs.at(folder), os.path.join(root, folder))
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path
    for path, attributes in marks.items():
        for name in attributes:
            for space in ("trusted", "user"):
                raises((errno.ENODATA, errno.EOPNOTSUPP),
                       lambda: os.getxattr(fs.at(path), f"{space}.overlay.{name}"))
    fs.end()


run_tests([names_that_are_exchanged_during_a_read, reads_that_are_given_up_leave_nothing_open,
           directories_that_are_exchanged, a_list_of_another_directory,
           a_users_mount_in_the_source, devices_and_the_like,
           marks_of_an_overlay])
