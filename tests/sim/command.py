# SPDX-License-Identifier: LGPL-2.1-or-later
"""shade-sim as its users meet it: formats, traces from standard input, and errors that say
what is wrong and where."""
import csv
import io
import os
import re
import sys
import tempfile

from common import check, finish, results, rows, run

KEYS = {"policy", "accesses", "hits", "hit_ratio", "admissions", "bypasses", "evictions",
        "bytes_fetched", "distinct_per_epoch"}
SMALL = ["run", "--samples", 100, "--epochs", 2, "--capacity", "20%"]


def replay(trace, *options):
    return run("replay", "--trace", "-", *options, stdin=trace)


def formats():
    trace = "# a comment\na 1 10\na 2 10  # another\n\na 1 10\ne 1\na 7 20\n"
    row = results("replay", "--trace", "-", "--capacity", "50%", stdin=trace)["shade"]
    check(KEYS <= set(row), f"JSON lacks {KEYS - set(row)}")
    check((row["accesses"], row["hits"], row["bytes_fetched"]) == (4, 1, 40), f"counts: {row}")
    check(row["distinct_per_epoch"] == 1.5, f"distinct_per_epoch: {row}")
    table = replay(trace, "--capacity", "20", "--policy", "lru,min").stdout.splitlines()
    check(len(table) == 3 and len({len(line) for line in table}) == 1, f"table: {table}")
    lines = list(csv.DictReader(io.StringIO(
        replay(trace, "--capacity", "1K", "--policy", "all", "--csv").stdout)))
    check([row["policy"] for row in lines]
          == ["shade", "app", "icache", "minio", "lru", "lfu", "fifo"], f"csv: {lines}")
    check(KEYS <= set(lines[0]), "CSV lacks columns")
    found = rows(*SMALL, "--policy", "lru,app")
    check([(row["policy"], set(row)) for row in found]
          == [(name, {"policy", "cold", "warm"}) for name in ("lru", "app")], f"run: {found}")
    check("coverage" in found[0]["warm"], "no coverage beside the hit ratio")


def hints_work():
    trace = "o 0 1 2 3 1\ne 0\na 1\na 2\na 3\na 1\n"
    found = results("replay", "--trace", "-", "--capacity", 1, "--policy", "shade,lru,min",
                    stdin=trace)
    check([found[name]["hits"] for name in ("shade", "lru", "min")] == [1, 0, 1],
          f"an announced order: {found}")


def recorded_losses():
    with tempfile.NamedTemporaryFile("w") as file:
        for sample in range(100):
            file.write(f"0 {sample} {sample / 10}\n")
        file.flush()
        row = results(*SMALL, "--epochs", 8, "--losses", file.name, "--sampler", "paper",
                      "--policy", "app")["app"]
        check(row["warm"]["hits"] > 0, f"recorded losses: {row}")
        other = results(*SMALL, "--epochs", 8, "--sampler", "paper", "--policy", "app")["app"]
        check(row != other, "recorded losses make no difference")


def frozen_is_what_ran():
    with tempfile.NamedTemporaryFile() as trace:
        # paper leaves samples out, so that 20 % of what was read is less than 20 % of all.
        ran = results(*SMALL, "--sampler", "paper", "--policy", "app", "--freeze", trace.name)
        again = results("replay", "--trace", trace.name, "--capacity", 20, "--policy", "app")
        with open(trace.name) as file:
            check("--capacity 20\n" in file.readline(), "the stream does not say its capacity")
    hits = ran["app"]["cold"]["hits"] + ran["app"]["warm"]["hits"]
    check(again["app"]["hits"] == hits, f"frozen {again} is not what ran, {hits} hits")


def compare_formats():
    small = ["compare", "--samples", 200, "--epochs", 4, "--capacity", "10%,50%"]
    found = rows(*small)
    names = list(dict.fromkeys(row["system"] for row in found))
    check(len(found) == 2 * len(names) and "quiver" in names, f"compare: {found}")
    check({row["bytes"] for row in found} <= {"own", "moved", "replaced"}, f"bytes: {found}")
    check(all({"hit_ratio", "coverage", "fetches", "entries", "remote"} <= set(row)
              for row in found), f"compare lacks figures: {found[0]}")
    table = run(*small).stdout.splitlines()
    check([line.split()[0] for line in table[1:1 + len(names)]] == names, f"table: {table}")
    check(len({len(line) for line in table[:1 + len(names)]}) == 1, f"columns: {table}")
    check(table[0].count("|") == 2 and "50%" in table[0], f"capacities: {table[0]}")
    lines = list(csv.DictReader(io.StringIO(run(*small, "--csv").stdout)))
    check([{key: str(value) for key, value in row.items() if key in ("system", "bytes")}
           for row in found] == [{key: row[key] for key in ("system", "bytes")} for row in lines],
          "JSON and CSV differ")
    check(set(lines[0]) == set(found[0]), "CSV has other columns than JSON")
    check(found == rows(*small), "the same call gives other figures")
    check(found != rows(*small, "--seed", 1), "another seed gives the same figures")
    one = rows(*small, "--systems", "coordl")
    check(one == [row for row in found if row["system"] == "coordl"], f"one system: {one}")
    for option, value in (("--systems", "best"), ("--capacity", "0%"), ("--nodes", 0),
                          ("--epochs", 1), ("--samples", 0), ("--seed", "x"), ("--batch", 0)):
        refuses(run(*small, option, value), option)
    refuses(run(*small, "--policy", "lru"), "--policy")
    refuses(run(*small, "--nodes", 201), "samples")


