# SPDX-License-Identifier: LGPL-2.1-or-later
"""shadectl top: one frame as text, and the live screen on a terminal, which must be left as it
was found: top.py SHADECTL FAKEFS."""
import ctypes
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

from fake import SHADECTL, STATS, Fake, check, finish, refuses, run, works

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def set_scores(fake):
    """100 samples of score 2, none resident; 50 of 4, 40 resident; 7 without."""
    lines = [f"{number}\t2.0\t1\t0\n" for number in range(100)]
    lines += [f"{number}\t4.0\t1\t{int(number < 140)}\n" for number in range(100, 150)]
    lines += [f"{number}\t-\t0\t{int(number < 152)}\n" for number in range(150, 157)]
    fake.put(".shade/scores", "".join(lines))


class Watch:
    """Tells when a file was read."""
    IN_CLOSE_NOWRITE = 0x10

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC)
        check(self.fd >= 0 and libc.inotify_add_watch(self.fd, path.encode(),
                                                      self.IN_CLOSE_NOWRITE) >= 0, "no inotify")

    def wait(self):
        check(select.select([self.fd], [], [], 60)[0], "nobody reads the stats")
        os.close(self.fd)


def once(fake):
    """What changes between two looks, 3 s apart or a little more where others have the machine."""
    fake.stats()
    first = Watch(f"{fake.state}/.shade/stats")

    def change():
        first.wait()
        fake.stats(accesses=1100, hits=840, misses=260, backend_bytes=25000000 + (64 << 20),
                   waiting_ms=1500, uses=3.25)

    thread = threading.Thread(target=change)
    thread.start()
    done = run("top", fake.mnt, "--once", "--interval", "3")
    thread.join()
    works(done)
    out = done.stdout
    check("\x1b" not in out and "\r" not in out, f"escapes in {out!r}")
    check(all(len(line) <= 80 for line in out.splitlines()), f"wider than 80:\n{out}")
    for words in (fake.mnt, "mode portable", "policy shade", "epoch 7",
                  "90.0 % now, 76.4 % since the mount, coverage 51.0 %", "100 % │",
                  "2.0 GiB of 8.0 GiB (25.0 %)", "20,000 of 1,281,167 samples",
                  "in flight 1.0 MiB", "1,234,567 accesses: 9 10 11 12 "):
        check(words in out, f"the frame lacks {words!r}:\n{out}")
    check("scan is still" not in out, "a scan that is over")
    found = re.search(r"(\d+) hits/s, (\d+) misses/s, source ([\d.]+) MiB/s", out)
    check(found and 10 <= int(found[1]) <= 31 and 1 <= int(found[2]) <= 4
          and 7 <= float(found[3]) <= 22, f"throughput:\n{out}")
    found = re.search(r"^waiting     for the source ([\d.]+) % of the time; 3.2 uses of a "
                      r"fetched sample$", out, re.M)
    check(found and 10 <= float(found[1]) <= 50, f"waiting:\n{out}")
    check(re.search(r"^ *3.875 - 4.062 +█+\S* 40 of 50$", out, re.M), f"score 4:\n{out}")
    check(re.search(r"^ *2 - \S+ +░+ 0 of 100$", out, re.M), f"score 2:\n{out}")
    check(re.search(r"^ *no score +█\S+ 2 of 7$", out, re.M), f"no score:\n{out}")
    check(out.index("40 of 50") < out.index("0 of 100"), "the highest score comes first")
    bars = [line.split()[3] for line in out.splitlines() if " of 50" in line]
    check(bars and len(bars[0]) == 26 and bars[0].count("█") == 20 and bars[0].count("░") == 5,
          f"bar of 80 %: {bars}")


def missing(fake):
    """What is not known is a '-', and nothing fails; in ASCII, too."""
    fake.put(".shade/stats", "hits 5\n")
    for name in ("scores", "order"):
        os.rename(f"{fake.state}/.shade/{name}", f"{fake.state}/{name}")
    done = run("top", fake.mnt, "--interval", "0.05", env={"LC_ALL": "C"})
    works(done)
    check(done.stdout.isascii() and "100 % |" in done.stdout, f"ASCII:\n{done.stdout}")
    for words in ("mode -   policy -   epoch -", "- now, - since the mount, coverage -",
                  "- of - (-)", "0 hits/s, - misses/s, source -/s", "waiting     for the source - of the time\n", "- accesses\n"):
        check(words in done.stdout, f"the frame lacks {words!r}:\n{done.stdout}")
    for name in ("scores", "order"):
        os.rename(f"{fake.state}/{name}", f"{fake.state}/.shade/{name}")
    fake.stats(scan_complete=0)
    check("the scan is still running" in run("top", fake.mnt, "--interval", "0.05").stdout,
          "a scan that is running")
    fake.stats()


def odd_scores(fake):
    for text, words in (("", "resident by score\n"), ("x\n\n1\t2\n", "resident by score\n"),
                        ("1\t0\t0\t1\n", "1 of 1"), ("1\t1e300\t0\t1\n2\t1e-300\t0\t1\n", "1 of 1"),
                        ("1\tinf\t1\t1\n2\t-3\t0\t0\n3\tnan\t0\t1\n", "2 of 3"),
                        ("1\t1.5\t0\t1", "1 of 1"),
                        # Bins grow: what was apart falls together.
                        ("".join(f"{n}\t{n / 1e6}\t0\t1\n" for n in range(50)) + "50\t900\t0\t0",
                         "50 of 50")):
        fake.put(".shade/scores", text)
        done = run("top", fake.mnt, "--interval", "0.05")
        works(done)
        check(words in done.stdout, f"scores {text!r} lack {words!r}:\n{done.stdout}")
    set_scores(fake)


