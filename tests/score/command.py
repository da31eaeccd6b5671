# SPDX-License-Identifier: LGPL-2.1-or-later
"""shade-score rank and order as their users meet them, and errors that say what is wrong and
where: command.py SHADE_SCORE MANPAGE."""
import math
import os
import re
import subprocess
import sys
import tempfile

SHADE_SCORE, MANPAGE = sys.argv[1:]
failed = 0


def check(holds, what):
    global failed
    if not holds:
        failed += 1
        print("FAILED:", what)


def run(*words, stdin=""):
    return subprocess.run([SHADE_SCORE, *map(str, words)], input=stdin, capture_output=True,
                          text=isinstance(stdin, str), timeout=120)


def ids(*words, stdin=""):
    done = run("order", *words, stdin=stdin)
    check(done.returncode == 0 and not done.stderr, f"{done.args}: {done.stderr}")
    return [int(line) for line in done.stdout.split()]


def refuses(done, *words, code=2):
    check(done.returncode == code, f"exit {done.returncode} for {done.args}")
    check(done.stderr.count("\n") == 1 and done.stderr.startswith("shade-score: "),
          f"{done.args}: {done.stderr!r}")
    for word in words:
        check(word in done.stderr, f"'{word}' is not in {done.stderr!r}")


def rank():
    done = run("rank", stdin="# losses\n0.5\n0.1\n0.5\n\n7\n\n\ninf\n-0\n0")
    shown = [line and round(math.exp(float(line)) - 10, 3) for line in done.stdout.split("\n")]
    check(shown == [1.5, 0, 1.5, "", 31.5, "", "", 2, 0.5, 0.5, ""], f"ranks: {shown}")
    check(run("rank").stdout == "", "nothing gives nothing")
    refuses(run("rank", stdin="1\n2\nx\n"), "standard input:3", "'x'")
    refuses(run("rank", stdin="1\n\nnan\n"), "standard input:3", "nan")
    refuses(run("rank", stdin="1 2\n"), "standard input:1", "too much")
    refuses(run("rank", stdin="1\n\0\n"), "standard input:2", "NUL")
    refuses(run("rank", "--seed", 1), "--seed")


