# SPDX-License-Identifier: LGPL-2.1-or-later
"""What others can do to root's daemon through its doors: handles of files, .shade, floods of reads.
Whatever an attacker does here, user 65534 does it."""
import ctypes
import errno
import os
import re
import struct
import subprocess
import sys

from common import MODE, Shade, make_tree, raises, read, run_tests

NOBODY = 65534
HANDLE_BYTES = 128


class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int),
                ("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


def start_nobody(script, *arguments, groups=(), **how):
    """Runs Python code as another user."""
    return subprocess.Popen(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                             f"--groups={','.join(map(str, groups))}" if groups
                             else "--clear-groups",
                             sys.executable, "-c", script, *map(str, arguments)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how)


def as_nobody(script, *arguments, **how):
    process = start_nobody(script, *arguments, **how)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


def open_mount(root, **options):
    """One that others may enter."""
    os.chmod(root, 0o755)
    fs = Shade(root, allow_other=True, **options)
    os.chmod(os.path.dirname(fs.path), 0o755)
    return fs


# --- handles ---------------------------------------------------------------------------------------

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


run_tests([handles_show_no_addresses, handles_that_were_made_up])