class Terminal:
    """top on a terminal of its own."""

    def __init__(self, fake, rows=30, columns=90, interval="0.2"):
        self.ours, self.theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.theirs)
        self.seen = b""
        self.child = subprocess.Popen(
            [SHADECTL, "top", fake.mnt, "--interval", interval], stdin=self.theirs,
            stdout=self.theirs, stderr=self.theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "LC_ALL": "C.UTF-8"})

    def resize(self, rows, columns):
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def read(self, seconds):
        """What came in that time."""
        got = b""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.ours], [], [], left)[0]:
                got += os.read(self.ours, 65536)
        self.seen += got
        return got

    def read_until(self, what, seconds=60):
        until = time.monotonic() + seconds
        at = len(self.seen)
        while what not in self.seen[at:] and time.monotonic() < until:
            self.read(0.05)
        return what in self.seen[at:]

    def type(self, keys):
        os.write(self.ours, keys)

    def wait(self):
        """The exit code, once all output is read."""
        until = time.monotonic() + 60
        while self.child.poll() is None and time.monotonic() < until:
            self.read(0.05)
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.read(0.1)
        return self.child.returncode

    def check_restored(self, what):
        check(termios.tcgetattr(self.theirs) == self.before, f"{what}: modes are not restored")
        check(self.seen.count(ENTER) == self.seen.count(LEAVE) > 0
              and self.seen.rindex(LEAVE) > self.seen.rindex(ENTER)
              and self.seen.rindex(b"\x1b[?25h") > self.seen.rindex(b"\x1b[?25l"),
              f"{what}: the screen is not restored: {self.seen[-200:]!r}")

    def close(self):
        os.close(self.ours)
        os.close(self.theirs)


def live(fake):
    terminal = Terminal(fake)
    check(terminal.read_until("hit ratio".encode()), "no screen")
    check(terminal.seen.startswith(ENTER), "the screen was not taken")
    modes = termios.tcgetattr(terminal.theirs)
    check(modes != terminal.before and not modes[3] & (termios.ECHO | termios.ICANON),
          "the keyboard is not taken: this test could not see it restored")
    # Another frame comes by itself, with what changed since.
    fake.stats(accesses=1200, hits=950)
    check(terminal.read_until("100.0 % now".encode()), "no second frame")
    terminal.type(b"x")
    terminal.read(0.3)
    check(terminal.child.poll() is None, "x quits")
    terminal.type(b"q")
    check(terminal.wait() == 0, f"q: exit {terminal.child.returncode}")
    terminal.check_restored("q")
    terminal.close()
    fake.stats()


def frame_of(bytes_seen):
    """The last whole frame, as lines without escapes."""
    frames = bytes_seen.decode(errors="replace").split("\x1b[H")
    frames = [frame for frame in frames if "\x1b[J" in frame]
    text = frames[-1].split("\x1b[J")[0] if frames else ""
    return re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", text).replace("\r", "").split("\n")


def resizes(fake):
    terminal = Terminal(fake, interval="600")
    check(terminal.read_until(b"\x1b[J"), "no screen")
    first = frame_of(terminal.seen)
    check(max(map(len, first)) > 40, f"first frame: {first}")
    # The next frame by itself is minutes away: the signal must bring one.
    terminal.read(0.3)
    terminal.resize(6, 40)
    check(terminal.read_until(b"\x1b[J"), "a window that changed is not drawn anew")
    small = frame_of(terminal.seen)
    check(len(small) == 6 and max(map(len, small)) <= 40, f"6 rows of 40: {small}")
    terminal.type(b"Q")
    check(terminal.wait() == 0, "Q")
    terminal.check_restored("after another size")
    terminal.close()


def signals(fake):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV,
                   signal.SIGABRT):
        terminal = Terminal(fake)
        check(terminal.read_until(b"\x1b[J"), "no screen")
        terminal.child.send_signal(number)
        check(terminal.wait() == -number, f"{number!r}: exit {terminal.child.returncode}")
        terminal.check_restored(repr(number))
        terminal.close()
    terminal = Terminal(fake)
    check(terminal.read_until(b"\x1b[J"), "no screen")
    terminal.type(b"\x03")
    check(terminal.wait() == -signal.SIGINT, "Ctrl-C")
    terminal.check_restored("Ctrl-C")
    terminal.close()


def stops(fake):
    terminal = Terminal(fake)
    check(terminal.read_until(b"\x1b[J"), "no screen")
    terminal.child.send_signal(signal.SIGTSTP)
    check(terminal.read_until(LEAVE), "the screen is kept by a stopped program")
    terminal.read(0.2)
    terminal.check_restored("stopped")
    terminal.child.send_signal(signal.SIGCONT)
    check(terminal.read_until(ENTER) and terminal.read_until(b"\x1b[J"), "it does not go on")
    terminal.type(b"q")
    check(terminal.wait() == 0, "q after a stop")
    terminal.check_restored("after a stop")
    terminal.close()


def dies(fake):
    terminal = Terminal(fake)
    check(terminal.read_until(b"\x1b[J"), "no screen")
    fake.servers[0].kill()
    check(terminal.wait() == 1, f"the daemon died: exit {terminal.child.returncode}")
    terminal.check_restored("the daemon died")
    check("is gone" in terminal.seen.split(LEAVE)[-1].decode(), "it does not say so")
    terminal.close()
    refuses(run("top", fake.mnt), 1, "is gone")


with Fake() as mount:
    check(STATS["hits"] == 750, "the figures below rest on that")
    set_scores(mount)
    for part in (once, missing, odd_scores, live, resizes, signals, stops, dies):
        part(mount)
finish()
