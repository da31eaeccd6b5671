# SPDX-License-Identifier: LGPL-2.1-or-later
"""shadectl report against a mount that answers as told: what the page has, where it goes, and that a
mount which means harm gets nothing into it but text: report.py SHADECTL FAKEFS."""
import html.parser
import json
import os
import stat

from fake import STATS, Fake, check, finish, refuses, run, works

HEAD = ("job epoch announced ordered running begin_ms end_ms samples distinct uses accesses hits "
        "hits_prefetched misses backend_reads backend_bytes waits wait_ms waiting_ms limited_ms "
        "limited_bytes a_column_of_the_future\n")
EPOCHS = (HEAD +
          "0 0 1 0 0 1000 11000 100 100 0 100 0 0 100 100 1000000 100 9000 8000 9000 900000 ?\n"
          "0 1 1 0 0 11000 16000 100 80 2 100 75 25 25 25 250000 10 500 500 500 50000 ?\n"
          "0 2 1 0 1 16000 18000 100 40 2 40 30 10 10 10 100000 4 200 200 200 20000 ?\n")
# What would do something if it were not only text.
HARM = "<script>alert(1)</script><img src=x onerror=alert(2)>'\" onload='x' &amp; </script>"
TRICK = "\x1b]0;owned\x07\x9b31m\udc9b31m\u202e"


def history(epochs=3, samples=40, capacity=16):
    """The same samples of 1 KB in every epoch, with room for some of them."""
    lines = [f"# rate 0.5\n# samples {2 * samples}\n# picked {samples}\n"
             f"# data_bytes {2048 * samples}\n# picked_bytes {1024 * samples}\n"
             f"# capacity_bytes {2048 * capacity}\n"]
    for epoch in range(epochs):
        lines.append(f"e {epoch} # job 0, epoch {epoch}\n")
        lines += [f"s {sample} 2.5\na {sample} 1024\n" for sample in range(samples)]
    return "".join(lines)


