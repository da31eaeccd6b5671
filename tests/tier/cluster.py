# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mounts that share a real Redis Cluster of three nodes. Nodes die, hang, come back empty, are full
and exchange slots; values are damaged and planted. No byte is ever wrong, and reads go on."""
import os
import random
import tempfile
import threading
import time

import engine
from harness import (DELAY_US, TIMEOUT_S, Slow, Tiered, choose, make_files, run_tests, scratch,
                     skip, wait_until)

if reason := engine.missing():
    skip(reason)
FILES, SIZE = 60, 20000
GO_ON = TIMEOUT_S + 20  # seconds that no read takes, on a busy machine
DAY_S = 86400
HITS_DUE = FILES - 6    # the mount asks the source now and then, to know what it costs


def source(**options):
    return Slow(tree, **{"delay_us": DELAY_US, **options})


def mount_on(slow, **options):
    return Tiered(slow.path, cluster.addresses, **options)


def put_all(slow, **options):
    """A mount reads everything, and the tier has it."""
    mount = mount_on(slow, **options)
    before = len(cluster.keys())
    mount.see(contents)
    wait_until(lambda: len(cluster.keys()) - before == FILES, "all values are there")
    assert mount.count("puts") == FILES, mount.stats()
    mount.end()


def empty():
    for node in cluster.nodes:
        wait_until(lambda node=node: cluster.is_ready(node), "the cluster is up")
    cluster.flush()


def what_one_mount_has_read_others_get_from_the_tier():
    empty()
    slow = source()
    put_all(slow)
    for key in cluster.keys():
        seconds = cluster.call(key, "TTL", key)
        assert 2 * DAY_S - 3600 <= seconds <= 23 * DAY_S, f"{key} lives for {seconds} s"
    slow.tell("reset")
    ahead, plain = mount_on(slow), mount_on(slow)
    ahead.see_ahead(contents)
    ahead.expect_hits(FILES)
    assert slow.counts()["opens"] == "0", slow.counts()
    plain.see(contents)
    assert plain.count("hits") >= HITS_DUE, plain.stats()
    assert int(slow.counts()["opens"]) <= FILES - HITS_DUE, slow.counts()
    for mount in (ahead, plain):
        assert mount.count("errors") == 0, mount.stats()
        mount.end()


def another_volume_has_nothing():
    slow = source()
    mount = mount_on(slow, volume="another")
    mount.see_ahead(contents)
    assert mount.count("misses") == FILES, mount.stats()
    mount.expect_hits(0)
    wait_until(lambda: len(cluster.keys()) == 2 * FILES, "both have their values")
    mount.end()


def a_changed_file_is_never_the_old_one():
    empty()
    slow = source()
    put_all(slow)
    changed = dict(contents)
    paths = list(contents)[:10]
    for number, path in enumerate(paths):
        changed[path] = random.Random(number).randbytes(SIZE)
        with open(os.path.join(tree, path), "r+b") as file:
            file.write(changed[path])
    contents.update(changed)
    first, second = mount_on(slow), mount_on(slow)
    first.see_ahead(contents)
    first.expect_hits(FILES - len(paths))
    wait_until(lambda: len(cluster.keys()) == FILES + len(paths), "the new versions are there")
    second.see_ahead(contents)
    second.expect_hits(FILES)
    for mount in (first, second):
        mount.end()


class Epoch:
    """Readers that go on and on through a mount that can keep nothing, and see every byte."""

    def __init__(self, mount):
        self.mount, self.over, self.failures = mount, False, []
        self.reads, self.longest = 0, 0.0
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(3)]
        for thread in self.threads:
            thread.start()

    def work(self, seed):
        paths = list(contents)
        chance = random.Random(seed)
        try:
            while not self.over:
                path = chance.choice(paths)
                self.longest = max(self.longest, *self.mount.see(contents, [path]))
                self.reads += 1
        except BaseException as failure:  # pylint: disable=broad-except
            self.failures.append(failure)

    def go_on(self, reads=60):
        """Until they have read so many more."""
        due = self.reads + reads
        wait_until(lambda: self.failures or self.reads >= due, "reads go on")

    def end(self):
        self.over = True
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        assert self.longest < GO_ON, f"a read took {self.longest} s"


def nodes_that_die_hang_and_move_while_an_epoch_runs():
    empty()
    slow = source()
    put_all(slow)
    mount = mount_on(slow, capacity="1M", inflight="512K", policy="lru")
    epoch = Epoch(mount)
    try:
        epoch.go_on()
        assert mount.count("hits") > 0, mount.stats()
        cluster.nodes[0].kill()
        epoch.go_on()
        cluster.nodes[1].pause()
        epoch.go_on()
        cluster.nodes[0].start()
        cluster.nodes[1].resume()
        epoch.go_on()
        for number, key in enumerate(cluster.nodes[1].keys() + cluster.nodes[2].keys()):
            cluster.move(engine.slot_of(key), cluster.nodes[1 + number % 2])
        epoch.go_on()
        hits = mount.count("hits")
        wait_until(lambda: mount.count("hits") > hits, "the tier is used again")
    finally:
        for node in cluster.nodes:
            if node.process.poll() is None:
                node.resume()
            else:
                node.start()
        epoch.end()
    print(f"   {epoch.reads} reads, the longest {epoch.longest:.2f} s, hits "
          f"{mount.count('hits'):.0f}, errors {mount.count('errors'):.0f}, fallbacks "
          f"{mount.count('fallbacks'):.0f}")
    mount.end()


def a_hung_node_costs_one_timeout():
    empty()
    slow = source()
    put_all(slow)
    mount = mount_on(slow, tier_timeout=2)
    cluster.nodes[2].pause()
    try:
        times = mount.see(contents)
        waited = [spent for spent in times if spent > 1]
        assert len(waited) <= 5, times  # of 20 that are on that node
        begin = time.monotonic()
        mount.end()
        assert time.monotonic() - begin < GO_ON, "its end waits for the tier"
    finally:
        cluster.nodes[2].resume()


def a_full_engine_takes_nothing():
    empty()
    slow = source()
    for node in cluster.nodes:
        node.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        node.call("CONFIG", "SET", "maxmemory", "1")
    try:
        mount = mount_on(slow)
        mount.see(contents)
        wait_until(lambda: mount.count("errors"), "-OOM is counted")
        assert mount.count("puts") == 0 and not cluster.keys(), mount.stats()
        assert 1 <= mount.read_log().count("OOM") <= 2 * len(cluster.nodes), mount.read_log()
        mount.end()
    finally:
        for node in cluster.nodes:
            node.call("CONFIG", "SET", "maxmemory", "256mb")
            node.call("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")


def damaged(value):
    """A value in which one thing after the other is wrong."""
    half = 64 + SIZE // 2
    yield value[:half] + bytes([value[half] ^ 1]) + value[half + 1:]
    for at in (0, 7, 8, 16, 24, 44, 48, 55):
        yield value[:at] + bytes([value[at] ^ 0x80]) + value[at + 1:]
    yield value[:-1]
    yield value + b"x"
    yield value[:64]
    yield b""
    yield b"x" * len(value)


def damage_is_a_miss():
    empty()
    slow = source()
    put_all(slow)
    keys = cluster.keys()
    for number, key in enumerate(keys):
        ways = list(damaged(cluster.value(key)))
        cluster.put(key, ways[number % len(ways)])
    cluster.call(keys[0], "DEL", keys[0])
    cluster.call(keys[0], "RPUSH", keys[0], "a list")
    mount = mount_on(slow)
    mount.see_ahead(contents)
    assert mount.count("hits") == 0, mount.stats()
    assert mount.count("errors") + mount.count("misses") >= FILES, mount.stats()
    assert mount.count("errors") >= FILES // 2, mount.stats()
    mount.end()


def secret(text):
    path = tempfile.mktemp(prefix="secret-", dir=scratch)
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text + "\n")
    return path


def planted_values_are_misses():
    """With a key: neither a right checksum helps, nor a value from elsewhere."""
    slow = source()
    mine, other = secret("0123456789abcdef" * 2), secret("fedcba9876543210" * 2)

    def all_miss(**options):
        mount = mount_on(slow, **options)
        mount.see_ahead(contents)
        assert mount.count("hits") == 0, mount.stats()
        assert mount.count("errors") >= FILES, mount.stats()
        mount.end()

    empty()
    put_all(slow)
    all_miss(tier_key=mine)      # a plain checksum
    empty()
    put_all(slow, tier_key=other)
    all_miss(tier_key=mine)      # another key
    all_miss()                   # a MAC where a checksum is due
    empty()
    put_all(slow, tier_key=mine)
    mount = mount_on(slow, tier_key=mine)
    mount.see_ahead(contents)
    mount.expect_hits(FILES)
    mount.end()
    keys = cluster.keys()
    values = [cluster.value(key) for key in keys]
    for key, value in zip(keys, values[1:] + values[:1]):
        cluster.put(key, value)
    all_miss(tier_key=mine)      # each one the next one's


def passwords_are_asked_for_and_never_told():
    password = "hard-to-guess-7261"
    slow = source()
    single = engine.Single(scratch, port=7100, password=password)
    try:
        wrong = Tiered(slow.path, single.addresses, tier_password=secret("not-" + password))
        wrong.see(contents)
        wait_until(lambda: wrong.count("errors") + wrong.count("fallbacks"), "it is counted")
        assert wrong.count("hits") + wrong.count("puts") == 0, wrong.stats()
        wait_until(lambda: "7100" in wrong.read_log(), "the log tells of it")
        told(wrong, "not-" + password)
        wrong.end()
        right = Tiered(slow.path, single.addresses, tier_password=secret(password))
        right.see(contents)
        wait_until(lambda: len(single.keys()) == FILES, "all values are there")
        told(right, password)
        right.end()
        for addresses, environment in (([f"default:{password}@{single.addresses[0]}"], None),
                                       (single.addresses, password)):
            if environment:
                os.environ["SHADEFS_TIER_PASSWORD"] = environment
            try:
                mount = Tiered(slow.path, addresses)
            finally:
                os.environ.pop("SHADEFS_TIER_PASSWORD", None)
            mount.see_ahead(contents)
            mount.expect_hits(FILES)
            told(mount, password)
            mount.end()
    finally:
        single.end()


def told(mount, password):
    """Not by anything that others can read."""
    texts = {"the log": mount.read_log()}
    for name in os.listdir(mount.at(".shade")):
        if name in ("config", "stats", "metrics"):
            with open(mount.at(".shade", name), errors="replace") as file:
                texts[name] = file.read()
    with open(f"/proc/{mount.process.pid}/cmdline", errors="replace") as file:
        texts["ps"] = file.read()
    with open("/proc/self/mountinfo") as file:
        texts["mountinfo"] = file.read()
    for name, text in texts.items():
        assert password not in text, f"{name} tells the password: {text}"


def file_of(key):
    """A key is shade:VOLUME:INO-SIZE-MTIME-CTIME."""
    return paths_by_number[int(key.split(b":")[-1].split(b"-")[0], 16)]


def lives(server):
    """Paths, from the shortest time to live to the longest."""
    client = server.client()
    keys = client.call("KEYS", "*")
    seconds = client.all([("TTL", key) for key in keys])
    client.close()
    return [file_of(key) for _, key in sorted(zip(seconds, keys))]


def agree(some, others):
    """The share of the first half of one list that is in the first half of the other."""
    half = len(some) // 2
    return len(set(some[:half]) & set(others[:half])) / half


def what_is_worth_most_stays():
    """Scores and orders become times to live, and by these a full engine evicts."""
    slow = source()
    single = engine.Single(scratch, port=7300)
    server = single.nodes[0]
    paths_by_number.update({os.stat(os.path.join(tree, path)).st_ino: path for path in contents})
    try:
        mount = Tiered(slow.path, single.addresses, prefetch="4K")
        ids = mount.samples()
        mount.see(contents)
        wait_until(lambda: len(single.keys()) == FILES, "all values are there")
        by_score = random.Random(5).sample(list(contents), FILES)
        # What memory has is worth little to the tier, whatever its score.
        mount.control("".join(f"evict {path}\n" for path in contents))
        mount.control("".join(f"score {ids[path]} {1 + number / FILES}\n"
                              for number, path in enumerate(by_score)))
        wait_until(lambda: agree(lives(server), by_score) > 0.9, "scores are times to live")
        by_use = random.Random(6).sample(list(contents), FILES)
        order = " ".join(str(ids[path]) for path in reversed(by_use))  # the last ones first
        mount.control(f"order 0 begin\norder 0 {order}\norder 0 end\nepoch 0\n")
        wait_until(lambda: agree(lives(server), by_use) > 0.9, "so is the next use")
        used = int(server.info("memory")["used_memory"])
        server.call("CONFIG", "SET", "maxmemory", used - FILES // 2 * SIZE)
        wait_until(lambda: len(single.keys()) <= FILES // 2 + 2, "half of it is evicted")
        kept = {file_of(key) for key in single.keys()}
        right = kept & set(by_use[FILES // 2:])
        assert len(right) >= 0.8 * len(kept), f"{len(right)} of {len(kept)} that stayed are right"
        mount.end()
    finally:
        single.end()


def a_tier_that_is_down_at_the_start_is_used_later():
    slow = source()
    mount = Tiered(slow.path, ["127.0.0.1:7200"])
    times = mount.see(contents)
    assert max(times) < GO_ON, times
    assert mount.count("hits") == 0
    single = engine.Single(scratch, port=7200)
    try:
        def puts():
            mount.control("".join(f"evict {path}\n" for path in contents))
            mount.see(contents)
            return mount.count("puts") > 0
        wait_until(puts, "the tier is asked again")
        mount.end()
    finally:
        single.end()


tree, contents = make_files(FILES, SIZE)
paths_by_number = {}
cluster = engine.Cluster(scratch)
# Nodes that were restarted need two seconds until they answer: meanwhile there are tests without.
TESTS = [what_one_mount_has_read_others_get_from_the_tier, another_volume_has_nothing,
         a_changed_file_is_never_the_old_one, a_hung_node_costs_one_timeout,
         a_full_engine_takes_nothing, nodes_that_die_hang_and_move_while_an_epoch_runs,
         passwords_are_asked_for_and_never_told, a_tier_that_is_down_at_the_start_is_used_later,
         what_is_worth_most_stays, damage_is_a_miss, planted_values_are_misses]
run_tests(choose(TESTS))
