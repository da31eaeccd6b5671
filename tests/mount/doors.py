# SPDX-License-Identifier: LGPL-2.1-or-later
"""What others can do to root's daemon through its doors: handles of files, .shade, floods of reads.
Whatever an attacker does here, user 65534 does it."""
import ctypes
import errno
import grp
import os
import struct
import subprocess
import sys
import time

from common import MODE, Shade, Slow, hold_in_memory, is_sanitized, make_tree, read, run_tests, \
    wait_until

NOBODY = 65534
HANDLE_BYTES = 128


class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int),
                ("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


def start_nobody(script, *arguments, uid=NOBODY):
    """Runs Python code as another user."""
    return subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={NOBODY}",
                             "--clear-groups", sys.executable, "-c", script, *arguments],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def as_nobody(script, *arguments):
    process = start_nobody(script, *arguments)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


def open_mount(root, source=None, **options):
    """One that others may enter; `source` shows the root."""
    os.chmod(root, 0o755)
    fs = Shade(source or root, allow_other=True, **options)
    os.chmod(os.path.dirname(fs.path), 0o755)
    return fs


# --- handles ------------------------------------------------------------

TELL_HANDLES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for folder, folders, names in os.walk(sys.argv[1]):
    for name in folders + names:
        handle = (ctypes.c_ubyte * 136)(128)
        mount = ctypes.c_int()
        if name != ".shade" and not libc.name_to_handle_at(
                -100, os.fsencode(os.path.join(folder, name)), handle, ctypes.byref(mount), 0):
            print(bytes(handle).hex())
"""


def node_of(handle):
    """The node's number in a handle of a FUSE file, or in one of an overlay over FUSE."""
    kind, = struct.unpack_from("<i", handle, 4)
    assert kind in (0x81, 0xf8), kind
    high, low = struct.unpack_from("<II", handle, 8 + (24 if kind == 0xf8 else 0))
    return high << 32 | low


def mappings(pid):
    with open(f"/proc/{pid}/maps") as file:
        return [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in file]


def handles_show_no_addresses():
    root, contents = make_tree(200)
    fs = open_mount(root, capacity="8M")
    numbers = [node_of(bytes.fromhex(line)) for line in as_nobody(TELL_HANDLES, fs.path).split()]
    assert len(set(numbers)) == len(contents) + 4, len(numbers)
    used = mappings(fs.process.pid)
    shown = [hex(number) for number in numbers
             if any(begin <= number < end for begin, end in used)]
    assert not shown, f"{len(shown)} of {len(numbers)} are addresses of the daemon's: {shown[:3]}"
    # Neighbours in memory are none in numbers.
    numbers.sort()
    close = sum(after - before < 1 << 30 for before, after in zip(numbers, numbers[1:]))
    assert close == 0, f"{close} of {len(numbers)} are close to each other"
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    fs.end()


def handles_that_were_made_up():
    """Root alone may open by handle. Numbers that nobody was told of are stale, and do no harm."""
    libc = ctypes.CDLL(None, use_errno=True)
    root, contents = make_tree(20)
    fs = open_mount(root, capacity="8M")
    used = mappings(fs.process.pid)
    numbers = [*range(64), 4095, 4096, 1 << 63, (1 << 64) - 1, *(begin + 64 for begin, _ in used)]
    tops = [fs.path, fs.at(".shade")]
    if MODE == "native":
        tops.append(f"/run/shadefs/{fs.process.pid}/files")
    for path in tops:
        top = os.open(path, os.O_RDONLY)
        for number in numbers:
            handle = Handle(size=12, type=0x81)
            struct.pack_into("<III", handle.bytes, 0, number >> 32, number & 0xffffffff, 1)
            fd = libc.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY)
            if fd >= 0:
                os.close(fd)
            else:
                assert ctypes.get_errno() in (errno.ESTALE, errno.EOPNOTSUPP, errno.EINVAL), \
                    ctypes.get_errno()
        os.close(top)
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    fs.end()


# --- .shade ------------------------------------------------------------

GROUP = grp.getgrgid(NOBODY).gr_name  # whose members may use .shade


