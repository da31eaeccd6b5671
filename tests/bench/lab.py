# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the benchmarks share: scratch folders in RAM and on the disk, servers and mounts that are
gone at the end whatever happens, medians, tables, JSON, and targets that say whether they are met.

A benchmark is run as SCRIPT BUILD [OPTION...], BUILD being a build directory. It exits with 0 if
everything was measured, whether or not targets were met, and with 77 and a reason where nothing
can be."""
import argparse
import atexit
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from processes import daemon_pid  # pylint: disable=wrong-import-position

CLOCK_OF_PROCESS = 2  # what clock_getcpuclockid(3) makes a clock of
ROUND_SECONDS = 600   # no command runs longer


class Unavailable(Exception):
    """Something cannot be measured here; the text says why."""


def stop(*_):
    print("\nstopped; cleaning up", file=sys.stderr)
    sys.exit(130)


def skip(reason):
    print("SKIP:", reason)
    sys.exit(77)


# --- files ------------------------------------------------------------------------------------

def filesystem_type(path):
    """As `stat -f` names it, such as tmpfs or ext2/ext3."""
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True,
                          check=True).stdout.strip()


def mounts_below(path):
    """Mount points at and below a path, innermost last."""
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4] for line in file]
    return [point for point in points if point == path or point.startswith(path + "/")]


class Lab:
    """A benchmark's place: two folders, the programs, everything that runs."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.running = []
        self.folders = []
        atexit.register(self.clean_up)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        self.disk = self.scratch(os.environ.get("SHADE_BENCH_DISK") or "/var/tmp")
        self.ram = self.make_ram()

    def scratch(self, below):
        path = tempfile.mkdtemp(prefix="shade-bench-", dir=below)
        self.folders.append(path)
        return path

    def make_ram(self):
        """A tmpfs: one of our own, which goes at once however many files it has, or a folder."""
        if os.geteuid() == 0:
            path = os.path.join(self.disk, "ram")
            os.mkdir(path)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=0,size=50%", "shade-bench",
                            path], check=True)
            return path
        if os.path.isdir("/dev/shm") and filesystem_type("/dev/shm") == "tmpfs":
            return self.scratch("/dev/shm")
        return skip("there is no tmpfs to compare with")

    def program(self, name):
        folder = {"shadefs": "fs", "slowfs": "tests/slowfs", "nfs-proxy": "tests/nfs",
                  "nfs-libnfs": "tests/nfs"}.get(name, "tests/bench")
        path = os.path.join(self.build, folder, name)
        if not os.path.exists(path):
            skip(f"{path} was not built")
        return path

    def call(self, name, *arguments, data=None):
        """Runs a program of ours; the numbers that it prints."""
        done = subprocess.run([self.program(name), *map(str, arguments)], input=data,
                              stdout=subprocess.PIPE, check=True, timeout=ROUND_SECONDS)
        return [float(word) for word in done.stdout.split()]

    def make_tree(self, below, folders, files, least, most=None):
        """A new tree; its path."""
        path = tempfile.mkdtemp(prefix="tree-", dir=below)
        os.chmod(path, 0o755)
        self.call("bench-tree", path, folders, files, least, most or least)
        return path

    def clean_up(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for server in reversed(list(self.running)):
            server.end()
        for folder in self.folders:
            for point in reversed(mounts_below(folder)):
                subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL, check=False)
            # What is still mounted is somebody's source.
            if not mounts_below(folder):
                shutil.rmtree(folder, ignore_errors=True)


def files_below(root):
    """Paths of all files, sorted."""
    return sorted(os.path.join(folder, name)
                  for folder, _, names in os.walk(root) for name in names)


def as_input(paths):
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def shuffled(paths, seed):
    paths = list(paths)
    random.Random(seed).shuffle(paths)
    return paths


# --- servers ----------------------------------------------------------------------------------