def refuses(done, *words):
    """Exit 2, one sentence that has the words, and no result."""
    check(done.returncode == 2, f"exit {done.returncode} for {done.args}")
    check(done.stderr.count("\n") == 1 and not done.stdout,
          f"{done.args}: {done.stdout!r} {done.stderr!r}")
    for word in words:
        check(str(word) in done.stderr, f"'{word}' is not in {done.stderr!r}")


def bad_traces():
    good = "a 1\n" * 16
    for line, *words in (("x 1", "x"), ("a", "missing"), ("a -1", "-1"), ("a one", "one"),
                         ("a 1 2 3", "3"), ("s 1 -2", "negative", "-2"), ("s 1 nan", "nan"),
                         ("s 1 inf", "inf"), ("s 1", "missing"), ("s 1 1e300", "too large"), ("e", "missing"),
                         ("o 1 2 x", "x"), ("access 1", "access"),
                         ("a 99999999999999999999", "at most"), ("a 1 \0", "NUL")):
        refuses(replay(good + line + "\n", "--capacity", 1), "standard input:17:", *words)
    refuses(replay("# nothing\n", "--capacity", 1), "no access")
    refuses(run("replay", "--trace", "/nonexistent", "--capacity", 1), "/nonexistent")
    with tempfile.NamedTemporaryFile("w", suffix=".trace") as file:
        file.write("a 1\ns 1 nan\n")
        file.flush()
        refuses(run("replay", "--trace", file.name, "--capacity", 1), f"{file.name}:2:")


def bad_options():
    one = "a 1\n"
    for capacity in ("0", "0%", "-1", "101%", "1Q", "x", "", "nan", "1e400"):
        refuses(replay(one, "--capacity", capacity), "--capacity")
    refuses(replay(one, "--capacity", 1, "--policy", "best"), "--policy", "best")
    refuses(replay(one, "--capacity", 1, "--polcy", "lru"), "--polcy")
    refuses(replay(one, "--capacity"), "--capacity")
    refuses(replay(one, "--capacity", 1, "word"), "word")
    refuses(replay(one), "--capacity")
    refuses(replay(one, "--capacity", 1, "-xy"), "-xy")
    refuses(replay("".join(f"o {epoch} 1\n" for epoch in range(6)) + "a 1\n", "--capacity", 1),
            "standard input", "orders")
    check(run(*SMALL, "--capacity", "4G", "--sampler", "echo").returncode == 0, "a huge capacity")
    refuses(run("fly"), "replay")
    refuses(run())
    for option, value in (("--samples", 0), ("--epochs", "x"), ("--rep", 0.5), ("--rep", "nan"),
                          ("--batch", 0), ("--lookahead", 2), ("--sampler", "best"),
                          ("--strength", 2), ("--ranks", 101), ("--ranks", "1,2"), ("--nodes", 0),
                          ("--assign", "best"), ("--mix", 2), ("--block", 0), ("--restart", 0), ("--restart", 99),
                          ("--seed", -1), ("--uses", 0.2),
                          ("--policy", "min"), ("--losses", "/nonexistent"),
                          ("--freeze", "/nonexistent/x")):
        named = value if option in ("--losses", "--freeze") else option
        refuses(run(*SMALL, option, value), named)
    refuses(run(*SMALL, "--policy", "lru,app", "--freeze", "x"), "--freeze")
    refuses(run(*SMALL, "--nodes", 2, "--freeze", "x"), "--freeze", "--nodes")
    refuses(run(*SMALL, "--nodes", 3, "--capacity", "5%,10%"), "--capacity", "--nodes")
    check(not os.path.exists("x"), "a refused call wrote a file")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("0 1 0.5\n0 100 1\n")
        file.flush()
        refuses(run(*SMALL, "--losses", file.name), f"{file.name}:2:", "100")


def options_of_samplers():
    """Who takes which; those that fit work."""
    for wrong in (["--sampler", "echo", "--never-full"], ["--sampler", "prune", "--substitute"],
                  ["--sampler", "prune", "--prune"], ["--prune"], ["--keep", 0.3],
                  ["--sampler", "iis", "--keep", 0.3], ["--sampler", "prune", "--keep", 0],
                  ["--sampler", "prune", "--keep", 1.1]):
        refuses(run(*SMALL, *wrong), [word for word in map(str, wrong) if word[0] == "-"][-1])
    for right in (["--sampler", "iis", "--never-full", "--substitute"],
                  ["--sampler", "prune", "--keep", 0.3], ["--sampler", "echo", "--prune"],
                  ["--sampler", "echo", "--prune", "--keep", 0.3],
                  ["--sampler", "iis", "--nodes", 3, "--assign", "hash", "--policy", "minio"]):
        done = run(*SMALL, *right)
        check(done.returncode == 0, f"{right}: {done.stderr}")


def bounded_repeats():
    refuses(run(*SMALL, "--sampler", "pads", "--repeats", 0), "--repeats")


def help_names_everything():
    text = run("--help").stdout
    for word in ("replay", "run", "compare", "quiver", "prune-echo", "iis", "--lookahead", "shade", "icache", "min", "echo"):
        check(word in text, f"--help does not name {word}")
    shown = set(re.findall(r"(--[a-z-]+)", text)) - {"--help", "--version"}
    with open(sys.argv[2]) as page:
        listed = page.read().split(".SH OPTIONS")[1].split("\n.SH ")[0].replace("\\-", "-")
    written = set(re.findall(r"^\.BI? (--[a-z-]+)", listed, re.M))
    check(shown == written and len(shown) > 20,
          f"only in --help: {shown - written}, only in the man page: {written - shown}")
    check(run("--version").stdout.startswith("shade-sim "), "--version")


formats()
compare_formats()
hints_work()
recorded_losses()
frozen_is_what_ran()
bad_traces()
bad_options()
options_of_samplers()
bounded_repeats()
help_names_everything()
finish()