def memory_of(fs):
    with open(f"/proc/{fs.process.pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))


def read_from(fd, offset, size=1 << 17):
    pieces = []
    while piece := os.pread(fd, size, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


OPEN_SAMPLES = """
import os, sys
fds = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(30)]
for fd in fds:
    os.read(fd, 4096)
print("open", flush=True)
sys.stdin.read()
"""


def samples_take_no_memory_a_reader():
    root = make_tree(0)[0]
    os.mkdir(os.path.join(root, "d"))
    for number in range(5000):
        with open(os.path.join(root, "d", f"{number:05}{'n' * 200}"), "w"):
            pass
    fs = open_mount(root, capacity="8M", group=GROUP)
    before = memory_of(fs)
    reader = start_nobody(OPEN_SAMPLES, fs.at(".shade/samples"))
    assert reader.stdout.readline() == "open\n"
    grown = memory_of(fs) - before
    assert grown < 20 << 20 or is_sanitized(), f"30 readers take {grown >> 20} MiB"
    reader.communicate()
    fs.end()


def a_reader_of_samples_sees_one_moment():
    root, contents = make_tree(600)
    fs = open_mount(root, capacity="8M", staleness=0.5)
    whole = read(fs.at(".shade/samples"))
    assert len(whole.splitlines()) == len(contents)
    fd = os.open(fs.at(".shade/samples"), os.O_RDONLY)
    first = os.pread(fd, 100, 0)
    for path in list(contents)[::3]:
        os.remove(os.path.join(root, path))
    for number in range(100):
        with open(os.path.join(root, f"class1/a new name{number}\n"), "w"):
            pass
    fs.control("rescan\n")
    left = len(contents) - len(list(contents)[::3]) + 100
    wait_until(lambda: fs.stats()["samples"] == left, "they are numbered anew")
    assert first + read_from(fd, 100) == whole, "the text has changed under its reader"
    for offset in (0, 1, 5000, len(whole) - 1, len(whole), 1 << 40):
        assert read_from(fd, offset, 4096) == whole[offset:], offset
    renewed = read(fs.at(".shade/samples"))
    assert len(renewed.splitlines()) == left and renewed != whole
    assert b"\tclass1/a new name99\\012\n" in renewed
    os.close(fd)
    fs.end()


OPEN_MANY = """
import errno, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))
fds = []
try:
    while len(fds) < 3000:
        fds.append(os.open(sys.argv[1], os.O_RDONLY))
except OSError as failure:
    assert failure.errno == errno.EMFILE, failure
print(len(fds), flush=True)
sys.stdin.read()
"""


def one_user_cannot_open_everything():
    root, _ = make_tree(4)
    fs = open_mount(root, capacity="8M", group=GROUP)
    greedy = start_nobody(OPEN_MANY, fs.at(".shade/control"))
    assert int(greedy.stdout.readline()) == 1024
    assert fs.control("epoch 1\n").startswith("ok"), "root is shut out"
    other = start_nobody(OPEN_MANY, fs.at(".shade/stats"), uid=NOBODY - 1)
    assert int(other.stdout.readline()) == 512, "another user is shut out"
    assert fs.stats()["epoch"] == 1
    other.communicate()
    greedy.communicate()
    assert fs.read_log().count("too many files of .shade") == 1, fs.read_log()
    def is_free():
        again = start_nobody(OPEN_MANY, fs.at(".shade/control"))
        count = int(again.stdout.readline())
        again.communicate()
        return count == 1024
    wait_until(is_free, "what was closed can be opened again")
    fs.end()


BEGIN_ORDERS = """
import errno, os, sys
text = b"order 9 begin\\norder 9" + b" 1" * 450000 + b"\\n"
fds, answer = [], b""
try:
    while len(fds) < 400:
        fds.append(os.open(sys.argv[1], os.O_RDWR))
        os.write(fds[-1], text)
except OSError as failure:
    assert failure.errno == errno.ENOMEM, failure
    answer = os.read(fds[-1], 4096)
print(len(fds), answer.decode(), flush=True)
sys.stdin.read()
"""


def unfinished_orders_are_bounded():
    root, contents = make_tree(4)
    fs = open_mount(root, capacity="8M", group=GROUP)
    before = memory_of(fs)
    greedy = start_nobody(BEGIN_ORDERS, fs.at(".shade/control"))
    line = greedy.stdout.readline()
    assert 10 < int(line.split()[0]) < 50 and "as much memory" in line, line
    grown = memory_of(fs) - before
    assert grown < 200 << 20 or is_sanitized(), f"{grown >> 20} MiB"
    # A job of root's with orders of a million ids works all the same.
    pairs = b" ".join(b"%d" % (number % 4) for number in range(1000000))
    for epoch in (1, 2):
        fd = os.open(fs.at(".shade/control"), os.O_RDWR)
        data = b"order %d begin\norder %d %s\norder %d end\n" % (epoch, epoch, pairs, epoch)
        with open(fd, "wb", buffering=0) as file:
            while data:
                data = data[file.write(data):]
            assert os.read(fd, 4096).startswith(b"ok")
    assert fs.stats()["order_ahead"] == 2000000
    assert fs.read_log().count("as much memory as one user") == 1, fs.read_log()
    greedy.communicate()
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    fs.end()


# --- floods of reads ------------------------------------------------------------

# Reads many blocks of a large file at once, and then opens small ones in threads. When all wait,
# each thread gets a signal that does no harm.
FLOOD = """
import ctypes, mmap, os, signal, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
top, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cold = os.path.join(top, f"cold{count}")
small = [os.path.join(cold, name) for name in os.listdir(cold)]
assert all(os.access(path, os.R_OK) for path in small)
fd = os.open(os.path.join(top, "large"), os.O_RDONLY | os.O_DIRECT)
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)
sys.stdin.readline()
buffer = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
blocks = [ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, 0, 0, fd, address, 4096,
                                                  number % 2304 * 4096, 0, 0, 0))
          for number in range(count)]
pointers = (ctypes.c_void_p * count)(*map(ctypes.addressof, blocks))
context, begun = ctypes.c_ulong(), 0
assert libc.syscall(IO_SETUP, count, ctypes.byref(context)) == 0, "io_setup"
while begun < count:
    done = libc.syscall(IO_SUBMIT, context, ctypes.c_long(count - begun),
                        ctypes.byref(pointers, begun * ctypes.sizeof(ctypes.c_void_p)))
    assert done > 0, os.strerror(ctypes.get_errno())
    begun += done
threading.stack_size(1 << 16)
running = [threading.Thread(target=os.open, args=(small[number % len(small)], os.O_RDONLY),
                            daemon=True) for number in range(threads)]
for thread in running:
    thread.start()
folder = f"/proc/{os.getpid()}/task"
def waits(thread):
    with open(f"{folder}/{thread.native_id}/wchan") as file:
        return file.read() == "request_wait_answer"
while not all(map(waits, running)):
    time.sleep(0.01)
for thread in running:
    signal.pthread_kill(thread.ident, signal.SIGUSR1)
print("all wait", flush=True)
sys.stdin.read()
"""
MACHINES = {"x86_64": (206, 209), "aarch64": (0, 2)}  # numbers of io_setup and io_submit


def computed_ms(fs):
    """What the daemon has computed, however busy the machine is."""
    folder = f"/proc/{fs.process.pid}/task"
    total = 0
    for thread in os.listdir(folder):
        with open(f"{folder}/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e6


def start_flood(fs, slow, count, threads):
    setup, submit = MACHINES[os.uname().machine]
    script = FLOOD.replace("IO_SETUP", str(setup)).replace("IO_SUBMIT", str(submit))
    flooding = start_nobody(script, fs.path, str(count), str(threads))
    assert flooding.stdout.readline() == "ready\n"
    slow.pause()
    flooding.stdin.write("go\n")
    flooding.stdin.flush()
    assert flooding.stdout.readline() == "all wait\n"
    return flooding


def wait_for_rest(fs):
    """Until the daemon has taken all requests; if it always computes, the test will say so."""
    for _ in range(20):
        before = computed_ms(fs)
        time.sleep(0.05)
        if computed_ms(fs) - before < 5:
            break


def cost_of_others(fs, slow, contents, count, threads):
    """What the daemon computes in a second in which it serves some hits, while others wait."""
    flooding = start_flood(fs, slow, count, threads)
    try:
        wait_for_rest(fs)
        before = computed_ms(fs)
        end = time.monotonic() + 1
        for path, data in contents.items():
            assert read(fs.at(path)) == data
        time.sleep(max(0, end - time.monotonic()))
        cost = computed_ms(fs) - before
    finally:
        flooding.kill()
        slow.resume()
        flooding.communicate()
    return cost


def reads_of_one_file_do_not_hold_up_others():
    """Thousands of reads of one file wait, and hundreds of opens whose callers got a signal, which
    are looked at again and again: that must not take time for each of the others that wait. In
    native mode the kernel sends no opens."""
    if os.uname().machine not in MACHINES:
        return
    many, threads = 15000, 500 if MODE == "portable" else 0
    root, contents = make_tree(20)
    for path in (f"cold{count}/{number}" for count in (1, many) for number in range(10)):
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w") as file:
            file.write("cold")
    with open(os.path.join(root, "large"), "wb") as file:
        file.truncate(9 << 20)
    slow = Slow(root)
    fs = open_mount(root, slow.path, capacity="64M", deadline=600, staleness=600)
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    with hold_in_memory(map(fs.at, contents)):
        few = cost_of_others(fs, slow, contents, 1, threads)
        bound = 4 * few + 150
        for _ in range(3):  # on a busy machine computing takes longer than it has to
            cost = cost_of_others(fs, slow, contents, many, threads)
            if cost < bound:
                break
    assert cost < bound, f"{cost:.0f} ms of computing a second, and {few:.0f} without"
    fs.end()
    slow.end()


run_tests([handles_show_no_addresses, handles_that_were_made_up, samples_take_no_memory_a_reader,
           a_reader_of_samples_sees_one_moment, one_user_cannot_open_everything,
           unfinished_orders_are_bounded, reads_of_one_file_do_not_hold_up_others])
