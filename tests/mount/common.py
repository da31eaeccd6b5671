# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the mount tests share: a scratch folder, real mounts, and an end that leaves nothing
behind. Every script is run as SCRIPT SHADEFS SLOWFS [SHADECTL], in the mode
that SHADE_TEST_MODE names (portable), and exits with 0, 1, or 77 and a reason."""
import atexit
import errno
import hashlib
import mmap
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import ExitStack

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from processes import children, daemon_pid, daemons, family, has_ended  # pylint: disable=wrong-import-position

SHADEFS, SLOWFS = sys.argv[1:3]
SHADECTL = sys.argv[3] if len(sys.argv) > 3 else None
MODE = os.environ.get("SHADE_TEST_MODE", "portable")
MAP_LOCKED = 0x2000  # which Python's mmap has no name for
scratch = tempfile.mkdtemp(prefix="shade-test-")
running = []


def skip(reason):
    print("SKIP:", reason)
    shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(77)


if not os.path.exists("/dev/fuse"):
    skip("there is no /dev/fuse here")
if os.geteuid() != 0:
    skip("mounting needs root here")


def can_native():
    """Whether the three things that native mode needs are there, by trying."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for name in ("source", "point"):
            os.mkdir(os.path.join(folder, name))
        done = subprocess.run([SHADEFS, "-o", "mode=native,capacity=1M",
                               *(os.path.join(folder, name) for name in ("source", "point"))],
                              capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            subprocess.run(["umount", "-R", os.path.join(folder, "point")], check=True)
        return done.stderr.strip() if done.returncode else None


def unescaped(path):
    """Without the escapes that proc(5) tells of."""
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), path)


def mount_points():
    with open("/proc/self/mountinfo") as file:
        return [unescaped(line.split(" ")[4]) for line in file]


def is_mounted(path):
    return path in mount_points()


def run_dir(point):
    """The private directory of a native mount, below /run/shadefs, as the overlay names it. None: the
    mount is not a native one."""
    with open("/proc/self/mountinfo") as file:
        overlays = [line.split() for line in file if "lowerdir=/run/shadefs/" in line]
    found = [re.search("lowerdir=(/run/shadefs/[^/:]+)/", fields[-1])[1] for fields in overlays
             if unescaped(fields[4]) == point]
    return found[-1] if found else None


def holds_by_now(condition):
    """A name that just got another file answers ESTALE for a moment: not yet."""
    try:
        return condition()
    except OSError as failure:
        if failure.errno != errno.ESTALE:
            raise
        return False


def wait_until(holds, what, seconds=60):
    end = time.monotonic() + seconds
    while not holds_by_now(holds):
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(0.01)


if MODE == "native" and (missing := can_native()):
    skip(missing)


def abort_connections(*prefixes):
    """Those of FUSE mounts whose mount points begin so: whoever waits for them gets an error."""
    connections = tempfile.mkdtemp(dir=scratch)
    subprocess.run(["mount", "-t", "fusectl", "none", connections], check=True)
    try:
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - fuse" in line]
        for fields in mounts:
            if fields[4].startswith(prefixes):
                minor = fields[2].split(":")[1]
                with open(os.path.join(connections, minor, "abort"), "w") as file:
                    file.write("1")
    finally:
        subprocess.run(["umount", connections], check=True)


