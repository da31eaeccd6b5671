# SPDX-License-Identifier: LGPL-2.1-or-later
"""Folders of a mount that are bound elsewhere, as container engines do (docker -v MNT/train:/data):
libshade finds .shade by SHADE_CONTROL, or says what to bind, and paths mean the right files. In a mount
namespace of its own."""
import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile

if "SHADE_TEST_INSIDE" not in os.environ:
    if not shutil.which("unshare"):
        print("SKIP: there is no unshare(1) here")
        sys.exit(77)
    os.environ["SHADE_TEST_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])

from common import (MODE, SHADECTL, Shade, is_sanitized, make_tree, read, run_tests, scratch, skip,
                    wait_until)

if is_sanitized():
    skip("a library with a sanitizer cannot be loaded here")
lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.realpath(SHADECTL)), "libshade.so"))
for name in ("shade_error", "shade_path", "shade_prefix"):
    getattr(lib, name).restype = ctypes.c_char_p


class Handle:
    """Of libshade; a failure is an OSError with its sentence."""

    def __init__(self, path, control=None):
        self.shade = ctypes.c_void_p()
        set_control(control)
        self.call(lib.shade_open, os.fsencode(path), None, ctypes.byref(self.shade))

    @staticmethod
    def call(function, *words):
        rc = function(*words)
        if rc < 0:
            raise OSError(-rc, lib.shade_error().decode())
        return rc

    def place(self):
        return os.fsdecode(lib.shade_path(self.shade)), os.fsdecode(lib.shade_prefix(self.shade))

    def register(self, *paths):
        self.call(lib.shade_register, self.shade,
                  (ctypes.c_char_p * len(paths))(*map(os.fsencode, paths)),
                  ctypes.c_uint32(len(paths)))

    def scores(self, ids, values):
        self.call(lib.shade_scores, self.shade, (ctypes.c_uint32 * len(ids))(*ids),
                  (ctypes.c_float * len(ids))(*values), ctypes.c_uint32(len(ids)))

    def warm(self, path):
        self.call(lib.shade_warm, self.shade, os.fsencode(path))

    def close(self):
        lib.shade_close(self.shade)


def set_control(path):
    """os.environ calls putenv(), so that C sees it, too."""
    if path is None:
        os.environ.pop("SHADE_CONTROL", None)
    else:
        os.environ["SHADE_CONTROL"] = path


def bind(path):
    """As `docker -v` does, with all that is mounted below."""
    point = tempfile.mkdtemp(prefix="bind ", dir=scratch)
    subprocess.run(["mount", "--rbind", path, point], check=True)
    return point


def release(*points):
    for point in points:
        subprocess.run(["umount", "-R", "-l", point], check=True)


def refusal(*words):
    try:
        Handle(*words).close()
    except OSError as failure:
        return failure
    raise AssertionError("opened")


def tree_of_two_levels():
    """class1/ has files, and a folder with a link to one of them."""
    root, contents = make_tree(12)
    os.mkdir(os.path.join(root, "class1", "deep"))
    os.symlink("../sample00001.bin", os.path.join(root, "class1", "deep", "link"))
    return root, contents


def scores_of(fs):
    with open(fs.at(".shade", "scores")) as file:
        return {int(line.split()[0]): float(line.split()[1]) for line in file}


def without_control_it_says_what_to_bind():
    root, _ = tree_of_two_levels()
    fs = Shade(root, capacity="8M")
    data = bind(fs.at("class1"))
    failure = refusal(data)
    for word in ("/class1", "bind", ".shade", "SHADE_CONTROL"):
        assert word in failure.strerror, failure
    assert failure.errno == errno.ENXIO, failure
    failure = refusal(os.path.join(data, "sample00001.bin"), "/nonexistent")
    assert failure.errno == errno.ENXIO and "/nonexistent" in failure.strerror, failure
    failure = refusal(data, root)
    assert failure.errno == errno.ENXIO and "no .shade" in failure.strerror, failure
    assert refusal(root, fs.at(".shade")).errno == errno.ENODEV, "not a shadefs at all"
    set_control(None)
    done = subprocess.run([SHADECTL, "status", data], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "SHADE_CONTROL" in done.stderr, done
    release(data)
    fs.end()


def with_it_paths_are_right():
    root, contents = tree_of_two_levels()
    fs = Shade(root, capacity="8M")
    ids = fs.samples()
    data, control = bind(fs.at("class1")), bind(fs.at(".shade"))
    for path in (data, os.path.join(data, "deep"), os.path.join(data, "sample00001.bin")):
        handle = Handle(path, control)
        assert handle.place() == (data, "class1"), handle.place()
        handle.close()
    handle = Handle(data, control)
    names = [f"sample{number:05}.bin" for number in (9, 1, 5)]
    handle.register(os.path.join(data, names[0]), names[1], os.path.join(data, "deep/..", names[2]),
                    os.path.join(data, "deep/link"))
    assert fs.stats()["reads_samples"] == 3, "coverage is of what the table has"
    handle.scores([0, 1, 2], [3, 4, 5])
    found = scores_of(fs)
    assert [found[ids["class1/" + name]] for name in names] == [3, 4, 5], found
    handle.scores([3], [7])  # through the link
    assert scores_of(fs)[ids["class1/" + names[1]]] == 7
    handle.warm(os.path.join(data, names[0]))
    wait_until(lambda: fs.stats()["resident_samples"] == 1, "warmed")
    bits = read(fs.at(".shade", "resident"))
    assert bits[ids["class1/" + names[0]] // 8] >> ids["class1/" + names[0]] % 8 & 1, "that one"
    handle.warm(data)  # the whole folder
    wait_until(lambda: fs.stats()["resident_samples"] == 3, "warmed")
    try:
        handle.register(os.path.join(fs.path, "class0/sample00000.bin"))
        raise AssertionError("taken")
    except OSError as failure:
        assert failure.errno == errno.EXDEV, failure
    handle.close()
    done = subprocess.run([SHADECTL, "score", data, names[2], "9"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0 and scores_of(fs)[ids["class1/" + names[2]]] == 9, done
    assert read(os.path.join(data, names[0])) == contents["class1/" + names[0]]
    release(data, control)
    fs.end()


def the_whole_mount_needs_nothing():
    root, _ = tree_of_two_levels()
    fs = Shade(root, capacity="8M")
    whole = bind(fs.path)
    handle = Handle(os.path.join(whole, "class1"))
    assert handle.place() == (whole, ""), handle.place()
    handle.register(os.path.join(whole, "class1/sample00001.bin"))
    handle.close()
    release(whole)
    # Not recursive: native mode's .shade, which is a mount, does not come along.
    point = tempfile.mkdtemp(dir=scratch)
    subprocess.run(["mount", "--bind", fs.path, point], check=True)
    if MODE == "native":
        assert refusal(point).errno == errno.ENXIO
    handle = Handle(point, fs.at(".shade"))
    assert handle.place() == (point, ""), handle.place()
    handle.close()
    release(point)
    fs.end()


def anothers_control_is_refused():
    mounts = [Shade(tree_of_two_levels()[0], capacity="8M") for _ in range(2)]
    data = bind(mounts[0].at("class1"))
    failure = refusal(data, mounts[1].at(".shade"))
    assert failure.errno == errno.ENXIO and "another mount" in failure.strerror, failure
    Handle(data, mounts[0].at(".shade")).close()
    release(data)
    for fs in mounts:
        fs.end()


run_tests([without_control_it_says_what_to_bind, with_it_paths_are_right,
           the_whole_mount_needs_nothing, anothers_control_is_refused])