class Losses:
    """Made up: each sample has a difficulty of its own and is learned a little with every visit."""

    def __init__(self, samples):
        self.chance = random.Random(7)
        self.logarithm = [self.chance.gauss(0, 1) for _ in range(samples)]

    def visit(self, sample):
        self.logarithm[sample] -= 0.05
        return math.exp(self.logarithm[sample] + self.chance.gauss(0, 0.1))


class Server:
    """A process that serves until its end, which comes with end(). It has a session of its own: what
    a terminal sends on Ctrl-C must not end a source before those who read from it."""

    def __init__(self, lab, command, **settings):
        self.lab = lab
        descriptor, self.log = tempfile.mkstemp(prefix="log-", dir=lab.disk)
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=descriptor,
                                            stderr=descriptor, start_new_session=True,
                                            **settings)
        except FileNotFoundError:
            raise Unavailable(f"{command[0]} is not installed") from None
        finally:
            os.close(descriptor)
        lab.running.append(self)

    def wait(self, ready, seconds=20):
        end = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None:
                self.end()
                raise Unavailable(self.last_words() or f"it ended with {self.process.returncode}")
            if time.monotonic() > end:
                self.end()
                raise Unavailable(f"it was not ready after {seconds} s")
            time.sleep(0.01)

    def last_words(self):
        with open(self.log, errors="replace") as log:
            lines = log.read().strip().splitlines()
        return lines[-1] if lines else ""

    def daemon(self):
        """The process that does the work."""
        return self.process.pid

    def cpu_s(self):
        """Seconds of processor time so far, threads that ended included."""
        return time.clock_gettime((~self.daemon() << 3) | CLOCK_OF_PROCESS)

    def end(self):
        if self in self.lab.running:
            self.lab.running.remove(self)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                print(f"{self.process.args[0]} did not end in 30 s and was killed",
                      file=sys.stderr)
                self.process.kill()
                self.process.wait()


def run_loop(lab, command, on_ready=None, seconds=6 * ROUND_SECONDS):
    """Runs a training of ours, which prints `ready` when its clock starts, to its end, with the
    package `shade` of the build and one thread for each process."""
    server = Server(lab, command, env={
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.path.join(lab.build, "python")})

    def ready():
        with open(server.log, errors="replace") as log:
            return "ready\n" in log

    try:
        server.wait(ready, 120)
        if on_ready:
            on_ready()
        if server.process.wait(seconds):
            raise Unavailable(server.last_words() or f"it ended with {server.process.returncode}")
    finally:
        server.end()


class Mount(Server):
    """A FUSE server in front, on a mount point of its own; command(path) starts it."""

    def __init__(self, lab, command, **settings):
        self.path = tempfile.mkdtemp(prefix="mount-", dir=lab.disk)
        super().__init__(lab, command(self.path), **settings)
        self.wait(lambda: mounts_below(self.path))

    def end(self):
        super().end()
        for point in reversed(mounts_below(self.path)):
            subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL, check=False)


class Shade(Mount):
    def __init__(self, lab, source, wait_for_scan=True, **options):
        text = ",".join(f"{name}={value}" for name, value in options.items())
        super().__init__(lab, lambda path: [lab.program("shadefs"), "-f", "-o", text or "ro",
                                            source, path])
        self.wait(lambda: os.path.exists(os.path.join(self.path, ".shade", "stats")))
        if wait_for_scan:
            self.wait(lambda: self.stats()["scan_complete"] == 1, ROUND_SECONDS)

    def daemon(self):
        return daemon_pid(self.process.pid)

    def stats(self):
        with open(os.path.join(self.path, ".shade", "stats")) as file:
            pairs = [line.split(None, 1) for line in file]
        return {key: value.strip() if key in ("mode", "policy") else float(value)
                for key, value in pairs}

    def settle(self):
        """Waits until nothing is on its way."""
        def quiet():
            stats = self.stats()
            return not stats["reserved_bytes"] and not stats["inflight_bytes"]
        self.wait(quiet)


