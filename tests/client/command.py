# SPDX-License-Identifier: LGPL-2.1-or-later
"""The verbs of shadectl that send or print something, and their errors:
command.py SHADECTL FAKEFS."""
import errno
import json
import os
import subprocess

from fake import STATS, Fake, check, finish, refuses, run, works


def usage(fake):
    refuses(run(), 2, "VERB")
    refuses(run("fly", fake.mnt), 2, "fly")
    for verb in ("status", "stats", "top", "score", "order", "epoch", "warm", "evict", "pin",
                 "unpin", "capacity", "policy", "rescan", "forget", "upgrade", "umount", "debug"):
        refuses(run(verb), 2, verb, "mount point")
        refuses(run(verb, fake.mnt, "--fly"), 2, "--fly")
        refuses(run(verb, fake.mnt, "-x"), 2, "-x")
        works(run(verb, "--help"))
        check(f"shadectl {verb} MNT" in run(verb, "--help").stdout, f"usage of {verb}")
    for verb in ("status", "stats", "top", "rescan", "upgrade", "umount", "debug"):
        refuses(run(verb, fake.mnt, "word"), 2, "word")
    refuses(run("status", fake.mnt, "--json"), 2, "status", "--json")
    refuses(run("top", fake.mnt, "--interval"), 2, "--interval")
    refuses(run("top", fake.mnt, "--interval", "0"), 2, "--interval", "'0'")
    refuses(run("warm", fake.mnt, "x", "--timeout", "soon"), 2, "--timeout", "soon")
    refuses(run("warm", fake.mnt, "x", "--timeout", "nan"), 2, "--timeout", "nan")
    for option in ("--version", "-V"):
        works(run(option))
        check(run(option).stdout.startswith("shadectl "), "version")
    with open("/dev/full", "w") as full:
        done = subprocess.run([run("--version").args[0], "--help"], stdout=full,
                              stderr=subprocess.PIPE, text=True)
    refuses(done, 1, "could not write")


def no_mount(fake):
    missing = os.path.join(fake.top, "missing")
    plain = os.path.join(fake.top, "plain")
    os.makedirs(os.path.join(plain, ".shade"))
    with open(os.path.join(plain, ".shade/control"), "w"):
        pass
    for verb, *words in (("status",), ("stats",), ("top",), ("score", "1", "2"), ("order",),
                         ("epoch", "1"), ("warm", "x"), ("evict", "x"), ("pin", "x"),
                         ("unpin", "x"), ("capacity",), ("policy",), ("rescan",)):
        refuses(run(verb, missing, *words), 1, missing, "there is no")
        refuses(run(verb, plain, *words), 1, plain, "no shadefs")
    refuses(run("status", fake.top), 1, fake.top, "no shadefs")
    refuses(run("status", os.path.join(fake.mnt, "train")), 1, "no shadefs")
    refuses(run("status", os.path.join(fake.mnt, "val.bin")), 1, "no directory")
    done = fake.run_as_nobody("status", fake.mnt)
    if done:
        refuses(done, 1, "you may not")
    check(not fake.take(), "something was sent to somebody else")


def statistics(fake):
    with open(os.path.join(fake.mnt, ".shade/stats")) as file:
        text = file.read()
    works(run("stats", fake.mnt), text)
    done = run("stats", fake.mnt, "--json")
    works(done)
    check(json.loads(done.stdout) == STATS, f"JSON: {done.stdout}")
    fake.put(".shade/stats", 'a 01\nb -1.5e-3\nc 1e\nd "quoted" \\ \x01 ä\nnothing\n'
                             "e .5\nf nan\ng \udcff\n\nh 1.\n")
    done = run("stats", "--json", fake.mnt)
    works(done)
    check(json.loads(done.stdout) == {"a": "01", "b": -1.5e-3, "c": "1e",
                                      "d": '"quoted" \\ ? ä', "nothing": "", "e": ".5",
                                      "f": "nan", "g": "\ufffd", "h": "1."},
          f"odd values: {done.stdout}")
    os.unlink(os.path.join(fake.state, ".shade/stats"))
    refuses(run("stats", fake.mnt), 1, ".shade/stats")
    fake.put(".shade/stats", "k v\n" * 600000)
    refuses(run("stats", fake.mnt), 1, ".shade/stats", "too large")
    fake.stats()


