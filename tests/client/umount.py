# SPDX-License-Identifier: LGPL-2.1-or-later
"""shadectl umount: what it unmounts, what it does not, and who is in the way:
umount.py SHADECTL FAKEFS."""
import os
import subprocess
import sys

from fake import Fake, check, finish, mounts, refuses, run, works


def gone(fake, what):
    check(fake.mnt not in mounts(), f"{what}: still mounted")


def plain():
    with Fake() as fake:
        link = os.path.join(fake.top, "link")
        os.symlink(fake.mnt, link)
        works(run("umount", link), "")
        gone(fake, "through a link")
        check(fake.servers[0].wait(10) == 0, "the daemon is still there")
        refuses(run("umount", fake.mnt), 1, "nothing is mounted")
        refuses(run("umount", fake.top + "/none"), 1, "none")
        refuses(run("umount", fake.top + "/none/none"), 1, "there is no")
        fake.serve(fake.state, fake.mnt)
        works(run("umount", ".", cwd=fake.mnt), "")
        gone(fake, "from inside")


def foreign():
    """What is no shadefs is left alone."""
    refuses(run("umount", "/proc"), 1, "/proc", "no shadefs", "proc")
    with Fake() as fake:
        works(run("umount", fake.mnt))
        os.rename(f"{fake.state}/.shade", f"{fake.state}/shade")
        fake.serve(fake.state, fake.mnt, "-osubtype=other")
        refuses(run("umount", fake.mnt), 1, "no shadefs", "fuse.other")
        check(fake.mnt in mounts(), "a foreign mount was unmounted")
        os.rename(f"{fake.state}/shade", f"{fake.state}/.shade")
        works(run("umount", fake.mnt), "")
        gone(fake, "another name, but it answers")


def dead():
    with Fake() as fake:
        fake.servers[0].kill()
        fake.servers[0].wait()
        works(run("umount", fake.mnt + "/"), "")
        gone(fake, "a dead daemon")


def holder(fake, program, **how):
    """A process that does something and then waits."""
    child = subprocess.Popen([sys.executable, "-c", f"import os, mmap, sys, time\n{program}\n"
                              "print('ready', flush=True)\ntime.sleep(60)"],
                             stdout=subprocess.PIPE, text=True, **how)
    check(child.stdout.readline() == "ready\n", f"the holder failed: {program}")
    fake.servers.append(child)
    return child


def busy():
    with Fake() as fake:
        inside = os.path.join(fake.mnt, "train")
        name = os.path.join(inside, "1.bin")
        mapped = (f"f = os.open({name!r}, os.O_RDONLY)\n"
                  "m = mmap.mmap(f, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)\nos.close(f)")
        # CPython keeps a descriptor of its own beside a mapping, so map without it.
        libc = (f"import ctypes\nf = os.open({name!r}, os.O_RDONLY)\n"
                "c = ctypes.CDLL(None)\nc.mmap.restype = ctypes.c_void_p\n"
                "c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, "
                "ctypes.c_long]\nassert c.mmap(None, 4096, 1, 2, f, 0) != ctypes.c_void_p(-1).value"
                "\nos.close(f)")
        for program, path, what, how in (
                ("", inside, "(directory)", {"cwd": inside}),
                (f"f = open({name!r})", name, "(file 3)", {}),
                (mapped, name, "(", {}), (libc, name, "(mapped)", {})):
            child = holder(fake, program, **how)
            done = run("umount", fake.mnt)
            with open(f"/proc/{child.pid}/comm") as file:
                comm = file.read().strip()
            lines = [line for line in done.stderr.splitlines()
                     if line.split()[:2] == [str(child.pid), comm]]
            check(done.returncode == 1 and f"{fake.mnt} is busy" in done.stderr
                  and len(lines) == 1 and path in lines[0] and what in lines[0],
                  f"{what}: exit {done.returncode}, {done.stderr!r}")
            check(str(os.getpid()) not in done.stderr.split(), f"accuses us: {done.stderr!r}")
            check(fake.mnt in mounts(), f"{what}: unmounted all the same")
            child.kill()
            child.wait()
        works(run("umount", fake.mnt), "")
        gone(fake, "nobody there any more")


