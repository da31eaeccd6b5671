# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files of every kind come out as they are at the source, and nothing can be changed."""
import errno
import mmap
import os
import socket
import stat
import signal
import subprocess
import time

from common import MODE, Shade, Slow, make_tree, raises, read, run_tests, wait_until

ODD = [b"with space", b"new\nline", b"not-utf8-\xff\xfe", b"back\\slash", "übung".encode(),
       b"-dash", b"x" * 255]


def every_kind_of_file():
    root, contents = make_tree(50)
    for name in ODD:
        with open(os.path.join(root.encode(), name), "wb") as file:
            file.write(b"odd " + name)
    deep = os.path.join(root, *["d" * 20] * 30)
    os.makedirs(deep)
    with open(os.path.join(deep, "leaf"), "w") as file:
        file.write("deep")
    open(os.path.join(root, "empty"), "w").close()
    with open(os.path.join(root, "sparse"), "wb") as file:
        file.truncate(300000)
        file.seek(200000)
        file.write(b"island")
    os.link(os.path.join(root, "sparse"), os.path.join(root, "hard"))
    os.symlink("class0/sample00000.bin", os.path.join(root, "link"))
    os.symlink("/etc/hostname", os.path.join(root, "absolute"))
    os.mkfifo(os.path.join(root, "fifo"))
    fs = Shade(root, capacity="8M")
    for repeat in range(2):
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        for name in ODD:
            assert read(os.path.join(fs.path.encode(), name)) == b"odd " + name, name
        assert read(fs.at(os.path.relpath(deep, root), "leaf")) == b"deep"
        assert read(fs.at("empty")) == b""
        assert read(fs.at("sparse")) == read(os.path.join(root, "sparse"))
        assert read(fs.at("hard")) == read(fs.at("sparse"))
        assert read(fs.at("link")) == contents["class0/sample00000.bin"]
        assert os.readlink(fs.at("absolute")) == "/etc/hostname"
    assert stat.S_ISFIFO(os.lstat(fs.at("fifo")).st_mode)
    wait_until(lambda: fs.stats()["hits"] >= 50, "hits are known")
    stats = fs.stats()
    assert stats["backend_reads"] <= stats["accesses"], stats
    mine, theirs = os.stat(fs.at("sparse")), os.stat(os.path.join(root, "sparse"))
    for field in ("st_ino", "st_mode", "st_nlink", "st_uid", "st_size", "st_mtime_ns"):
        assert getattr(mine, field) == getattr(theirs, field), field
    names = {name for name in os.listdir(os.fsencode(fs.path))}
    assert names == set(os.listdir(os.fsencode(root))), "listing"
    assert b".shade" not in names  # an ImageFolder would take it for a class
    mine, theirs = os.statvfs(fs.path), os.statvfs(root)
    assert abs(mine.f_blocks * mine.f_frsize - theirs.f_blocks * theirs.f_frsize) < 1 << 16
    if MODE == "portable":  # an overlay shows its upper layer, of which all is free
        assert abs(mine.f_bfree - theirs.f_bfree) * theirs.f_frsize < 1 << 30
    fs.end()


def large_files_by_ranges():
    root, _ = make_tree(2)
    data = os.urandom(5 << 20)
    with open(os.path.join(root, "large"), "wb") as file:
        file.write(data)
    fs = Shade(root, capacity="8M")
    assert read(fs.at("large")) == data
    with open(fs.at("large"), "rb") as file:
        file.seek(3000001)
        assert file.read(12345) == data[3000001:3012346]
    assert fs.stats()["resident_bytes"] == 0
    fs.end()