def status(fake):
    done = run("status", fake.mnt)
    works(done)
    for words in (fake.mnt, "source     /data/image net\n", "mode       portable",
                  "policy     shade\n",
                  "2.0 GiB of 8.0 GiB used (25.0 %), 20,000 samples", "75.0 % of 1,000 accesses",
                  "10.0 % of them prefetched", "coverage 51.0 %", "epoch      7\n",
                  "complete, 1,281,167 samples\n", "1,234,567 accesses"):
        check(words in done.stdout, f"status lacks {words!r}: {done.stdout}")
    check("errors" not in done.stdout and "left out" not in done.stdout,
          "status tells of errors that were none")
    fake.stats(scan_complete=0, fetch_errors=3, names_left_out=2, accesses=0, hits=0)
    done = run("status", fake.mnt)
    for words in ("running, 1,281,167 samples so far", "3 reads of the source failed",
                  "2 names that the source fails to tell of", "- of 0 accesses"):
        check(words in done.stdout, f"status lacks {words!r}: {done.stdout}")
    fake.put(".shade/stats", "")
    os.unlink(os.path.join(fake.state, ".shade/config"))
    done = run("status", fake.mnt)
    works(done)
    check("source     shadefs\n" in done.stdout, f"source from the kernel: {done.stdout}")
    check("policy     -\n" in done.stdout and "- of - used (-), - samples" in done.stdout,
          f"missing keys: {done.stdout}")
    fake.put(".shade/config", "source /data # option\n")
    fake.stats()


def debug(fake):
    done = run("debug", fake.mnt)
    works(done)
    for words in (run("--version").stdout, "--- kernel\nLinux", "--- mountinfo\n",
                  f" {fake.mnt} ", "fuse.shadefs", "MemTotal", "--- config\nsource /data #",
                  "--- stats\nmode portable\n"):
        check(words in done.stdout, f"debug lacks {words!r}: {done.stdout}")
    os.rename(os.path.join(fake.state, ".shade/config"), os.path.join(fake.state, "config"))
    done = run("debug", fake.mnt)
    check(done.returncode == 1 and "--- config\ncould not be read" in done.stdout
          and "mode portable" in done.stdout, f"debug without a config: {done.stdout}")
    os.rename(os.path.join(fake.state, "config"), os.path.join(fake.state, ".shade/config"))
    done = run("debug", fake.top)
    check("--- kernel" in done.stdout, "debug without a mount prints nothing")
    refuses(done, 1, "no shadefs")


def knobs(fake):
    for verb, key, word, bad in (("epoch", "epoch", "12", "one"),
                                 ("capacity", "capacity_bytes", "40%", "4 G"),
                                 ("policy", "policy", "lru", "l\nru")):
        works(run(verb, fake.mnt), f"{STATS[key]}\n")
        fake.sends(f"{verb} {word}\n", verb, fake.mnt, word)
        refuses(run(verb, fake.mnt, bad), 2, bad.replace("\n", " "))
        refuses(run(verb, fake.mnt, ""), 2)
        refuses(run(verb, fake.mnt, "1", "2"), 2, "'2'")
        fake.rules((word, errno.EINVAL, "line 1: that is bad"))
        refuses(run(verb, fake.mnt, word), 2, verb, "line 1: that is bad")
        fake.rules((word, errno.ENOMEM, ""))
        refuses(run(verb, fake.mnt, word), 1, os.strerror(errno.ENOMEM))
        fake.rules()
        fake.stats(_without=[key])
        refuses(run(verb, fake.mnt), 1, key)
        fake.stats()
    fake.sends("rescan\n", "rescan", fake.mnt)
    fake.rules(("rescan", 0, "ok 1 command"))  # as the daemon says it: nothing for people
    works(run("rescan", fake.mnt), "")
    fake.rules(("rescan", 0, "what?"))
    refuses(run("rescan", fake.mnt), 1, "what?")
    fake.rules()
    refuses(run("capacity", fake.mnt, "9" * 2000), 2, "too long")
    fake.take()


