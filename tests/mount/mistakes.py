# SPDX-License-Identifier: LGPL-2.1-or-later
"""What people get wrong when they mount is said in a sentence: a mount point with files, more
capacity than memory, native mode without root, a source that is not there."""
import os
import subprocess
import tempfile

from common import (MODE, SHADEFS, Shade, digest, is_mounted, make_tree, read, run_tests, scratch,
                    wait_until)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RAM = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def mount(source, point, *options, **more):
    return subprocess.run([SHADEFS, "-o", ",".join((f"mode={MODE}", "capacity=16M", *options)),
                           source, point], capture_output=True, text=True, timeout=60, **more)


def unmount(point):
    subprocess.run(["umount", "-R", point], check=True)
    wait_until(lambda: not is_mounted(point), "unmounted")


def mount_points_with_files():
    root, contents = make_tree(3)
    point = tempfile.mkdtemp(dir=scratch)
    with open(os.path.join(point, "mine"), "w") as file:
        file.write("kept")
    done = mount(root, point)
    assert done.returncode == 1 and not is_mounted(point), done
    assert done.stderr.count("\n") == 1 and "not empty" in done.stderr, done
    assert "nonempty" in done.stderr, done
    assert mount(root, point, "nonempty").returncode == 0
    name, data = next(iter(contents.items()))
    assert digest(read(os.path.join(point, name))) == digest(data)
    assert not os.path.exists(os.path.join(point, "mine"))
    assert "nonempty 1 # option" in read(os.path.join(point, ".shade", "config")).decode()
    unmount(point)
    assert read(os.path.join(point, "mine")) == b"kept"


def more_capacity_than_memory():
    root, _ = make_tree(1)
    point = tempfile.mkdtemp(dir=scratch)
    done = mount(root, point, f"capacity={2 * RAM}")
    assert done.returncode == 0 and done.stderr.count("\n") == 1, done
    assert "more than" in done.stderr, done
    unmount(point)
    assert not mount(root, point).stderr
    unmount(point)
    fs = Shade(root, capacity="16M")
    try:
        fs.control(f"capacity {2 * RAM}\n")
        raise AssertionError("taken")
    except OSError:
        assert fs.stats()["capacity_bytes"] == 16 << 20
    fs.control("capacity 32M\n")
    assert fs.stats()["capacity_bytes"] == 32 << 20
    fs.end()


def native_mode_without_root():
    """Said by itself, and as the reason why auto took portable. Whatever else a user would lack
    here comes later."""
    root, _ = make_tree(1)
    os.chmod(scratch, 0o755)
    os.chmod(root, 0o755)
    point = tempfile.mkdtemp(dir=scratch)
    os.chown(point, 65534, 65534)
    os.chmod(point, 0o755)
    done = mount(root, point, "mode=native", user=65534, group=65534, extra_groups=[])
    assert done.returncode == 1, done
    assert done.stderr == "shadefs: mode=native: native mode needs root\n", done


def scripts_run_looks_first():
    """It says so before it builds; both would take minutes if it were not there."""
    root, _ = make_tree(1)
    script = os.path.join(ROOT, "scripts", "run")
    for words in (["/nonexistent", scratch], ["-o", "capacity=1G", root, "/nonexistent"],
                  [__file__, scratch]):
        done = subprocess.run([script, *words], capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and "there is no directory" in done.stderr, done
        assert not done.stdout and done.stderr.count("\n") == 1, done


run_tests([mount_points_with_files, more_capacity_than_memory, native_mode_without_root,
           scripts_run_looks_first])
