# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs a benchmark in its tiny form: SCRIPT BUILD. It must end well, print JSON with rows and
targets that have figures, and leave nothing mounted and no folder behind. The demo prints a table
instead; with --interrupt it is told to stop when it is in the middle."""
import json
import math
import os
import signal
import subprocess
import sys
import tempfile

script, build = sys.argv[1:3]


def check_target(target):
    assert isinstance(target["met"], bool), target
    assert math.isfinite(target["value"]) and target["limit"] >= 0, target
    holds = (target["value"] >= target["limit"] if target["kind"] == "at least"
             else target["value"] <= target["limit"])
    assert holds == target["met"], target


def check(text):
    document = json.loads(text)
    assert os.path.basename(script) == document["benchmark"] + ".py", document["benchmark"]
    assert document["targets"], "no targets"
    for target in document["targets"]:
        check_target(target)
    rows = [row for table in document["tables"] for row in table["rows"]]
    assert any("why not" not in row for row in rows), "nothing was measured"
    if document["benchmark"] == "train":
        check_pictures(os.path.join(build, "train-quick"))


def check_pictures(folder):
    """Tables and plots, unless there is nothing to draw them with."""
    wanted = ["table.md"]
    system = ["/usr/bin/python3", "-c", "import matplotlib"]
    if not subprocess.run(system, stderr=subprocess.DEVNULL, check=False).returncode:
        wanted += ["train-headline.svg", "train-bytes.png", "train-stall.svg", "train-epochs.svg"]
    for name in wanted:
        assert os.path.getsize(os.path.join(folder, name)) > 200, name


def run(arguments, place, interrupt):
    """Exit code and standard output."""
    with subprocess.Popen([sys.executable, script, build, *arguments], stdout=subprocess.PIPE,
                          env={**os.environ, "SHADE_BENCH_DISK": place},
                          start_new_session=True) as process:
        if interrupt:
            for line in process.stdout:
                if b"epoch 0" in line:
                    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
                    break
        text = process.stdout.read()
    return process.returncode, text


def main():
    if os.environ.get("SHADE_TEST_SKIP"):
        print("SKIP:", os.environ["SHADE_TEST_SKIP"])
        return 77
    demo, interrupt = os.path.basename(script) == "demo.py", "--interrupt" in sys.argv
    with tempfile.TemporaryDirectory(prefix="shade-quick-", dir="/var/tmp") as place:
        code, text = run(["--quick"] if demo else ["--quick", "--json"], place, interrupt)
        if code == 77:
            print(text.decode(), end="")
            return 77
        assert code == (130 if interrupt else 0), f"exit {code}"
        if not demo:
            check(text)
        elif not interrupt:
            for name in (b"procedure, rep 3", b"auto (default)", b"pads, rep 1", b"pads, rep 3",
                         b"echo, 4 uses"):
                assert name in text.split(b"means of")[1], text
        assert not os.listdir(place), os.listdir(place)
        with open("/proc/self/mountinfo") as file:
            assert place not in file.read(), "something is still mounted"
    return 0


sys.exit(main())
