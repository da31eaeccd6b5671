# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page of `shadectl report` in headless Chromium: it renders on a screen, on a phone, in the dark
and on paper, asks for nothing and complains of nothing, and shows the figures of the mount."""
import json
import os
import random
import struct
import subprocess
import sys
import zlib

from common import SHADECTL, Shade, Slow, in_threads, make_tree, read, run_tests, scratch, skip, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import browser  # pylint: disable=wrong-import-position

if browser.missing():
    skip(browser.missing())

# What cannot be seen because something is in its way or outside: texts of a chart that touch each
# other, or leave it.
CROWDED = """
const crowded = [];
for (const svg of document.querySelectorAll("figure > svg")) {
    const whole = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent,
                                                                 text.getBoundingClientRect()]);
    boxes.forEach(([text, box], at) => {
        if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1)
            crowded.push(text + " leaves its chart");
        for (const [other, b] of boxes.slice(at + 1))
            if (box.left < b.right && b.left < box.right && box.top < b.bottom - 2 &&
                b.top < box.bottom - 2)
                crowded.push(text + " touches " + other);
    });
}
return crowded;
"""
TABLES = """
return Object.fromEntries([...document.querySelectorAll("table[id]")].map(table => [table.id,
    [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))]));
"""


def make_page():
    """A training of five epochs from a slow source. The page, stats and epochs."""
    root, contents = make_tree(200, size=30000)
    slow = Slow(root, delay_us=2000)
    fs = Shade(slow.path, capacity="2M", inflight="512K", predict="off")
    ids = fs.samples()
    names, chance = sorted(ids, key=ids.get), random.Random(2)
    scores = [chance.uniform(2.3, 5) for _ in contents]
    for epoch in range(5):
        order = chance.choices(range(200), [score ** 2 for score in scores], k=200)
        fs.control(f"order {epoch} begin\norder {epoch} {' '.join(map(str, order))}\n"
                   f"order {epoch} end\nuses 1.5\nepoch {epoch}\n")
        in_threads(2, lambda part: [read(fs.at(names[i])) for i in order[part::2]])
        fs.control("".join(f"score {i} {scores[i]}\n" for i in set(order)))
    wait_until(lambda: fs.stats()["accesses"] > 900, "counted")
    fs.settle()
    page = os.path.join(scratch, "report.html")
    subprocess.run([SHADECTL, "report", fs.path, "-o", page], check=True)
    stats = fs.stats()
    lines = read(fs.at(".shade", "epochs")).decode().splitlines()
    rows = [dict(zip(lines[0].split(), map(float, line.split()))) for line in lines[1:]]
    fs.end()
    slow.end()
    return page, stats, rows


def colours(path):
    """How many different bytes a picture has, after it was unpacked: one that is empty has few."""
    data = read(path)
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    return width, height, len(set(zlib.decompress(packed)))


def shows_the_figures(shown, stats, rows):
    tables = shown.run(TABLES)
    found = {key: value if key in ("mode", "policy") else float(value)
             for key, value in tables["stats"]}
    assert found == stats, (found, stats)
    assert len(tables["epochs"]) == 1 + len(rows), tables["epochs"]
    for row, cells in zip(rows, tables["epochs"][1:]):
        wanted = [f"{row['epoch']:.0f}" + (" running" if row["running"] else ""),
                  f"{row['accesses']:.0f}", f"{100 * row['hits'] / row['accesses']:.1f} %",
                  f"{100 * (row['hits'] - row['hits_prefetched']) / row['accesses']:.1f} %",
                  f"{100 * row['distinct'] / row['samples']:.1f} %"]
        assert cells[:5] == wanted, (cells, wanted)
    figures = json.loads(shown.run("return document.getElementById('figures').textContent"))
    assert figures["stats"] == stats, figures["stats"]
    assert [row["backend_bytes"] for row in figures["epochs"]] == \
        [row["backend_bytes"] for row in rows], rows
    assert tables["source"][0][1].replace(",", "") == f"{stats['backend_reads']:.0f}", tables["source"]
    advice = shown.run("return document.getElementById('advice').innerText")
    assert advice == figures["advice"] and "source" in advice, advice
    ratio = shown.run("return document.getElementById('hit-ratio').innerText")
    assert ratio == f"{100 * stats['hits'] / stats['accesses']:.1f} %", ratio
    # A line has a point for each epoch, and bars are as tall as their bytes.
    points = shown.run("return document.querySelectorAll('figure')[0]"
                       ".querySelectorAll('circle.s0').length")
    assert points == len(rows), points
    heights = shown.run("return [...document.querySelectorAll('figure')[3]"
                        ".querySelectorAll('rect')].map(bar => +bar.getAttribute('height'))")
    bars = [row["backend_bytes"] for row in rows]
    assert all(abs(height / max(heights) - value / max(bars)) < 0.01
               for height, value in zip(heights, bars)), (heights, bars)


def in_every_light():
    page, stats, rows = make_page()
    backs = {}
    for name, width, dark in (("screen", 1200, False), ("phone", 390, False), ("dark", 1200, True)):
        with browser.Browser(width, 900, dark) as shown:
            shown.open(page)
            asked = [address for address in shown.requests() if not address.startswith("data:")]
            assert asked == ["file://" + page], asked
            assert shown.console() == [], "the console is not empty"
            assert shown.run("return innerWidth") == width
            assert shown.run("return document.documentElement.scrollWidth") <= width, f"{name}: wide"
            assert shown.run(CROWDED) == [], f"{name}: {shown.run(CROWDED)}"
            assert shown.run("return document.querySelectorAll('figure > svg').length") == 7
            size = shown.run("return document.querySelector('figure text')"
                             ".getBoundingClientRect().height")
            assert size >= 10, f"{name}: texts of {size} pixels"
            picture = os.path.join(scratch, f"{name}.png")
            shown.screenshot(picture)
            shot_width, height, count = colours(picture)
            assert shot_width == width and height > 1000 and count > 100, (name, height, count)
            backs[name] = shown.run("return getComputedStyle(document.body).backgroundColor")
            if name == "screen":
                shows_the_figures(shown, stats, rows)
                assert shown.pages().startswith(b"%PDF-"), "not printed"
    assert backs["screen"] == backs["phone"] != backs["dark"], backs


def the_test_can_fail():
    """A page that runs something, asks for something, is too wide and has texts upon each other."""
    page = os.path.join(scratch, "bad.html")
    with open(page, "w") as file:
        file.write("<script>nothing.here()</script><img src='http://127.0.0.1:9/x.png'>"
                   "<div style='width:2000px'>x</div><figure><svg viewBox='0 0 360 210'>"
                   "<text x='50' y='50'>one</text><text x='52' y='50'>two</text></svg></figure>")
    with browser.Browser(390, 900) as shown:
        shown.open(page)
        assert any("x.png" in address for address in shown.requests())
        said = shown.console()
        assert any("nothing is not defined" in line for line in said), said
        assert shown.run("return document.documentElement.scrollWidth") > 390
        assert shown.run(CROWDED) == ["one touches two"], shown.run(CROWDED)


run_tests([in_every_light, the_test_can_fail])
