# SPDX-License-Identifier: LGPL-2.1-or-later
"""The record of epochs, and the report that shadectl makes of it: its figures are those of the
mount, and its replays those of an independent simulation."""
import collections
import json
import os
import random
import re
import subprocess

from common import MODE, SHADECTL, Shade, in_threads, make_tree, read, run_tests, scratch, wait_until

PAGE = 4096


def table(fs):
    """The rows of .shade/epochs, from names to numbers."""
    lines = read(fs.at(".shade", "epochs")).decode().splitlines()
    return [dict(zip(lines[0].split(), map(float, line.split()))) for line in lines[1:]]


def history(fs):
    """The head of .shade/history as a dict, and its other lines."""
    lines = read(fs.at(".shade", "history")).decode().splitlines()
    head = dict(line[2:].split() for line in lines if line.startswith("# "))
    return ({key: float(value) for key, value in head.items()},
            [line for line in lines if not line.startswith("#")])


def report(fs):
    """The figures within the page."""
    path = os.path.join(scratch, "report.html")
    subprocess.run([SHADECTL, "report", fs.path, "-o", path], check=True)
    with open(path) as file:
        page = file.read()
    os.unlink(path)
    return page, json.loads(re.search(r"id='figures'>\n(.*?)</script>", page, re.S)[1])


def same(found, wanted):
    """In native mode a miss is known at once, and a hit before it perhaps later."""
    return found == wanted if MODE == "portable" else sorted(found) == sorted(wanted)


def by_epoch(lines):
    """The ids of the accesses of each epoch."""
    found = []
    for line in lines:
        if line.startswith("e "):
            found.append([])
        elif line.startswith("a "):
            found[-1].append(int(line.split()[1]))
    return found


def announce(fs, epoch, ids):
    fs.control(f"order {epoch} begin\norder {epoch} {' '.join(map(str, ids))}\norder {epoch} end\n")


def read_ids(fs, names, ids):
    """In native mode the kernel tells of two opens of a file as one, if nobody asked in between."""
    before, recent = fs.stats()["accesses"], set()
    for number in ids:
        if number in recent:
            fs.stats()
            recent = set()
        recent.add(number)
        read(fs.at(names[number]))
    wait_until(lambda: fs.stats()["accesses"] == before + len(ids), "counted")


def names_of(fs):
    ids = fs.samples()
    return sorted(ids, key=ids.get)


def check_sums(fs):
    """Rows add up to the counters, and the page has both."""
    fs.settle()
    page, figures = report(fs)
    stats, rows = fs.stats(), table(fs)
    shared = [key for key in rows[0] if key in stats and key not in
              ("epoch", "samples", "uses", "waiting_ms", "limited_ms", "wait_ms")]
    assert len(shared) >= 11, shared
    for key in shared:
        assert sum(row[key] for row in rows) == stats[key], (key, stats[key], rows)
    stats["predict_cpu_ms"] = figures["stats"]["predict_cpu_ms"]  # which goes on
    assert figures["stats"] == {key: value if isinstance(value, str) else float(value)
                                for key, value in stats.items()}, (figures["stats"], stats)
    with_accesses = [row for row in rows if row["accesses"]]
    assert len(with_accesses) == len(figures["epochs"]), (rows, figures["epochs"])
    for row, shown in zip(with_accesses, figures["epochs"]):
        assert all(row[key] == value for key, value in shown.items()), (row, shown)
    return page, figures, with_accesses


def announced_epochs():
    root, contents = make_tree(120, size=20000)
    fs = Shade(root, capacity="1500K", inflight="512K")
    names, chance = names_of(fs), random.Random(1)
    count = len(contents)
    reads = [chance.sample(range(count), count), chance.choices(range(count), k=count),
             list(range(60)) * 2, chance.sample(range(count), count)]
    for epoch, ids in enumerate(reads):
        if epoch != 2:  # nobody tells what the third one will read
            announce(fs, epoch, ids)
        fs.control(f"uses {epoch + 1}.5\nepoch {epoch}\n")
        fs.control(f"epoch {epoch}\n")  # as another rank does
        read_ids(fs, names, ids)
    page, figures, rows = check_sums(fs)
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3], rows
    assert [row["ordered"] for row in rows] == [1, 1, 0, 1], rows
    assert [row["running"] for row in rows] == [0, 0, 0, 1], rows
    assert [row["uses"] for row in rows] == [1.5, 2.5, 3.5, 4.5], rows
    assert all(row["announced"] == 1 and row["samples"] == count for row in rows), rows
    for row, ids in zip(rows, reads):
        assert row["accesses"] == len(ids) and row["distinct"] == len(set(ids)), (row, len(ids))
    assert rows[3]["distinct"] / count == fs.stats()["coverage"] == 1
    stats = fs.stats()
    assert f">{100 * stats['hits'] / stats['accesses']:.1f} %<" in page, "the hit ratio"
    # All accesses of so few samples are there, in their sequence, and orders before their epochs.
    head, lines = history(fs)
    assert head["rate"] == 1 and head["picked"] == count, head
    found = by_epoch(lines)
    assert len(found) == 4 and all(map(same, found, reads)), "not the accesses that there were"
    places = {line.split()[1]: at for at, line in enumerate(lines) if line.startswith("o ")}
    assert sorted(places) == ["0", "1", "3"], places
    begins = [at for at, line in enumerate(lines) if line.startswith("e ")]
    assert begins[0] < places["1"] < begins[1] < begins[2] < places["3"] < begins[3], (begins, places)
    assert lines[places["3"]].split()[2:] == [str(number) for number in found[3]]
    assert figures["capacities"]["ordered"] == 3, figures["capacities"]
    fs.end()