class Filesystem:
    """A FUSE server of ours, in front, on a mount point of its own."""

    def __init__(self, command, name, point=None):
        self.path = point or tempfile.mkdtemp(prefix=f"{name}-", dir=scratch)
        self.log = getattr(self, "log", None) or tempfile.mktemp(f"-{name}.log", dir=scratch)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command(self.path), stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)
        running.append(self)
        wait_until(lambda: is_mounted(self.path) or self.process.poll() is not None, "mounted")
        if self.process.poll() is not None:
            raise AssertionError(f"{name} ended: {self.read_log()}")

    def read_log(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def end(self, how=signal.SIGTERM):
        """Ends it and sees that it ended well, with nothing left."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(60)
        text = self.read_log()
        assert "Sanitizer" not in text and "runtime error" not in text, text[:20000]
        assert code == 0, f"exit {code}: {text[-3000:]}"
        assert not is_mounted(self.path), "still mounted"
        running.remove(self)

    def die(self):
        """Is killed, and whatever it has started ends with it."""
        processes = family(self.process.pid)
        self.process.kill()
        self.process.wait(60)
        wait_until(lambda: all(map(has_ended, processes)), f"{processes} have ended")

    def kill(self):
        """Whatever happens."""
        if self.process.poll() is None:
            others = family(self.process.pid)[1:]
            self.process.kill()
            try:
                self.process.wait(20)
                wait_until(lambda: all(map(has_ended, others)), f"{others} have ended", 20)
            except (AssertionError, subprocess.TimeoutExpired):
                abort_connections(self.path, f"{run_dir(self.path) or self.path}/")
                self.process.wait(20)
        for path in (os.path.join(self.path, ".shade"), self.path):
            subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL)


class Shade(Filesystem):
    def __init__(self, source, point=None, prefix=(), **options):
        options = {"mode": MODE, **options}
        text = ",".join(name if value is True else f"{name}={value}"
                        for name, value in options.items())
        super().__init__(lambda path: [*prefix, SHADEFS, "-f", "-o", text, source, path], "shadefs",
                         point)
        wait_until(self.is_ready, "scanned")
        self.place = run_dir(self.path)

    def is_ready(self):
        try:
            stats = self.stats()
        except OSError:
            return False
        return stats["scan_complete"] == 1 and not stats["young"]

    def daemon(self):
        """The process that serves, which another one follows if it dies."""
        return daemon_pid(self.process.pid)

    def at(self, *names):
        return os.path.join(self.path, *names)

    def stats(self):
        with open(self.at(".shade", "stats")) as file:
            pairs = [line.split() for line in file]
        return {key: value if key in ("mode", "policy") else float(value) for key, value in pairs}

    def control(self, text):
        """Writes commands, and returns the answer."""
        fd = os.open(self.at(".shade", "control"), os.O_RDWR)
        try:
            os.write(fd, text.encode() if isinstance(text, str) else text)
            return os.read(fd, 4096).decode()
        finally:
            os.close(fd)

    def samples(self):
        """From paths to ids."""
        with open(self.at(".shade", "samples")) as file:
            return {path: int(number) for number, path in
                    (line.rstrip("\n").split("\t") for line in file)}

    def settle(self):
        """Waits until nothing is on its way."""
        def quiet():
            stats = self.stats()
            return not any(stats[key] for key in ("reserved_bytes", "inflight_bytes", "young"))
        try:
            wait_until(quiet, "nothing in flight")
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {self.stats()}") from failure


class Slow(Filesystem):
    def __init__(self, source, point=None, **options):
        text = ",".join(f"{name}={value}" for name, value in options.items())
        super().__init__(lambda path: [SLOWFS, "-f", *(["-o", text] if text else []), source, path],
                         "slowfs", point)

    def tell(self, text):
        fd = os.open(os.path.join(self.path, ".slowfs"), os.O_WRONLY)
        try:
            os.write(fd, text.encode() + b"\n")
        finally:
            os.close(fd)

    def pause(self):
        """It hangs until resume(). A request that it had taken, but not answered, could not be
        given up by anybody, not even killed: so it is over only when all threads stand still. One
        that waits for another's answer, as when it begins, never would: it goes on until then."""
        def states():
            folder = f"/proc/{self.process.pid}/task"
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/stat") as file:
                    yield file.read().rpartition(")")[2].split()[0]

        def stands_still():
            self.process.send_signal(signal.SIGSTOP)
            for _ in range(50):
                if set(states()) == {"T"}:
                    return True
                time.sleep(0.01)
            self.resume()
            return False

        wait_until(stands_still, "slowfs stands still")

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def hangs(self):
        """Whether somebody waits for it."""
        return self.counts()["hung"] != "0"

    def counts(self):
        with open(os.path.join(self.path, ".slowfs")) as file:
            return dict(line.rsplit(None, 1) for line in file if len(line.split()) > 1)


class Group:
    """A memory cgroup, of version 1 or 2, with nothing in it."""

    def __init__(self):
        base, self.limit_name, self.usage_name = self.find()
        self.path = tempfile.mkdtemp(prefix="shade-test-", dir=base)

    @staticmethod
    def find():
        """Where groups can be made, or an exception that says why not."""
        if os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            return "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        with open("/sys/fs/cgroup/cgroup.subtree_control") as file:
            if "memory" not in file.read().split():
                raise OSError(errno.ENOTSUP, "no memory controller")
        return "/sys/fs/cgroup", "memory.max", "memory.current"

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def usage(self):
        with open(os.path.join(self.path, self.usage_name)) as file:
            return int(file.read())

    def events(self):
        """What the kernel has killed in it, among others, as it says so."""
        for name in ("memory.oom_control", "memory.events"):
            if os.path.exists(os.path.join(self.path, name)):
                with open(os.path.join(self.path, name)) as file:
                    return file.read()
        return ""

    def add(self, pid):
        self.write("cgroup.procs", pid)

    def command(self, *words):
        """That it runs in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(self.path, "cgroup.procs"),
                *words]

    def limit(self, size):
        """Version 1 refuses what it cannot reclaim at once; it goes on when asked again."""
        def taken():
            try:
                self.write(self.limit_name, size)
                return True
            except OSError as failure:
                assert failure.errno == errno.EBUSY, failure
                return False
        wait_until(taken, "the limit is taken")

    def remove(self):
        def gone():
            try:
                os.rmdir(self.path)
                return True
            except OSError:
                return False
        wait_until(gone, "the group is empty")


class ServiceManager:
    """Where a daemon tells systemd how it is, in its place."""

    def __init__(self):
        path = os.path.join(tempfile.mkdtemp(dir=scratch), "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.settimeout(60)
        self.socket.bind(path)
        os.environ["NOTIFY_SOCKET"] = path  # of what is started until begun()

    def begun(self):
        del os.environ["NOTIFY_SOCKET"]

    def told(self):
        """What it is told next, and by which process."""
        text, extra, _, _ = self.socket.recvmsg(8192, socket.CMSG_SPACE(12))
        return text.decode(), struct.unpack("3i", extra[0][2])[0]


def make_tree(files, size=20000, folders=4, seed=1):
    """A tree of random files; from paths to contents."""
    root = tempfile.mkdtemp(prefix="source-", dir=scratch)
    chance = random.Random(seed)
    contents = {}
    for number in range(files):
        path = f"class{number % folders}/sample{number:05}.bin"
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        contents[path] = chance.randbytes(chance.randrange(size // 2, size * 3 // 2))
        with open(os.path.join(root, path), "wb") as file:
            file.write(contents[path])
    return root, contents


def read(path):
    with open(path, "rb") as file:
        return file.read()


def hold_in_memory(paths):
    """Locks the pages of files until the result is closed. Some kernels reclaim pages that are
    hardly used while there is memory enough (DAMON): a hit that must not fail needs this."""
    held = ExitStack()
    for path in paths:
        with open(path, "rb") as file:
            held.enter_context(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | MAP_LOCKED,
                                         mmap.PROT_READ))
    return held


def reads_as(path, data):
    """Whether it is that version by now: another one, or none that holds still, is not."""
    try:
        return read(path) == data
    except OSError as failure:
        assert failure.errno in (errno.ESTALE, errno.EIO, errno.ENOENT, errno.ETIMEDOUT), failure
        return False


def is_sanitized():
    """Whether the daemon was built with a sanitizer, which needs many times the memory."""
    return any(name in read(SHADEFS) for name in (b"__asan_init", b"__tsan_init"))


def digest(data):
    return hashlib.sha256(data).digest()


def in_threads(count, work):
    """Runs work(number) in threads; the first failure is raised."""
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def raises(error, work):
    """The errno is this, or that of the last resort."""
    try:
        work()
    except OSError as failure:
        wanted = error if isinstance(error, tuple) else (error,)
        assert failure.errno in wanted, f"errno {failure.errno}, not {wanted}"
        return failure
    raise AssertionError(f"no error, but {error} was due")


def clean_up():
    for filesystem in reversed(list(running)):
        filesystem.kill()
    for path in reversed(mount_points()):
        if path.startswith(scratch + "/"):
            subprocess.run(["umount", "-l", path])
    shutil.rmtree(scratch, ignore_errors=True)


def run_tests(tests):
    """Runs functions by name; all of them, whatever fails."""
    atexit.register(clean_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = 0
    for test in tests:
        try:
            test()
            print("ok", test.__name__, flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print("FAILED", test.__name__)
            traceback.print_exc(file=sys.stdout)
            for filesystem in running:
                print(filesystem.read_log()[-3000:])
        for filesystem in reversed(list(running)):
            filesystem.kill()
            running.remove(filesystem)
    print(f"{len(tests) - failed} of {len(tests)}")
    sys.exit(1 if failed else 0)
