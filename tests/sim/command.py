# SPDX-License-Identifier: LGPL-2.1-or-later
"""shade-sim as its users meet it: formats, traces from standard input, and errors that say
what is wrong and where."""
import csv
import io
import json
import os
import tempfile

from common import check, finish, results, run

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
    rows = list(csv.DictReader(io.StringIO(
        replay(trace, "--capacity", "1K", "--policy", "all", "--csv").stdout)))
    check([row["policy"] for row in rows]
          == ["shade", "app", "icache", "minio", "lru", "lfu", "fifo"], f"csv: {rows}")
    check(KEYS <= set(rows[0]), "CSV lacks columns")
    rows = json.loads(run(*SMALL, "--policy", "lru,app", "--json").stdout)
    check([(row["policy"], set(row)) for row in rows]
          == [(name, {"policy", "cold", "warm"}) for name in ("lru", "app")], f"run: {rows}")
    check("coverage" in rows[0]["warm"], "no coverage beside the hit ratio")


def hints_work():
    trace = "o 0 1 2 3 1\ne 0\na 1\na 2\na 3\na 1\n"
    rows = results("replay", "--trace", "-", "--capacity", 1, "--policy", "shade,lru,min",
                   stdin=trace)
    check([rows[name]["hits"] for name in ("shade", "lru", "min")] == [1, 0, 1],
          f"an announced order: {rows}")


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


def bounded_repeats():
    refuses(run(*SMALL, "--sampler", "pads", "--repeats", 0), "--repeats")


def help_names_everything():
    text = run("--help").stdout
    for word in ("replay", "run", "--lookahead", "shade", "icache", "min", "echo"):
        check(word in text, f"--help does not name {word}")
    check(run("--version").stdout.startswith("shade-sim "), "--version")


formats()
hints_work()
recorded_losses()
frozen_is_what_ran()
bad_traces()
bad_options()
bounded_repeats()
help_names_everything()
finish()
