# SPDX-License-Identifier: LGPL-2.1-or-later
"""The answers that are known beforehand: closed forms, and the figures of the closed loop."""
import math
import tempfile

from common import check, finish, results

SAMPLES = 10000


def close(found, expected, tolerance, what):
    check(abs(found - expected) <= tolerance,
          f"{what}: {found:.4f}, not {expected:.4f} +- {tolerance}")


def uniform(policies, sampler, share, epochs=12):
    rows = results("run", "--samples", SAMPLES, "--epochs", epochs, "--capacity", f"{share}%",
                   "--sampler", sampler, "--policy", policies)
    return {name: row["warm"]["hit_ratio"] for name, row in rows.items()}


def replayed(share, policies, **run_options):
    """A stream that app made, frozen, through other policies."""
    options = [word for name, value in run_options.items() for word in (f"--{name}", value)]
    with tempfile.NamedTemporaryFile() as trace:
        results("run", "--capacity", f"{share}%", "--policy", "app", "--freeze", trace.name,
                *options)
        rows = results("replay", "--trace", trace.name, "--capacity", f"{share}%",
                       "--policy", policies)
    return {name: row["hit_ratio"] for name, row in rows.items()}


def fresh_permutations():
    for share in (10, 20, 50):
        c = share / 100
        found = uniform("lru,minio,shade", "uniform", share)
        close(found["lru"], c + (1 - c) * math.log(1 - c), 0.01, f"lru, permutation, {share} %")
        close(found["minio"], c, 0.01, f"minio, permutation, {share} %")
        close(found["shade"], c, 0.01, f"shade, permutation, {share} %")
        # The first epoch is cold: of 40 it hides the 40th part.
        found = replayed(share, "min", samples=2000, epochs=40, sampler="uniform")
        close(found["min"], c * 39 / 40, 0.01, f"min, permutation, {share} %")


def with_replacement():
    for share, best in ((10, 0.41), (20, 0.56), (50, 0.81)):
        c = share / 100
        found = uniform("lru,lfu,minio", "replacement", share)
        for policy in ("lru", "lfu", "minio"):
            close(found[policy], c, 0.01, f"{policy}, replacement, {share} %")
        found = replayed(share, "min", samples=4000, epochs=100, sampler="replacement")
        close(found["min"], best, 0.01, f"min, replacement, {share} %")


def closed_loop():
    for share, rep, expected in ((10, 1, 0.18), (10, 2, 0.30), (10, 3, 0.42),
                                 (20, 1, 0.32), (20, 2, 0.55), (20, 3, 0.84)):
        row = results("run", "--samples", SAMPLES, "--epochs", 12, "--capacity", f"{share}%",
                      "--sampler", "paper", "--rep", rep, "--policy", "app")["app"]
        close(row["warm"]["hit_ratio"], expected, 0.03, f"paper + app, {share} %, rep {rep}")
        if rep == 3:
            close(row["warm"]["coverage"], {10: 0.51, 20: 0.30}[share], 0.03,
                  f"coverage of paper + app, {share} %")


def shade_against_min():
    for share in (10, 20):
        for sampler, rep in (("paper", 1), ("paper", 3), ("pads", 2)):
            for lookahead in (0, 1):
                what = f"{sampler}, rep {rep}, {share} %, lookahead {lookahead}"
                found = replayed(share, "min,shade,app", samples=SAMPLES, epochs=8,
                                 sampler=sampler, rep=rep, lookahead=lookahead)
                check(found["shade"] <= found["min"] + 1e-9, f"{what}: shade above min")
                check(found["shade"] >= found["app"], f"{what}: shade below app")
                if lookahead:
                    close(found["shade"], found["min"], 0.01, f"{what}: shade and min")


def echo():
    for uses in (2, 4):
        row = results("run", "--samples", SAMPLES, "--epochs", 12, "--capacity", "20%",
                      "--sampler", "echo", "--uses", uses)["shade"]["warm"]
        check(row["hit_ratio"] >= 1 - 1 / uses - 0.01, f"echo, {uses} uses: {row['hit_ratio']}")
        check(row["coverage"] >= 1 / uses, f"echo, {uses} uses: coverage {row['coverage']}")


def several_ranks():
    one = results("run", "--samples", SAMPLES, "--epochs", 6, "--capacity", "20%", "--ranks", 1,
                  "--sampler", "pads", "--rep", 2)["shade"]["warm"]
    four = results("run", "--samples", SAMPLES, "--epochs", 6, "--capacity", "20%", "--ranks", 4,
                   "--sampler", "pads", "--rep", 2)["shade"]["warm"]
    check(four["accesses"] == one["accesses"], "four ranks read another number of samples")
    close(four["hit_ratio"], one["hit_ratio"], 0.02, "pads, four ranks against one")
    # SHADE's ranks draw for themselves: together they cover less than one draw would.
    paper = results("run", "--samples", SAMPLES, "--epochs", 6, "--capacity", "20%", "--ranks", 4,
                    "--sampler", "paper", "--rep", 2)["shade"]["warm"]
    check(paper["coverage"] < four["coverage"], "paper covers as much as pads")


def machines(*options, period="warm"):
    row = results("run", "--samples", 98304, "--epochs", 10, "--lookahead", 1, "--batch", 64,
                  "--block", 1024, *options)["shade"]
    return row[period]["hit_ratio"]


def many_machines():
    """Each with a cache; epochs 5 to 9. The figures are those of an independent study."""
    def uniform_on(nodes, share, *options):
        return machines("--nodes", nodes, "--capacity", share, "--sampler", "uniform", *options)

    for nodes, share, expected in ((4, "10%", .400), (4, "20%", .800), (4, "30%", .990),
                                   (8, "10%", .800), (2, "20%", .400),
                                   (4, "5%,10%,20%,30%", .597)):
        close(uniform_on(nodes, share), expected, 0.01, f"{nodes} nodes, uniform, {share}")
    for share, expected in (("10%", .280), ("20%", .360)):
        close(uniform_on(4, share, "--assign", "stride"), expected, 0.01, f"stride, {share}")
    close(machines("--nodes", 2, "--capacity", "20%", "--sampler", "pads", "--rep", 2, "--assign",
                   "stride"), .546, 0.01, "stride, pads")
    for nodes, share, expected in ((4, "10%", .804), (4, "20%", .943), (2, "20%", .805)):
        close(machines("--nodes", nodes, "--capacity", share, "--sampler", "pads", "--rep", 2),
              expected, 0.01, f"{nodes} nodes, pads, {share}")
    for share, expected in (("10%", .828), ("20%", .922)):
        close(machines("--nodes", 4, "--capacity", share, "--sampler", "echo", "--uses", 4),
              expected, 0.01, f"4 nodes, echo, {share}")
    # Everything is unowned: it is read where it was read before by chance.
    close(uniform_on(4, "20%", "--mix", 1), .36, 0.01, "mix 1 is stride")
    # A node that restarts is as before one epoch later.
    row = results("run", "--samples", 98304, "--epochs", 8, "--lookahead", 1, "--nodes", 4,
                  "--capacity", "20%", "--sampler", "uniform", "--restart", 6,
                  "--by-epoch")["shade"]
    for epoch, expected in ((5, .80), (6, .60), (7, .80)):
        close(row[str(epoch)]["hit_ratio"], expected, 0.01, f"restart, epoch {epoch}")


fresh_permutations()
with_replacement()
closed_loop()
shade_against_min()
echo()
several_ranks()
many_machines()
finish()
