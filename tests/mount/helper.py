# SPDX-License-Identifier: LGPL-2.1-or-later
"""shadefs as mount(8) calls it: as mount.shadefs or mount.fuse.shadefs, from the command line and
from fstab. In a mount namespace of its own, so that what is put into /sbin is there for nobody
else and goes by itself."""
import atexit
import os
import shutil
import subprocess
import sys

if "SHADE_TEST_INSIDE" not in os.environ:
    if not shutil.which("unshare"):
        print("SKIP: there is no unshare(1) here")
        sys.exit(77)
    os.environ["SHADE_TEST_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])

from common import (MODE, SHADECTL, SHADEFS, is_mounted, make_tree, read, run_tests, scratch, skip,
                    wait_until)

OPTIONS = f"capacity=16M,mode={MODE}"
point = os.path.join(scratch, "point")
os.mkdir(point)


def take_out(layer):
    for path in (os.path.realpath("/sbin"), layer):
        subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL)
    shutil.rmtree(scratch, ignore_errors=True)


def put_into_sbin():
    """A layer over /sbin with what `meson install` would put there."""
    layer = os.path.join(scratch, "layer")
    os.mkdir(layer)
    atexit.register(take_out, layer)  # after run_tests() has cleaned up
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layer], check=True)
    for name in ("upper", "work"):
        os.mkdir(os.path.join(layer, name))
    sbin = os.path.realpath("/sbin")
    done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                           f"lowerdir={sbin},upperdir={layer}/upper,workdir={layer}/work", sbin],
                          capture_output=True, text=True)
    if done.returncode:
        skip("no overlay over /sbin: " + done.stderr.strip())
    for name in ("mount.shadefs", "mount.fuse.shadefs"):
        os.symlink(os.path.realpath(SHADEFS), os.path.join(sbin, name))
    os.symlink(os.path.realpath(SHADECTL), os.path.join(sbin, "umount.shadefs"))


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (command, done)
    return done


def line_of(path):
    with open("/proc/self/mountinfo") as file:
        return next(line.split() for line in file if line.split()[4] == path)


def leave(path):
    run("umount", "-R", path)
    wait_until(lambda: not is_mounted(path), "unmounted")


def by_type():
    root, contents = make_tree(5)
    for name in ("shadefs", "fuse.shadefs"):
        done = run("mount", "-t", name, root, point, "-o",
                   OPTIONS + ",ro,_netdev,nofail,noatime,x-systemd.automount,comment=hi")
        assert "16.0 MiB" in done.stdout, done
        for path, data in contents.items():
            assert read(os.path.join(point, path)) == data
        kind = "fuse.shadefs" if MODE == "portable" else "overlay"
        assert kind in line_of(point), line_of(point)
        with open(os.path.join(point, ".shade", "config")) as file:
            assert "capacity 16777216 # option" in file.read()
        leave(point)


def from_fstab():
    root, contents = make_tree(5)
    fstab = os.path.join(scratch, "fstab")
    with open(fstab, "w") as file:
        file.write(f"{root} {point} fuse.shadefs ro,capacity=32M,mode={MODE},policy=lru,_netdev,"
                   "allow_other,nofail,noexec,x-systemd.requires-mounts-for=/nfs 0 0\n")
    for command in (["-a"], [point]):
        run("mount", "-T", fstab, *command)
        assert read(os.path.join(point, next(iter(contents)))) == next(iter(contents.values()))
        flags = line_of(point)[5].split(",")
        assert {"noexec", "nosuid", "nodev"} <= set(flags), flags
        leave(point)


def fake_mounts_mount_nothing():
    root, _ = make_tree(1)
    run("mount", "-f", "-n", "-v", "-t", "fuse.shadefs", root, point, "-o", OPTIONS)
    assert not is_mounted(point)
    # Whatever can be wrong is found, too.
    done = run("mount", "-f", "-t", "fuse.shadefs", root, point, "-o", "capasity=16M", code=1)
    assert "capasity" in done.stderr, done
    assert not is_mounted(point)