def paths(fake):
    link = os.path.join(fake.top, "link")
    os.symlink(fake.mnt, link)
    for verb in ("evict", "pin", "unpin"):
        fake.sends(f"{verb} train/1.bin\n{verb} val.bin\n", verb, fake.mnt, "train/1.bin",
                   "val.bin")
    for given, sent, cwd in (
            (f"{fake.mnt}/train/1.bin", "train/1.bin", "/"),
            (f"{fake.mnt}//train/./x/../1.bin", "train/1.bin", "/"),
            (f"{link}/train/1.bin", "train/1.bin", "/"),
            (f"{link}/train/gone", "train/gone", "/"),
            (link, ".", "/"), (f"{fake.mnt}/", ".", "/"), (".", ".", "/"),
            ("1.bin", "train/1.bin", f"{fake.mnt}/train"),
            ("gone", "gone", f"{fake.mnt}/train"),
            ("train/1.bin", "train/1.bin", f"{fake.mnt}/train"),
            ("../val.bin", "val.bin", f"{fake.mnt}/train"),
            ("mnt/val.bin", "val.bin", fake.top),
            ("./val.bin", "val.bin", "/"), ("a/b/../../val.bin", "val.bin", "/"),
            ("train/a b/2.bin", "train/a\\040b/2.bin", "/"),
            (" x ", "\\040x\\040", "/"), ("a\nb\\ä", "a\\012b\\\\\\303\\244", "/"),
            ("\udcff\x7f", "\\377\\177", "/")):
        fake.sends(f"pin {sent}\n", "pin", fake.mnt, "--", given, cwd=cwd)
    for given in (f"{fake.top}/x", f"{fake.mnt}x", "../x", "x/../../y", f"{fake.mnt}/../x", "/"):
        refuses(run("pin", fake.mnt, given, cwd="/"), 2, given, "not below")
    refuses(run("pin", fake.mnt, ""), 2)
    refuses(run("pin", fake.mnt, "x/" * 2100), 2, "too long")
    refuses(run("pin", fake.mnt), 2, "paths")
    refuses(run("pin", fake.mnt, "x", "-f", "y"), 2, "paths")
    refuses(run("pin", fake.mnt, "x", "-0"), 2, "-0")
    check(not fake.take(), "a refused path was sent")
    fake.rules(("bad", errno.ENOENT, "there is no 'bad'"))
    refuses(run("evict", fake.mnt, "good", "bad", "fine"), 1, "bad: there is no 'bad'")
    check(fake.take() == "evict good\nevict fine\n", "one bad word keeps others back")
    fake.rules()


def lists(fake):
    listed = os.path.join(fake.top, "list")
    with open(listed, "w") as file:
        file.write("train/1.bin\n\na\\012b\\\\\\377\n")
    sent = "evict train/1.bin\nevict a\\012b\\\\\\377\n"
    fake.sends(sent, "evict", fake.mnt, "-f", listed)
    fake.sends(sent, "evict", fake.mnt, "-0", "--file", "-",
               stdin="train/1.bin\0\0a\nb\\\udcff")
    many = "".join(f"some/directory/{number:06}.bin\n" for number in range(20000))
    fake.take("writes")
    fake.sends("".join(f"evict {line}\n" for line in many.splitlines()), "evict", fake.mnt, "-f",
               "-", stdin=many)
    sizes = [int(line.split()[1]) for line in fake.take("writes").splitlines()]
    check(max(sizes) <= 65536 and len(sizes) <= 16, f"writes of {sizes}")
    for text in ("a\\b", "a\\8", "a\\01", "a\\000", "a\\400", "a\\777", "a\\"):
        refuses(run("evict", fake.mnt, "-f", "-", stdin=f"good\n{text}\n"), 2, "standard input:2:",
                "octal")
    refuses(run("evict", fake.mnt, "-f", "-", stdin="a\0b\n"), 1, "standard input:1:", "NUL")
    refuses(run("evict", fake.mnt, "-f", "-", stdin="\n"), 2, "no paths")
    refuses(run("evict", fake.mnt, "-f", listed + "x"), 1, listed + "x")
    refuses(run("evict", fake.mnt, "-f", fake.top), 1, fake.top)
    check(not fake.take(), "a refused list was sent")
    fake.rules(("000005", errno.EINVAL, "line 6: no such file"))
    refuses(run("evict", fake.mnt, "-f", "-", stdin="\n" + many), 2,
            "standard input, from line 2 on: line 6: no such file")
    fake.rules()
    fake.take()


