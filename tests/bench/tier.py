# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench tier: four mounts, as on four machines, that share one slow source and a Redis
Cluster. What an epoch asks of the source, and how long it takes, without the tier and with it.
--engine measures the engine's eviction alone (tier_engine.py).

Files, mounts, servers, orders, scores and times are real; losses are modelled, and nothing is
computed, so an epoch is as fast as its data."""
import os
import random
import subprocess
import sys
import tempfile
import time

import lab

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tier"))
import engine  # noqa: E402 pylint: disable=wrong-import-position
import private  # noqa: E402 pylint: disable=wrong-import-position
import tier_engine  # noqa: E402 pylint: disable=wrong-import-position

NODES = 4
READERS = 4             # of each node
FILE_BYTES = 110_000
MEMORY_SHARE = 0.2      # of the data, in each mount
TIER_SHARE = 0.4        # of the data, in all of Redis
BANDWIDTH, DELAY_US = "200M", 500
INFLIGHT = 16 << 20
ENGINES = 3
PYTHON = "/usr/bin/python3"  # which has the system's packages
LIMIT = 0.7             # source bytes with the tier, of those without
# How each training draws its orders: what the mounts are told, and how the scorer is made.
TRAININGS = {
    "uniform, DistributedSampler": None,
    "uniform, shade.Sampler": {"mode": "uniform"},
    "by importance, shade.Sampler": {"mode": "pads"},
}
POLICIES = ("volatile-ttl", "noeviction", "allkeys-lfu")


class Orders:
    """What each node reads in each epoch; drawn once by all of them, here."""

    def __init__(self, samples, training):
        import shade  # pylint: disable=import-outside-toplevel
        self.samples = samples
        self.losses = lab.Losses(samples)
        self.scorer = None
        if training:
            self.scorer = shade.Scorer(samples, seed=3, lookahead=1, backend="cpu", **training)
            self.scorer.nodes(list(range(NODES)), block=min(256, samples // NODES // 2),
                              capacity=int(samples * MEMORY_SHARE) * NODES)

    def begin(self, epoch, resident):
        if self.scorer:
            self.scorer.begin(epoch, resident)

    def of(self, epoch, node):
        if self.scorer:
            return list(self.scorer.order(epoch, node, NODES))
        ids = list(range(self.samples))
        random.Random(epoch).shuffle(ids)  # as DistributedSampler does it
        return ids[node::NODES]

    def learn(self, ids):
        """The scores of what was read."""
        scores = []
        for at in range(0, len(ids), 64):
            batch = ids[at:at + 64]
            scores += self.scorer.update(batch, [self.losses.visit(number) for number in batch])
        return scores


class Machine:
    """A mount, and what tells it hints."""

    def __init__(self, bench, source, names, options):
        import shade  # pylint: disable=import-outside-toplevel
        self.names, self.announced = names, -1
        self.mount = lab.Shade(bench, source, **options)
        self.hints = shade.Mount(self.mount.path)
        self.hints.register(names)

    def announce(self, orders, epoch, node):
        self.hints.epoch(epoch)
        while self.announced <= epoch:
            self.announced += 1
            self.hints.order(self.announced, orders.of(self.announced, node))

    def paths(self, ids):
        return [os.path.join(self.mount.path, self.names[number]) for number in ids]

    def end(self):
        self.hints.close()
        self.mount.end()


def read_everywhere(bench, lists):
    """Every node reads its list, with readers of its own, all at one time. Seconds."""
    program = bench.program("bench-read")
    begin = time.monotonic()
    children = []
    for paths in lists:
        with tempfile.TemporaryFile(dir=bench.ram) as file:
            file.write(lab.as_input(paths))
            file.seek(0)
            children.append(subprocess.Popen(
                [program, "shared", str(READERS), str(len(paths))], stdin=file,
                stdout=subprocess.DEVNULL))
    failed = [child.wait() for child in children]
    if any(failed):
        raise lab.Unavailable(f"readers ended with {failed}")
    return time.monotonic() - begin


def resident_anywhere(machines, samples):
    maps = [machine.hints.resident(samples) for machine in machines]
    return bytes(a | b | c | d for a, b, c, d in zip(*maps))


class Tier:
    """A cluster that has room for `size` bytes of files, or (None) any; without a policy, none."""

    def __init__(self, bench, policy, size, file_bytes=FILE_BYTES):
        self.cluster = None
        if not policy:
            return
        self.cluster = engine.Cluster(bench.ram, ENGINES, maxmemory_policy=policy, maxmemory=0,
                                      maxmemory_clients=0)  # a tenth of so little is too little
        for node in self.cluster.nodes if size else []:
            key = next(key for key in (b"probe%d" % n for n in range(10000))
                       if self.cluster.node_of(key) is node)
            node.call("SET", key, b"x" * (file_bytes + 64), "EX", 1000)
            cost = node.call("MEMORY", "USAGE", key)
            node.call("DEL", key)
            empty = int(node.info("memory")["used_memory"])
            node.call("CONFIG", "SET", "maxmemory",
                      empty + int(size / ENGINES * cost / file_bytes))

    def options(self):
        if not self.cluster:
            return {}
        # So many processes on so few cores: who is late here would not be on machines of their own.
        return {"tier": "redis://" + ",".join(self.cluster.addresses), "volume": "bench",
                "tier_timeout": 2}

    def kept(self):
        return sum(node.call("DBSIZE") for node in self.cluster.nodes) if self.cluster else 0

    def end(self):
        if self.cluster:
            self.cluster.end()


class Data:
    """Files behind one source for all."""

    def __init__(self, bench, files):
        tree = bench.make_tree(bench.ram, 10, files, FILE_BYTES)
        paths = lab.files_below(tree)
        self.names = [os.path.relpath(path, tree) for path in paths]
        self.size = sum(os.path.getsize(path) for path in paths)
        self.slow = lab.Slow(bench, tree, delay_us=DELAY_US, bandwidth=BANDWIDTH, timeout=60)


def train(bench, data, mode, training, policy, epochs):
    """Means over the second half of the epochs."""
    samples = len(data.names)
    tier = Tier(bench, policy, data.size * TIER_SHARE)
    memory = int(data.size * MEMORY_SHARE)
    inflight = min(INFLIGHT, memory)
    options = {"mode": mode, "inflight": inflight, "prefetch": inflight // 2,
               "capacity": memory + inflight, **tier.options()}
    machines = [Machine(bench, data.slow.path, data.names, options) for _ in range(NODES)]
    orders = Orders(samples, TRAININGS[training])
    rows = []
    try:
        for epoch in range(epochs):
            orders.begin(epoch, resident_anywhere(machines, samples))
            if orders.scorer:
                for node, machine in enumerate(machines):
                    machine.announce(orders, epoch, node)
            lists = [orders.of(epoch, node) for node in range(NODES)]
            before = data.slow.counts()["bytes"], hits_of(machines)
            seconds = read_everywhere(bench, [machine.paths(ids) for machine, ids
                                              in zip(machines, lists)])
            for machine in machines:
                machine.mount.settle()
            rows.append({"source MB": (data.slow.counts()["bytes"] - before[0]) / 1e6, "s": seconds,
                         "tier hits": (hits_of(machines) - before[1]) / samples,
                         "coverage": len(set().union(*lists)) / samples})
            if orders.scorer:
                scored = [orders.learn(ids) for ids in lists]
                for machine, ids, scores in zip(machines, lists, scored):
                    machine.hints.scores(ids, scores)
        kept = tier.kept() / samples
    finally:
        for machine in machines:
            machine.end()
        tier.end()
    warm = rows[epochs // 2:]
    return {key: sum(row[key] for row in warm) / len(warm) for key in warm[0]} | {"kept": kept}


def hits_of(machines):
    return sum(machine.mount.stats().get("tier_hits", 0) for machine in machines)


def as_shade_does(bench, data, room, epochs):
    """SHADE's data path, with the orders of DistributedSampler: one client in each worker, which
    asks and then gets, and reads the file if the key is not there."""
    samples = len(data.names)
    tier = Tier(bench, "noeviction", None)  # the workers' queues are the limit
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tier_shade.py")
    workers = NODES * 2
    orders = Orders(samples, None)
    children = [subprocess.Popen([PYTHON, script, data.slow.path,
                                  str(int(samples * room / workers)), *tier.cluster.addresses],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for _ in range(workers)]
    rows = []
    try:
        for child in children:
            if not child.stdout.readline():
                raise lab.Unavailable("python3-redis is not installed")
        for epoch in range(epochs):
            before = data.slow.counts()["bytes"]
            begin = time.monotonic()
            for worker, child in enumerate(children):
                ids = orders.of(epoch, worker // 2)[worker % 2::2]
                child.stdin.write("\t".join(f"{number} {data.names[number]}" for number in ids)
                                  + "\n")
                child.stdin.flush()
            hits = sum(int(child.stdout.readline()) for child in children)
            seconds = time.monotonic() - begin
            rows.append({"source MB": (data.slow.counts()["bytes"] - before) / 1e6, "s": seconds,
                         "tier hits": hits / samples, "coverage": 1.0})
        kept = tier.kept() / samples
    finally:
        for child in children:
            child.stdin.close()
            child.wait()
        tier.end()
    warm = rows[epochs // 2:]
    return {key: sum(row[key] for row in warm) / len(warm) for key in warm[0]} | {"kept": kept}


def works_of(bench, data, mode, epochs, quick):
    works = {}
    for training in list(TRAININGS)[1:2] if quick else TRAININGS:
        for policy in (None, *POLICIES[:1 if quick else None]):
            works[training, policy or "no tier"] = (
                lambda t=training, p=policy: train(bench, data, mode, t, p, epochs))
    for room in [TIER_SHARE] if quick else [TIER_SHARE, NODES * MEMORY_SHARE + TIER_SHARE]:
        works["uniform, SHADE's data path", f"Redis of {room:.0%}"] = (
            lambda r=room: as_shade_does(bench, data, r, epochs))
    return works


def compare(report, results):
    """Targets: with the tier less is asked of the source, and nothing takes longer."""
    for training in dict.fromkeys(name for name, tier in results if tier == "no tier"):
        without, having = results[training, "no tier"], results.get((training, "volatile-ttl"))
        if not having:
            continue
        if without["source MB"]:
            report.target(f"{training}: source bytes with the tier, of those without",
                          having["source MB"] / without["source MB"], LIMIT, unit="x")
        report.target(f"{training}: seconds an epoch with the tier, of those without",
                      having["s"] / without["s"], 1.0, unit="x")


def run(options, bench, report):
    files, epochs = (60, 2) if options.quick else (2000, 8)
    modes, refused = lab.modes_at_hand(bench, options.mode)
    if not modes:
        raise lab.Unavailable(str(refused))
    mode = modes[-1]
    data = Data(bench, files)
    works = works_of(bench, data, mode, epochs, options.quick)
    rounds = options.rounds or (1 if options.quick else 3)
    found = {name: [] for name in works}
    reasons = {}
    for number in range(rounds):
        for name, work in works.items():
            try:
                found[name].append(work())
            except lab.Unavailable as reason:
                reasons[name] = str(reason)
                continue
            report.say(f"round {number + 1} of {rounds}: {', '.join(name)}: "
                       + ", ".join(f"{key} {value:.3g}" for key, value in found[name][-1].items()))
    results = {name: {key: lab.median([result[key] for result in all_]) for key in all_[0]}
               for name, all_ in found.items() if all_}
    rows = [{"orders": training, "tier": tier, "source MB": result["source MB"],
             "of the data": result["source MB"] * 1e6 / data.size, "s / epoch": result["s"],
             "tier hits": result["tier hits"], "tier keeps": result["kept"],
             "coverage": result["coverage"]}
            for (training, tier), result in results.items()]
    rows += [{"orders": ", ".join(name), "why not": why} for name, why in reasons.items()]
    report.table(f"{NODES} mounts ({mode}) with {MEMORY_SHARE:.0%} of {data.size / 1e6:.0f} MB "
                 f"each, a source of {BANDWIDTH}B/s for all, a tier of {TIER_SHARE:.0%} on "
                 f"{ENGINES} servers; means of the last {epochs - epochs // 2} of {epochs} epochs", rows)
    compare(report, results)


def more_options(parser):
    parser.add_argument("--engine", action="store_true",
                        help="the engine's eviction alone, against shade-sim's policies")


def main():
    private.enter()
    options, bench, report = lab.begin("tier", more_options)
    sys.path.insert(0, os.path.join(bench.build, "python"))
    if reason := engine.missing():
        lab.skip(reason)
    try:
        (tier_engine.run if options.engine else run)(options, bench, report)
    except lab.Unavailable as reason:
        lab.skip(str(reason))
    report.end()


main()
