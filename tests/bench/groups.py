# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench groups: what several trainings on one mount fetch from the source, with and without
a group. Each is a process that reads a permutation an epoch, with batches read ahead by threads and a
sleep for each step; nobody keeps them in step. The cache holds a fifth of the data. Bytes and seconds
are those of an epoch of the first training, after its first one, over all that goes on meanwhile."""
import os
import subprocess
import sys
import time

import lab

LOOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "groups_loop.py")
SHARE = 0.2
INFLIGHT_MOST = 8 << 20
RATIO_LIMIT = 1.1
# How many, whether in a group, how many come late, how many are slow.
SCENES = {"one": (1, False), "four, in a group": (4, True), "four, without": (4, False),
          "three and a late one, in a group": (3, True, 1),
          "three and a late one, without": (3, False, 1),
          "three and one at half speed, in a group": (4, True, 0, 1),
          "three and one at half speed, without": (4, False, 0, 1)}


class Training:
    """A process of groups_loop.py; its figures by epoch."""

    def __init__(self, bench, mount, job, *words):
        self.process = subprocess.Popen(
            [sys.executable, LOOP, mount.path, job, *map(str, words)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.path.join(bench.build, "python"),
                 "PYTHONDONTWRITEBYTECODE": "1"})
        self.times, self.bytes, self.once = [], [], []
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise lab.Unavailable(f"a training said '{line.strip()}'")

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def take(self, epochs=1):
        """Waits until it has read so many more."""
        for _ in range(epochs):
            line = self.process.stdout.readline()
            if not line:
                raise lab.Unavailable("a training has ended early")
            moment, fetched, once = line.split()
            self.times.append(float(moment))
            self.bytes.append(int(fetched))
            self.once.append(once == "1")

    def end(self):
        self.process.kill()
        self.process.wait()


class Scene:
    """Trainings on a mount of their own."""

    def __init__(self, bench, tree, options, mode):
        self.bench, self.options = bench, options
        total = sum(os.path.getsize(path) for path in lab.files_below(tree))
        settings = {"bandwidth": options.bandwidth} if options.bandwidth else {}
        self.slow = lab.Slow(bench, tree, timeout=60, **settings)
        kept = int(SHARE * total)
        inflight = min(INFLIGHT_MOST, kept)
        self.mount = lab.Shade(bench, self.slow.path, mode=mode, inflight=inflight,
                               capacity=kept + inflight)
        self.trainings = []

    def add(self, *words, step=1.0):
        number = len(self.trainings)
        training = Training(self.bench, self.mount, f"job{number}", "--seed", number, "--epochs",
                            self.options.epochs + 20, "--mode", self.options.sampler, "--step-ms",
                            self.options.step_ms * step, *words)
        self.trainings.append(training)
        return training

    def row(self, name):
        """Bytes and seconds of an epoch of the first training, after its first one."""
        first = self.trainings[0]
        epochs = len(first.bytes) - 1
        return {"trainings": name, "bytes": (first.bytes[-1] - first.bytes[0]) / epochs,
                "seconds": (first.times[-1] - first.times[0]) / epochs,
                "each once": all(all(training.once) for training in self.trainings)}

    def end(self):
        for training in self.trainings:
            training.end()
        self.mount.end()
        self.slow.end()


def run(bench, tree, options, mode, name, count, group, late=0, slow=0):
    """`count` trainings from the beginning; `late` come in the middle of the second epoch, and
    `slow` of the first ones need twice as long for a step."""
    scene = Scene(bench, tree, options, mode)
    try:
        words = ["--group", "bench"] if group else []
        for number in range(count):
            scene.add(*words, step=2.0 if number >= count - slow else 1.0)
        begin = time.monotonic()
        for training in scene.trainings:
            training.go()
        first = scene.trainings[0]
        first.take()
        if late:
            newcomers = [scene.add(*words) for _ in range(late)]
            time.sleep(max(0.0, (first.times[0] - begin) / 2))
            for training in newcomers:
                training.go()
        first.take(options.epochs - 1)
        return scene.row(name)
    finally:
        scene.end()


def more(parser):
    parser.add_argument("--files", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=5, help="of the first training")
    parser.add_argument("--step-ms", type=float, default=20, help="a step of 32 samples")
    parser.add_argument("--bandwidth", default="", help="of the source, such as 60M; none: no limit")
    parser.add_argument("--only", default="", help="rows with this in their names, and the first two")
    parser.add_argument("--sampler", default="uniform", help="mode of shade.Sampler")


def main():
    options, bench, report = lab.begin("groups", more)
    if options.quick:
        options.files, options.epochs, options.step_ms = 300, 2, 2
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    if options.quick:
        modes = modes[:1]
    tree = bench.make_tree(bench.ram, 50, options.files, 16384, 49152)
    for mode in modes:
        rows = []
        for name, words in list(SCENES.items())[:2 if options.quick else None]:
            if name not in ("one", "four, in a group") and options.only not in name:
                continue
            rows.append(run(bench, tree, options, mode, name, *words))
            rows[-1]["times one"] = rows[-1]["bytes"] / rows[0]["bytes"]
            report.say(f"{mode}, {name}: {rows[-1]['times one']:.3f}")
        report.table(f"shadefs, {mode}: source bytes an epoch of the first training, cache "
                     f"{SHARE:.0%} of {options.files} files, mode {options.sampler}", rows)
        report.target(f"{mode}: four in a group, times the bytes of one", rows[1]["times one"],
                      RATIO_LIMIT)
    if reasons:
        report.table("not measured", [{"mode": mode, "why not": why}
                                      for mode, why in reasons.items()])
    report.end()


main()
