# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench storage: how busy an accelerator is kept by what its storage delivers. Files,
batches and the time of a step are those of three profiles that MLPerf Storage has made known; this
is not that benchmark, and its figures are no results of it: everything is scaled to one small
machine, the source is tests/slowfs, and one row for each profile tells the cache the order, which
those rules forbid."""
import json
import math
import os
import shutil
import sys
import tempfile

import lab
import limits
import peers

PYTHON = "/usr/bin/python3"
EPOCHS = 5
CACHE_SHARE = 0.2
READAHEAD = 32 << 20  # page cache for what is being read, where the cache is another's
# files; bytes of one: mean and standard deviation; batch; seconds of a step; and which share of the
# time a source without any cache could keep the accelerator busy.
PROFILES = {
    "ResNet-50": {"files": 6000, "mean": 114_660, "deviation": 0, "batch": 400, "step_s": 0.435,
                  "share": 0.5},
    "UNet3D / 16": {"files": 168, "mean": 146_600_000 // 16, "deviation": 68_300_000 // 16,
                    "batch": 7, "step_s": 0.636 / 16, "share": 0.25},
    "CosmoFlow": {"files": 400, "mean": 2_830_000, "deviation": 0, "batch": 1,
                  "step_s": 0.0055, "share": 0.5},
}
QUICK = {"ResNet-50": {"files": 800}, "UNet3D / 16": {"files": 14}, "CosmoFlow": {"files": 40}}
WAYS = {
    "plain, page cache of that size": "plain",
    "rclone, VFS cache of that size": "rclone",
    "shadefs, order unknown": "unknown",
    "shadefs, order known (not comparable)": "known",
}


class Case:
    """A profile, its files, and its source."""

    def __init__(self, bench, name, profile, mode):
        self.lab, self.name, self.profile, self.mode = bench, name, profile, mode
        half = int(math.sqrt(3) * profile["deviation"])  # sizes are uniform, with that deviation
        self.tree = tempfile.mkdtemp(prefix="storage-", dir=bench.ram)
        os.chmod(self.tree, 0o755)
        os.mkdir(os.path.join(self.tree, "data"))
        bench.call("bench-tree", os.path.join(self.tree, "data"), 10, profile["files"],
                   profile["mean"] - half, profile["mean"] + half)
        self.bytes = sum(os.path.getsize(path) for path in lab.files_below(self.tree))
        self.capacity = int(self.bytes * CACHE_SHARE)
        per_step = self.bytes / profile["files"] * profile["batch"]
        self.bandwidth = int(per_step / profile["step_s"] * profile["share"])

    def describe(self):
        return (f"{self.name}: {self.profile['files']} files, {self.bytes / 1e6:.0f} MB, batch "
                f"{self.profile['batch']}, {self.profile['step_s']:.4g} s a step; the source gives "
                f"{self.bandwidth / 1e6:.0f} MB/s, which keeps the accelerator busy for at most "
                f"{self.profile['share']:.2f} of the time without a cache")

    def run(self, way, epochs):
        """Figures of one way."""
        settings = {"bandwidth": self.bandwidth, "timeout": 3600}
        if way == "plain":
            settings.update(direct_io=0, keep_cache=1)
        slow, limit, words = lab.Slow(self.lab, self.tree, **settings), None, []
        servers = [slow]
        try:
            if way in ("plain", "rclone"):
                limit = limits.PageCache(self.lab, self.capacity if way == "plain" else READAHEAD)
                servers.append(limit)
            if way == "rclone":
                servers.append(peers.rclone(self.lab, slow.path, self.capacity))
            elif way != "plain":
                servers.append(lab.Shade(self.lab, slow.path, capacity=self.capacity,
                                        mode=self.mode))
            root = slow.path if way == "plain" else servers[-1].path
            if way == "known":
                words = ["--mount", root]
            before = slow.counts()["bytes"]
            found = self.loop(root, words, limit, epochs)
            found["source"] = slow.counts()["bytes"] - before
            return found
        finally:
            for server in reversed(servers):
                server.end()

    def loop(self, root, words, limit, epochs):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "storage_loop.py")
        with tempfile.NamedTemporaryFile(dir=self.lab.disk) as out:
            command = [PYTHON, script, os.path.join(root, "data"), "--epochs", str(epochs),
                       "--batch", str(self.profile["batch"]), "--step-s",
                       str(self.profile["step_s"]), "--out", out.name, *words]
            lab.run_loop(self.lab, limit.command(command) if limit else command,
                         limit.begin if limit else None)
            return json.load(out)


def row_of(case, title, found):
    later = found["epochs"][1:] or found["epochs"]
    return {"": title, "busy": round(found["busy"], 3),
            "busy, later epochs": round(sum(later) / len(later), 3),
            "source MB an epoch": found["source"] / 1e6 / len(found["epochs"]),
            "of the data": found["source"] / case.bytes / len(found["epochs"]),
            "s an epoch": found["s"] / len(found["epochs"])}


def measure(report, case, epochs, rounds):
    """Each way once a round, in turns; the round whose figure is the median counts."""
    found, refused = {}, {}
    for _ in range(rounds):
        for title, way in WAYS.items():
            report.say(f"{case.name}, {title}")
            try:
                found.setdefault(way, []).append(case.run(way, epochs))
            except lab.Unavailable as reason:
                refused[way] = str(reason)
    middle = {way: sorted(runs, key=lambda run: run["busy"])[len(runs) // 2]
              for way, runs in found.items()}
    report.table(case.describe(), [
        row_of(case, title, middle[way]) if way in middle else {"": title, "why not": refused[way]}
        for title, way in WAYS.items()])
    set_targets(report, case.name, {way: run["busy"] for way, run in middle.items()})


def set_targets(report, name, busy):
    for way, other in (("unknown", "plain"), ("unknown", "rclone"), ("known", "plain")):
        if way in busy and other in busy:
            report.target(f"{name}: busy with the order {way}, as a multiple of {other}",
                          round(busy[way] / busy[other], 3), 1, least=True)


def main():
    options, bench, report = lab.begin("storage", lambda parser: parser.add_argument(
        "--only", metavar="PROFILE", help="one of " + ", ".join(PROFILES)))
    for name, profile in PROFILES.items():
        if options.only not in (None, name):
            continue
        if options.quick:
            profile = {**profile, **QUICK[name]}
        case = Case(bench, name, profile, options.mode.replace("all", "auto"))
        measure(report, case, 2 if options.quick else EPOCHS, options.rounds or 1)
        shutil.rmtree(case.tree)
    report.end()


if __name__ == "__main__":
    sys.exit(main())