def order():
    with tempfile.TemporaryDirectory() as folder:
        scores = os.path.join(folder, "scores")
        with open(scores, "w") as file:
            file.writelines(f"{i}\t{2.3 + i % 7 / 5}\t{i % 3}\t{i % 2}\n" if i % 2 else
                            f"{i} {-1 if i % 10 == 0 else 3}\n" for i in range(1000))
        base = ["--samples", 1000, "--scores", scores, "--seed", 3, "--epoch", 2]
        whole = ids(*base)
        check(len(whole) == 1000 and set(whole) < set(range(1000)), "an order of all")
        check({i for i in range(0, 1000, 10)} <= set(whole), "what was never scored comes")
        check(whole == ids(*base, "--backend", "cpu"), "the same again")
        check(whole != ids(*base[:-1], 3), "another epoch is another order")
        parts = [ids(*base, "--rank", r, "--world", 3) for r in range(3)]
        check([parts[i % 3][i // 3] for i in range(1000)] == whole, "parts are the whole")
        with open(scores) as file:
            check(ids("--samples", 1000, "--scores", "-", *base[4:], stdin=file.read()) == whole,
                  "scores from standard input")
        resident = os.path.join(folder, "resident")
        with open(resident, "wb") as file:
            file.write(b"\xff" * 25 + bytes(100))
        hits = sum(i < 200 for i in ids(*base, "--resident", resident, "--rep", 4))
        few = sum(i < 200 for i in whole)
        check(hits > 2 * few, f"residents: {few} without, {hits} with")
        check(sorted(ids("--samples", 50, "--mode", "uniform")) == list(range(50)), "uniform")
        with open(resident, "wb") as file:
            file.write(bytes(124))
        refuses(run("order", *base, "--resident", resident), "124 bytes", "125")
        with open(resident, "wb") as file:
            file.write(bytes(126))
        refuses(run("order", *base, "--resident", resident), "too long", "125")
        refuses(run("order", *base, "--resident", folder), "cannot read")
        state_and_scores(folder, scores)
        echo(folder)
        skips(folder)
        for bad, word in (("0 1\n1000 1\n", ":2:"), ("0 nan\n", ":1:"), ("0\n", "missing"),
                          ("-1 2\n", "'-1'"), ("0 1 2\n", "residency"), ("0 inf\n", ":1:"),
                          ("0 1 2 1 9\n", "too much"), ("1e3 1\n", "'1e3'")):
            refuses(run("order", "--samples", 1000, "--scores", "-", stdin=bad), word)


def state_and_scores(folder, scores):
    """What the manual says of --state beside other options."""
    base = ["--samples", 1000, "--state", os.path.join(folder, "seen")]
    drawn = ids(*base, "--seed", 3, "--scores", scores)
    check(drawn == ids(*base, "--seed", 4), "a state has the seed, and the epoch that was drawn")
    plain = ids("--samples", 1000, "--seed", 3, "--scores", scores, "--epoch", 1)
    check(ids(*base, "--epoch", 1) == plain, "and the scores")
    ones = "".join(f"{i} 1\n" for i in range(1000))
    mixed = ids("--samples", 1000, "--seed", 3, "--scores", "-", "--epoch", 2, stdin=ones)
    check(ids(*base, "--epoch", 2, "--scores", "-", stdin=ones) == mixed, "new ones replace them")
    refuses(run("order", "--samples", 999, *base[2:]), "1000 samples")


def echo(folder):
    """Goes on with a state, and does not pretend to without."""
    state = os.path.join(folder, "state")
    options = ["--samples", 200, "--mode", "echo", "--capacity", 40, "--state", state]
    read = [ids(*options, "--epoch", epoch) for epoch in range(8)]
    check(all(len(epoch) == 200 for epoch in read), "lengths")
    check(set().union(*map(set, read)) == set(range(200)), "echo reads everything in time")
    check(ids(*options, "--epoch", 7) == read[7], "the same epoch again is the same order")
    refuses(run("order", *options[:-2], "--epoch", 1), "--state")
    with open(state, "r+b") as file:
        file.write(b"X")
    refuses(run("order", *options), state, "not a usable scorer state")
    refuses(run("order", "--samples", 5, "--mode", "echo"), "capacity")


def skips(folder):
    """prune and iis, by losses from a file."""
    losses, near = os.path.join(folder, "losses"), os.path.join(folder, "near")
    with open(losses, "w") as file:
        file.writelines(f"{i} {i}\n" for i in range(1000))
    base = ["--samples", 1000, "--losses", losses, "--seed", 3, "--epoch", 7]
    pruned = ids(*base, "--mode", "prune")
    check(len(set(pruned)) == len(pruned) and set(range(500, 1000)) < set(pruned) and
          680 < len(pruned) < 820, f"{len(pruned)} of 1000 after pruning")
    check(len(ids(*base, "--mode", "prune", "--epochs", 8)) == 1000, "the last eighth is whole")
    check(520 < len(ids(*base, "--mode", "prune", "--keep", 0.1)) < 580, "--keep")
    check(len(ids("--samples", 1000, "--mode", "prune")) == 1000, "without losses all come")
    parts = [ids(*base, "--mode", "prune", "--rank", r, "--world", 7) for r in range(7)]
    check(len({len(part) for part in parts}) == 1, "parts are of one length")
    check({i for part in parts for i in part} == set(pruned), "parts are the whole")
    iis = ids(*base, "--mode", "iis")
    check(700 < len(iis) < 800 and 999 in iis, f"{len(iis)} of 1000 by iis")
    check(len(ids(*base[:-1], 6, "--mode", "iis")) == 1000, "every third epoch is whole")
    with open(near, "w") as file:
        file.writelines(f"{i * 377 % 1000}\n" for i in range(1000))
    packed = ids(*base, "--mode", "iis", "--package", 10, "--neighbours", near)
    check(sorted(packed) == sorted(iis) and packed != iis, "packages")
    state = os.path.join(folder, "left")
    kept = ["--samples", 1000, "--losses", losses, "--mode", "prune", "--keep", 0.01, "--state", state]
    read = [set(ids(*kept, "--epoch", epoch)) for epoch in range(6)]
    check(set().union(*read[1:]) == set(range(1000)) and len(read[2]) < 600,
          "a state knows who was left out")
    echoed = ids("--samples", 1000, "--mode", "echo", "--capacity", 200, "--keep", 0.5,
                 "--losses", losses)
    check(len(echoed) == 1000 and sum(i < 500 for i in echoed) < 420, "echo over a pruned stream")
    refuses(run("order", *base, "--mode", "iis", "--keep", 0.5), "keep")
    refuses(run("order", *base, "--mode", "prune", "--keep", 0), "--keep")
    refuses(run("order", *base, "--mode", "prune", "--substitute", 1), "iis")
    refuses(run("order", *base[:2], "--mode", "iis", "--losses", "-", stdin="3 nan\n"), ":1:")
    refuses(run("order", *base, "--mode", "iis", "--neighbours", losses), ":1:", "too much")
    with open(near, "a") as file:
        file.write("3\n")
    refuses(run("order", *base, "--mode", "iis", "--neighbours", near), ":1001:", "more ids")
    with open(near, "w") as file:
        file.write("3\n3\n")
    refuses(run("order", *base, "--mode", "iis", "--neighbours", near), near, "2 ids")


def usage():
    check(run("--version").stdout.startswith("shade-score "), "--version")
    refuses(run(), "rank, order or follow")
    refuses(run("fly"), "rank, order or follow")
    refuses(run("order"), "--samples")
    refuses(run("order", "--samples"), "needs a value")
    refuses(run("order", "--samples", "x"), "whole number")
    refuses(run("order", "--samples", 10, "--mode", "best"), "'best'")
    refuses(run("order", "--samples", 10, "--backend", "tpu"), "'tpu'")
    refuses(run("order", "--samples", 10, "--rep", "nan"), "--rep")
    refuses(run("order", "--samples", 10, "--rank", 3, "--world", 3), "no rank 3 of 3")
    refuses(run("order", "--samples", 10, "--batch", 3), "--batch")
    refuses(run("order", "--samples", 10, "more"), "'more'")
    refuses(run("order", "--samples", 10, "--scores", "/nonexistent"), "/nonexistent")
    refuses(run("follow"), "needs the directory")
    refuses(run("follow", "/nonexistent"), "/nonexistent", code=1)
    refuses(run("follow", "/"), "no shadefs is mounted at '/'", code=1)
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, ".shade"))
        with open(os.path.join(folder, ".shade", "control"), "w"):
            pass
        refuses(run("follow", folder), "no shadefs is mounted", code=1)
        check(os.path.getsize(os.path.join(folder, ".shade", "control")) == 0, "it was written to")
    env = dict(os.environ, SHADE_SCORE_DEVICE="/nonexistent.so")
    done = subprocess.run([SHADE_SCORE, "order", "--samples", "5", "--backend", "cuda"], env=env,
                          capture_output=True, text=True)
    refuses(done, "CUDA", code=1)
    with open("/dev/full", "w") as full:
        done = subprocess.run([SHADE_SCORE, "order", "--samples", "5"], stdout=full,
                              stderr=subprocess.PIPE, text=True)
        check(done.returncode == 1 and "cannot write" in done.stderr, f"a full disk: {done}")


def documented():
    shown = set(re.findall(r"^  (--\w+)", run("--help").stdout, re.M))
    with open(MANPAGE) as page:
        written = set(re.findall(r"^\.B[RI]? (\\-\\-\w+)", page.read(), re.M))
    written = {option.replace("\\", "") for option in written}
    check(shown == written and len(shown) > 15,
          f"only in --help: {shown - written}, only in the man page: {written - shown}")


for test in (rank, order, usage, documented):
    test()
print("failed:", failed)
sys.exit(1 if failed else 0)