def scores(fake):
    fake.sends("score 17 2.5\n", "score", fake.mnt, "17", "2.5")
    fake.sends("score train/1.bin 1e-3\n", "score", fake.mnt, f"{fake.mnt}/train/1.bin", "1e-3")
    fake.sends("score train/a\\040b/2.bin 0\n", "score", fake.mnt, "train/a b/2.bin", "0")
    # A name that is a number is not an id.
    fake.sends("score \\067 1\n", "score", fake.mnt, "./7", "1")
    for value in ("nan", "inf", "x", "", "1x", "0x10", "1 2"):
        refuses(run("score", fake.mnt, "17", value), 2, "17", f"'{value}'")
    refuses(run("score", fake.mnt, "/x", "1"), 2, "/x", "not below")
    refuses(run("score", fake.mnt, "9" * 5000, "1"), 2, "too long")
    for words in ((), ("1",), ("1", "2", "-f", "-")):
        refuses(run("score", fake.mnt, *words), 2, "score takes")
    fake.sends("score 1 2\nscore train/a\\040b/2.bin 3\nscore 4 5.5\n", "score", fake.mnt, "-f",
               "-", stdin="# all of them\n1 2\n\n  train/a b/2.bin\t 3 \n 4  5.5\r\n")
    for line, word in (("1", "no score"), ("1 nan", "nan"), ("x\\y 1", "octal"), ("1 2 x", "x")):
        refuses(run("score", fake.mnt, "-f", "-", stdin="1 1\n" + line), 2, "standard input:2:",
                word)
    check(not fake.take(), "a bad line, and yet something was sent")
    many = "".join(f"{number} {number / 7}\n" for number in range(100000))
    fake.take("writes")
    fake.sends("".join(f"score {line}\n" for line in many.splitlines()), "score", fake.mnt, "-f",
               "-", stdin=many)
    writes = [line.split() for line in fake.take("writes").splitlines()]
    check(len({handle for handle, _ in writes}) == 1, "scores go through several descriptors")
    fake.rules(("score 17 ", errno.EINVAL, "line 1: sample 17 is out of range"))
    refuses(run("score", fake.mnt, "17", "1"), 2, "17", "out of range")
    fake.rules()


def orders(fake):
    works(run("order", fake.mnt), "".join(f"{number}\n" for number in range(9, 5000)))
    fake.sends("order 3 begin\norder 3 5 1 4 1\norder 3 end\n", "order", fake.mnt, "3", "-f", "-",
               stdin="5 1\n\n\t4\r\n1")
    ids = [str(number * 7919 % 100003) for number in range(100000)]
    fake.take("writes")
    works(run("order", fake.mnt, "0", "-f", "-", stdin=" ".join(ids)), "")
    lines = fake.take().splitlines()
    check(lines[0] == "order 0 begin" and lines[-1] == "order 0 end", "begin and end")
    check(all(line.startswith("order 0 ") for line in lines), "epoch in each line")
    check([word for line in lines[1:-1] for word in line.split()[2:]] == ids, "ids of a long order")
    writes = [line.split() for line in fake.take("writes").splitlines()]
    check(len({handle for handle, _ in writes}) == 1, "an order goes through several descriptors")
    check(max(int(size) for _, size in writes) <= 65536, f"writes of {writes}")
    for bad in ("-1", "x", "1.5", "9" * 20):
        refuses(run("order", fake.mnt, "3", "-f", "-", stdin=f"1 2\n3 {bad}"), 2,
                "standard input:2:", bad)
        check("end" not in fake.take(), "a bad order was ended")
    refuses(run("order", fake.mnt, "3", "-f", "-", stdin="\n"), 2, "no ids")
    check("end" not in fake.take(), "an empty order was ended")
    refuses(run("order", fake.mnt, "3"), 2, "-f")
    refuses(run("order", fake.mnt, "-f", "-"), 2, "epoch")
    refuses(run("order", fake.mnt, "x", "-f", "-"), 2, "x")
    refuses(run("order", fake.mnt, "9" * 20, "-f", "-"), 2, "too large")
    refuses(run("order", fake.mnt, "3", "-f", fake.top + "/none"), 1, "none")
    fake.rules(("order 3 end", errno.EINVAL, "id 99 is out of range"))
    refuses(run("order", fake.mnt, "3", "-f", "-", stdin="99"), 2, "id 99 is out of range")
    fake.rules()
    os.unlink(os.path.join(fake.state, ".shade/order"))
    refuses(run("order", fake.mnt), 1, ".shade/order")
    fake.take()


def dead_daemon(fake):
    server = fake.servers[0]
    server.kill()
    server.wait()
    for verb, *words in (("status",), ("epoch", "1"), ("warm", "x"), ("top", "--once")):
        refuses(run(verb, fake.mnt, *words), 1, "daemon", "is gone", "umount")
    done = run("debug", fake.mnt)
    check("--- mountinfo\n" in done.stdout and f" {fake.mnt} " in done.stdout,
          f"debug of a dead daemon: {done.stdout}")
    refuses(done, 1, "is gone")
    works(run("umount", fake.mnt), "")


with Fake() as mount:
    for part in (usage, no_mount, statistics, status, debug, knobs, paths, lists, scores, orders,
                 dead_daemon):
        part(mount)
with Fake("with space") as mount:
    works(run("status", mount.mnt))
    mount.sends("pin val.bin\n", "pin", mount.mnt, f"{mount.mnt}/val.bin")
finish()
