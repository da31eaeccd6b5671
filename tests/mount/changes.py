# SPDX-License-Identifier: LGPL-2.1-or-later
"""The source changes, and the mount notices: by itself after `staleness`, at once when told to
look; and nobody waits for a source that hangs who need not."""
import errno
import os
import threading
import time

from common import MODE, Shade, Slow, make_tree, raises, read, reads_as, run_tests, wait_until

STALENESS = 10  # seconds, where a test must be over before


def put(root, path, data):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "wb") as file:
        file.write(data)


def new_files_are_seen():
    """Below a directory that did not change, after one that did was read again."""
    root, contents = make_tree(8)
    fs = Shade(root, capacity="8M", staleness=1)
    for path in contents:
        assert read(fs.at(path)) == contents[path]
    put(root, "class0/new.bin", b"new")
    put(root, "class4/first.bin", b"first")
    wait_until(lambda: sorted(os.listdir(fs.path)) == [f"class{number}" for number in range(5)],
               "the new folder is listed")
    wait_until(lambda: "new.bin" in os.listdir(fs.at("class0")), "the new file is listed")
    wait_until(lambda: reads_as(fs.at("class0/new.bin"), b"new"), "the new file is read")
    wait_until(lambda: reads_as(fs.at("class4/first.bin"), b"first"), "and that of the new folder")
    fs.end()


def modes_of_directories_are_seen():
    root, _ = make_tree(4)
    fs = Shade(root, capacity="8M", staleness=1)
    assert os.stat(fs.at("class0")).st_mode & 0o777 == 0o755
    os.chmod(os.path.join(root, "class0"), 0o700)
    wait_until(lambda: os.stat(fs.at("class0")).st_mode & 0o777 == 0o700, "closed to others")
    fs.end()


def a_rescan_numbers_anew():
    root, contents = make_tree(40)
    fs = Shade(root, capacity="8M")
    for path in contents:
        assert read(fs.at(path)) == contents[path]
    paths = sorted(contents)
    assert fs.samples() == {path: number for number, path in enumerate(paths)}
    fs.control("".join(f"score {path} {number + 1}\n" for number, path in enumerate(paths)))
    gone, replaced, kept = paths[3], paths[5], paths[7]
    os.unlink(os.path.join(root, gone))
    put(root, replaced + ".new", b"replaced")
    os.rename(os.path.join(root, replaced + ".new"), os.path.join(root, replaced))
    for path in ("class0/a.bin", "class1/sub/b.bin", "new/c.bin"):
        put(root, path, path.encode())
        contents[path] = path.encode()
    contents[replaced] = b"replaced"
    del contents[gone]
    expected = {path: number for number, path in
                enumerate(sorted(contents, key=lambda path: path.split("/")))}
    assert fs.samples() != expected
    fs.control("rescan\n")
    wait_until(lambda: fs.samples() == expected, "numbered anew")
    # The kernel is told of it a moment later.
    wait_until(lambda: reads_as(fs.at(replaced), b"replaced"), "the new version is seen")
    wait_until(lambda: not os.path.exists(fs.at(gone)), "what is gone is gone")
    for path in contents:
        assert read(fs.at(path)) == contents[path], path
    raises(errno.ENOENT, lambda: read(fs.at(gone)))
    with open(fs.at(".shade", "scores")) as file:  # samples keep theirs under a new number
        scores = [float(line.split()[1]) for line in file]
    assert scores[expected[kept]] == 8 and scores[expected["class0/a.bin"]] < 0, scores
    assert fs.stats()["samples"] == len(contents)
    fs.end()


def a_hanging_directory():
    """Within `staleness` nobody waits. After it those do whose directory hangs, and nobody else."""
    root, contents = make_tree(8, folders=2)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", staleness=STALENESS, deadline=60)
    scanned = time.monotonic()
    hanging = [path for path in sorted(contents) if path.startswith("class0")]
    others = [path for path in sorted(contents) if path.startswith("class1")]
    for path in hanging[:2] + others:
        assert read(fs.at(path)) == contents[path]
    slow.tell("fault hangopen class0")
    fs.control("rescan\n")
    wait_until(slow.hangs, "the scan hangs")
    for path in hanging + others:  # resident or not, looked up before or not
        assert read(fs.at(path)) == contents[path]
    assert slow.hangs(), "somebody waited"
    assert time.monotonic() - scanned < STALENESS, "too slow to tell"
    time.sleep(scanned + STALENESS + 0.5 - time.monotonic())
    found = []
    waiter = threading.Thread(target=lambda: found.append(read(fs.at(hanging[0]))))
    waiter.start()
    time.sleep(0.5)
    for path in others:
        assert read(fs.at(path)) == contents[path]
    assert slow.hangs(), "others waited"
    # In native mode nobody asks: what the kernel has is read, however long the source hangs.
    assert MODE == "native" or not found, "what is too old was not checked"
    slow.tell("clear all")
    waiter.join(60)
    assert found == [contents[hanging[0]]]
    fs.end()
    slow.end()


run_tests([new_files_are_seen, modes_of_directories_are_seen, a_rescan_numbers_anew,
           a_hanging_directory])
