# SPDX-License-Identifier: LGPL-2.1-or-later
"""shadectl and libshade against a mount of somebody who means harm: hostile.py SHADECTL FAKEFS
[LIBSHADE]. Anybody may mount something with the type fuse.shadefs, and answer what they like."""
import ctypes
import errno
import os
import shutil
import subprocess
import sys

from fake import Fake, check, finish, run, refuses, works

# What a terminal takes for a command: escapes, and the same as one character above 128.
TRICK = "\x1b]0;owned\x07\x1b[2J\x9b31m\udc9b31m"
PRINTING = (("status",), ("stats",), ("top", "--once"), ("debug",), ("policy",), ("capacity",),
            ("epoch",), ("order",))


def harmless(done):
    """Nothing but text."""
    for text in (done.stdout, done.stderr):
        odd = {char for char in text if char not in "\n\t" and (char < " " or char == "\x7f" or
                                                               "\x80" <= char < "\xa0" or
                                                               "\udc80" <= char < "\udca0")}
        check(not odd, f"{done.args[1:]}: {odd} in {text!r}")


def names_with_escapes(fake):
    fake.put(".shade/stats", f"mode {TRICK}\npolicy {TRICK}\nepoch {TRICK}\n{TRICK} {TRICK}\n"
                             f"capacity_bytes {TRICK}\nsamples 1\n")
    fake.put(".shade/config", f"source {TRICK}\n{TRICK}\n")
    fake.put(".shade/order", f"{TRICK}\n1\n")
    fake.put(".shade/scores", f"{TRICK}\t{TRICK}\n")
    for verb, *words in PRINTING:
        done = run(verb, fake.mnt, *words)
        harmless(done)
        check("owned" in done.stdout or verb in ("top", "capacity"), f"{verb}: {done.stdout!r}")
    fake.rules(("evict", 22, TRICK.replace("\udc9b", "")))
    done = run("evict", fake.mnt, os.path.join(fake.mnt, "val.bin"))
    harmless(done)
    check(done.returncode == 2 and "owned" in done.stderr, f"{done.stderr!r}")


def files_without_an_end(fake):
    for name in ("stats", "config", "order", "scores"):
        os.truncate(os.path.join(fake.state, ".shade", name), 1 << 40)
    for verb in ("status", "stats", "order", "policy", "debug"):
        done = run(verb, fake.mnt)
        harmless(done)
        check(done.returncode == 1 and "large" in done.stdout + done.stderr,
              f"{verb}: exit {done.returncode}, {done.stderr!r}")
    fake.stats()
    works(run("top", fake.mnt, "--once"))


def a_library_that_reads_no_more_than_it_must(fake):
    if len(sys.argv) < 4:
        return
    for name in ("stats", "samples", "resident"):
        fake.put(f".shade/{name}", "")
        os.truncate(os.path.join(fake.state, ".shade", name), 1 << 40)
    lib = ctypes.CDLL(sys.argv[3])
    lib.shade_error.restype = ctypes.c_char_p
    handle, value, bits = ctypes.c_void_p(), ctypes.c_double(), (ctypes.c_uint64 * 1)()
    each = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p)
    check(not lib.shade_open(fake.mnt.encode(), None, ctypes.byref(handle)), "not opened")
    for wanted, words, call in (
            (errno.EFBIG, b"stats is larger",
             lambda: lib.shade_stat(handle, b"samples", ctypes.byref(value))),
            (errno.EFBIG, b"resident is larger", lambda: lib.shade_resident(handle, bits, 64)),
            (errno.EPROTO, b"a line of more than",
             lambda: lib.shade_samples(handle, each(lambda *_: 0), None))):
        rc = call()
        check(rc == -wanted and words in lib.shade_error(), f"{rc}, {lib.shade_error()}")
    lib.shade_close(handle)
    fake.stats()


def of_another_user(fake):
    """The kernel lets nobody into it, unless the administrator allows that; then it is as above."""
    if os.getuid():
        print("not root: a mount of another user is skipped")
        return
    point = os.path.join(fake.top, "theirs")
    os.mkdir(point)
    for path in (fake.top, fake.state):
        os.chmod(path, 0o755)
    os.chown(point, 65534, 65534)
    program = os.path.join(fake.top, "fakefs")
    shutil.copy(sys.argv[2], program)
    server = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               program, fake.state, point, "-f", "-osubtype=shadefs"],
                              stderr=subprocess.PIPE, text=True)
    fake.servers.append(server)
    if not fake.wait_for(point, server):
        print("a mount of another user is skipped:", server.stderr.read())
        return
    for verb in ("status", "stats", "order"):
        refuses(run(verb, point), 1, "you may not control")
    works(run("umount", point), "")


with Fake() as shown:
    names_with_escapes(shown)
    files_without_an_end(shown)
    a_library_that_reads_no_more_than_it_must(shown)
    of_another_user(shown)
finish()
