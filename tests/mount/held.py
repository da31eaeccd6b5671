# SPDX-License-Identifier: LGPL-2.1-or-later
"""What holds against other users, and with how few rights the daemon does with: attacks are made as
nobody, against root's daemon."""
import ctypes
import errno
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading

NOBODY = 65534
PACKAGING = os.path.join(os.path.dirname(__file__), "..", "..", "packaging", "systemd")


def confine(calls, command):
    """Runs a command that may make these system calls alone; others fail with EPERM."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int,
                                         ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(0x00050000 | errno.EPERM)
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0 and library.seccomp_rule_add(context, 0x7fff0000, number, 0):
            sys.exit(f"no rule for {call}")
    if library.seccomp_load(context):
        sys.exit("the filter is refused")
    os.execvp(command[0], command)


if sys.argv[1] == "--confine":
    confine(sys.argv[2].split(","), sys.argv[3:])

from common import (MODE, SHADECTL, SHADEFS, Shade, children, is_mounted, is_sanitized, make_tree, raises, read,  # noqa: E402
                    reads_as, run_tests, scratch, wait_until)


def as_nobody(*command, **how):
    return subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                           *command], capture_output=True, text=True, timeout=60, **how)


def open_to_others(root):
    """A mount that all may enter."""
    os.chmod(root, 0o755)
    os.chmod(scratch, 0o755)
    return Shade(root, capacity="8M", staleness=0.5, allow_other=True)


def denied(path, *command):
    done = as_nobody(*command)
    assert done.returncode and ("ermission denied" in done.stderr
                                or "not permitted" in done.stderr), f"{path}: {done}"


# --- mounts --------------------------------------------------------------------------------------

def mounts_of(fs):
    """Mount points and their flags."""
    prefixes = (fs.path, f"/run/shadefs/{fs.process.pid}/")
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4:6] for line in file]
    return {point: flags.split(",") for point, flags in mounts if point.startswith(prefixes)}


def nothing_of_the_source_gives_power():
    """Set-user-ID bits and devices have no effect, whichever mount one comes by."""
    root, _ = make_tree(2)
    shutil.copy(shutil.which("id"), os.path.join(root, "id"))
    os.chown(os.path.join(root, "id"), 0, 0)
    os.chmod(os.path.join(root, "id"), 0o6755)
    os.mknod(os.path.join(root, "zero"), 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.chmod(os.path.join(root, "zero"), 0o666)
    fs = open_to_others(root)
    mounts = mounts_of(fs)
    wanted = {fs.path}
    if MODE == "native":
        wanted |= {fs.at(".shade"), f"/run/shadefs/{fs.process.pid}/files"}
    assert wanted <= mounts.keys(), mounts
    for point, flags in mounts.items():
        assert {"nosuid", "nodev"} <= set(flags), f"{point}: {flags}"
    done = as_nobody(fs.at("id"), "-u")
    assert done.returncode == 0 and done.stdout == f"{NOBODY}\n", done
    done = as_nobody("head", "-c", "1", fs.at("zero"))
    assert done.returncode == 1 and not done.stdout, done
    # Nor does it to root. Whether the name is there at all is another matter.
    raises((errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOENT), lambda: read(fs.at("zero")))
    # Whoever unmounts .shade gets no other one.
    if MODE == "native":
        subprocess.run(["umount", fs.at(".shade")], check=True)
        wait_until(lambda: fs.at(".shade") in mounts_of(fs), "it comes back")
        assert {"nosuid", "nodev"} <= set(mounts_of(fs)[fs.at(".shade")])
        wait_until(fs.is_ready, "it answers")
    fs.end()


# --- what is no file -----------------------------------------------------------------------------

def nobody_reads(path):
    """Whether some process has a FIFO open for reading."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as failure:
        assert failure.errno == errno.ENXIO, failure
        return True
    return False


def what_is_no_file_blocks_nobody():
    """The daemon never opens a FIFO or socket; who waits for one waits alone. One that comes in
    place of a file is noticed."""
    root, contents = make_tree(20)
    for number in range(3):
        os.mkfifo(os.path.join(root, f"class0/fifo{number}"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(root, "class0/socket"))
    fs = open_to_others(root)
    readers = [subprocess.Popen(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                                 "--clear-groups", "cat", fs.at(f"class0/fifo{number % 3}")])
               for number in range(70)]  # more than the daemon fetches at a time
    try:
        assert fs.control("rescan\nwarm .\npin class0\nunpin class0\n").startswith("ok")
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        names = os.listdir(fs.at("class0"))
        assert {"fifo0", "fifo1", "fifo2", "socket"} <= set(names), names
        assert as_nobody("cat", fs.at("class0/socket")).returncode == 1
        assert len(fs.samples()) == len(contents), "only files are samples"
        for number in range(3):
            assert nobody_reads(os.path.join(root, f"class0/fifo{number}")), "it was opened"
        assert all(reader.poll() is None for reader in readers), "nobody waits: nothing was seen"
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
        listener.close()
    changed_into_fifos(root, fs, contents)
    fs.end()


