# SPDX-License-Identifier: LGPL-2.1-or-later
"""A source whose file system dies and is mounted again at the same place is found again, with every
byte right, whatever was changed meanwhile. Something else that is mounted there is not used."""
import os
import shutil
import signal
import subprocess
import tempfile

from common import SHADECTL, Shade, Slow, hold_in_memory, make_tree, read, run_tests, running, \
    scratch, wait_until


def die(slow):
    """Its server dies; the mount stays, and gives errors."""
    slow.process.send_signal(signal.SIGKILL)
    slow.process.wait(60)
    running.remove(slow)


def unmount(path):
    subprocess.run(["umount", "-l", path], check=True)


def status(fs):
    return subprocess.run([SHADECTL, "status", fs.path], capture_output=True, text=True,
                          check=True).stdout


def fails(path):
    try:
        read(path)
    except OSError:
        return True
    return False


def is_gone(fs, path, value=1):
    """The daemon notices when it asks the source for something."""
    fails(fs.at(path))
    return fs.stats()["source_gone"] == value


def all_right(fs, contents):
    for path, data in contents.items():
        wait_until(lambda path=path, data=data: reads_as_now(fs.at(path), data), f"{path} is right")


def reads_as_now(path, data):
    """Whether it is this version by now."""
    try:
        return read(path) == data
    except OSError:
        return False


def change(root, contents, paths):
    for path in paths:
        contents[path] = os.urandom(len(contents[path]))  # as long as before
        with open(os.path.join(root, path), "wb") as file:
            file.write(contents[path])


def mounted_again():
    root, contents = make_tree(40)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M")
    paths = list(contents)
    wait_until(lambda: fs.stats()["young"] == 0, "all are old enough to be kept")
    for path in paths[:30]:
        assert read(fs.at(path)) == contents[path]
    fs.settle()
    with hold_in_memory(fs.at(path) for path in paths[:30]):
        die(slow)
        wait_until(lambda: is_gone(fs, paths[-1]), "noticed")
        assert "mount it again at the same place" in " ".join(status(fs).split()), status(fs)
        for path in paths[:30]:  # what is in memory is served
            assert read(fs.at(path)) == contents[path]
    unmount(slow.path)
    change(root, contents, paths[::3])
    contents["class0/new"] = b"new"
    with open(os.path.join(root, "class0/new"), "wb") as file:
        file.write(b"new")
    again = Slow(root, point=slow.path)
    wait_until(lambda: fs.stats()["source_gone"] == 0, "found again")
    all_right(fs, contents)
    assert sorted(os.listdir(fs.at("class0"))) == sorted(os.listdir(os.path.join(root, "class0")))
    assert "the source's file system has ended" not in status(fs)
    die(again)  # and once more, without changes
    wait_until(lambda: is_gone_by_listing(fs), "noticed")
    unmount(slow.path)
    again = Slow(root, point=slow.path)
    wait_until(lambda: fs.stats()["source_gone"] == 0, "found again")
    all_right(fs, contents)
    fs.end()
    again.end()


def is_gone_by_listing(fs):
    fs.control("rescan\n")
    return fs.stats()["source_gone"] == 1


def a_copy_in_a_folder():
    """The source is a folder of the mount, and all inode numbers are others afterwards."""
    root, contents = make_tree(20)
    top = tempfile.mkdtemp(dir=scratch)
    os.mkdir(os.path.join(top, "a folder"))
    first, second = (os.path.join(top, "a folder", name) for name in ("first", "data"))
    shutil.copytree(root, second)
    slow = Slow(top)
    fs = Shade(os.path.join(slow.path, "a folder", "data"), capacity="8M")
    paths = list(contents)
    for path in paths[:10]:
        assert read(fs.at(path)) == contents[path]
    die(slow)
    wait_until(lambda: is_gone(fs, paths[-1]), "noticed")
    unmount(slow.path)
    os.rename(second, first)
    shutil.copytree(first, second)
    change(second, contents, paths[::2])
    again = Slow(top, point=slow.path)
    wait_until(lambda: fs.stats()["source_gone"] == 0, "found again")
    all_right(fs, contents)
    fs.end()
    again.end()


def something_else_is_not_used():
    root, contents = make_tree(10)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M")
    paths = list(contents)
    die(slow)
    wait_until(lambda: is_gone(fs, paths[0]), "noticed")
    unmount(slow.path)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", slow.path], check=True)
    for path in paths:
        os.makedirs(os.path.dirname(os.path.join(slow.path, path)), exist_ok=True)
        with open(os.path.join(slow.path, path), "wb") as file:
            file.write(b"planted")
    wait_until(lambda: fs.stats()["source_gone"] == 2, "noticed, too")
    assert "another" in status(fs), status(fs)
    for path in paths:
        assert not reads_as_now(fs.at(path), b"planted"), path
    # A link, or nothing, is not followed.
    unmount(slow.path)
    os.rmdir(slow.path)
    os.symlink(root, slow.path)
    wait_until(lambda: fs.stats()["source_gone"] == 1, "nothing is mounted there")
    assert fails(fs.at(paths[0]))
    os.unlink(slow.path)
    os.mkdir(slow.path)
    again = Slow(root, point=slow.path)
    wait_until(lambda: fs.stats()["source_gone"] == 0, "found again")
    all_right(fs, contents)
    fs.end()
    again.end()


run_tests([mounted_again, a_copy_in_a_folder, something_else_is_not_used])