def files_larger_than_a_request():
    """The kernel asks for a part; the rest is given to it unasked, and must be the right rest."""
    root, contents = make_tree(8, size=3000000)
    fs = Shade(root, capacity="64M")
    for number, (path, data) in enumerate(contents.items()):
        at = number % 2 * 700001  # the beginning first, or a part from the middle
        with open(fs.at(path), "rb", buffering=0) as file:
            file.seek(at)
            assert file.read(1000) == data[at:at + 1000]
        assert read(fs.at(path)) == data
    fs.settle()
    before = fs.stats()["backend_reads"]
    assert before == len(contents), "each was fetched once"
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    stats = fs.stats()  # whoever drops all caches of the machine meanwhile is not to blame here
    assert stats["backend_reads"] == before + stats["reclaimed"], stats
    fs.end()


def mapping_works():
    root, contents = make_tree(6)
    fs = Shade(root, capacity="8M")
    for path, data in contents.items():
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with open(fs.at(path), "rb") as file:
                with mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapped:
                    assert mapped[:] == data
    fs.end()


def nothing_can_be_changed():
    root, contents = make_tree(3)
    fs = Shade(root, capacity="8M")
    path = fs.at(next(iter(contents)))
    for work in (lambda: open(path, "wb"), lambda: open(path, "ab"), lambda: open(fs.at("n"), "w"),
                 lambda: os.unlink(path), lambda: os.mkdir(fs.at("d")),
                 lambda: os.rmdir(fs.at("class0")), lambda: os.rename(path, path + "x"),
                 lambda: os.symlink("x", fs.at("s")), lambda: os.link(path, fs.at("h")),
                 lambda: os.chmod(path, 0o600), lambda: os.truncate(path, 1),
                 lambda: os.utime(path), lambda: os.mkfifo(fs.at("f"))):
        raises(errno.EROFS, work)
    for name, data in contents.items():
        assert read(os.path.join(root, name)) == data
    fs.end()


def permissions_are_those_of_the_source():
    root, contents = make_tree(2)
    secret, public = list(contents)
    os.chmod(root, 0o755)
    os.chmod(os.path.join(root, secret), 0o600)
    fs = Shade(root, capacity="8M", allow_other=True)
    os.chmod(os.path.dirname(fs.path), 0o755)

    def as_nobody(path):
        return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               "cat", path], capture_output=True)

    assert read(fs.at(secret)) == contents[secret]  # resident, and still not for others
    assert as_nobody(fs.at(secret)).returncode == 1
    done = as_nobody(fs.at(public))
    assert done.stdout == contents[public], done.stderr
    assert as_nobody(fs.at(".shade", "stats")).returncode == 1
    fs.end()


