# SPDX-License-Identifier: LGPL-2.1-or-later
"""shadectl and the real daemon: every verb does what it says. What it sends, word by word, and what
it says of bad input is tested with a mount that answers as told (tests/client)."""
import json
import os
import re
import subprocess
import sys

from common import (MODE, SHADECTL, Shade, is_mounted, make_tree, read, run_tests, running, skip,
                    wait_until)


def call(verb, fs, *arguments, code=0, stdin=None):
    done = subprocess.run([SHADECTL, verb, fs.path, *arguments], capture_output=True, text=True,
                          input=stdin, timeout=60, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert done.returncode == code, (verb, arguments, done)
    assert bool(done.stderr) == bool(code), (verb, arguments, done)
    return done


def resident(fs):
    """The paths of what is."""
    with open(fs.at(".shade", "scores")) as file:
        ids = {int(line.split()[0]) for line in file if line.split()[3] == "1"}
    return {path for path, number in fs.samples().items() if number in ids}


def looking():
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M")
    for path in contents:
        read(fs.at(path))
    wait_until(lambda: fs.stats()["accesses"] == 20, "counted")
    fs.settle()
    lines = call("stats", fs).stdout.splitlines()
    stats = json.loads(call("stats", fs, "--json").stdout)
    assert [line.split()[0] for line in lines] == list(stats), (lines, stats)
    assert stats == fs.stats() and stats["accesses"] == 20, stats
    text = call("status", fs).stdout
    for words in (root, f"mode       {MODE}", "policy     shade", "of 8.0 MiB used",
                  "20 samples resident", "of 20 accesses", "complete, 20 samples"):
        assert words in text, (words, text)
    text = call("top", fs, "--once", "--interval", "0.1").stdout
    for words in (fs.path, f"mode {MODE}", "20 of 20 samples", "coverage 100.0 %"):
        assert words in text, (words, text)
    os.mkdir(fs.at(".shade/jobs/lr-0.1"))
    for verb in (["status"], ["top", "--once", "--interval", "0.1"]):
        text = call(verb[0], fs, *verb[1:]).stdout
        assert "job lr-0.1: epoch 0, hits - of 0 accesses" in text and "group" not in text, text
        assert "job 0: epoch " in text and text.count("coverage") == 2, text
    with open(fs.at(".shade/jobs/lr-0.1/control"), "wb", buffering=0) as control:
        control.write(b"group sweep\n")
        text = call("status", fs).stdout
        assert "group sweep: lr-0.1 in order - at -" in text, text
    text = call("debug", fs).stdout
    for words in (os.uname().release, fs.path, f"mode {MODE} # option", "accesses 20\n"):
        assert words in text, (words, text)
    fs.end()


def telling():
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M")
    samples = fs.samples()
    first, second = list(contents)[:2]
    call("score", fs, first, "4.5")
    call("score", fs, "-f", "-", stdin=f"# a comment\n{samples[second]} 2.5\n")
    with open(fs.at(".shade", "scores")) as file:
        scores = [float(line.split()[1]) for line in file]
    assert (scores[samples[first]], scores[samples[second]]) == (4.5, 2.5), scores
    assert call("epoch", fs).stdout == "0\n"
    call("order", fs, "3", "-f", "-", stdin="5 4\n3")
    assert call("order", fs).stdout.split() == ["5", "4", "3"]
    call("epoch", fs, "3")
    assert call("epoch", fs).stdout == "3\n" and fs.stats()["epoch"] == 3
    assert "nonexistent" in call("score", fs, "nonexistent", "1", code=2).stderr
    fs.end()


def steering():
    root, contents = make_tree(40)
    fs = Shade(root, capacity="8M")
    ours = {path for path in contents if path.startswith("class1/")}
    call("pin", fs, "class1")
    call("warm", fs, "class1")
    assert resident(fs) == ours and fs.stats()["pinned_bytes"] > 0
    call("unpin", fs, "class1")
    assert fs.stats()["pinned_bytes"] == 0
    call("evict", fs, min(ours))
    assert resident(fs) == ours - {min(ours)}
    call("evict", fs, "-0", "-f", "-", stdin="\0".join(sorted(ours)) + "\0")
    assert not resident(fs)
    call("capacity", fs, "4M")
    assert call("capacity", fs).stdout == f"{4 << 20}\n" and \
        fs.stats()["capacity_bytes"] == 4 << 20
    call("policy", fs, "lru")
    assert call("policy", fs).stdout == "lru\n" and fs.stats()["policy"] == "lru"
    with open(os.path.join(root, "late"), "w") as file:
        file.write("late")
    call("rescan", fs)
    wait_until(lambda: "late" in fs.samples(), "the new file has a number")
    fs.end()


def warming():
    root, contents = make_tree(60, size=40000)
    fs = Shade(root, capacity="8M", inflight="256K")
    size = sum(map(len, contents.values()))
    found = json.loads(call("warm", fs, ".").stdout)
    assert found.pop("seconds") < 60
    assert found == {"wanted": 60, "resident": 60, "refused": 0, "failed": 0, "bytes": size}, found
    before = fs.stats()["backend_reads"]
    for path, data in contents.items():
        assert read(fs.at(path)) == data
    stats = fs.stats()  # whoever drops all caches of the machine meanwhile is not to blame here
    assert before >= 60 and stats["backend_reads"] == before + stats["reclaimed"], stats
    call("evict", fs, ".")
    call("capacity", fs, "1M")
    done = call("warm", fs, ".", code=1)
    found = json.loads(done.stdout)
    assert found["wanted"] == 60 and found["refused"] == 60 - found["resident"] > 20, found
    assert found["resident"] == fs.stats()["resident_samples"], (found, fs.stats())
    assert re.match(rf"shadectl: {found['resident']} of 60 samples are resident\n"
                    r"shadectl: the data exceeds the capacity: \S+ MiB do not fit into 1.0 MiB\n$",
                    done.stderr), done.stderr
    fs.end()


# Its name would turn the terminal red.
HOLDER = """import sys
open("/proc/self/comm", "w").write("\x1b[31mholder")
held = open(sys.argv[1], "rb")
print("open", flush=True)
sys.stdin.read()"""


def unmounting():
    root, contents = make_tree(3)
    path = next(iter(contents))
    fs = Shade(root, capacity="8M")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, fs.at(path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "open\n"
        said = call("umount", fs, code=1).stderr
        held = rf"^ *{holder.pid} .*{re.escape(fs.at(path))} \(file \d+\)$"
        assert re.search(held, said, re.M) and "?[31mholder" in said and "\x1b" not in said, said
        assert is_mounted(fs.path) and read(fs.at(path)) == contents[path]
    finally:
        holder.communicate()
    # The kernel closes files a moment later than it says.
    wait_until(lambda: subprocess.run([SHADECTL, "umount", fs.path], timeout=60,
                                      capture_output=True).returncode == 0, "unmounted")
    assert fs.process.wait(60) == 0 and not is_mounted(fs.path), fs.read_log()
    assert not os.listdir(fs.path)
    assert "Sanitizer" not in fs.read_log(), fs.read_log()
    running.remove(fs)


if not SHADECTL:
    skip("shadectl was not built")
run_tests([looking, telling, steering, warming, unmounting])