def many():
    with Fake() as fake:
        children = [holder(fake, "", cwd=fake.mnt)]
        children += [subprocess.Popen(["sleep", "60"], cwd=fake.mnt) for _ in range(40)]
        fake.servers += children[1:]
        done = run("umount", fake.mnt)
        check(done.stderr.count(" (directory)\n") == 32 and "  and 9 more\n" in done.stderr,
              f"41 holders: {done.stderr}")
        works(run("umount", fake.mnt, "--lazy"), "")
        gone(fake, "--lazy")
        for child in children:
            child.kill()
            child.wait()


def control_apart():
    """As in native mode: .shade is a mount of its own."""
    with Fake() as fake:
        control = os.path.join(fake.mnt, ".shade")
        fake.serve(os.path.join(fake.state, ".shade"), control)
        works(run("status", fake.mnt))
        # Of another user, the second is no daemon, whatever its name is.
        pretends = ("import ctypes\nctypes.CDLL(None).prctl(15, b'shadefs')\n"
                    "os.getuid() or os.setuid(65534)")
        for program in ("", pretends) if not os.getuid() else ("",):
            child = holder(fake, program, cwd=fake.mnt)
            done = run("umount", fake.mnt)
            check(done.returncode == 1 and str(child.pid) in done.stderr.split(),
                  f"busy: {done.stderr}")
            check(control in mounts() and fake.mnt in mounts(), "a busy mount lost its control")
            check("mounted below" not in done.stderr, f"accuses .shade: {done.stderr}")
            child.kill()
            child.wait()
        works(run("umount", fake.mnt), "")
        check(control not in mounts(), "control is still mounted")
        gone(fake, "control apart")


def mounted_below():
    with Fake() as fake:
        below = os.path.join(fake.mnt, "7")
        fake.serve(fake.state, below)
        done = run("umount", fake.mnt)
        check(done.returncode == 1 and f"{below} is mounted below it" in done.stderr
              and "nobody" not in done.stderr, f"mounted below: {done.stderr}")
        works(run("umount", below), "")
        works(run("umount", fake.mnt), "")


def as_user():
    """Without privileges fusermount3 does it, here one that tells what it was asked."""
    with Fake() as fake:
        if not fake.run_as_nobody("--version"):
            return
        helpers = os.path.join(fake.top, "helpers")
        asked = os.path.join(fake.top, "asked")
        os.mkdir(helpers)
        for text, code, words in (
                ("", 0, ()),
                ("echo 'fusermount3: failed: Device or resource busy' >&2; exit 1", 1,
                 (f"{fake.mnt} is busy", "could not be looked at")),
                ("echo 'fusermount3: entry not found' >&2; exit 1", 1, ("entry not found",))):
            with open(f"{helpers}/fusermount3", "w") as file:
                file.write(f"#!/bin/sh\necho \"$@\" >>{asked}\n{text}\n")
            os.chmod(f"{helpers}/fusermount3", 0o755)
            done = fake.run_as_nobody("umount", fake.mnt, *(["--lazy"] if not code else []),
                                      env={"PATH": f"{helpers}:/usr/bin:/bin"})
            check(done.returncode == code, f"{text}: exit {done.returncode}, {done.stderr!r}")
            for word in words:
                check(word in done.stderr, f"{text}: '{word}' is not in {done.stderr!r}")
        with open(asked) as file:
            check(file.read() == f"-uz -- {fake.mnt}\n" + f"-u -- {fake.mnt}\n" * 2, "asked")
        refuses(fake.run_as_nobody("umount", fake.mnt, env={"PATH": helpers + "/none"}), 1,
                "there is no fusermount3")
        check(fake.mnt in mounts(), "nobody unmounted it")
        works(run("umount", fake.mnt), "")


for part in (plain, foreign, dead, busy, many, control_apart, mounted_below, as_user):
    part()
finish()