def a_listing_brings_the_files_along():
    """Who has listed a folder need not ask for its files, so a daemon that stands still is no
    hindrance."""
    root, contents = make_tree(1000, size=100, folders=1)
    fs = Shade(root, capacity="8M")

    def sizes():
        """Of all files, by a kernel that cannot ask; None if it would have to."""
        assert len(os.listdir(fs.at("class0"))) == len(contents)
        fs.process.send_signal(signal.SIGSTOP)
        asker = subprocess.Popen(["stat", "-c", "%s", *map(fs.at, contents)],
                                 stdout=subprocess.PIPE)
        try:
            return list(map(int, asker.communicate(timeout=20)[0].split()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            fs.process.send_signal(signal.SIGCONT)
            asker.communicate()

    # Whoever drops all caches of the machine between the two is not to blame here.
    found = sizes() or sizes()
    assert found == list(map(len, contents.values())), found
    fs.end()


def a_second_scan_asks_nothing_of_the_source():
    root, contents = make_tree(300)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M")

    def scan():
        return {os.path.relpath(os.path.join(folder, name), fs.path):
                os.stat(os.path.join(folder, name)).st_size
                for folder, _, names in os.walk(fs.path) for name in names}

    def asked():
        counts = slow.counts()
        return {key: counts[key] for key in ("lookups", "getattrs", "readdirs", "opens")}

    assert scan() == {path: len(data) for path, data in contents.items()}
    before = asked()
    assert int(before["readdirs"]) > 0, before
    assert scan() == {path: len(data) for path, data in contents.items()}
    assert asked() == before, (before, asked())
    fs.end()
    slow.end()


def names_are_asked_about_together():
    """Files that are far away, 20 ms for a name and 20 for its attributes: asked about one after
    the other, they take more than twice as long."""
    root, contents = make_tree(120, size=100, folders=1)
    slow = Slow(root, meta_delay_us=20000)  # whose answers nobody may keep
    # Of names that it has never seen, a kernel may ask for one in a directory at a time, so it has
    # seen all of them before: it asks again.
    folder = os.open(os.path.join(slow.path, "class0"), os.O_RDONLY)
    names = sorted(map(os.path.basename, contents))
    began = time.monotonic()
    for name in names:
        os.stat(name, dir_fd=folder)
    one_by_one = time.monotonic() - began
    os.close(folder)
    slow.tell("reset")
    began = time.monotonic()
    fs = Shade(slow.path, capacity="8M")
    assert sorted(os.listdir(fs.at("class0"))) == names
    together = time.monotonic() - began
    counts = slow.counts()
    assert int(counts["lookups"]) + int(counts["getattrs"]) > len(contents), counts
    assert together < one_by_one / 2, (together, one_by_one)
    fs.end()
    slow.end()


def errors_are_sentences():
    root, _ = make_tree(1)
    from common import SHADEFS
    for arguments, words in ((["-o", "capacity=x", root, root], "capacity"),
                             (["-o", "capasity=1G", root, "/mnt"], "capasity"),
                             (["-o", "policy=best", root, "/mnt"], "best"),
                             (["/nonexistent", "/mnt"], "/nonexistent"),
                             ([root, "/nonexistent"], "/nonexistent"),
                             ([root, root], "same"), ([root], "MOUNTPOINT"),
                             (["-o", "threads=0", root, "/mnt"], "threads"),
                             (["-o", "staleness=-1", root, "/mnt"], "staleness")):
        done = subprocess.run([SHADEFS, *arguments], capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr and not done.stdout, (arguments, done)
        assert done.stderr.count("\n") == 1, done.stderr


def in_the_background():
    from common import SHADEFS, is_mounted, scratch
    root, contents = make_tree(5)
    point = os.path.join(scratch, "background")
    os.mkdir(point)
    done = subprocess.run([SHADEFS, "-o", f"capacity=16M,mode={MODE}", root, point], capture_output=True,
                          text=True, timeout=60)
    try:
        assert done.returncode == 0, done.stderr
        for word in (root, point, "16.0 MiB (option)", "shade", MODE):
            assert word in done.stdout, (word, done.stdout)
        assert read(os.path.join(point, next(iter(contents)))) == next(iter(contents.values()))
    finally:
        subprocess.run(["umount", "-R", point] if MODE == "native" else
                       ["fusermount3", "-u", point], check=True)
    wait_until(lambda: not is_mounted(point), "unmounted")


def service_managers_are_told():
    from common import scratch
    root, _ = make_tree(1)
    path = os.path.join(scratch, "notify")
    for address, name in ((path, path), ("\0" + path, "@" + path)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address)
            manager.settimeout(20)
            os.environ["NOTIFY_SOCKET"] = name
            try:
                fs = Shade(root, capacity="8M")
            finally:
                del os.environ["NOTIFY_SOCKET"]
            ready, status = manager.recv(8192).decode().split("\n")
            assert ready == "READY=1" and status.startswith("STATUS=" + root), (ready, status)
            assert f"mode {MODE}" in status, status
            fs.end()
            assert manager.recv(8192) == b"STOPPING=1"


run_tests([every_kind_of_file, large_files_by_ranges, files_larger_than_a_request,
           mapping_works, nothing_can_be_changed,
           permissions_are_those_of_the_source, a_listing_brings_the_files_along,
           a_second_scan_asks_nothing_of_the_source, names_are_asked_about_together,
           errors_are_sentences, in_the_background, service_managers_are_told])
