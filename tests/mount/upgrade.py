# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another version of shadefs goes on with a mount: readers notice nothing, and one that cannot is
refused before anything has changed. tests/upgrade/ has the versions, tests/takeover/ the readers.

    upgrade.py SHADEFS SLOWFS SHADECTL READERS VERSION... [--seconds N] [NAME ...]

upgrades for 10 s under load, or for N seconds. NAME: only these of the tests."""
import argparse
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from common import (MODE, SHADECTL, SHADEFS, Filesystem, ServiceManager, Shade, Slow, children, is_mounted,
                    is_sanitized, make_tree, raises, read, run_dir, run_tests, running, scratch,
                    wait_until)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "takeover"))
from load import Readers  # pylint: disable=wrong-import-position

FILES, SIZE = 200, 100000  # 20 MB
PATIENCE = 30 if not is_sanitized() else 180
VERSIONS = {os.path.basename(path).removeprefix("shadefs-"): path
            for path in sys.argv[5:] if os.path.basename(path).startswith("shadefs-")}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("names", nargs="*")
    words = [word for word in sys.argv[4:] if word not in VERSIONS.values()]
    parser.add_argument("readers")
    options = parser.parse_intermixed_args(words[1:] + [words[0]])
    return options


class Mount(Shade):
    """Of a program that can be replaced."""

    def __init__(self, source, **options):
        # pylint: disable=super-init-not-called,non-parent-init-called
        self.program = os.path.join(tempfile.mkdtemp(prefix="program-", dir=scratch), "shadefs")
        self.install(SHADEFS)
        text = ",".join(name if value is True else f"{name}={value}" for name, value in
                        {"mode": MODE, "capacity": "8M", **options}.items())
        Filesystem.__init__(self, lambda path: [self.program, "-f", "-o", text, source, path],
                            "shadefs")
        wait_until(self.is_ready, "scanned")
        self.place = run_dir(self.path)

    def install(self, program):
        """As packages do it: the old file lives on without a name."""
        shutil.copy(program, self.program + ".new")
        os.rename(self.program + ".new", self.program)

    def install_script(self, text):
        with open(self.program + ".new", "w") as file:
            file.write(text)
        os.chmod(self.program + ".new", 0o755)
        os.rename(self.program + ".new", self.program)

    def begin_upgrade(self):
        return subprocess.Popen([SHADECTL, "upgrade", self.path], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def upgrade(self):
        return subprocess.run([SHADECTL, "upgrade", self.path], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def version(self):
        with open(self.at(".shade", "config")) as file:
            return dict(line.split()[:2] for line in file)["version"]

    def descriptors(self):
        folder = f"/proc/{self.process.pid}/fd"
        return sorted(os.readlink(f"{folder}/{fd}").split("[")[0].split(":")[0]
                      for fd in os.listdir(folder))


def version_of(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True,
                          check=True).stdout.split()[1]


def upgrade_to(fs, name):
    """Returns when it goes on."""
    program = VERSIONS.get(name, SHADEFS)
    before, last = fs.stats()["upgrades"], fs.daemon()
    fs.install(program)
    done = fs.upgrade()
    assert done.returncode == 0 and not done.stderr, (done, fs.read_log())
    assert done.stdout == f"{fs.path}: version {version_of(program)} goes on\n", done
    assert fs.stats()["upgrades"] == before + 1 and fs.version() == version_of(program)
    wait_until(lambda: fs.daemon() != last, "the last daemon is reaped")
    assert fs.process.poll() is None
    assert os.path.samefile(f"/proc/{fs.daemon()}/exe", fs.program)


def can_upgrade(fs):
    if fs.stats()["takeover_possible"]:
        return True
    done = fs.upgrade()
    assert done.returncode == 1 and "cannot repeat requests" in done.stderr, done
    print("   this kernel cannot repeat requests")
    return False


def nothing_is_left(fs):
    assert not is_mounted(fs.path), "still mounted"
    assert not os.path.exists(f"/run/shadefs/{fs.process.pid}"), "a place was left"


def begin_readers(path):
    return Readers(OPTIONS.readers, path, FILES, SIZE)


def make_data():
    folder = tempfile.mkdtemp(prefix="data-", dir=scratch)
    subprocess.run([OPTIONS.readers, "make", folder, str(FILES), str(SIZE)], check=True)
    return folder


# --- what goes well ------------------------------------------------------------------------------

def upgraded_under_load():
    """From one version to the other and back, and the daemon is killed now and then."""
    slow = Slow(make_data(), delay_us=2000)
    fs = Mount(slow.path, inflight="2M")
    if not can_upgrade(fs):
        fs.end()
        slow.end()
        return
    pid, held, upgrades, deaths = fs.process.pid, fs.descriptors(), 0, 0
    readers, end = begin_readers(fs.path), time.monotonic() + OPTIONS.seconds
    while time.monotonic() < end or upgrades < 4:
        upgrade_to(fs, ("next", "this")[upgrades % 2])
        upgrades += 1
        if upgrades % 3 == 0:
            dead = fs.daemon()
            os.kill(dead, signal.SIGKILL)
            deaths += 1
            wait_until(lambda n=deaths: fs.stats()["takeovers"] == n, "taken over", PATIENCE)
            assert fs.version() == version_of(fs.program), "by another version"
            wait_until(lambda last=dead: fs.daemon() != last, "the dead one is reaped", PATIENCE)
            assert os.path.samefile(f"/proc/{fs.daemon()}/exe", fs.program)
            time.sleep(5)  # or there would be too many deaths of daemons that have not lasted
        stats = fs.stats()
        assert stats["memory_bytes"] <= stats["capacity_bytes"], stats
        assert readers.process.poll() is None, "the readers have ended"
    readers.end_well()
    print(f"   {upgrades} upgrades, {deaths} deaths")
    stats = fs.stats()
    assert (stats["upgrades"], stats["takeovers"]) == (upgrades, deaths), stats
    assert fs.descriptors() == held, (held, fs.descriptors())
    status = subprocess.run([SHADECTL, "status", fs.path], capture_output=True, text=True)
    assert f"{upgrades} times, by which another version went on" in status.stdout, status
    assert fs.process.pid == pid and read(f"/proc/{pid}/comm") == b"shadefs\n"
    assert fs.path.encode() in read(f"/proc/{pid}/cmdline").split(b"\0")
    fs.end()
    nothing_is_left(fs)
    slow.end()


def names_are_not_looked_up_again():
    """In the background, from another directory, and where the names mean something else by now."""
    top = tempfile.mkdtemp(dir=scratch)
    root, contents = make_tree(5)
    os.rename(root, os.path.join(top, "source"))
    for name in ("point", "bin"):
        os.mkdir(os.path.join(top, name))
    shutil.copy(SHADEFS, os.path.join(top, "bin", "shadefs"))
    point = os.path.join(top, "point")
    subprocess.run(["bin/shadefs", "-o", f"mode={MODE},capacity=8M,manifest=list", "source", "point"],
                   cwd=top, check=True, stdout=subprocess.DEVNULL)
    supervisor, = (int(name) for name in filter(str.isdigit, os.listdir("/proc"))
                   if is_supervisor(name, top))
    try:
        os.rename(os.path.join(top, "source"), os.path.join(top, "moved"))
        os.mkdir(os.path.join(top, "source"))
        if "takeover_possible 1\n" in read(os.path.join(point, ".shade/stats")).decode():
            for name in ("next", "slow"):
                shutil.copy(VERSIONS[name], os.path.join(top, "new"))
                os.rename(os.path.join(top, "new"), os.path.join(top, "bin/shadefs"))
                done = subprocess.run([SHADECTL, "upgrade", point], capture_output=True, text=True,
                                      timeout=PATIENCE)
                assert done.returncode == 0 and f"version {name}" in done.stdout, done
        for path, data in contents.items():
            assert read(os.path.join(point, path)) == data, path
    finally:
        os.kill(supervisor, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(f"/proc/{supervisor}"), "ended")
    assert not is_mounted(point)
    assert os.path.exists(os.path.join(top, "list")), "the manifest is somewhere else"


def is_supervisor(pid, top):
    try:
        return (read(f"/proc/{pid}/comm") == b"shadefs\n" and
                os.readlink(f"/proc/{pid}/exe").startswith(top))
    except OSError:
        return False


def passwords_stay_hidden():
    """And are still known: what was hidden from ps(1) is handed over otherwise."""
    root, _ = make_tree(5)
    fs = Mount(root, tier="redis://:geheim@127.0.0.1:1", volume="v")
    if can_upgrade(fs):
        shown = read(f"/proc/{fs.process.pid}/cmdline")
        for name in ("next", "this"):
            upgrade_to(fs, name)
            assert b"geheim" not in read(f"/proc/{fs.process.pid}/environ")
            assert read(f"/proc/{fs.process.pid}/cmdline") == shown and b"geheim" not in shown
    fs.end()


def the_service_manager_is_told():
    root, _ = make_tree(5)
    manager = ServiceManager()
    fs = Mount(root)
    manager.begun()

    def told():
        text, pid = manager.told()
        assert pid == fs.process.pid, "systemd hears nobody else"
        return text

    assert told().startswith("READY=1\n")
    if can_upgrade(fs):
        upgrade_to(fs, "next")
        assert told().startswith("STATUS=upgraded 1 times; ")
    fs.end()
    assert told() == "STOPPING=1"
    manager.socket.close()


# --- what is refused -----------------------------------------------------------------------------

def refused(fs, words):
    """With a sentence, and nothing has changed."""
    daemon, before = fs.daemon(), fs.stats()["upgrades"]
    done = fs.upgrade()
    assert done.returncode == 1 and not done.stdout, done
    assert done.stderr.startswith("shadectl: ") and done.stderr.count("\n") == 1, done
    assert words in done.stderr, (words, done)
    assert words in fs.read_log(), fs.read_log()
    assert fs.daemon() == daemon and fs.stats()["upgrades"] == before, fs.stats()
    assert len(children(fs.process.pid)) <= 2, "a check is left"


def who_cannot_go_on_is_refused():
    root, contents = make_tree(5)
    fs = Mount(root)
    if not can_upgrade(fs):
        fs.end()
        return
    path, data = next(iter(contents.items()))
    reader = os.open(fs.at(path), os.O_RDONLY)
    fs.install(VERSIONS["changed"])
    refused(fs, "keeps its state in another way")
    fs.install(VERSIONS["reluctant"])
    refused(fs, "agree upon something else with the kernel")
    for text, words in (("#!/bin/sh\n", "is no shadefs"), ("#!/bin/sh\necho yes; ls\n", "is no shadefs"),
                        ("#!/bin/sh\necho no; exit 3\n", "is refused: no"),
                        ("#!/bin/sh\nprintf 'a\\033[2Jb'; exit 1\n", "refused: a?[2Jb"),
                        ("#!/bin/sh\nkill -SEGV $$\n", "it died of signal 11"),
                        ("#!/bin/sh\nyes\n", "it has said nothing"),
                        ("#!/bin/sh\nsleep 1000\n", "it has said nothing"),
                        ("nonsense", "cannot be started: Exec format error")):
        fs.install_script(text)
        refused(fs, words)
        assert os.pread(reader, len(data), 0) == data
    os.chmod(fs.program, 0o644)
    refused(fs, "cannot be started: Permission denied")
    os.unlink(fs.program)
    refused(fs, "No such file or directory")
    os.close(reader)
    upgrade_to(fs, "next")
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path
    fs.end()


def only_who_mounted_may_do_it():
    """Not a user of .shade by the option group=."""
    root, _ = make_tree(5)
    os.chmod(root, 0o755)
    os.chmod(scratch, 0o755)
    fs = Mount(root, allow_other=True, group="daemon")
    write = f"import os; os.write(os.open('{fs.at('.shade/control')}', os.O_RDWR), %r)"
    for command, allowed in ((b"epoch 1\n", True), (b"upgrade\n", False)):
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--groups=1",
                               "/usr/bin/python3", "-c", write % command],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode == 0) == allowed, done
        assert allowed or "PermissionError" in done.stderr, done
    assert fs.stats()["upgrades"] == 0
    fs.end()


def two_at_a_time():
    root, _ = make_tree(5)
    fs = Mount(root)
    if can_upgrade(fs):
        fs.install(VERSIONS["slow"])
        first = fs.begin_upgrade()
        time.sleep(0.7)
        second = fs.begin_upgrade()
        for upgrade in (first, second):
            _, errors = upgrade.communicate(timeout=PATIENCE)
            assert upgrade.returncode == 0 or "another upgrade" in errors, errors
        assert first.returncode == 0 and fs.version() == "slow", fs.read_log()
    fs.end()


# --- what goes wrong -----------------------------------------------------------------------------

def killed_meanwhile():
    """At any moment: then it was taken over, by the one version or the other."""
    slow = Slow(make_data(), delay_us=2000)
    fs = Mount(slow.path, inflight="2M")
    if can_upgrade(fs):
        readers, chance = begin_readers(fs.path), random.Random(1)
        for number in range(6):
            fs.install(VERSIONS["next"] if number % 2 else SHADEFS)
            upgrade, daemon = fs.begin_upgrade(), fs.daemon()
            time.sleep(chance.random() * (0.25 if MODE == "native" else 0.02))
            try:
                os.kill(daemon, signal.SIGKILL)
            except ProcessLookupError:
                print("   too late")
            upgrade.communicate(timeout=PATIENCE)
            wait_until(lambda last=daemon: fs.daemon() not in (last, fs.process.pid), "another")
            assert fs.stats()["upgrades"] + fs.stats()["takeovers"] >= number + 1, fs.read_log()
            time.sleep(5)  # or there would be too many deaths
        readers.end_well()
        upgrade_to(fs, "next")
    fs.end()
    slow.end()


def killed_during_the_check():
    root, contents = make_tree(5)
    fs = Mount(root)
    if can_upgrade(fs):
        fs.install(VERSIONS["slow"])
        upgrade = fs.begin_upgrade()
        time.sleep(1)
        os.kill(fs.daemon(), signal.SIGKILL)
        _, errors = upgrade.communicate(timeout=PATIENCE)
        assert upgrade.returncode == 1 and errors.startswith("shadectl: "), errors
        time.sleep(2)  # the check would have passed by now
        stats = fs.stats()
        assert (stats["takeovers"], stats["upgrades"]) == (1, 0), (stats, fs.read_log())
        assert len(children(fs.process.pid)) <= 2, "the check is left"
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        upgrade_to(fs, "next")
    fs.end()


def a_daemon_that_makes_no_way_is_killed():
    root, contents = make_tree(5)
    fs = Mount(root)
    if can_upgrade(fs):
        fs.install(VERSIONS["slow"])
        upgrade = fs.begin_upgrade()
        time.sleep(1)
        os.kill(fs.daemon(), signal.SIGSTOP)
        assert upgrade.wait(PATIENCE) == 0, upgrade.stderr.read()
        assert "does not make way" in fs.read_log() and fs.version() == "slow", fs.read_log()
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
    fs.end()


def while_the_source_hangs():
    """Who waits for a file gets it from the next version."""
    root, contents = make_tree(5)
    slow = Slow(root)
    fs = Mount(slow.path, deadline=120)
    if can_upgrade(fs):
        hung, data = next(iter(contents.items()))
        slow.tell(f"fault hang /{hung}")
        result = []
        waiter = threading.Thread(target=lambda: result.append(read(fs.at(hung))), daemon=True)
        waiter.start()
        wait_until(slow.hangs, "the file hangs")
        upgrade_to(fs, "next")
        assert waiter.is_alive()
        slow.tell("clear all")
        waiter.join(PATIENCE)
        assert result == [data]
    fs.end()
    slow.end()


def who_cannot_be_started_after_all_is_not():
    """It has passed the check: then the running version goes on."""
    root, contents = make_tree(5)
    fs = Mount(root)
    if can_upgrade(fs):
        # A script is read by a descriptor that is closed on exec.
        fs.install_script(f'#!/bin/sh\nexec {VERSIONS["next"]} "$@"\n')
        daemon, upgrade = fs.daemon(), fs.begin_upgrade()
        wait_until(lambda: fs.daemon() not in (daemon, fs.process.pid), "another one", PATIENCE)
        wait_until(lambda: "the running version goes on" in fs.read_log(), "it says so", PATIENCE)
        upgrade.kill()
        upgrade.communicate()
        for path, data in contents.items():
            assert read(fs.at(path)) == data, path
        assert (fs.stats()["upgrades"], fs.stats()["takeovers"]) == (0, 0), fs.stats()
        upgrade_to(fs, "next")
    fs.end()


def who_dies_after_all_leaves_errors():
    """And nobody waits for ever."""
    for name in ("fatal", "hanging"):
        root, contents = make_tree(5)
        fs = Mount(root)
        if not can_upgrade(fs):
            fs.end()
            return
        folder = os.open(fs.path, os.O_RDONLY)
        fs.install(VERSIONS[name])
        done = fs.upgrade()
        assert done.returncode == 1 and done.stderr.startswith("shadectl: "), done
        assert fs.process.wait(PATIENCE) < 0, "it did not die"
        raises((107, 103, 5, 2), lambda: os.stat("nonexistent", dir_fd=folder))
        os.close(folder)
        running.remove(fs)
        again = Shade(root, point=fs.path, capacity="8M")
        for path, data in contents.items():
            assert read(again.at(path)) == data, path
        again.end()


def an_end_comes_first():
    """Whoever ends the mount meanwhile ends it well."""
    root, _ = make_tree(5)
    for delay in (1, 0.01, 0.03, 0.1, 0.2):
        fs = Mount(root)
        if not can_upgrade(fs):
            fs.end()
            return
        fs.install(VERSIONS["slow" if delay == 1 else "next"])
        upgrade = fs.begin_upgrade()
        time.sleep(delay)
        fs.process.terminate()
        assert fs.process.wait(PATIENCE) == 0, fs.read_log()
        upgrade.communicate(timeout=PATIENCE)
        nothing_is_left(fs)
        running.remove(fs)


OPTIONS = arguments()
TESTS = [upgraded_under_load, names_are_not_looked_up_again, passwords_stay_hidden,
         the_service_manager_is_told, who_cannot_go_on_is_refused, only_who_mounted_may_do_it,
         two_at_a_time, killed_meanwhile, killed_during_the_check,
         a_daemon_that_makes_no_way_is_killed, while_the_source_hangs,
         who_cannot_be_started_after_all_is_not, who_dies_after_all_leaves_errors,
         an_end_comes_first]
run_tests([test for test in TESTS if not OPTIONS.names or test.__name__ in OPTIONS.names])