class Page(html.parser.HTMLParser):
    """Elements and attributes of a page, its figures, and tables by id as rows of texts."""
    VOID = {"meta", "link", "br"}

    def __init__(self, text):
        super().__init__()
        self.stack, self.elements, self.tables, self.texts = [], [], {}, {}
        self.json = ""
        self.feed(text)
        self.close()
        check(not self.stack, f"these do not end: {self.stack}")
        self.figures = json.loads(self.json)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag not in self.VOID:
            self.stack.append((tag, found))
        if tag == "tr":
            self.rows().append([])
        if tag in ("td", "th") and self.rows():
            self.rows()[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        check(self.stack and self.stack[-1][0] == tag, f"</{tag}> in {self.stack}")
        self.stack.pop()

    def rows(self):
        ids = [found.get("id", "?") for tag, found in self.stack if tag == "table"]
        return self.tables.setdefault(ids[-1], []) if ids else []

    def handle_data(self, data):
        tags = [tag for tag, _ in self.stack]
        if tags and tags[-1] == "script":
            self.json += data
        elif "td" in tags or "th" in tags:
            self.rows()[-1][-1] += data
        for _, found in self.stack[-1:]:
            if "id" in found:
                self.texts[found["id"]] = self.texts.get(found["id"], "") + data


def is_harmless(page):
    """Nothing that runs, loads or leads elsewhere."""
    for tag, found in page.elements:
        check(tag in {"html", "head", "meta", "link", "title", "style", "body", "main", "header",
                      "h1", "h2", "p", "b", "i", "br", "div", "span", "section", "figure",
                      "figcaption", "ul", "li", "table", "thead", "tr", "th", "td", "script",
                      "svg", "text", "line", "path", "circle", "rect"}, f"an element {tag}")
        for name, value in found.items():
            check(not name.startswith("on") and name not in ("src", "style", "action"),
                  f"{tag} has {name}={value}")
            check(name != "href" or value == "data:,", f"{tag} has {name}={value}")
        check(tag != "script" or found.get("type") == "application/json", f"script {found}")
    policy = [found["content"] for _, found in page.elements
              if found.get("http-equiv") == "Content-Security-Policy"]
    check(policy and policy[0].startswith("default-src 'none';"), f"policy {policy}")


def figures(fake):
    fake.stats()
    fake.put(".shade/epochs", EPOCHS)
    fake.put(".shade/history", history())
    fake.put(".shade/scores", "".join(f"{i}\t{2 + i % 3}\t1\t{int(i % 3 == 2)}\n"
                                      for i in range(90)) + "90\t-1\t0\t1\n")
    done = run("report", fake.mnt)
    works(done)
    page = Page(done.stdout)
    is_harmless(page)
    found = page.figures
    check(found["stats"] == STATS, f"stats: {found['stats']}")
    check([row["epoch"] for row in found["epochs"]] == [0, 1, 2], f"epochs: {found['epochs']}")
    check(found["epochs"][1]["waiting_ms"] == 500 and found["mount"] == fake.mnt, "the second")
    check(page.texts["hit-ratio"] == "75.0 %" and page.texts["coverage"] == "51.0 %" and
          page.texts["accesses"] == "1,000" and page.texts["backend-bytes"] == "23.8 MiB",
          f"tiles: {page.texts}")
    check(page.tables["epochs"][2] == ["1", "100", "75.0 %", "50.0 %", "80.0 %", "5.0 s", "20",
                                       "10.0 %", "244.1 KiB", "2"], f"{page.tables['epochs']}")
    check(page.tables["epochs"][3][0] == "2 running", f"{page.tables['epochs'][3]}")
    check(dict(row for row in page.tables["stats"]) == {key: str(value) for key, value in
                                                        STATS.items()}, "all counters")
    check(["3.891 – 4.062", "30", "30", "100.0 %"] in page.tables["scores"] and
          ["no score", "1", "1", "100.0 %"] in page.tables["scores"], f"{page.tables['scores']}")
    minio = found["capacities"]["policies"]["minio"]["hit_ratio"]
    factors = found["capacities"]["factors"]
    check(factors == [0.125, 0.25, 0.5, 1, 1.5, 2, 2.5] and
          all(abs(hits - 0.4 * factor) < 1e-9 for hits, factor in zip(minio, factors)),
          f"{factors}: {minio}")
    check(page.texts["advice"] == found["advice"] and
          "The source is the limit (readers waited for it 10 % of the time): 2 x the memory "
          "(64.0 KiB) would save 67 % of its bytes." in found["advice"], found["advice"])
    check("ecognition" not in done.stdout, "a section about what the mount tells nothing of")
    check(page.tables["epochs"][0][:2] == ["epoch", "accesses"], "one training needs no number")
    fake.put(".shade/epochs", EPOCHS + EPOCHS.splitlines()[2].replace("0 1 ", "3 1 ", 1) + "\n")
    rows = Page(run("report", fake.mnt).stdout).tables["epochs"]
    check([row[:3] for row in rows] == [["epoch", "job", "accesses"], ["0", "0", "100"],
                                        ["1", "0", "100"], ["2 running", "0", "40"],
                                        ["1", "3", "100"]], f"several trainings: {rows}")
    fake.put(".shade/epochs", EPOCHS)
    fake.stats(recognised_orders=3)
    check("Recognition and take-over" in run("report", fake.mnt).stdout, "recognition")
    fake.stats()


def missing(fake):
    """A mount of an older version: what it does not tell is a '-', and nothing fails."""
    for name in ("epochs", "history", "scores", "config"):
        os.rename(f"{fake.state}/.shade/{name}", f"{fake.state}/{name}")
    fake.put(".shade/stats", "hits 5\n")
    done = run("report", fake.mnt)
    works(done)
    page = Page(done.stdout)
    is_harmless(page)
    check("nan" not in done.stdout, "a NaN is shown")
    check(page.texts["hit-ratio"] == "-" and page.texts["waiting"] == "-", f"{page.texts}")
    check("No epoch was seen yet" in done.stdout and "no accesses that could" in done.stdout, "told")
    check(page.figures["epochs"] == [] and "Nothing was read" in page.figures["advice"], "figures")
    for name in ("epochs", "history", "scores", "config"):
        os.rename(f"{fake.state}/{name}", f"{fake.state}/.shade/{name}")
    # Epochs of which nobody knows how long they waited.
    fake.stats()
    fake.put(".shade/epochs", "accesses hits\n5 1\n5 5\n")
    check("nan" not in run("report", fake.mnt).stdout, "a NaN is shown")
    page = Page(run("report", fake.mnt).stdout)
    check(page.texts["waiting"] == "-" and "is not known" in page.texts["advice"], f"{page.texts}")
    fake.put(".shade/epochs", EPOCHS)


def where_it_goes(fake):
    target = f"{fake.top}/report.html"
    works(run("report", fake.mnt, "-o", target), "")
    with open(target) as file:
        first = file.read()
    Page(first)
    mask = os.umask(0)
    os.umask(mask)
    check(stat.S_IMODE(os.stat(target).st_mode) == 0o666 & ~mask, "the mode of a new file")
    # Another one takes its place, whole: whoever has the old one open keeps that.
    os.chmod(target, 0o640)
    with open(target) as file:
        works(run("report", fake.mnt, "--output", target), "")
        check(file.read() == first, "the old page was written over")
    check(stat.S_IMODE(os.stat(target).st_mode) == 0o640, "the mode of an old file")
    check(os.listdir(fake.top).count("report.html") == 1 and
          not [name for name in os.listdir(fake.top) if name.startswith("report.html.")],
          f"left behind: {os.listdir(fake.top)}")
    refuses(run("report", fake.mnt, "-o", f"{fake.top}/no/such/report.html"), 1,
            "could not write", "No such file")
    refuses(run("report", fake.mnt, "-o", fake.top), 1, "could not write", "Is a directory")
    check(run("report", fake.mnt, "-o", "/dev/stdout").stdout.startswith("<!DOCTYPE"), "/dev/stdout")
    check(run("report", fake.mnt, "-o", "-").stdout.startswith("<!DOCTYPE"), "-")
    if os.path.exists("/dev/full"):
        refuses(run("report", fake.mnt, "-o", "/dev/full"), 1, "could not write", "No space")
    refuses(run("report", fake.mnt, "word"), 2, "takes no word 'word'")
    refuses(run("report", fake.mnt, "--json"), 2, "--json")
    refuses(run("report", fake.top), 1, "no shadefs is mounted")


def a_mount_that_means_harm(fake):
    fake.put(".shade/stats", f"mode {HARM}\npolicy {HARM}\n{HARM.replace(' ', '')} {HARM}\n"
                             f"accesses 5\nrecognition{HARM.replace(' ', '')} {HARM}{TRICK}\n"
                             f"capacity_bytes {TRICK}\nsamples 1e999\nhits -inf\n")
    fake.put(".shade/config", f"source {HARM}{TRICK}\n")
    fake.put(".shade/epochs", f"{HARM} {HEAD}{HARM} 1 2 3\n" + "9 " * 30 + "\n" + "1e308 " * 30 + "\n")
    fake.put(".shade/scores", f"{HARM}\t{HARM}\t\t1\n")
    done = run("report", fake.mnt)
    works(done)
    page = Page(done.stdout)
    is_harmless(page)
    check("alert(1)" in done.stdout and "alert(1)" in json.dumps(page.figures),
          "the harm is not shown: this test could not see it")
    odd = {char for char in done.stdout.replace(page.json, "") if (char < " " and char not in "\n\t") or
           "\x7f" <= char < "\xa0" or "\udc80" <= char <= "\udcff" or char == "\u202e"}
    check(not odd, f"{odd} in the page")
    # What is no trace ends it with a sentence; so does what never ends.
    good = history()
    for bad, words in ((good + "x 1 2\n", "a line begins with"), (good + "a -1\n", "whole number"),
                       (good + f"{TRICK}\n", ".shade/history:"),
                       (good + "a 1 18446744073709551615\na 2 18446744073709551615\n", "too much"),
                       (good + "".join(f"o {n} 1\n" for n in range(9, 30)), "orders are ahead")):
        fake.put(".shade/history", bad)
        refuses(run("report", fake.mnt, "-o", f"{fake.top}/bad.html"), 2, ".shade/history", words)
    check(not os.path.exists(f"{fake.top}/bad.html"), "a page of a bad trace")
    fake.put(".shade/history", good)
    for name in ("history", "epochs", "config"):  # too large is as if it were not there
        fake.put(f".shade/{name}", "")
        os.truncate(os.path.join(fake.state, ".shade", name), 1 << 40)
        works(run("report", fake.mnt))
    os.truncate(os.path.join(fake.state, ".shade", "stats"), 1 << 40)
    refuses(run("report", fake.mnt), 1, "large")


with Fake() as mount:
    for part in (figures, missing, where_it_goes, a_mount_that_means_harm):
        part(mount)
with Fake(name="<b>\" '&\u202e") as mount:
    mount.put(".shade/epochs", EPOCHS)
    mount.put(".shade/history", history())
    shown = run("report", mount.mnt)
    works(shown)
    is_harmless(Page(shown.stdout))
finish()