class Slow(Mount):
    """The slow source of the tests."""

    def __init__(self, lab, source, **options):
        text = ",".join(f"{name}={value}" for name, value in options.items())
        super().__init__(lab, lambda path: [lab.program("slowfs"), "-f",
                                            *(["-o", text] if text else []), source, path])

    def counts(self):
        with open(os.path.join(self.path, ".slowfs")) as file:
            pairs = [line.split() for line in file]
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def modes_at_hand(lab, wanted):
    """Which modes to measure, and why another one cannot be: (modes, {mode: reason})."""
    refused = {}
    modes = ["portable", "native"] if wanted == "all" else [wanted]
    probe = tempfile.mkdtemp(prefix="probe-", dir=lab.ram)
    for mode in modes:
        try:
            Shade(lab, probe, mode=mode).end()
        except Unavailable as reason:
            refused[mode] = str(reason).removeprefix("shadefs: ")
    return [mode for mode in modes if mode not in refused], refused


# --- figures ----------------------------------------------------------------------------------

def median(values):
    return statistics.median(values)


def spread(values):
    """The middle half of the values, as a share of their median."""
    if len(values) < 4:
        return (max(values) - min(values)) / median(values)
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / median(values)


def interleaved(rounds, works):
    """Runs each of the works (a dict of functions) in turn, round after round, so that what else
    the machine does hits all alike: {name: [results]}. The first round is not counted."""
    results = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            result = work()
            if number:
                results[name].append(result)
    return results


def text_of(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


class Report:
    """Rows for a table and for JSON, and targets."""

    def __init__(self, name, as_json):
        self.name, self.as_json = name, as_json
        self.tables, self.targets = [], []

    def say(self, text):
        """What goes on; not on standard output, which may be JSON."""
        print(text, file=sys.stderr, flush=True)

    def table(self, title, rows):
        self.tables.append({"title": title, "rows": rows})
        if self.as_json:
            return
        columns = list(dict.fromkeys(key for row in rows for key in row if key != "why not"))
        cells = [columns] + [[text_of(row.get(column)) for column in columns] for row in rows]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        print(f"\n{title}\n")
        for number, line in enumerate(cells):
            reason = rows[number - 1].get("why not") if number else None
            text = "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                             for i, (cell, width) in enumerate(zip(line, widths)))
            print(f"{line[0].ljust(widths[0])}  not measured: {reason}" if reason else text)

    def target(self, what, value, limit, least=False, unit=""):
        """A figure and its bound: at most, or at least."""
        met = value >= limit if least else value <= limit
        self.targets.append({"target": what, "value": value, "limit": limit,
                             "kind": "at least" if least else "at most", "unit": unit, "met": met})

    def end(self):
        machine = {"cores": os.cpu_count(), "kernel": os.uname().release,
                   "load": os.getloadavg()[0]}
        if self.as_json:
            print(json.dumps({"benchmark": self.name, "machine": machine, "tables": self.tables,
                              "targets": self.targets}, indent=1))
            return
        print(f"\n{machine['cores']} cores, Linux {machine['kernel']}, "
              f"load {machine['load']:.1f} at the end\n")
        for target in self.targets:
            unit = f" {target['unit']}" if target["unit"] else ""
            print(f"{'met    ' if target['met'] else 'NOT MET'}  {target['target']}: "
                  f"{text_of(float(target['value']))}{unit}, {target['kind']} "
                  f"{text_of(float(target['limit']))}{unit}")


def begin(name, more=None):
    """The options, the lab and the report of a benchmark."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench {name}")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    parser.add_argument("--quick", action="store_true",
                        help="tiny, to see that it works; its figures mean nothing")
    parser.add_argument("--mode", choices=["portable", "native", "all"], default="all",
                        help="of shadefs (default: all that start here)")
    parser.add_argument("--rounds", type=int, help="how often each thing is measured")
    if more:
        more(parser)
    options = parser.parse_args()
    if not os.path.exists("/dev/fuse"):
        skip("there is no /dev/fuse here")
    return options, Lab(options.build), Report(name, options.json)
