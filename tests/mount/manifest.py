# SPDX-License-Identifier: LGPL-2.1-or-later
"""manifest=FILE: what one mount has learnt of the source, the next one need not ask again; and what
is not true any more, or never was, costs time and nothing else."""
import errno
import os
import subprocess
import tempfile
import time

from common import SHADEFS, Shade, Slow, make_tree, raises, read, run_tests, scratch, wait_until

SETTLED = 2.2  # directories that changed just before they were read are not trusted


def aged_tree(*arguments, **options):
    """A tree that nobody has changed for a moment, and a place for a manifest beside it."""
    root, contents = make_tree(*arguments, **options)
    time.sleep(SETTLED)
    return root, contents, os.path.join(tempfile.mkdtemp(prefix="manifest-", dir=scratch), "list")


def asked(slow):
    counts = slow.counts()
    return {key: int(counts[key]) for key in ("lookups", "getattrs", "readdirs", "readdirplus",
                                              "opens")}


def settled(fs, manifest, before=None):
    """Waits until the manifest is there, and another one."""
    wait_until(lambda: os.path.exists(manifest) and (before is None or read(manifest) != before),
               "the manifest is written")
    assert os.listdir(os.path.dirname(manifest)) == ["list"], "something was left"
    return read(manifest)


def in_place(root, path, data):
    """Changes a file so that its directory stays as it is."""
    with open(os.path.join(root, path), "r+b") as file:
        file.truncate(0)
        file.write(data)


def check_all(fs, contents):
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path


def the_second_mount_asks_once_a_directory():
    root, contents, manifest = aged_tree(400, size=2000, folders=8)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", manifest=manifest)
    written = settled(fs, manifest)
    assert written.count(b"\nd ") == 9 and written.count(b"\ne ") == 408, written[-100:]
    assert os.stat(manifest).st_mode & 0o777 == 0o600
    samples = fs.samples()
    first = asked(slow)
    assert first["readdirs"] + first["readdirplus"] > 0 and first["lookups"] >= 400, first
    fs.end()
    stamp = os.stat(manifest)
    slow.tell("reset")
    fs = Shade(slow.path, capacity="8M", manifest=manifest)
    second = asked(slow)
    assert second["readdirs"] + second["readdirplus"] == 0, second
    assert second["opens"] == 0, second
    # A question to slowfs is a lookup, and perhaps a getattr; asked before the mount and by it.
    assert second["lookups"] + second["getattrs"] <= 3 * 9, second
    assert fs.samples() == samples
    check_all(fs, contents)
    time.sleep(0.2)
    after = os.stat(manifest)
    assert (after.st_ino, after.st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns), "written again"
    fs.end()
    slow.end()


def changed_directories_are_read_again():
    root, contents, manifest = aged_tree(40)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", manifest=manifest)
    before = settled(fs, manifest)
    fs.end()
    paths = sorted(contents)
    os.unlink(os.path.join(root, paths[0]))
    del contents[paths[0]]
    os.mkdir(os.path.join(root, "class1", "deeper"))
    for path in ("class0/added.bin", "class1/deeper/added.bin"):
        contents[path] = path.encode()
        with open(os.path.join(root, path), "wb") as file:
            file.write(contents[path])
    time.sleep(SETTLED)
    slow.tell("reset")
    fs = Shade(slow.path, capacity="8M", manifest=manifest)
    counts = asked(slow)
    # 20 files are in directories that changed, 20 in others.
    assert 20 <= counts["lookups"] < 40, counts
    assert fs.samples() == {path: number for number, path in
                            enumerate(sorted(contents, key=lambda path: path.split("/")))}
    check_all(fs, contents)
    assert b"added.bin" in settled(fs, manifest, before)
    fs.end()
    slow.end()


def new_version(path, data):
    try:
        return read(path) == data
    except OSError:
        return False


def files_changed_in_place():
    root, contents, manifest = aged_tree(12, folders=3)
    small, large, empty, filled = sorted(contents)[:4]
    contents[filled] = b""
    in_place(root, filled, b"")
    fs = Shade(root, capacity="1M", manifest=manifest)
    settled(fs, manifest)
    fs.end()
    contents[small] = b"s" * len(contents[small])
    contents[large] = os.urandom(1 << 20)  # read by ranges now
    contents[empty] = b""
    contents[filled] = b"no longer empty"
    for path in (small, large, empty, filled):
        in_place(root, path, contents[path])
    fs = Shade(root, capacity="1M", manifest=manifest)
    for path, data in contents.items():
        try:
            assert read(fs.at(path)) == data, path
        except OSError as failure:
            assert failure.errno in (errno.ESTALE, errno.EIO), failure
            wait_until(lambda: new_version(fs.at(path), data), f"the new version of {path}")
        assert os.stat(fs.at(path)).st_size == len(data), path
    fs.control("rescan\n")
    wait_until(lambda: b" 1048576 " in read(manifest), "the manifest has the new version")
    fs.end()


