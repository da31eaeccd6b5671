# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench tier --engine: how well a real Redis evicts what is worth least, when each key's
time to live says what it is worth. A trace of shade-sim is sent through one server that has room for a
share of the keys, and through shade-sim's own policies with as much room.

Redis looks at few keys for each eviction (maxmemory-samples), and it always takes the newcomer in;
the figure is what that costs."""
import json
import os
import subprocess

import lab
from engine import Engine

SHARE = 0.4
LIMIT = 0.95
VALUE_BYTES = 1000
DAY_S = 86400
BATCH = 64  # accesses that are on their way at a time: renewals go with them
SAMPLERS = ("uniform", "pads")
# maxmemory-policy, maxmemory-samples, and what the time to live goes by.
ENGINES = [("volatile-ttl", 5, "next use"), ("volatile-ttl", 10, "next use"),
           ("volatile-ttl", 64, "next use"), ("volatile-ttl", 5, "score"),
           ("volatile-ttl", 10, "score"), ("volatile-ttl", 64, "score"),
           ("noeviction", 5, "score"), ("allkeys-lfu", 10, "score"), ("allkeys-lru", 10, "score")]
# The policies that know as much.
RIVALS = {("volatile-ttl", "next use"): "shade", ("volatile-ttl", "score"): "app",
          ("noeviction", "score"): "minio", ("allkeys-lfu", "score"): "lfu",
          ("allkeys-lru", "score"): "lru"}


class Trace:
    """Lines of a trace: ("a", id), ("s", id, score), ("o", epoch, ids), ("e", epoch)."""

    def __init__(self, path):
        self.path, self.events = path, []
        with open(path) as file:
            for line in file:
                kind, *words = line.split()
                if kind == "a":
                    self.events.append(("a", int(words[0])))
                elif kind == "s":
                    self.events.append(("s", int(words[0]), float(words[1])))
                elif kind == "o":
                    self.events.append(("o", int(words[0]), [int(word) for word in words[1:]]))
        self.accesses = sum(event[0] == "a" for event in self.events)


class Worth:
    """What a mount knows of each sample, as a figure from 0 to 1. With the next use, what is known
    to be used soon is worth most; what no order names comes after all that one does, by its score."""

    def __init__(self, trace, by):
        self.by = by
        self.highest = max(event[2] for event in trace.events if event[0] == "s")
        self.scores, self.ahead = {}, {}
        self.announced, self.total = 0, 2 * trace.accesses

    def order(self, ids):
        for place, number in enumerate(ids, self.announced):
            self.ahead.setdefault(number, []).append(place)
        self.announced += len(ids)

    def used(self, number):
        if self.ahead.get(number):
            self.ahead[number].pop(0)

    def of(self, number):
        score = self.scores.get(number, 0) / self.highest
        if self.by == "score":
            return score
        if not self.ahead.get(number):
            return 0.1 * score
        return 0.1 + 0.9 * (1 - self.ahead[number][0] / self.total)

    def ttl(self, number):
        return int(2 * DAY_S + 20 * DAY_S * self.of(number))


class Cache:
    """A server with room for so many keys, and what was found in it."""

    def __init__(self, bench, policy, samples, keys):
        self.server = Engine(bench.ram, maxmemory=0, maxmemory_policy=policy,
                             maxmemory_samples=samples).start()
        self.client = self.server.client()
        self.value = b"x" * VALUE_BYTES
        self.hits = self.reads = 0
        self.limit(keys)

    def limit(self, keys):
        """To what so many keys take: the server says it, its tables included."""
        self.client.all([("SET", f"key{number}", self.value, "EX", DAY_S)
                         for number in range(keys)])
        used = int(self.server.info("memory")["used_memory"])
        self.client.call("FLUSHALL")
        self.client.call("CONFIG", "SET", "maxmemory", used)

    def read(self, numbers, worth):
        """As a mount does: asks, and puts what was not there. A hit renews its time to live."""
        found = self.client.all([("GET", f"key{number}") for number in numbers])
        commands = []
        for number, value in zip(numbers, found):
            worth.used(number)
            commands.append(("EXPIRE", f"key{number}", worth.ttl(number)) if value else
                            ("SET", f"key{number}", self.value, "EX", worth.ttl(number)))
        self.client.all(commands)  # a full engine that evicts nothing answers some with -OOM
        self.reads += len(numbers)
        self.hits += sum(value is not None for value in found)

    def renew(self, numbers, worth):
        numbers = list(dict.fromkeys(numbers))
        for at in range(0, len(numbers), 1000):
            self.client.all([("EXPIRE", f"key{number}", worth.ttl(number))
                             for number in numbers[at:at + 1000]])

    def cpu_s(self):
        return sum(float(self.server.info("cpu")[f"used_cpu_{kind}_main_thread"])
                   for kind in ("user", "sys"))

    def end(self):
        self.client.close()
        self.server.kill()


def replay(cache, trace, worth):
    """Returns the hit ratio over the second half of the accesses, the keys at the end, and how many
    microseconds of processor time an access took the server."""
    waiting, scored, half, begin = [], [], None, cache.cpu_s()
    for event in [*trace.events, ("end",)]:
        if event[0] == "a":
            waiting.append(event[1])
        elif event[0] == "s":
            worth.scores[event[1]] = event[2]
            scored.append(event[1])
        if event[0] in ("o", "end") or len(waiting) == BATCH:
            cache.renew(scored if worth.by == "score" else [], worth)
            cache.read(waiting, worth)
            waiting, scored = [], []
            if half is None and cache.reads >= trace.accesses // 2:
                half = cache.reads, cache.hits
        if event[0] == "o":
            worth.order(event[2])
            cache.renew(event[2] if worth.by == "next use" else [], worth)
    return {"hit ratio": (cache.hits - half[1]) / (cache.reads - half[0]),
            "keys": cache.client.call("DBSIZE"),
            "cpu us": (cache.cpu_s() - begin) * 1e6 / cache.reads}


def simulated(bench, trace, keys):
    """{policy: hit ratio of the second half}, as the difference of the whole and the first half."""
    def hits(path):
        done = subprocess.run([simulator(bench), "replay", "--trace", path, "--capacity", str(keys),
                               "--policy", "shade,app,minio,lfu,lru", "--json"], check=True,
                              stdout=subprocess.PIPE)
        return {row["policy"]: (row["hits"], row["accesses"]) for row in json.loads(done.stdout)}

    half = os.path.join(bench.disk, "half.trace")
    left = trace.accesses // 2
    with open(trace.path) as whole, open(half, "w") as file:
        for line in whole:
            left -= line.startswith("a ")
            if left < 0:
                break
            file.write(line)
    first, both = hits(half), hits(trace.path)
    return {name: (both[name][0] - first[name][0]) / (both[name][1] - first[name][1])
            for name in both}


def simulator(bench):
    return os.path.join(bench.build, "sim", "shade-sim")


def make_trace(bench, samples, epochs, sampler):
    path = os.path.join(bench.disk, f"{sampler}.trace")
    subprocess.run([simulator(bench), "run", "--samples", str(samples), "--epochs", str(epochs),
                    "--capacity", f"{SHARE:.0%}", "--policy", "shade", "--lookahead", "1", "--seed",
                    "1", "--freeze", path, "--sampler", sampler], check=True,
                   stdout=subprocess.DEVNULL)
    return Trace(path)


def measure(bench, report, trace, samples, sampler, rounds):
    rows = []
    for policy, looked_at, by in ENGINES:
        results = []
        for _ in range(rounds):
            cache = Cache(bench, policy, looked_at, int(samples * SHARE))
            results.append(replay(cache, trace, Worth(trace, by)))
            cache.end()
        found = {key: lab.median([result[key] for result in results]) for key in results[0]}
        rival = RIVALS[policy, by]
        # Buffers of clients take a little of the server's room: both get what it really kept.
        best = simulated(bench, trace, int(found["keys"]))[rival]
        rows.append({"orders": sampler, "maxmemory-policy": policy, "samples": looked_at,
                     "time to live by": by if policy == "volatile-ttl" else None,
                     "hit ratio": found["hit ratio"], "rival": rival, "its hit ratio": best,
                     "of it": found["hit ratio"] / best, "kept": found["keys"] / samples,
                     "cpu us": found["cpu us"]})
        report.say(f"{sampler}: {policy}, {looked_at} samples, by {by}: "
                   f"{found['hit ratio']:.3f}, {rival} {best:.3f}")
    return rows


def run(options, bench, report):
    samples, epochs = (500, 4) if options.quick else (10000, 10)
    rounds = options.rounds or (1 if options.quick else 3)
    rows = []
    for sampler in SAMPLERS:
        trace = make_trace(bench, samples, epochs, sampler)
        rows += measure(bench, report, trace, samples, sampler, rounds)
    report.table(f"a Redis with room for {SHARE:.0%} of {samples} keys, the second half of "
                 f"{epochs} epochs, against shade-sim's policies with the same room", rows)
    for row in rows:
        if row["samples"] == 64:
            report.target(f"{row['orders']}: volatile-ttl by {row['time to live by']}, of the hits "
                          f"that {row['rival']} has", row["of it"], LIMIT, least=True, unit="x")
