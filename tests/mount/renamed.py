# SPDX-License-Identifier: LGPL-2.1-or-later
"""Root's daemon, and somebody else who renames the directories above its mount point and puts
something of his own there. Nothing else may be mounted, changed or unmounted, or written."""
import ctypes
import os
import signal
import subprocess
import tempfile
import time

from common import (MODE, SHADECTL, SHADEFS, Shade, Slow, is_mounted, make_tree, mount_points, read,
                    reads_as, run_tests, scratch, wait_until)

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
EXCHANGE = 2  # of renameat2()


def nobody(script, *words, **options):
    """A shell script by somebody else."""
    subprocess.run([*NOBODY, "sh", "-ec", script, "sh", *words], check=True, **options)


def as_nobody(work):
    """Somebody else does it. His process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        work()
        os._exit(0)
    finally:
        os._exit(1)


def flip(first, second):
    """Exchanges two names as fast as he can, until he is killed."""
    def work():
        call = ctypes.CDLL(None).renameat2
        while call(-100, first.encode(), -100, second.encode(), EXCHANGE) == 0:
            pass
        os._exit(1)
    return as_nobody(work)


def bury(home):
    """Moves d where its path is longer than the kernel takes one."""
    def work():
        os.chdir(home)
        for _ in range(18):
            os.mkdir("x" * 250)
            os.chdir("x" * 250)
        os.rename(os.path.join(home, "d"), "d")
    assert os.waitpid(as_nobody(work), 0)[1] == 0


class Scene:
    """A directory of somebody else's, with d/mnt in it, and a mount of root's for a victim."""

    def __init__(self):
        os.chmod(scratch, 0o755)
        self.home = tempfile.mkdtemp(dir=scratch)
        os.chmod(self.home, 0o755)
        os.chown(self.home, 65534, 65534)
        self.point, self.moved = (os.path.join(self.home, name, "mnt") for name in "de")
        nobody('mkdir -p "$1"', self.point)
        self.victim = tempfile.mkdtemp(dir=scratch)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "nosuid", "none", self.victim], check=True)
        os.mkdir(os.path.join(self.victim, ".shade"))

    def swap(self, trap):
        """Moves d away; `trap` is a script that makes another d/mnt."""
        nobody('cd "$1"; mv d e; mkdir d; ' + trap, self.home, self.victim)

    def check(self):
        """The victim is as it was."""
        with open("/proc/self/mountinfo") as file:
            lines = [line.split() for line in file]
        at = [fields for fields in lines if fields[4] == self.victim]
        assert len(at) == 1 and at[0][5].startswith("rw,nosuid"), at
        assert not [path for path in mount_points() if path.startswith(self.victim + "/")]
        assert os.listdir(self.victim) == [".shade"]
        with open(os.path.join(self.victim, "new"), "w"):
            pass  # it can be written
        os.unlink(os.path.join(self.victim, "new"))

    def remove(self):
        self.check()
        subprocess.run(["umount", self.victim], check=True)


LINK = 'ln -s "$2" d/mnt'
CONTROL = 'mkdir d/mnt; ln -s "$2" d/mnt/.shade'


def the_end_unmounts_our_own():
    root, contents = make_tree(3)
    for trap in (LINK, CONTROL):
        scene = Scene()
        fs = Shade(root, scene.point, allow_other=True)
        scene.swap(trap)
        for path, data in contents.items():
            assert reads_as(os.path.join(scene.moved, path), data)
        fs.end()
        assert not is_mounted(scene.moved)
        scene.remove()


def mounts_of(source):
    with open("/proc/self/mountinfo") as file:
        return [line for line in file if f" {source} " in line]


def no_path_is_too_long_or_covered():
    """It is found by its name in the directory above, wherever that went, and whatever was put on
    the way."""
    root, _ = make_tree(3)
    for attack in ("long", "covered"):
        scene = Scene()
        fs = Shade(root, scene.point, allow_other=True)
        if attack == "long":
            bury(scene.home)
        else:
            subprocess.run(["mount", "--bind", scene.victim, os.path.dirname(scene.point)],
                           check=True)
        assert mounts_of(root), "it is mounted"
        fs.process.send_signal(signal.SIGTERM)
        assert fs.process.wait(60) == 0
        assert not mounts_of(root), attack
        if attack == "covered":
            subprocess.run(["umount", os.path.dirname(scene.point)], check=True)
        fs.end()
        scene.remove()


def what_is_mounted_over_it_stays():
    root, _ = make_tree(3)
    scene = Scene()
    fs = Shade(root, scene.point)
    subprocess.run(["mount", "--bind", scene.victim, scene.point], check=True)
    fs.process.send_signal(signal.SIGTERM)
    assert fs.process.wait(60) == 0
    assert "stays mounted" in fs.read_log(), fs.read_log()
    assert os.listdir(scene.point) == [".shade"], "the victim is still there"
    subprocess.run(["umount", scene.point], check=True)
    subprocess.run(["umount", "-R", "-l", scene.point], check=True)
    fs.end()
    scene.remove()


def an_end_that_somebody_brings_about_unmounts_our_own():
    """The source's owner closes it, which ends a native mount."""
    if MODE != "native":
        return
    scene = Scene()
    source = os.path.join(scene.home, "source")
    nobody('mkdir "$1"; echo text > "$1/file"', source)
    fs = Shade(source, scene.point, allow_other=True, staleness=0.1)
    scene.swap(CONTROL)
    nobody('chmod 700 "$1"', source)
    fs.process.wait(60)
    fs.end()
    assert not is_mounted(scene.moved)
    scene.remove()


