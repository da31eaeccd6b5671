# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs in the guest: shadefs over NFS, as the kernel's own client mounts it from a real server.
GUEST SHADEFS SLOWFS [WORD...]: words choose tests by their names."""
import errno
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
# pylint: disable=wrong-import-position
from common import (Shade, digest, is_mounted, make_tree, raises, read, reads_as, run_tests,
                    running, wait_until)
from server import Ganesha, export

OPTIONS = {"3": "vers=3,nolock,proto=tcp,mountproto=tcp,port=2049,mountport=20491",
           "4.1": "vers=4.1,port=2049"}
POINT = "/run/nfs"


def put(path, data):
    """As who changes files at the server without anybody seeing half of it."""
    with open(at_server(path + ".new"), "wb") as file:
        file.write(data)
    os.rename(at_server(path + ".new"), at_server(path))


def at_server(path):
    return os.path.join(root, path)


class Nfs:
    """The export, mounted."""
    path = POINT

    def __init__(self, version):
        self.command = ["mount", "-t", "nfs", "-o", OPTIONS[version], "127.0.0.1:/export", POINT]
        os.makedirs(POINT, exist_ok=True)
        self.why = ""
        wait_until(self.try_out, f"mounted NFS {version}", 60)

    def try_out(self):
        done = subprocess.run(self.command, capture_output=True, text=True, timeout=60)
        if done.returncode and done.stderr != self.why:
            self.why = done.stderr
            print("mount.nfs:", self.why.strip(), flush=True)
        return done.returncode == 0

    def end(self):
        """Returns whether it was free at once."""
        tries = 0

        def unmount():
            nonlocal tries
            tries += 1
            time.sleep(0.3)  # the kernel closes files a little later than it says
            return subprocess.run(["umount", POINT], timeout=60).returncode == 0

        wait_until(unmount, "unmounted NFS")
        return tries == 1

    @staticmethod
    def reads():
        """Bytes that were read through the client's page cache, and around it."""
        with open("/proc/self/mountstats") as file:
            text = file.read()
        fields = text[text.index(f"mounted on {POINT} "):].split("bytes:")[1].split()
        return int(fields[0]), int(fields[2])


def pick(count):
    """Paths that no test had before."""
    return [unused.pop() for _ in range(count)]


# --- tests: of a mount with these options --------------------------------------------------------


def every_byte(mount):
    """The same, twice; the second time nobody asks the server. What is read is cached once: not by
    the NFS client."""
    fs = mount(capacity="32M")
    print(fs.read_log().strip())
    found = {os.path.relpath(os.path.join(folder, name), fs.path)
             for folder, _, names in os.walk(fs.path) for name in names if ".shade" not in folder}
    assert found == set(contents), found ^ set(contents)
    begin = time.monotonic()
    for path, data in contents.items():
        assert digest(read(fs.at(path))) == digest(data), path
    first = time.monotonic() - begin
    fs.settle()
    before = fs.stats()
    assert before["backend_bytes"] >= sum(map(len, contents.values())), before
    begin = time.monotonic()
    for path, data in contents.items():
        assert digest(read(fs.at(path))) == digest(data), path
    second = time.monotonic() - begin
    after = fs.stats()
    assert after["backend_reads"] == before["backend_reads"], (before, after)
    assert after["fetch_errors"] == 0 and after["reclaimed"] == 0, after
    print(f"{len(contents)} files: {first:.2f} s, then {second:.2f} s")
    cached, direct = Nfs.reads()
    assert not cached and direct >= sum(map(len, contents.values())), (cached, direct)
    fs.end()