def permissions_are_of_today():
    root, contents, manifest = aged_tree(6, folders=3)
    os.chmod(root, 0o755)
    time.sleep(SETTLED)
    fs = Shade(root, capacity="8M", manifest=manifest)
    settled(fs, manifest)
    fs.end()
    hidden, secret = "class0", next(path for path in contents if path.startswith("class1"))
    os.chmod(os.path.join(root, hidden), 0o700)
    os.chmod(os.path.join(root, secret), 0o600)
    fs = Shade(root, capacity="8M", manifest=manifest, allow_other=True)
    os.chmod(scratch, 0o755)
    for path in contents:
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               "cat", fs.at(path)], capture_output=True)
        may = not path.startswith(hidden) and path != secret
        assert (done.returncode == 0) == may, (path, done.stderr)
    fs.end()


def what_just_changed_is_not_trusted():
    """A clock of two seconds could hide the next change."""
    root, contents = make_tree(9, folders=3)
    time.sleep(SETTLED)
    with open(os.path.join(root, "class0", "late"), "w") as file:
        file.write("late")
    manifest = os.path.join(tempfile.mkdtemp(prefix="manifest-", dir=scratch), "list")
    fs = Shade(root, capacity="8M", manifest=manifest)
    before = settled(fs, manifest)
    assert before.count(b"\nd ") == 3 and b" /class0\n" not in before, before
    fs.end()
    time.sleep(SETTLED)
    fs = Shade(root, capacity="8M", manifest=manifest)
    assert b" /class0\n" in settled(fs, manifest, before)
    fs.end()


def bad_manifests_are_refused():
    root, contents, manifest = aged_tree(20)
    fs = Shade(root, capacity="8M", manifest=manifest)
    good = settled(fs, manifest)
    fs.end()
    lines = good.split(b"\n")
    for bad, words in ((good[:len(good) // 2], "line"), (b"", "line 1"), (b"\0" * 5000, "line 1"),
                       (good.replace(b"sample00001", b"sample00000"), "line"),
                       (b"\n".join(lines[:2] + [b"e 1 1 1 1 100644 0 0 1 ../etc/passwd"]),
                        "line 3"),
                       (good.replace(b" 100644 ", b" 100666 "), "damaged")):
        with open(manifest, "wb") as file:
            file.write(bad)
        fs = Shade(root, capacity="8M", manifest=manifest)
        assert settled(fs, manifest, bad) == good
        check_all(fs, contents)
        text = fs.read_log()
        assert text.count("shadefs: manifest") == 1 and manifest in text and words in text, text
        fs.end()


def manifests_of_others_are_refused():
    root, contents, manifest = aged_tree(8)
    fs = Shade(root, capacity="8M", manifest=manifest)
    good = settled(fs, manifest)
    fs.end()

    def mount(words):
        fs = Shade(root, capacity="8M", manifest=manifest)
        check_all(fs, contents)
        wait_until(lambda: os.path.isfile(manifest) and os.stat(manifest).st_mode & 0o22 == 0
                   and os.stat(manifest).st_uid == 0 and read(manifest) == good, "written again")
        assert words in fs.read_log(), fs.read_log()
        fs.end()

    os.chmod(manifest, 0o666)
    mount("others may write")
    os.chown(manifest, 65534, 65534)
    mount("somebody else")
    os.unlink(manifest)
    os.mkfifo(manifest)
    mount("not a file")


def a_manifest_that_cannot_be_written():
    root, contents, manifest = aged_tree(8)
    place = os.path.dirname(manifest)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], check=True)
    try:
        with open(os.path.join(place, "full"), "wb") as file:
            file.write(b"x" * 4096)
        fs = Shade(root, capacity="8M", manifest=manifest)
        wait_until(lambda: "cannot be written" in fs.read_log(), "it is said")
        check_all(fs, contents)
        assert os.listdir(place) == ["full"], "something was left"
        fs.end()
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        fs = Shade(root, capacity="8M", manifest=manifest)
        wait_until(lambda: "cannot be written" in fs.read_log(), "it is said")
        check_all(fs, contents)
        fs.end()
    finally:
        subprocess.run(["umount", place], check=True)


def places_that_make_no_sense():
    root, _ = make_tree(1)
    point = tempfile.mkdtemp(prefix="point-", dir=scratch)
    for manifest, words in (("/nonexistent/list", "/nonexistent/list"), (scratch, "directory"),
                            (os.path.join(root, "class0", "list"), "source"),
                            (os.path.join(point, "list"), "mount point")):
        done = subprocess.run([SHADEFS, "-o", f"manifest={manifest}", root, point],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "manifest" in done.stderr and words in done.stderr, done
        assert done.stderr.count("\n") == 1, done.stderr
    raises(errno.ENOENT, lambda: os.stat(os.path.join(root, "class0", "list")))


run_tests([the_second_mount_asks_once_a_directory, changed_directories_are_read_again,
           files_changed_in_place, permissions_are_of_today, what_just_changed_is_not_trusted,
           bad_manifests_are_refused, manifests_of_others_are_refused,
           a_manifest_that_cannot_be_written, places_that_make_no_sense])
