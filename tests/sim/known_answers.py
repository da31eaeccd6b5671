# SPDX-License-Identifier: LGPL-2.1-or-later
"""The answers that are known beforehand: closed forms, and the figures of the closed loop."""
import math
import random
import tempfile

from common import check, finish, results, rows

SAMPLES = 10000


def close(found, expected, tolerance, what):
    check(abs(found - expected) <= tolerance,
          f"{what}: {found:.4f}, not {expected:.4f} +- {tolerance}")


def uniform(policies, sampler, share, epochs=12):
    found = results("run", "--samples", SAMPLES, "--epochs", epochs, "--capacity", f"{share}%",
                    "--sampler", sampler, "--policy", policies)
    return {name: row["warm"]["hit_ratio"] for name, row in found.items()}


def replayed(share, policies, **run_options):
    """A stream that app made, frozen, through other policies."""
    options = [word for name, value in run_options.items() for word in (f"--{name}", value)]
    with tempfile.NamedTemporaryFile() as trace:
        results("run", "--capacity", f"{share}%", "--policy", "app", "--freeze", trace.name,
                *options)
        found = results("replay", "--trace", trace.name, "--capacity", f"{share}%",
                        "--policy", policies)
    return {name: row["hit_ratio"] for name, row in found.items()}


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


def write_losses(file, samples, epochs):
    """A lognormal difficulty, and chance in each epoch: the model of the known figures."""
    chance = random.Random(3)
    difficulty = [chance.gauss(0, 1) for _ in range(samples)]
    for epoch in range(epochs):
        file.writelines(f"{epoch} {sample} {math.exp(hard + 0.6 * chance.gauss(0, 1)):.6g}\n"
                        for sample, hard in enumerate(difficulty))
    file.flush()


def left_out():
    """Orders that leave samples out, epochs 15 to 34, room for a fifth of the samples."""
    samples, room = 4000, 800
    with tempfile.NamedTemporaryFile("w") as losses:
        write_losses(losses, samples, 35)
        for sampler, policy, expected, exact, covers in (
                (["iis", "--never-full"], "icache", .633, False, False),
                (["iis", "--never-full"], "shade", .552, True, False),
                (["iis", "--never-full", "--substitute"], "shade", .512, False, True),
                (["iis", "--never-full", "--substitute"], "icache", .634, False, True),
                (["prune"], "shade", .447, True, True),
                (["prune", "--keep", 1], "shade", .800, True, True)):
            row = results("run", "--samples", samples, "--epochs", 35, "--capacity", "20%",
                          "--losses", losses.name, "--by-epoch", "--policy", policy,
                          "--lookahead", int(policy == "shade"), "--sampler", *sampler)[policy]
            epochs = [row[str(epoch)] for epoch in range(15, 35)]
            what = f"{sampler} with {policy}"
            fetches = [epoch["accesses"] - epoch["hits"] for epoch in epochs]
            close(sum(fetches) / len(epochs) / samples, expected, 0.01, f"{what}, fetches")
            # Each comes at most once: what the cache holds is all that exact eviction saves.
            law = [epoch["accesses"] - room for epoch in epochs]
            check((fetches == law) == exact, f"{what}: the law, {fetches} against {law}")
            check((min(epoch["coverage_10"] for epoch in epochs) == 1) == covers,
                  f"{what}: coverage of ten epochs")


def compared(*options):
    """The figures of compare, by system and capacity in %."""
    return {(row["system"], int(row["capacity"].rstrip("%"))): row
            for row in rows("compare", "--samples", SAMPLES, *options)}


def systems():
    """What is known of the systems that have a name, from closed forms."""
    found = compared()
    for share in (10, 20, 40):
        c = share / 100
        for name, hits in (("default", c + (1 - c) * math.log(1 - c)), ("coordl", c),
                           ("shadefs", c)):
            row = found[name, share]
            close(row["hit_ratio"], hits, 0.01, f"{name}, {share} %")
            close(row["fetches"], 1 - hits, 0.01, f"fetches of {name}, {share} %")
            close(row["coverage"], 1, 0, f"coverage of {name}, {share} %")
        # Each sample comes once an epoch, so that no cache saves more than it holds: hits beyond
        # that were loaded ahead.
        row = found["quiver", share]
        close(row["coverage"], 1, 0, f"coverage of quiver, {share} %")
        check(row["fetches"] >= 1 - c - 1e-9, f"quiver, {share} %, fetches {row['fetches']}")
        check(row["hit_ratio"] > found["coordl", share]["hit_ratio"] + 0.5,
              f"quiver, {share} %, hits {row['hit_ratio']}")
        # Base reads all of it, and computes with what icache's sampling chooses.
        base = found["base", share]
        check({**base, "system": "default", "trained": 1.0} == found["default", share],
              f"base, {share} %: {base}")
        close(base["trained"], found["ilfu", share]["entries"], 0.01, f"base, {share} %, trained")
        check(found["icache", share]["fetches"] < found["ilfu", share]["fetches"],
              f"icache and ilfu, {share} %")
        check(found["prune-echo", share]["fetches"] < found["echo", share]["fetches"],
              f"prune-echo, {share} %")
        close(found["prune", share]["fetches"], found["prune", share]["entries"] - c, 1e-4,
              f"prune, {share} %: the law")
    # SHADE reads 30 % of the samples at c = 20 %, see closed_loop(): later epochs less.
    check(found["shade-paper", 20]["coverage"] < 0.4, "shade-paper covers too much")
    other = {name: row["bytes"] for (name, _), row in found.items() if row["bytes"] != "own"}
    check(other == {"quiver": "moved", "icache": "replaced"}, f"other bytes: {other}")


def systems_on_nodes():
    """Four nodes with a fifth each. CoorDL's have a sample once, mostly at another node; shadefs'
    read what they have; the others have the same samples several times."""
    found = compared("--nodes", 4, "--capacity", "20%")
    close(found["coordl", 20]["hit_ratio"], 0.8, 0.02, "coordl on 4 nodes")
    close(found["coordl", 20]["remote"], 0.6, 0.02, "remote hits of coordl on 4 nodes")
    close(found["shadefs", 20]["hit_ratio"], 0.8, 0.02, "shadefs on 4 nodes")
    close(found["shadefs", 20]["remote"], 0, 0, "remote hits of shadefs")
    check(found["default", 20]["hit_ratio"] < 0.2, "default on 4 nodes")


fresh_permutations()
with_replacement()
closed_loop()
shade_against_min()
echo()
several_ranks()
many_machines()
left_out()
systems()
systems_on_nodes()
finish()
