# SPDX-License-Identifier: LGPL-2.1-or-later
"""What `meson install` leaves can be used: install.py BUILD MESON VERSION PREFIX LIBDIR SBINDIR
UNITS PYTHON; the last three are folders, or "no" where that is not built."""
import os
import shutil
import subprocess
import sys
import tempfile

BUILD, MESON, VERSION, PREFIX, LIBDIR, SBINDIR, UNITS, PYTHON = sys.argv[1:9]
HOME = os.path.join(PREFIX, LIBDIR)
USE = "#include <shade/client.h>\n#include <shade/score.h>\n#include <string.h>\n" \
      "int main(void) { return strcmp(shade_version(), VERSION) ||\n" \
      "strcmp(shade_score_version(), VERSION); }\n"


SCORE = """
import shade
import shade._libs
scorer = shade.Scorer(5)
scorer.update([0, 1, 2, 3, 4], [5, 4, 3, 2, 1])
scorer.begin(0)
assert len(scorer.order(0)) == 5
for library in (shade._libs.libscore(), shade._libs.libshade()):
    print(library._handle._name)
print(shade.__file__)
"""


def run(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd="/",
                          env={**os.environ, **environment})
    assert done.returncode == 0, f"{words}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def check_command(place):
    """The command finds its library at the prefix, where ldconfig may never have been."""
    program = os.path.join(place, "bin", "shade-score")
    if shutil.which("readelf") and PREFIX != "/usr":
        dynamic = run("readelf", "-d", program)
        assert f"[{HOME}]" in dynamic, dynamic
    libraries = os.path.join(place, LIBDIR)
    assert VERSION in run(program, "--version", LD_LIBRARY_PATH=libraries)


def check_development(root, place):
    """A program is built with nothing but pkg-config."""
    if not shutil.which("pkg-config") or not shutil.which("cc"):
        return
    libraries = os.path.join(place, LIBDIR)
    flags = run("pkg-config", "--cflags", "--libs", "libshade", "libshade-score",
                PKG_CONFIG_LIBDIR=os.path.join(libraries, "pkgconfig"),
                PKG_CONFIG_SYSROOT_DIR=root).split()
    source = os.path.join(root, "use.c")
    with open(source, "w") as file:
        file.write(USE)
    run("cc", "-std=c99", f'-DVERSION="{VERSION}"', source, "-o", source[:-2], *flags)
    run(source[:-2], LD_LIBRARY_PATH=libraries)


def check_daemon(root, place):
    """mount(8) can call it by both names; with -f it does all but the mount."""
    source, point = os.path.join(root, "source"), os.path.join(root, "point")
    os.mkdir(source)
    os.mkdir(point)
    for name in ("mount.shadefs", "mount.fuse.shadefs"):
        helper = os.path.join(place, SBINDIR, name)
        assert f"shadefs {VERSION}" in run(helper, "--version"), name
        run(helper, source, point, "-f", "-o", "capacity=32M")
        failed = subprocess.run([helper, source, point, "-f", "-o", "capacity=much"], check=False,
                                capture_output=True)
        assert failed.returncode, f"{name} takes any capacity"


def check_units(root, place):
    """Units that name what was installed, and what writes their configuration."""
    with open(os.path.join(root + UNITS, "shadefs@.service")) as file:
        unit = file.read()
    daemon = os.path.join(PREFIX, SBINDIR, "shadefs")
    assert f"\nExecStart={daemon} " in unit and os.access(root + daemon, os.X_OK), unit
    for name in (os.path.join(root + UNITS, "shadefs.slice"),
                 os.path.join(place, "share/man/man8/shadefs-unit.8"),
                 os.path.join(place, "share/doc/shadefs/examples/mnt-imagenet.mount")):
        assert os.path.exists(name), f"{name} is missing"
    written = os.path.join(root, "written")
    run(os.path.join(place, SBINDIR, "shadefs-unit"), "--root", written, "data",
        os.path.join(root, "source"), os.path.join(root, "point"), "1G")
    assert os.path.exists(os.path.join(written, "etc/shadefs/data.conf")), "no configuration"


def check_python(root, place):
    """The package runs with the libraries that came with it, and knows where they will be."""
    folder, libraries = root + os.path.join(PREFIX, PYTHON), os.path.join(place, LIBDIR)
    used = run(sys.executable, "-c", SCORE, PYTHONPATH=folder, SHADE_LIBRARY_DIR=libraries,
               PYTHONDONTWRITEBYTECODE="1").split()
    assert used == [os.path.join(libraries, "libshade-score.so.1"),
                    os.path.join(libraries, "libshade.so.1"),
                    os.path.join(folder, "shade/__init__.py")], used
    with open(os.path.join(folder, "shade/_built.py")) as file:
        assert f'"{HOME}"' in file.read(), "it looks for libraries elsewhere"
    assert os.path.exists(os.path.join(folder, "shade/py.typed")), "it is not typed"


def check_documents(place):
    for name in ("man/man8/shadefs.8", "man/man1/shadectl.1", "man/man1/shade-score.1",
                 "man/man1/shade-sim.1", "bash-completion/completions/shadectl",
                 "doc/shadefs/examples/shadefs-redis.conf"):
        assert os.path.exists(os.path.join(place, "share", name)), f"{name} is missing"


def main():
    with tempfile.TemporaryDirectory(prefix="shade-install-") as root:
        run(MESON, "install", "-C", BUILD, "--no-rebuild", "--destdir", root)
        place = root + PREFIX
        check_command(place)
        check_development(root, place)
        check_documents(place)
        if SBINDIR != "no":
            check_daemon(root, place)
        if UNITS != "no":
            check_units(root, place)
        if PYTHON != "no":
            check_python(root, place)


main()