def an_order_is_fetched_ahead(mount):
    fs = mount(capacity="32M", prefetch="16M")
    samples = fs.samples()
    order = pick(12)
    ids = " ".join(str(samples[path]) for path in order)
    assert fs.control(f"order 0 begin\norder 0 {ids}\norder 0 end\nepoch 0\n").startswith("ok")
    wait_until(lambda: fs.stats()["prefetches"] == len(order), "all fetched ahead")
    fs.settle()
    before = fs.stats()
    assert before["accesses"] == 0 and before["backend_reads"] == len(order), before
    for path in order:
        assert read(fs.at(path)) == contents[path], path
    wait_until(lambda: fs.stats()["hits"] == len(order), "all were hits")
    after = fs.stats()
    assert after["backend_reads"] == len(order) and after["misses"] == 0, after
    fs.end()


def change_at_the_server(path, in_place):
    contents[path] = bytes(byte ^ 255 for byte in contents[path])
    if not in_place:
        put(path, contents[path])
        return
    with open(at_server(path), "r+b") as file:
        file.write(contents[path])


def versions_do_not_mix(mount):
    """Files that change before, between and after the reads of those who have them open."""
    fs = mount(capacity="32M", staleness=1)
    paths = pick(6)
    for number, path in enumerate(paths):
        old = contents[path]
        if number >= 3:  # resident
            assert read(fs.at(path)) == old, path
        with open(fs.at(path), "rb", buffering=0) as file:
            found = file.read(1000) if number % 3 else b""
            change_at_the_server(path, number % 3 == 2)
            try:
                while more := file.read(4096):
                    found += more
                assert found in (old, contents[path]), "two versions in one"
            except OSError as failure:
                assert failure.errno in (errno.ESTALE, errno.EIO), failure
    begin = time.monotonic()

    def is_new(path):
        try:
            return read(fs.at(path)) == contents[path]
        except OSError as failure:
            assert failure.errno in (errno.ESTALE, errno.EIO), failure
            return False

    late = []
    for path in paths:
        wait_until(lambda: is_new(path), f"{path} is new", 90)  # pylint: disable=cell-var-from-loop
        late.append(f"{time.monotonic() - begin:.1f}")
    print("the new version after", " ".join(late), "s")
    fs.end()


def versions_do_not_mix_in_a_storm(mount):
    fs = mount(capacity="32M", staleness=1)
    path = pick(1)[0]
    size = 300000
    written = 0
    ended = threading.Event()
    put(path, bytes([written]) * size)

    def write():
        nonlocal written
        while not ended.wait(0.5):
            written = (written + 1) % 256
            put(path, bytes([written]) * size)

    writer = threading.Thread(target=write)
    writer.start()
    good = bad = gap = 0
    last = time.monotonic()
    try:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            try:
                found = read(fs.at(path))
                # The first version is of another size; each has one.
                assert found == contents[path] or found == found[:1] * size, \
                    f"two versions in one: {len(found)} bytes of {sorted(set(found))}"
                good += 1
                last = time.monotonic()
            except OSError as failure:
                assert failure.errno in (errno.ESTALE, errno.EIO, errno.ENOENT), failure
                bad += 1
                gap = max(gap, time.monotonic() - last)
    finally:
        ended.set()
        writer.join()
    contents[path] = bytes([written]) * size
    begin = time.monotonic()

    def is_new():
        try:
            return read(fs.at(path)) == contents[path]
        except OSError:
            return False

    wait_until(is_new, "the last version", 90)
    print(f"{good} reads, {bad} errors, for {gap:.1f} s nothing else; "
          f"the last version after {time.monotonic() - begin:.1f} s")
    # Native mode may take longer than a version lasts; what it owes is the last one.
    assert good or fs.stats()["mode"] == "native", "no read ever succeeded"
    fs.end()


