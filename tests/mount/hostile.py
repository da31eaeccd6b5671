# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sources, names and callers that nobody expects."""
import ctypes
import errno
import os
import shutil
import signal
import struct
import subprocess
import threading

from common import (MODE, SHADEFS, Shade, Slow, children, is_mounted, make_tree, raises, read, reads_as,
                    run_tests, running, scratch, wait_until)


def put(root, path, data=b"data"):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "wb") as file:
        file.write(data)


def as_nobody(path):
    return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat",
                           path], capture_output=True).returncode


def names_that_were_asked_for_too_early():
    root, _ = make_tree(4)
    fs = Shade(root, capacity="8M", staleness=0.5)
    for path in ("new", "class0/new", "folder/new"):
        raises(errno.ENOENT, lambda: read(fs.at(path)))
        put(root, path)
    for path in ("new", "class0/new", "folder/new"):
        wait_until(lambda: reads_as(fs.at(path), b"data"), f"{path} is there")
    fs.end()


def a_directory_is_closed_to_others():
    root, contents = make_tree(4)
    os.chmod(root, 0o755)
    fs = Shade(root, capacity="8M", staleness=0.5, allow_other=True)
    os.chmod(os.path.dirname(fs.path), 0o755)
    path = next(iter(contents))
    folder = os.path.join(root, os.path.dirname(path))
    assert as_nobody(fs.at(path)) == 0
    os.chmod(folder, 0o700)
    wait_until(lambda: as_nobody(fs.at(path)) == 1, "closed to others")
    os.chmod(folder, 0o755)
    wait_until(lambda: as_nobody(fs.at(path)) == 0, "open to others again")
    assert read(fs.at(path)) == contents[path]
    with open("/proc/self/mountinfo") as file:
        flags = [line.split()[5] for line in file if line.split()[4] == fs.path]
    assert "nosuid" in flags[0] and "nodev" in flags[0], flags
    fs.end()


def set_acl(path, owner, nobody, others):
    """A list that names one user besides those that every file knows."""
    none = 0xffffffff
    entries = [(0x01, owner, none), (0x02, nobody, 65534), (0x04, others, none),
               (0x10, 7, none), (0x20, others, none)]
    os.setxattr(path, "system.posix_acl_access",
                struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries))


def lists_of_who_may():
    root, contents = make_tree(8)
    os.chmod(root, 0o755)
    denied, allowed, closed, plain = list(contents)[:4]
    set_acl(os.path.join(root, denied), 6, 0, 4)
    set_acl(os.path.join(root, allowed), 6, 4, 0)
    folder = os.path.join(root, os.path.dirname(closed))
    plain_folder = os.path.dirname(plain)
    assert os.path.dirname(closed) not in map(os.path.dirname, (denied, allowed, plain))
    set_acl(folder, 7, 0, 5)
    fs = Shade(root, capacity="8M", staleness=0.5, allow_other=True)
    os.chmod(os.path.dirname(fs.path), 0o755)
    for path in (denied, allowed, closed, plain):
        assert as_nobody(os.path.join(root, path)) == (path in (denied, closed)), path
        assert read(fs.at(path)) == contents[path]
        assert as_nobody(fs.at(path)) == (path in (denied, closed)), path
    set_acl(folder, 7, 5, 0)
    set_acl(os.path.join(root, plain_folder), 7, 0, 5)
    set_acl(os.path.join(root, denied), 6, 4, 4)
    wait_until(lambda: as_nobody(fs.at(closed)) == 0, "open")
    wait_until(lambda: as_nobody(fs.at(plain)) == 1, "closed")
    wait_until(lambda: as_nobody(fs.at(denied)) == 0, "allowed")
    fs.end()
    # In native mode the root is not the source's own.
    set_acl(root, 7, 0, 5)
    fs = Shade(root, capacity="8M", allow_other=True)
    assert as_nobody(fs.at(allowed)) == 1
    assert read(fs.at(allowed)) == contents[allowed]
    fs.end()


def the_source_has_a_shade_of_its_own():
    root, contents = make_tree(4)
    put(root, ".shade/stats", b"spoof 1\n")
    put(root, "class0/.shade/stats", b"mine")
    fs = Shade(root, capacity="8M")
    names = [entry.name for entry in os.scandir(fs.path) if entry.stat()]
    assert ".shade" not in names, names
    assert fs.stats()["samples"] == len(contents) + 1
    assert sorted(fs.samples()) == sorted([*contents, "class0/.shade/stats"])
    assert read(fs.at("class0/.shade/stats")) == b"mine"
    fs.end()


