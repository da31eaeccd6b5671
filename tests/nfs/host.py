# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mounts over the kernel's own NFS client, which needs a kernel that has one: a guest of
user-mode Linux boots on the root of this machine, read-only, and runs guest.py there. What
it says comes back through a folder that both can write. HOST SHADEFS SLOWFS REGISTERS [WORD...]:
words choose tests by their names. Exits with 0, 1, or 77 and a reason."""
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from server import PACKAGES, missing_packages

GUEST_S = 480  # the guest ends by itself after that
NEEDED = {"linux.uml": "user-mode-linux", "mount.nfs": "nfs-common", "busybox": "busybox-static",
          "unshare": "util-linux", **PACKAGES}
HERE = os.path.dirname(os.path.abspath(__file__))


def skip(reason):
    print("SKIP:", reason)
    sys.exit(77)


def see_whether_it_can_run():
    missing = missing_packages(NEEDED)
    if "SHADE_TEST_SKIP" in os.environ:
        skip(os.environ["SHADE_TEST_SKIP"])
    if os.geteuid() != 0:
        skip("the guest sees the files of this machine as their owner: that must be root")
    if missing:
        skip("these packages are missing: " + " ".join(missing))


def read_text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def panic_of(folder):
    """The line in which the guest's kernel gave up, or None."""
    lines = (read_text(f"{folder}/console") or "").splitlines()
    return next((line for line in lines if line.startswith("Kernel panic")), None)


def run_guest(folder, registers, arguments):
    """Boots it and waits for its end. All of its processes are in a namespace that ends with the
    first of them, and that ends with us."""
    command = ["timeout", "-k", "5", str(GUEST_S + 20),
               "unshare", "--pid", "--fork", "--kill-child=KILL", "env", f"LD_PRELOAD={registers}",
               "linux.uml", "mem=1024M", f"uml_dir={folder}/uml", "rootfstype=hostfs", "rootflags=/",
               "ro", "quiet", "con=null", "con0=null,fd:1", "ssl=null", "panic=-1",
               f"init={HERE}/init.sh", "--", folder]
    with open(f"{folder}/command", "w") as file:
        file.write(f"timeout -k 5 {GUEST_S} "
                   + shlex.join([sys.executable, f"{HERE}/guest.py", *arguments]))
    with open(f"{folder}/console", "wb") as console:
        guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                                 start_new_session=True)
    end = time.monotonic() + GUEST_S + 30
    try:
        while guest.poll() is None and time.monotonic() < end and not panic_of(folder):
            time.sleep(0.2)
    finally:
        if guest.poll() is None:
            os.killpg(guest.pid, signal.SIGKILL)
            guest.wait()


def main():
    see_whether_it_can_run()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="shade-nfs-")
    try:
        shadefs, slowfs, registers = map(os.path.abspath, sys.argv[1:4])
        run_guest(folder, registers, [shadefs, slowfs, *sys.argv[4:]])
        said, code = read_text(f"{folder}/said"), read_text(f"{folder}/code")
        if said is None and (panic := panic_of(folder)):
            skip(f"user-mode Linux does not start here: {panic}")
        print(said or "the guest said nothing")
        if code is None or int(code) != 0:
            print("--- its console\n" + read_text(f"{folder}/console")[-10000:])
        if code is None:
            print("the guest did not come to an end")
        return 1 if code is None else int(code)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