def what_a_killed_daemon_left_is_found():
    root, contents = make_tree(3)
    scene = Scene()
    fs = Shade(root, scene.point)
    scene.swap(LINK)
    fs.die()
    if MODE == "native":  # a new daemon cleans up wherever it mounts
        other = Shade(root)
        assert not is_mounted(scene.moved), "left"
        other.end()
    else:
        again = Shade(root, scene.moved)
        path, data = next(iter(contents.items()))
        assert read(again.at(path)) == data
        again.end()
    scene.remove()


def a_flush_changes_nothing_else():
    root, _ = make_tree(3)
    scene = Scene()
    fs = Shade(root, scene.point, allow_other=True, staleness=0.05)
    scene.swap(LINK)
    flipper = flip(*(os.path.join(scene.home, name) for name in "de"))
    for number in range(40):
        with open(os.path.join(root, f"new-{number}"), "w") as file:
            file.write(str(number))
        time.sleep(0.05)
    os.kill(flipper, signal.SIGKILL)
    assert os.waitpid(flipper, 0)[1] == signal.SIGKILL, "it flipped to the end"
    scene.check()
    here = [name for name in "de" if not os.path.islink(os.path.join(scene.home, name, "mnt"))]
    last = os.path.join(scene.home, here[0], "mnt", "new-39")
    wait_until(lambda: os.path.exists(last), "new names are seen")
    assert read(last) == b"39"
    fs.end()
    assert not is_mounted(os.path.join(scene.home, here[0], "mnt"))
    scene.remove()


def shadectl_unmounts_no_other():
    """It finds one or the other at the name, and unmounts ours or nothing."""
    root, _ = make_tree(3)
    scene = Scene()
    fs = Shade(root, scene.point)
    scene.swap('mkdir d/mnt')
    subprocess.run(["mount", "--bind", scene.victim, scene.point], check=True)
    flipper = flip(*(os.path.join(scene.home, name) for name in "de"))
    try:
        def is_done():
            return subprocess.run([SHADECTL, "umount", scene.point],
                                  capture_output=True).returncode == 0
        wait_until(is_done, "it has met ours")
    finally:
        os.kill(flipper, signal.SIGKILL)
        os.waitpid(flipper, 0)
    fs.process.wait(60)
    bound = [path for path in (scene.point, scene.moved) if is_mounted(path)]
    assert len(bound) == 1, "the other one is still there"
    subprocess.run(["umount", bound[0]], check=True)
    fs.end()
    scene.remove()