def handles_of_what_was_forgotten():
    libc = ctypes.CDLL(None, use_errno=True)
    root, _ = make_tree(40, folders=10)
    fs = Shade(root, capacity="8M")

    class Handle(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int),
                    ("bytes", ctypes.c_ubyte * 128)]

    base = f"/run/shadefs/{fs.process.pid}/files" if MODE == "native" else fs.path
    handles = []
    for folder, _, names in os.walk(base):
        for name in names:
            handle, mount = Handle(size=128), ctypes.c_int()
            if not libc.name_to_handle_at(-100, os.path.join(folder, name).encode(),
                                          ctypes.byref(handle), ctypes.byref(mount), 0):
                handles.append(handle)
    for number in range(5):
        shutil.rmtree(os.path.join(root, f"class{number}"))
    fs.control("rescan\n")
    wait_until(lambda: fs.stats()["samples"] == 20, "they are gone")
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("2")
    top = os.open(base, os.O_RDONLY)
    for handle in handles + handles[-1:]:
        fd = libc.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY)
        if fd >= 0:
            os.close(fd)
        else:
            assert ctypes.get_errno() in (errno.ESTALE, errno.EOPNOTSUPP), ctypes.get_errno()
        handle.bytes[3] ^= 0x55  # and one that never was
    os.close(top)
    assert fs.process.poll() is None
    fs.end()


def a_mount_point_with_a_space():
    root, contents = make_tree(2)
    point = os.path.join(scratch, "with space")
    os.mkdir(point)
    for how in (signal.SIGKILL, signal.SIGTERM):
        daemon = subprocess.Popen([SHADEFS, "-f", "-o", f"mode={MODE},capacity=8M", root, point],
                                  stdout=subprocess.PIPE)
        assert daemon.stdout.readline(), "it did not come up"
        for path, data in contents.items():
            assert read(os.path.join(point, path)) == data
        processes = children(daemon.pid)
        daemon.send_signal(how)
        daemon.wait(60)
        for pid in processes:
            wait_until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), "its children ended")
        daemon.stdout.close()
    assert not is_mounted(point.replace(" ", "\\040"))


def odd_commands():
    root, _ = make_tree(2)
    os.mkdir(os.path.join(root, "void"))
    fs = Shade(root, capacity="8M")
    for command in ("warm", "pin", "unpin", "evict"):
        assert fs.control(f"{command} void\n").startswith("ok")
    fs.end()
    done = subprocess.run([SHADEFS, "-o", f"mode={MODE}", root, os.path.join(root, "void")],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "below the source" in done.stderr, done


def large_files_in_orders():
    """They are not fetched ahead, and their entries are consumed all the same."""
    root, contents = make_tree(5)
    put(root, "large", os.urandom(3 << 20))
    fs = Shade(root, capacity="8M")
    samples = fs.samples()
    ids = " ".join(str(number) for number in samples.values())
    fs.control(f"order 0 begin\norder 0 {ids}\norder 0 end\nepoch 0\n")
    wait_until(lambda: fs.stats()["resident_samples"] == len(contents), "fetched ahead")
    for path in samples:
        read(fs.at(path))
    wait_until(lambda: fs.stats()["order_ahead"] == 0, f"consumed: {fs.stats()}")
    stats = fs.stats()
    assert stats["accesses"] == 6 and stats["hits"] == 5 and stats["bypasses"] == 1, stats
    fs.end()


def everything_hangs():
    """More than is fetched at a time, and large files: all get their error, and there is an end."""
    root, contents = make_tree(70, size=4000)
    for number in range(10):
        put(root, f"large{number}", bytes(2 << 20))
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M", deadline=2)
    paths = [*contents, *(f"large{number}" for number in range(10))]
    for path in paths:
        os.stat(fs.at(path))
    failures = []

    def wait(path):
        try:
            read(fs.at(path))
        except OSError as failure:
            failures.append(failure.errno)

    slow.pause()
    try:
        threads = [threading.Thread(target=wait, args=(path,), daemon=True) for path in paths]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(failures) == len(paths), "all have their error", 25)
        assert set(failures) <= {errno.ETIMEDOUT, errno.EIO}, set(failures)
        fs.process.terminate()
        assert fs.process.wait(60) in (0, 1)
        assert not is_mounted(fs.path), "still mounted"
    finally:
        slow.resume()
    assert "AddressSan" not in fs.read_log() and "data race" not in fs.read_log()
    if MODE == "native":
        assert not os.path.exists(f"/run/shadefs/{fs.process.pid}"), "a place was left"
    running.remove(fs)
    slow.end()


run_tests([names_that_were_asked_for_too_early, a_directory_is_closed_to_others, lists_of_who_may,
           the_source_has_a_shade_of_its_own, handles_of_what_was_forgotten,
           a_mount_point_with_a_space, odd_commands, large_files_in_orders, everything_hangs])