def guessed_epochs():
    """Nobody announces any: as many accesses as there are samples are one."""
    root, contents = make_tree(50)
    fs = Shade(root, capacity="8M")
    names = names_of(fs)
    for _ in range(2):
        read_ids(fs, names, range(50))
    read_ids(fs, names, range(20))
    page, _, rows = check_sums(fs)
    assert [row["accesses"] for row in rows] == [50, 50, 20], rows
    assert [row["distinct"] for row in rows] == [50, 50, 20], rows
    assert [row["hits"] for row in rows] == [0, 50, 20], rows
    assert not any(row["announced"] for row in rows) and "guessed" in page, rows
    fs.end()


def lru(accesses, sizes, capacity, counted_from):
    """The hit ratio of an LRU cache, from that access on."""
    cache, used, hits = collections.OrderedDict(), 0, 0
    for at, number in enumerate(accesses):
        if number in cache:
            hits += at >= counted_from
            cache.move_to_end(number)
            continue
        cache[number] = sizes[number]
        used += sizes[number]
        while used > capacity:
            used -= cache.popitem(last=False)[1]
    return hits / (len(accesses) - counted_from)


def replays_are_right():
    """Of 3000 samples a quarter is followed, and says what the whole would."""
    root, contents = make_tree(3000, size=6000, folders=20)
    fs = Shade(root, capacity="6M", inflight="1M", policy="lru")
    names, chance = names_of(fs), random.Random(5)
    sizes = [(len(contents[name]) + PAGE - 1) // PAGE * PAGE for name in names]
    weights = [1 / (1 + number % 300) for number in range(3000)]
    reads = [chance.choices(range(3000), weights, k=3000) for _ in range(3)]
    for epoch, ids in enumerate(reads):
        fs.control(f"epoch {epoch}\n")
        read_ids(fs, names, ids)
    head, lines = history(fs)
    assert 0.1 < head["rate"] < 0.5 and head["data_bytes"] == sum(sizes), head
    assert head["capacity_bytes"] == 5 << 20, head
    found = by_epoch(lines)
    picked = set().union(*found)
    for ids, kept in zip(reads, found):
        assert same(kept, [number for number in ids if number in picked]), "some, but not all"
        assert 300 < len(kept) <= 1024, len(kept)
    assert head["picked"] >= len(picked) > 300, (head, len(picked))
    _, figures = report(fs)
    curves = figures["capacities"]
    assert curves["epochs"] == 2 and curves["warm_up"] == 1, curves
    for factor, ratio in zip(curves["factors"], curves["policies"]["lru"]["hit_ratio"]):
        wanted = lru(sum(reads, []), sizes, (5 << 20) * factor, 3000)
        print(f"   lru, {factor:.3g} x the memory: {ratio:.3f}, all accesses {wanted:.3f}")
        # Which samples are followed is chance, the same in each run.
        assert abs(ratio - wanted) < 0.05, (factor, ratio, wanted)
    fs.end()


def while_others_read():
    """Reports, epochs and orders while everything moves."""
    root, contents = make_tree(200, size=8000)
    fs = Shade(root, capacity="1M", inflight="256K")
    names = names_of(fs)

    def work(number):
        chance = random.Random(number)
        for epoch in range(6):
            if number == 0:
                report(fs)
                continue
            if number == 1:
                announce(fs, epoch + 1, chance.choices(range(200), k=200))
                fs.control(f"epoch {epoch}\n")
            for sample in chance.choices(range(200), k=150):
                assert read(fs.at(names[sample])) == contents[names[sample]]

    in_threads(4, work)
    check_sums(fs)
    fs.end()


run_tests([announced_epochs, guessed_epochs, replays_are_right, while_others_read])