def the_server_halts(mount):
    fs = mount(capacity="32M", deadline=5)
    hit, miss, late = pick(3)
    assert read(fs.at(hit)) == contents[hit]
    fs.settle()
    server.halt()
    try:
        begin = time.monotonic()
        assert read(fs.at(hit)) == contents[hit]
        assert time.monotonic() - begin < 4, "a hit waited"
        hit_ms = (time.monotonic() - begin) * 1000
        begin = time.monotonic()
        failure = raises((errno.ETIMEDOUT, errno.EIO), lambda: read(fs.at(miss)))
        waited = time.monotonic() - begin
        assert 4.5 < waited < 60, waited
        print(f"server halted: a hit took {hit_ms:.1f} ms, a miss {waited:.1f} s "
              f"({errno.errorcode[failure.errno]})")
        found = []
        reader = threading.Thread(target=lambda: found.append(read(fs.at(late))))
        reader.start()
        time.sleep(1)
        assert not found
        assert read(fs.at(hit)) == contents[hit]
    finally:
        server.go_on()
    reader.join(60)
    assert found == [contents[late]], "the bytes did not come when the server did"
    wait_until(lambda: reads_as(fs.at(miss), contents[miss]), "the miss is well again")
    fs.end()


def unmounted_while_a_scan_waits(mount):
    fs = mount(capacity="32M", deadline=60)
    server.halt()
    try:
        fs.control("rescan\n")
        time.sleep(0.5)
        leave_without_server(fs)
    finally:
        server.go_on()


def leave_without_server(fs):
    begin = time.monotonic()
    fs.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_mounted(fs.path), "unmounted")
    unmounted = time.monotonic() - begin
    code = fs.process.wait(60)
    print(f"without the server unmounted in {unmounted:.1f} s, ended in "
          f"{time.monotonic() - begin:.1f} s, exit {code}")
    assert "does not answer" in fs.read_log(), fs.read_log()
    running.remove(fs)


def unmounted_while_a_reader_waits(mount):
    fs = mount(capacity="32M", deadline=60)
    server.halt()
    try:
        reader = subprocess.Popen(["cat", fs.at(pick(1)[0])], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        time.sleep(1)
        leave_without_server(fs)
        assert reader.wait(60) != 0
    finally:
        server.go_on()


TESTS = [every_byte, an_order_is_fetched_ahead, versions_do_not_mix, versions_do_not_mix_in_a_storm,
         the_server_halts]
# These take long, and what they leave in the kernel ends when the server is back.
WITHOUT_SERVER = [unmounted_while_a_reader_waits, unmounted_while_a_scan_waits]


def in_turn(version, mode, tests):
    """Tests with this NFS and this mode."""
    def wrap(test):
        def run():
            nfs = Nfs(version)
            begin = time.monotonic()
            try:
                test(lambda **options: Shade(nfs.path, mode=mode, **options))
            finally:
                for filesystem in reversed(list(running)):
                    print(filesystem.read_log()[-3000:])
                    filesystem.kill()
                    running.remove(filesystem)
                free = nfs.end()
            assert free or test in WITHOUT_SERVER, "the source was busy after the end"
            if os.path.exists("/run/shadefs"):
                assert not os.listdir("/run/shadefs"), os.listdir("/run/shadefs")
            run.__name__ += f" ({time.monotonic() - begin:.1f} s)"
        run.__name__ = f"NFS {version}, mode={mode}: {test.__name__}"
        return run
    return [wrap(test) for test in tests]


def chosen(tests):
    """Those with one of the words in their names that come after the programs."""
    return [test for test in tests
            if not sys.argv[3:] or any(word in test.__name__ for word in sys.argv[3:])]


root, contents = make_tree(120, size=60000)
unused = sorted(contents)
for odd, size in (("empty", 0), ("one", 1), ("page", 4096), ("deep/er/page-and-one", 4097),
                  ("deep/large", (3 << 20) + 5), ("deep/ümläut name", 100)):
    contents[odd] = os.urandom(size)
    os.makedirs(os.path.dirname(at_server(odd)), exist_ok=True)
    put(odd, contents[odd])
os.chmod(root, 0o755)
print("Linux", os.uname().release, "user-mode", flush=True)
server = Ganesha("/run/ganesha", export(root))
run_tests(chosen(in_turn("3", "portable", TESTS + WITHOUT_SERVER)
                 + in_turn("3", "auto", TESTS + WITHOUT_SERVER[:1])
                 + in_turn("4.1", "auto", TESTS)))