def changed_into_fifos(root, fs, contents):
    fs.control("evict .\n")
    paths = list(contents)
    for path in paths[:10]:
        os.unlink(os.path.join(root, path))
        os.mkfifo(os.path.join(root, path))
    over = []

    def try_it(path):
        try:  # what is known to be a FIFO would be waited for
            fd = os.open(fs.at(path), os.O_RDONLY | os.O_NONBLOCK)
            assert os.read(fd, 10) == b"", path
            os.close(fd)
        except OSError as failure:
            assert failure.errno in (errno.ESTALE, errno.EIO, errno.ENOENT), failure
        over.append(path)

    threads = [threading.Thread(target=try_it, args=(path,)) for path in paths[:10]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(over) == 10, f"somebody waits for {set(paths[:10]) - set(over)}"
    for path in paths[10:]:
        wait_until(lambda path=path: reads_as(fs.at(path), contents[path]), f"{path} is read")
    assert all(nobody_reads(os.path.join(root, path)) for path in paths[:10]), "one stays open"


# --- what is the daemon's ------------------------------------------------------------------------

def the_daemon_is_closed_to_others():
    root, contents = make_tree(5)
    fs = open_to_others(root)
    processes = [fs.process.pid, *children(fs.process.pid)]
    assert len(processes) == 3, "the supervisor, the daemon and the watchdog"
    for pid in processes:
        for command in (["ls", f"/proc/{pid}/fd"], ["cat", f"/proc/{pid}/environ"],
                        ["cat", f"/proc/{pid}/maps"], ["head", "-c1", f"/proc/{pid}/mem"],
                        ["ls", f"/proc/{pid}/root/"], ["readlink", "-v", f"/proc/{pid}/cwd"],
                        ["kill", "-TERM", str(pid)], ["kill", "-USR1", str(pid)]):
            denied(f"process {pid}", *command)
    if MODE == "native":
        place = f"/run/shadefs/{fs.process.pid}"
        for folder in ("/run/shadefs", place):
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
            assert os.stat(folder).st_uid == 0, folder
        for path in ("/run/shadefs", place, f"{place}/files", f"{place}/lock"):
            denied(path, "ls", path + "/" if path != f"{place}/lock" else path)
            denied(path, "cat", path)
        denied(place, "mkdir", "/run/shadefs/1")
        denied(place, "touch", f"{place}/top/x")
    for name in ("control", "stats", "samples", "trace", "jobs/x"):
        denied(name, "cat", fs.at(".shade", name))
    denied("jobs", "mkdir", fs.at(".shade/jobs/x"))
    for point in mounts_of(fs):
        for command in (["umount", "-l"], ["fusermount3", "-u", "-z"]):
            assert as_nobody(*command, point).returncode, f"{command} {point}"
    path = next(iter(contents))
    assert as_nobody("cmp", fs.at(path), os.path.join(root, path)).returncode == 0
    assert fs.process.poll() is None
    fs.end()


# --- with few rights -----------------------------------------------------------------------------

def unit_settings():
    """Those of the service, as a list, since some come twice."""
    with open(os.path.join(PACKAGING, "shadefs@.service.in")) as file:
        return re.findall(r"^(\w+)=(.*)$", file.read(), re.M)


def expand_calls(words):
    """System calls for the words of a SystemCallFilter=."""
    calls = set()
    for word in words:
        if not word.startswith("@"):
            calls.add(word)
            continue
        text = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True,
                              text=True, check=True).stdout
        lines = [line.strip() for line in text.splitlines()[1:]]
        calls |= expand_calls([line for line in lines if line and not line.startswith("#")])
    return calls


def filter_of(settings):
    calls = set()
    for name, value in settings:
        if name == "SystemCallFilter" and value.startswith("~"):
            calls -= expand_calls(value[1:].split())
        elif name == "SystemCallFilter":
            calls |= expand_calls(value.split())
    return calls


def unit_prefix():
    settings = unit_settings()
    kept = dict(settings)["CapabilityBoundingSet"].lower().replace("cap_", "").split()
    assert ("NoNewPrivileges", "yes") in settings, settings
    prefix = ["setpriv", "--no-new-privs", "--inh-caps=-all",
              "--bounding-set=" + ",".join(["-all", *("+" + name for name in kept)])]
    if not shutil.which("systemd-analyze"):
        print("   without systemd-analyze there is no filter of system calls")
    elif is_sanitized():
        print("   without a filter of system calls, since a sanitizer makes others")
    else:
        calls = filter_of(settings)
        assert "mount" in calls and "ptrace" not in calls and "chroot" not in calls, calls
        prefix += [sys.executable, __file__, "--confine", ",".join(sorted(calls))]
    return prefix


def upgrade(fs):
    """To the same version, which also has to be tried first."""
    if not fs.stats()["takeover_possible"]:
        return
    done = subprocess.run([SHADECTL, "upgrade", fs.path], capture_output=True, text=True)
    assert done.returncode == 0 and fs.stats()["upgrades"] == 1, done


