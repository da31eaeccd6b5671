# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mounts of nfs://, against a real server in namespaces of their own: its bytes, its faults, and
those of the network. SOURCE SHADEFS SLOWFS SHADECTL PROXY [WORD...]: words choose tests by their
names. Exits with 0, 1, or 77 and a reason."""
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
# pylint: disable=wrong-import-position
from common import (MODE, SHADEFS, Shade, digest, in_threads, is_sanitized, raises, read, reads_as,
                    run_tests, running, scratch, skip, wait_until)
import server as nfs

PROXY = sys.argv[4]
PLACE = "/run/served"  # what the server exports
CLOSED_PORT = 9  # nobody listens there
HEAD = 132       # bytes of a READ's reply before those of the file: record mark, RPC, attributes
OTHER = 1234     # a user, and a group
NOBODY = 65534   # another one, who has a name


def at_server(path):
    return os.path.join(PLACE, path)


def put(path, data):
    """As who changes files at the server without anybody seeing half of it."""
    os.makedirs(os.path.dirname(at_server(path)), exist_ok=True)
    with open(PLACE + ".new", "wb") as file:
        file.write(data)
    os.rename(PLACE + ".new", at_server(path))
    contents[path] = data


def fresh(count, size=5000):
    """Paths of new files, which no mount knows yet."""
    global made  # pylint: disable=global-statement
    made += 1
    paths = [f"fresh{made}/file{number:04}" for number in range(count)]
    for path in paths:
        put(path, os.urandom(size))
    return paths


def url(port=None, export="/export"):
    return f"nfs://127.0.0.1{f':{port}' if port else ''}{export}"


def mount(port=None, export="/export", **options):
    options = {"capacity": "64M", "mountport": nfs.MOUNT_PORT, **options}
    return Shade(url(port, export), **options)


def is_right(fs, path):
    return digest(read(fs.at(path))) == digest(contents[path])


class Hits:
    """Somebody who reads a file in memory all the time, and is not to notice anything. If the
    kernel has taken the pages back, for others on this machine, it is no hit any more."""

    def __init__(self, fs):
        self.fs, self.path = fs, "class0/sample000"
        assert is_right(fs, self.path)
        fs.settle()
        self.count, self.failure, self.over = 0, None, False
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while not self.over and not self.failure:
            try:
                assert read(self.fs.at(self.path)) == contents[self.path], "wrong bytes of a hit"
            except OSError as failure:
                if not self.fs.stats()["reclaimed"]:
                    self.failure = failure
            except BaseException as failure:  # pylint: disable=broad-except
                self.failure = failure
            self.count += 1
            time.sleep(0.005)

    def go_on(self):
        """They did, and do."""
        before = self.count
        wait_until(lambda: self.count > before + 2 or self.failure, "hits go on", 30)
        if self.failure:
            raise self.failure

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.over = True
        self.thread.join(60)
        assert kind or not self.failure, self.failure


# --- bytes ---------------------------------------------------------------------------------------


def every_byte():
    """Of a tree of all sizes, with the portmapper's help, and no RPC more than needed."""
    fs = Shade(url(), capacity="128M")
    found = {os.path.relpath(os.path.join(folder, name), fs.path)
             for folder, _, names in os.walk(fs.path) for name in names if ".shade" not in folder}
    assert found == {*contents, "link"}, found ^ set(contents)
    fs.settle()
    small = [path for path, data in contents.items() if 0 < len(data) <= 1 << 20]
    large = [path for path in contents if path not in small]
    before = fs.stats()
    for path in small:
        assert is_right(fs, path), path
    fs.settle()
    after = fs.stats()
    rpcs, reads = (int(after[key] - before[key]) for key in ("nfs_rpcs", "nfs_reads"))
    print(f"{len(small)} files: {rpcs} RPCs, {reads} of them READs")
    assert reads == rpcs == len(small), (rpcs, reads, len(small))
    for path in large:
        assert is_right(fs, path), path
    for path, data in contents.items():  # by parts, from memory or not
        with open(fs.at(path), "rb", buffering=0) as file:
            for offset in (0, len(data) // 2, max(len(data) - 10, 0), len(data) + 5):
                file.seek(offset)
                assert file.read(5000) == data[offset:offset + 5000], (path, offset)
    stats = fs.stats()
    assert stats["fetch_errors"] == 0 and stats["nfs_reconnects"] == 0, stats
    assert os.readlink(fs.at("link")) == "deep/er/page-and-one"
    assert read(fs.at("link")) == contents["deep/er/page-and-one"]
    vfs = os.statvfs(fs.path)
    assert vfs.f_blocks > 0, vfs
    fs.end()


def a_directory_below_the_export():
    for export, inside in (("/export/deep", "er/page-and-one"), ("/export/deep/er", "page-and-one"),
                           ("/export/%64eep/", "er/page-and-one")):
        fs = mount(export=export)
        assert read(fs.at(inside)) == contents["deep/er/page-and-one"], export
        fs.end()


def many_readers_at_once():
    fs = mount(capacity="128M", connections=3)
    paths = sorted(contents)
    in_threads(32, lambda number: [is_right(fs, path) or 1 / 0
                                   for path in paths[number % 7:] + paths[:number % 7]])
    fs.end()


def an_order_is_fetched_ahead():
    paths = fresh(20)
    fs = mount()
    samples = fs.samples()
    ids = " ".join(str(samples[path]) for path in paths)
    assert fs.control(f"order 0 begin\norder 0 {ids}\norder 0 end\nepoch 0\n").startswith("ok")
    wait_until(lambda: fs.stats()["prefetches"] == len(paths), "all fetched ahead")
    fs.settle()
    before = fs.stats()
    for path in paths:
        assert is_right(fs, path), path
    wait_until(lambda: fs.stats()["hits"] == len(paths), "all were hits")
    assert fs.stats()["nfs_reads"] == before["nfs_reads"]
    fs.end()


def a_manifest_instead_of_a_scan():
    """The second mount knows names and no handles: it looks each up, and reads the right bytes."""
    manifest = os.path.join(scratch, "manifest")
    mount(manifest=manifest).end()
    fs = mount(manifest=manifest)
    for path in sorted(contents):
        assert is_right(fs, path), path
    fs.end()


def a_directory_of_many_files():
    """And how many calls a scan takes. The mode makes no difference to the source."""
    count = 20000 if is_sanitized() or MODE == "native" else 100000
    folder = at_server("many")
    os.mkdir(folder)
    for number in range(count):
        os.mknod(f"{folder}/sample{number:06}.jpg", 0o644)
    try:
        begin = time.monotonic()
        fs = mount(capacity="16M")
        stats = fs.stats()
        print(f"{count} files in one directory: {stats['nfs_rpcs']:.0f} RPCs, scanned in "
              f"{time.monotonic() - begin:.1f} s")
        assert stats["nfs_rpcs"] < count / 50, stats["nfs_rpcs"]
        names = os.listdir(fs.at("many"))
        assert len(set(names)) == len(names) == count, len(names)
        assert read(fs.at("many", names[count // 2])) == b""
        fs.end()
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


# --- a server that comes and goes ----------------------------------------------------------------


def killed_and_restarted():
    paths, large = fresh(12), fresh(60, 300000)
    fs = mount()
    with Hits(fs) as hits:
        for path in paths[:4]:
            assert is_right(fs, path)
        server.kill()
        hits.go_on()
        found = []
        readers = [threading.Thread(target=lambda p=path: found.append(is_right(fs, p)))
                   for path in paths[4:8]]
        for reader in readers:
            reader.start()
        time.sleep(0.3)
        assert not found
        hits.go_on()
        server.start()
        for reader in readers:
            reader.join(60)
        assert found == [True] * len(readers), found
        for path in paths[8:]:
            assert is_right(fs, path)
        for number in range(3):  # and again, in the middle of reads
            part = large[number::3]
            worker = threading.Thread(target=in_threads, args=(
                8, lambda number, part=part: [is_right(fs, path) or 1 / 0
                                              for path in part[number::8]]))
            worker.start()
            server.restart()
            worker.join(60)
            assert all(is_right(fs, path) for path in part)
        hits.go_on()
    fs.end()


def halted_longer_than_the_deadline():
    paths = fresh(6)
    fs = mount(deadline=1)
    with Hits(fs) as hits:
        server.halt()
        try:
            begin = time.monotonic()
            failures = []
            in_threads(3, lambda number: failures.append(
                raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(paths[number])))))
            waited = time.monotonic() - begin
            assert 0.9 < waited < 20, waited
            names = {errno.errorcode[failure.errno] for failure in failures}
            print(f"cold reads failed after {waited:.1f} s with {names}")
            assert names == {"ETIMEDOUT"}, names
            hits.go_on()
        finally:
            server.go_on()
        for path in paths:
            wait_until(lambda: reads_as(fs.at(path), contents[path]), "it reads again")
        hits.go_on()
    fs.end()


def ends_without_the_server():
    """While somebody reads, and while a scan waits."""
    for what in ("reader", "scan"):
        path = fresh(1)[0]
        fs = mount(deadline=60)
        server.halt()
        try:
            reader = None
            if what == "reader":
                reader = subprocess.Popen(["cat", fs.at(path)], stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL)
                wait_until(lambda: fs.stats()["inflight_bytes"], "somebody waits")
            else:
                fs.control("rescan\n")
            time.sleep(0.3)
            begin = time.monotonic()
            fs.process.send_signal(signal.SIGTERM)
            fs.process.wait(40)
            print(f"with a {what} that waits it ended after {time.monotonic() - begin:.1f} s, "
                  f"exit {fs.process.returncode}")
            assert time.monotonic() - begin < 30
            assert not reader or reader.wait(30) != 0
            assert "Sanitizer" not in fs.read_log(), fs.read_log()
            running.remove(fs)
        finally:
            server.go_on()


def the_export_is_removed_and_comes_back():
    paths = fresh(4)
    fs = mount(deadline=3)
    with Hits(fs) as hits:
        server.restart(nfs.export("/run/nothing", number=2, pseudo="/nothing"))
        failure = raises((errno.ESTALE, errno.EIO, errno.EACCES, errno.ENOENT, errno.ETIMEDOUT),
                         lambda: read(fs.at(paths[0])))
        print("without the export:", errno.errorcode[failure.errno])
        hits.go_on()
        server.restart(*EXPORTS)
        for path in paths:
            wait_until(lambda: reads_as(fs.at(path), contents[path]), "it reads again")
        hits.go_on()
    fs.end()


# --- a network that breaks -----------------------------------------------------------------------


def cut_at_every_byte():
    """Of a reply's head, and at many of its data: as a reset, and as an end. Each takes the time of
    a new connection. The mode makes no difference to the source: each has one half of the bytes."""
    with_proxy = nfs.Proxy(PROXY)
    heads, large = fresh(HEAD + 8), fresh(24, 110000)
    large += fresh(4, 3 << 20)
    fs = mount(with_proxy.port, connections=1)
    begin = time.monotonic()
    with Hits(fs) as hits:
        for number, path in list(enumerate(heads))[MODE == "native"::2]:
            with_proxy.tell("end" if number // 2 % 2 else "cut", number)
            assert is_right(fs, path), f"wrong bytes after a cut at {number}"
        for number, path in enumerate(large):
            size = len(contents[path])
            with_proxy.tell("cut" if number % 2 else "end", (number * 7919 * 13) % size)
            assert is_right(fs, path), f"wrong bytes after a cut in {path}"
        hits.go_on()
    counts = with_proxy.counts()
    print(f"{counts['cuts']} cuts in {time.monotonic() - begin:.1f} s, "
          f"{counts['connections']} connections")
    assert counts["cuts"] >= len(heads) // 2 + len(large) - 2, counts
    assert fs.stats()["nfs_reconnects"] >= counts["cuts"] // 2, fs.stats()
    fs.end()
    with_proxy.end()


def cut_while_many_read():
    """Several connections, each of which is cut again and again."""
    with_proxy = nfs.Proxy(PROXY)
    paths = fresh(200, 110000) + fresh(4, 3 << 20)
    fs = mount(with_proxy.port, capacity="128M", connections=4)
    with_proxy.tell("chop", 2500009)  # more than any one reply has
    in_threads(16, lambda number: [is_right(fs, path) or 1 / 0 for path in paths[number::16]])
    print(with_proxy.counts())
    assert with_proxy.counts()["cuts"] > 5
    fs.end()
    with_proxy.end()


def a_stalled_connection():
    """Nothing comes and nothing is reset; then it goes on."""
    with_proxy = nfs.Proxy(PROXY)
    paths = fresh(4)
    fs = mount(with_proxy.port, deadline=1)
    with Hits(fs) as hits:
        with_proxy.tell("stall")
        raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(paths[0])))
        hits.go_on()
        with_proxy.tell("go")
        for path in paths:
            wait_until(lambda: reads_as(fs.at(path), contents[path]), "it reads again")
    fs.end()
    with_proxy.end()


# --- files that change ---------------------------------------------------------------------------


def change(path, how):
    old = contents[path]
    new = bytes(byte ^ 255 for byte in old)
    if how == "replaced":
        put(path, new)
    elif how == "deleted":
        os.unlink(at_server(path))
        contents[path] = None
    else:
        contents[path] = {"overwritten": new, "truncated": old[:len(old) // 2],
                          "grown": old + new}[how]
        with open(at_server(path), "r+b") as file:
            if how == "truncated":
                file.truncate(len(old) // 2)
            else:
                file.seek(len(old) if how == "grown" else 0)
                file.write(new)
    return old


def changed_files_give_one_version():
    """To who has them open, in memory or not; and who opens them later gets the new version."""
    hows = ("replaced", "overwritten", "truncated", "grown", "deleted")
    paths = fresh(3 * len(hows), 200000)
    fs = mount(staleness=1)
    for number, path in enumerate(paths):
        if number % 3 == 0:  # resident
            assert is_right(fs, path), path
        with open(fs.at(path), "rb", buffering=0) as file:
            found = file.read(1000) if number % 3 == 1 else b""
            old = change(path, hows[number // 3])
            try:
                while more := file.read(65536):
                    found += more
                assert found in (old, contents[path]), f"two versions in one: {hows[number // 3]}"
            except OSError as failure:
                assert failure.errno in (errno.ESTALE, errno.EIO, errno.ENOENT), failure
    for path in paths:
        if contents[path] is None:
            wait_until(lambda: not os.path.exists(fs.at(path)), "it is gone")
            del contents[path]
        else:
            wait_until(lambda: reads_as(fs.at(path), contents[path]), f"{path} is new")
    fs.end()


def no_mixed_bytes_in_a_storm():
    """A file that needs several READs is replaced and overwritten all the time."""
    path, size = fresh(1)[0], 3 << 20
    put(path, bytes([0]) * size)
    fs = mount(staleness=1)
    written, over = 0, threading.Event()

    def write():
        nonlocal written
        while not over.wait(0.15):
            written = (written + 1) % 256
            if written % 2:
                put(path, bytes([written]) * size)
            else:
                # Whoever reads between two writes of one version sees bytes of both at the server.
                os.unlink(at_server(path))
                put(path, bytes([written]) * size)

    writer = threading.Thread(target=write)
    writer.start()
    good = bad = 0
    try:
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            try:
                found = read(fs.at(path))
                assert found == found[:1] * size, f"mixed: {sorted(set(found))} {len(found)}"
                good += 1
            except OSError as failure:
                assert failure.errno in (errno.ESTALE, errno.EIO, errno.ENOENT), failure
                bad += 1
    finally:
        over.set()
        writer.join()
    wait_until(lambda: reads_as(fs.at(path), bytes([written]) * size), "the last version")
    print(f"{good} reads, {bad} errors, {written} versions")
    fs.end()


# --- who may read --------------------------------------------------------------------------------


def as_user(number, path):
    """The errno that this user gets who reads it, 0 for none."""
    pid = os.fork()
    if not pid:
        code = 0
        try:
            os.setgroups([])
            os.setgid(number)
            os.setuid(number)
            read(path)
        except OSError as failure:
            code = failure.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def make_private_files():
    folder = at_server("private")
    os.makedirs(folder + "/closed", exist_ok=True)
    for name, mode, owner in (("open", 0o644, 0), ("of-root", 0o600, 0), ("of-other", 0o600, OTHER),
                              ("of-nobody", 0o600, NOBODY), ("closed/inside", 0o644, 0)):
        put(f"private/{name}", name.encode() * 100)
        os.chown(at_server(f"private/{name}"), owner, owner)
        os.chmod(at_server(f"private/{name}"), mode)
    os.chmod(folder + "/closed", 0o700)


def modes_decide():
    """A server that believes root gives the daemon all; the mount gives users what is theirs."""
    make_private_files()
    fs = mount(allow_other=True)
    os.chmod(scratch, 0o755)
    for name in ("open", "of-root", "of-other", "closed/inside"):
        assert read(fs.at("private", name)) == contents[f"private/{name}"], name
    assert as_user(OTHER, fs.at("private", "open")) == 0
    assert as_user(OTHER, fs.at("private", "of-other")) == 0
    for name in ("of-root", "closed/inside"):
        assert as_user(OTHER, fs.at("private", name)) == errno.EACCES, name
    assert as_user(OTHER + 1, fs.at("private", "of-other")) == errno.EACCES
    fs.end()


def root_squash_opens_nothing():
    """The server takes root's daemon for nobody: what nobody may not read gives errors to all."""
    make_private_files()
    fs = mount(export="/squashed", allow_other=True)
    os.chmod(scratch, 0o755)
    assert read(fs.at("private", "open")) == contents["private/open"]
    assert as_user(OTHER, fs.at("private", "open")) == 0
    for name in ("of-root", "of-other", "closed/inside"):
        for user in (0, OTHER, OTHER + 1):
            assert as_user(user, fs.at("private", name)) not in (0, errno.ETIMEDOUT), (name, user)
    fs.end()
    fs = mount(export="/squashed", allow_other=True, uid=OTHER, gid=OTHER)
    assert read(fs.at("private", "of-other")) == contents["private/of-other"]
    assert as_user(OTHER, fs.at("private", "of-other")) == 0
    assert as_user(OTHER + 1, fs.at("private", "of-other")) == errno.EACCES
    assert as_user(0, fs.at("private", "of-root")) not in (0, errno.ETIMEDOUT)
    fs.end()


def by_an_ordinary_user():
    """Who needs neither root nor the kernel's client, and tells the server who they are. Users may
    open /dev/fuse, as they may on most machines; in this namespace alone."""
    make_private_files()
    os.mknod("/run/fuse", 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
    os.chmod("/run/fuse", 0o666)
    subprocess.run(["mount", "--bind", "/run/fuse", "/dev/fuse"], check=True)
    os.chmod(scratch, 0o755)
    point = os.path.join(scratch, "of-user")
    os.mkdir(point)
    os.chown(point, NOBODY, NOBODY)
    script = (f"{os.path.abspath(SHADEFS)} -o mode=portable,capacity=8M {url()} {point} && "
              f"cat {point}/private/of-nobody && ! cat {point}/private/of-root; code=$?; "
              f"fusermount3 -u {point}; exit $code")
    done = subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                           "sh", "-c", script], capture_output=True, timeout=60)
    assert done.returncode == 0, done
    assert contents["private/of-nobody"] in done.stdout, done
    # Lazily: the daemon has it open until it has ended.
    subprocess.run(["umount", "-l", "/dev/fuse"], check=True)


# --- starts that fail ----------------------------------------------------------------------------


def starts_that_fail():
    """Each with one sentence that names the source, soon, and with exit status 1."""
    hung = nfs.Proxy(PROXY)
    hung.tell("stall")
    base = f"mountport={nfs.MOUNT_PORT},deadline=1"
    point = os.path.join(scratch, "point")
    os.makedirs(point, exist_ok=True)
    for source, options in ((url(export="/nothing"), base), (url(CLOSED_PORT), base),
                            (url(), f"mountport={CLOSED_PORT}"), (url(111), base),
                            (url(), "mountport=111"), (url(hung.port), base),
                            ("nfs://127.0.0.1:2049", base), ("nfs:///export", base),
                            ("nfs://no-such-host.invalid/export", base),
                            (url(export="/export/not/there"), base),
                            (url(export="/export/one"), base)):
        begin = time.monotonic()
        done = subprocess.run([SHADEFS, "-f", "-o", f"capacity=8M,{options}", source, point],
                              capture_output=True, text=True, timeout=60)
        said = done.stderr.strip()
        print(f"{source} {options}: {said} ({time.monotonic() - begin:.1f} s)")
        assert done.returncode == 1, (source, done)
        assert said.startswith("shadefs: ") and len(said.splitlines()) == 1, (source, said)
        assert time.monotonic() - begin < 30, source
    done = subprocess.run([SHADEFS, "-f", "-o", "uid=5", PLACE, point], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and "nfs" in done.stderr, done
    hung.end()


def make_files():
    sizes = {"empty": 0, "one": 1, "below": 4095, "page": 4096, "deep/er/page-and-one": 4097,
             "deep/sample": 110000, "deep/million": 1 << 20, "deep/more": (1 << 20) + 1,
             "deep/large": (3 << 20) + 5, "deep/huge": (20 << 20) + 4095, "deep/ümläut name": 100,
             "deep/%41 per cent": 101, "deep/" + "n" * 255: 102, "deep/new\nline": 103}
    os.makedirs(PLACE + "/deep/er")
    for path, size in sizes.items():
        put(path, os.urandom(size))
    for number in range(40):
        put(f"class{number % 4}/sample{number:03}", os.urandom(1000 + 997 * number))
    os.symlink("deep/er/page-and-one", at_server("link"))


def chosen(tests):
    """Those with one of the words in their names, each of which tells how long it took."""
    def timed(test):
        def run():
            begin = time.monotonic()
            test()
            run.__name__ += f" ({time.monotonic() - begin:.1f} s)"
        run.__name__ = test.__name__
        return run

    return [timed(test) for test in tests
            if not sys.argv[5:] or any(word in test.__name__ for word in sys.argv[5:])]


if "SHADE_TEST_SKIP" in os.environ:
    skip(os.environ["SHADE_TEST_SKIP"])
if lacking := nfs.missing_packages():
    skip("these packages are missing: " + " ".join(lacking))
try:
    nfs.enter_namespaces()
except OSError as refusal:
    skip(f"there are no namespaces of our own: {refusal}")
made, contents = 0, {}
for each in (PLACE, "/run/nothing", "/run/server"):
    os.makedirs(each)
make_files()
EXPORTS = [nfs.export(PLACE),
           nfs.export(PLACE, number=3, pseudo="/squashed", squash="Root_Squash")]
server = nfs.Ganesha("/run/server", *EXPORTS)
run_tests(chosen([
    every_byte, a_directory_below_the_export, many_readers_at_once, an_order_is_fetched_ahead,
    a_manifest_instead_of_a_scan, a_directory_of_many_files, killed_and_restarted,
    halted_longer_than_the_deadline, ends_without_the_server, the_export_is_removed_and_comes_back,
    cut_at_every_byte, cut_while_many_read, a_stalled_connection, changed_files_give_one_version,
    no_mixed_bytes_in_a_storm, modes_decide, root_squash_opens_nothing, by_an_ordinary_user,
    starts_that_fail]))
