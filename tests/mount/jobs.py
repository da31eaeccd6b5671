# SPDX-License-Identifier: LGPL-2.1-or-later
"""Several trainings over one cache, and accesses as they happen."""
import errno
import os
import threading

from common import Shade, make_tree, raises, read, run_tests, wait_until


def jobs_have_scores_and_orders_of_their_own():
    root, contents = make_tree(40)
    fs = Shade(root, capacity="8M")
    os.mkdir(fs.at(".shade/jobs/first"))
    os.mkdir(fs.at(".shade/jobs/second"))
    assert sorted(os.listdir(fs.at(".shade/jobs"))) == ["first", "second"]
    assert "jobs" in os.listdir(fs.at(".shade"))
    assert sorted(os.listdir(fs.at(".shade/jobs/first"))) == ["control", "order", "scores", "stats"]

    def tell(place, text):
        fd = os.open(fs.at(".shade", place, "control"), os.O_RDWR)
        os.write(fd, text)
        answer = os.read(fd, 100)
        os.close(fd)
        return answer

    def score(place):
        with open(fs.at(".shade", place, "scores")) as file:
            return float(file.readline().split()[1])

    assert tell("jobs/first", b"score 0 3\n").startswith(b"ok")
    assert tell("jobs/second", b"score 0 5\norder 7 begin\norder 7 1 2 3\norder 7 end\n").startswith(b"ok")
    assert (score("jobs/first"), score("jobs/second"), score(".")) == (3, 5, -1)
    with open(fs.at(".shade/jobs/second/order")) as file:
        assert file.read().split() == ["1", "2", "3"]
    with open(fs.at(".shade/jobs/second/stats")) as file:
        stats = dict(line.split() for line in file)
    assert stats["order_ahead"] == "3" and stats["scored"] == "1", stats
    assert read(fs.at(".shade/jobs/first/order")) == b""
    # A job that is in use stays; then it is forgotten.
    fd = os.open(fs.at(".shade/jobs/second/control"), os.O_RDWR)
    raises(errno.EBUSY, lambda: os.rmdir(fs.at(".shade/jobs/second")))
    os.close(fd)
    wait_until(lambda: not removed(fs.at(".shade/jobs/second")), "removed")
    raises(errno.ENOENT, lambda: read(fs.at(".shade/jobs/second/stats")))
    os.mkdir(fs.at(".shade/jobs/second"))
    assert score("jobs/second") == -1
    raises(errno.EEXIST, lambda: os.mkdir(fs.at(".shade/jobs/first")))
    for number in range(13):
        os.mkdir(fs.at(f".shade/jobs/more{number}"))
    raises(errno.ENOSPC, lambda: os.mkdir(fs.at(".shade/jobs/toomany")))
    raises(errno.ENAMETOOLONG, lambda: os.mkdir(fs.at(".shade/jobs/" + "x" * 100)))
    # Names stand in tables.
    raises(errno.EINVAL, lambda: os.mkdir(fs.at(".shade/jobs/a\tb")))
    raises(errno.EINVAL, lambda: os.mkdir(fs.at(".shade/jobs/a\nb")))
    raises((errno.EPERM, errno.EROFS), lambda: os.mkdir(fs.at(".shade/other")))
    fs.end()


def removed(path):
    """The close of a descriptor reaches the daemon a moment later."""
    try:
        os.rmdir(path)
    except OSError as failure:
        return failure.errno
    return 0


def accesses_as_they_happen():
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M")
    ids = fs.samples()
    lines, opened = [], threading.Event()

    def follow():
        with open(fs.at(".shade/trace"), "rb", buffering=0) as trace:
            opened.set()
            rest = b""
            while True:
                data = trace.read(65536)
                if not data:
                    return
                rest += data
                *found, rest = rest.split(b"\n")
                lines.extend(found)

    follower = threading.Thread(target=follow)
    follower.start()
    opened.wait(60)
    for path in contents:
        read(fs.at(path))
    # The kernel takes two opens of a file by one thread together if both wait.
    wait_until(lambda: len(lines) >= 20, "all misses are told of")
    fs.settle()
    for path in contents:
        read(fs.at(path))
    wait_until(lambda: len(lines) >= 40, "all hits are told of")
    assert len(lines) == 40, lines
    words = [line.decode().split() for line in lines]
    assert [int(w[1]) for w in words] == [ids[p] for p in contents] * 2, words
    assert all(int(w[2]) == len(contents[p]) for w, p in zip(words, contents)), words
    assert [w[4] for w in words] == ["admit"] * 20 + ["hit"] * 20, words
    fs.end()
    follower.join(60)
    assert not follower.is_alive(), "the reader of the trace hangs"


run_tests([jobs_have_scores_and_orders_of_their_own, accesses_as_they_happen])