def the_rights_of_the_service_are_enough():
    """Its capabilities, no_new_privs, its system calls: all that a mount does, and no more."""
    root, contents = make_tree(20)
    for path in (".", "class0", *contents):
        os.chown(os.path.join(root, path), NOBODY, NOBODY)
    os.chmod(os.path.join(root, "class0"), 0o700)
    program = os.path.join(root, "program")
    with open(program, "w") as file:
        file.write("#!/bin/sh\necho it ran\n")
    os.chown(program, NOBODY, NOBODY)
    os.chmod(program, 0o700)
    os.chmod(root, 0o2750)
    os.chmod(scratch, 0o755)
    manifest = os.path.join(scratch, "manifest")
    fs = Shade(root, prefix=unit_prefix(), capacity="8M", staleness=0.5, allow_other=True,
               manifest=manifest)
    with open(f"/proc/{fs.process.pid}/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    assert status["NoNewPrivs"] == "1", status
    assert bin(int(status["CapEff"], 16)).count("1") == 5, status["CapEff"]
    if not is_sanitized() and shutil.which("systemd-analyze"):
        assert status["Seccomp"] == "2", status["Seccomp"]
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path
        assert as_nobody("cmp", fs.at(path), os.path.join(root, path)).returncode == 0, path
    assert as_nobody(fs.at("program")).stdout == "it ran\n"
    assert fs.control("evict .\nwarm .\nepoch 1\nrescan\n").startswith("ok")
    path = changed = next(iter(contents))
    with open(os.path.join(root, path), "wb") as file:
        file.write(b"changed")
    wait_until(lambda: reads_as(fs.at(path), b"changed"), "a change is seen")
    os.chmod(os.path.join(root, path), 0)
    wait_until(lambda: as_nobody("cat", fs.at(path)).returncode, "it is closed")
    wait_until(lambda: os.path.exists(manifest), "the manifest is written")
    upgrade(fs)
    for path in [path for path in contents if path != changed]:
        assert as_nobody("cmp", fs.at(path), os.path.join(root, path)).returncode == 0, path
    fs.end()
    if MODE == "native":
        assert not os.path.exists(f"/run/shadefs/{fs.process.pid}")


def users_fuse():
    """Users may open /dev/fuse, as they may on most machines; with the scratch folder it goes."""
    device = os.path.join(scratch, "device")
    os.mkdir(device)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,dev", "device", device], check=True)
    node = os.path.join(device, "fuse")
    os.mknod(node, 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
    os.chmod(node, 0o666)
    return device, node


def portable_needs_no_privilege():
    """An ordinary user's daemon has no capability; fusermount3 mounts for it."""
    if MODE == "native":
        return
    root, contents = make_tree(5)
    os.chmod(root, 0o755)
    os.chmod(scratch, 0o755)
    program = shutil.copy(SHADEFS, os.path.join(scratch, "shadefs"))
    point = os.path.join(scratch, "users")
    os.mkdir(point)
    os.chown(point, NOBODY, NOBODY)
    device, node = users_fuse()
    # In a mount namespace, where /dev/fuse is everybody's; the mount is looked at from inside.
    script = """
        set -e
        mount --bind "$1" /dev/fuse
        exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \\
            "$2" -f -o capacity=8M,staleness=0.5 "$3" "$4" """
    daemon = subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh", node, program, root,
                               point], stdout=subprocess.PIPE, text=True)
    try:
        assert "mode portable (" in daemon.stdout.readline()

        def inside(*command, user=True):
            drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            return subprocess.run(["nsenter", f"--mount=/proc/{daemon.pid}/ns/mnt",
                                   *(drop if user else []), *command], capture_output=True,
                                  text=True, timeout=60)

        with open(f"/proc/{daemon.pid}/status") as file:
            status = file.read()
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert f"{kind}:\t0000000000000000\n" in status, status
        assert f"Uid:\t{NOBODY}\t{NOBODY}" in status, status
        for path in contents:
            done = inside("cmp", os.path.join(point, path), os.path.join(root, path))
            assert done.returncode == 0, done
        control = os.path.join(point, ".shade", "control")
        done = inside("sh", "-c", f"echo 'warm .' > '{control}' && cat '{point}/.shade/stats'")
        assert done.returncode == 0 and "mode portable" in done.stdout, done
        assert inside("sh", "-c", f"echo nonsense > '{control}'").returncode, "it is refused"
        done = inside("cat", os.path.join(point, path), user=False)
        assert done.returncode and "ermission" in done.stderr, f"root gets in: {done}"
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
        subprocess.run(["umount", "-l", device], check=True)
    assert not is_mounted(point)


run_tests([nothing_of_the_source_gives_power, what_is_no_file_blocks_nobody,
           the_daemon_is_closed_to_others, the_rights_of_the_service_are_enough,
           portable_needs_no_privilege])
