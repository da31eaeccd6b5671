# SPDX-License-Identifier: LGPL-2.1-or-later
"""What `meson install` leaves can be used: install.py BUILD MESON PREFIX LIBDIR."""
import os
import shutil
import subprocess
import sys
import tempfile

BUILD, MESON, PREFIX, LIBDIR = sys.argv[1:5]
HOME = os.path.join(PREFIX, LIBDIR)
USE = "#include <shade/client.h>\n#include <shade/score.h>\n" \
      "int main(void) { return !*shade_version() || !*shade_score_version(); }\n"


def run(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300,
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
    assert "0.1" in run(program, "--version", LD_LIBRARY_PATH=libraries)


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
    run("cc", "-std=c99", source, "-o", source[:-2], *flags)
    run(source[:-2], LD_LIBRARY_PATH=libraries)


def check_documents(place):
    for name in ("man/man8/shadefs.8", "man/man1/shadectl.1", "man/man1/shade-score.1",
                 "bash-completion/completions/shadectl"):
        assert os.path.exists(os.path.join(place, "share", name)), f"{name} is missing"


def main():
    with tempfile.TemporaryDirectory(prefix="shade-install-") as root:
        run(MESON, "install", "-C", BUILD, "--no-rebuild", "--destdir", root)
        place = root + PREFIX
        check_command(place)
        check_development(root, place)
        check_documents(place)


main()