def sloppy_mounts_take_any_option():
    root, contents = make_tree(1)
    done = run("mount", "-t", "fuse.shadefs", root, point, "-o", "wsize=8192," + OPTIONS, code=1)
    assert "wsize" in done.stderr, done
    run("mount", "-s", "-t", "fuse.shadefs", root, point, "-o", "wsize=8192," + OPTIONS)
    assert read(os.path.join(point, next(iter(contents)))) == next(iter(contents.values()))
    leave(point)


def into_another_namespace():
    root, contents = make_tree(1)
    other = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c",
                              "echo ready; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"ready\n"
        run("mount", "-N", str(other.pid), "-t", "fuse.shadefs", root, point, "-o", OPTIONS)
        assert not is_mounted(point)
        name = next(iter(contents))
        done = subprocess.run(["nsenter", "-m", "-t", str(other.pid), "cat",
                               os.path.join(point, name)], capture_output=True)
        assert done.stdout == contents[name], done
        run("nsenter", "-m", "-t", str(other.pid), "umount", "-R", point)
    finally:
        other.communicate(b"\n", timeout=60)


def as_a_plain_helper():
    """Exactly what mount(8) calls, without it."""
    root, contents = make_tree(1)
    run("/sbin/mount.fuse.shadefs", root, point, "-n", "-o", "rw," + OPTIONS, "-t",
        "fuse.shadefs")
    assert read(os.path.join(point, next(iter(contents)))) == next(iter(contents.values()))
    leave(point)
    run(SHADEFS, "-t", "fuse.shadefs", root, point, code=1)  # not of shadefs itself


def told_of(path):
    """Whether umount(8)'s own table has something on it."""
    try:
        with open("/run/mount/utab") as file:
            return f" TARGET={path} " in file.read()
    except FileNotFoundError:
        return False


def plain_umount():
    """Nothing but umount MNT, also of a name with blanks, lazily, or from fstab; and nothing stays
    in umount's table."""
    root, contents = make_tree(1)
    name = next(iter(contents))
    blanks = os.path.join(scratch, "a point")
    os.mkdir(blanks)
    fstab = os.path.join(scratch, "fstab")
    with open(fstab, "w") as file:
        file.write(f"{root} {point} fuse.shadefs ro,{OPTIONS} 0 0\n")
    for path, words in ((point, [point]), (blanks, [blanks]), (point, ["-l", point])):
        if path == point:
            run("mount", "-T", fstab, point)
        else:
            run("mount", "-t", "fuse.shadefs", root, path, "-o", OPTIONS)
        assert told_of(path.replace(" ", "\\040")) == (MODE == "native")
        run("umount", *words)
        wait_until(lambda path=path: not is_mounted(path), "unmounted")
        wait_until(lambda path=path: not told_of(path.replace(" ", "\\040")), "forgotten")
    run(SHADEFS, "-o", OPTIONS, root, point)
    with open(os.path.join(point, name)):
        done = run("umount", point, code=1 if MODE == "native" else 32)
        assert "busy" in done.stderr, done
        assert os.path.exists(os.path.join(point, ".shade", "control"))
    run("umount", point)
    wait_until(lambda: not is_mounted(point) and not told_of(point), "unmounted")


def a_daemon_that_follows_is_not_forgotten():
    """The first one ends while the next one is mounted at the same point."""
    root, _ = make_tree(1)
    for _ in range(5):
        run(SHADEFS, "-o", OPTIONS, root, point)
        run("umount", point)
    wait_until(lambda: not is_mounted(point) and not told_of(point), "unmounted")


put_into_sbin()
run_tests([plain_umount, a_daemon_that_follows_is_not_forgotten,
           by_type, from_fstab, fake_mounts_mount_nothing, sloppy_mounts_take_any_option,
           into_another_namespace, as_a_plain_helper])