def a_flush_keeps_the_flags_of_a_mount():
    """An administrator has remounted it: that stays so."""
    root, _ = make_tree(3)
    fs = Shade(root, staleness=0.05)
    subprocess.run(["mount", "-o", "remount,bind,ro,nosuid,nodev,noexec", fs.path], check=True)
    for number in range(3):
        with open(os.path.join(root, f"new-{number}"), "w"):
            pass
        wait_until(lambda n=number: os.path.exists(fs.at(f"new-{n}")), "the name is seen")
    with open("/proc/self/mountinfo") as file:
        flags = [line.split()[5] for line in file if line.split()[4] == fs.path]
    assert len(flags) == 1 and {"ro", "nosuid", "nodev", "noexec"} <= set(flags[0].split(",")), flags
    fs.end()


def the_mount_is_where_its_point_was_resolved():
    """The source keeps the daemon waiting between the two."""
    root, contents = make_tree(3)
    scene = Scene()
    slow = Slow(root)
    slow.pause()
    daemon = subprocess.Popen([SHADEFS, "-f", "-o", f"mode={MODE},allow_other", slow.path,
                               scene.point], stdout=subprocess.DEVNULL)
    try:
        def is_resolved():
            folder = f"/proc/{daemon.pid}/fd"
            for name in os.listdir(folder):
                try:
                    if os.readlink(os.path.join(folder, name)) == scene.point:
                        return True
                except FileNotFoundError:
                    pass  # it was closed meanwhile
            return False
        wait_until(is_resolved, "the mount point is resolved", 10)
        scene.swap(LINK)
        slow.resume()
        wait_until(lambda: is_mounted(scene.moved), "mounted", 10)
        for path, data in contents.items():
            assert reads_as(os.path.join(scene.moved, path), data)
        scene.check()
    finally:
        slow.resume()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
    assert not is_mounted(scene.moved)
    slow.end()
    scene.remove()


def control_comes_back_where_it_was():
    """Somebody unmounts .shade alone: it is mounted again, and guarded."""
    if MODE != "native":
        return
    root, _ = make_tree(3)
    scene = Scene()
    fs = Shade(root, scene.point)
    scene.swap(LINK)
    control = os.path.join(scene.moved, ".shade")
    subprocess.run(["umount", control], check=True)
    wait_until(lambda: is_mounted(control), ".shade is back")
    assert b"capacity" in read(os.path.join(control, "config"))
    scene.check()
    fs.end()
    scene.remove()


def a_manifest_stays_in_its_directory():
    root, _ = make_tree(3)
    time.sleep(2.1)  # a directory that has changed just now is left out
    scene = Scene()
    for name in "mo":
        nobody('mkdir "$1"', os.path.join(scene.home, name))
    manifest = os.path.join(scene.home, "m", "list")
    fs = Shade(root, manifest=manifest)
    wait_until(lambda: os.path.exists(manifest), "written")
    nobody('cd "$1"; mv m n; ln -s "$2" m; rm o/list 2>/dev/null || true', scene.home, scene.victim)
    os.mkdir(os.path.join(root, "more"))
    before = os.stat(os.path.join(scene.home, "n", "list")).st_ino
    fs.control("rescan\n")
    wait_until(lambda: os.stat(os.path.join(scene.home, "n", "list")).st_ino != before, "replaced")
    fs.end()
    scene.check()
    # A link to somebody's file is not followed, neither to read nor to write.
    secret = os.path.join(scratch, "secret")
    with open(secret, "w") as file:
        file.write("not a manifest\n")
    link = os.path.join(scene.home, "o", "list")
    nobody('ln -s "$1" "$2"', secret, link)
    fs = Shade(root, manifest=link)
    wait_until(lambda: not os.path.islink(link), "replaced")
    assert read(secret) == b"not a manifest\n"
    fs.end()
    scene.remove()


run_tests([the_end_unmounts_our_own, no_path_is_too_long_or_covered,
           what_is_mounted_over_it_stays,
           an_end_that_somebody_brings_about_unmounts_our_own,
           what_a_killed_daemon_left_is_found, a_flush_changes_nothing_else,
           shadectl_unmounts_no_other,
           a_flush_keeps_the_flags_of_a_mount, the_mount_is_where_its_point_was_resolved,
           control_comes_back_where_it_was, a_manifest_stays_in_its_directory])
