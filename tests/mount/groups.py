# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trainings that read one shared order: what members say, what they are told, and who is
forgotten."""
import errno
import fcntl
import os
import struct

from common import Shade, make_tree, raises, read, run_tests, wait_until

COUNT = 40
IOCTL_GROUP = 3 << 30 | 24 << 16 | 0xf5 << 8 | 4
SHARED = 5


class Member:
    """The control file of a job."""

    def __init__(self, fs, job, group="sweep"):
        self.path = fs.at(".shade/jobs", job)
        if not os.path.isdir(self.path):
            os.mkdir(self.path)
        self.fd = os.open(os.path.join(self.path, "control"), os.O_RDWR)
        self.tell(f"group {group}\n")

    def tell(self, text):
        os.write(self.fd, text.encode())

    def begin(self, epoch, first=0):
        """The order and the offset that it begins with."""
        answer = fcntl.ioctl(self.fd, IOCTL_GROUP, struct.pack("=3Q", epoch, first, 0))
        return struct.unpack("=3Q", answer)[1:]

    def put(self, epoch, ids, weights=None):
        body = struct.pack(f"<{len(ids)}I", *ids)
        if weights:
            body += struct.pack(f"<{len(ids)}f", *weights)
        os.write(self.fd, b"\xf5SHD" + struct.pack("<HHQQQ", 1, SHARED, 16 + len(body), epoch,
                                                   len(ids)) + body)

    def order(self, epoch):
        self.tell(f"order {epoch} read\n")
        data = b""
        while part := os.read(self.fd, 64):
            data += part
        magic, version, kind, payload, got, count = struct.unpack_from("<4sHHQQQ", data)
        assert (magic, version, kind, got) == (b"\xf5SHD", 1, SHARED, epoch)
        assert payload == len(data) - 16
        ids = list(struct.unpack_from(f"<{count}I", data, 32))
        weights = data[32 + 4 * count:]
        return ids, list(struct.unpack(f"<{count}f", weights)) if weights else None

    def register(self, paths):
        body = b"".join(path.encode() + b"\0" for path in paths)
        os.write(self.fd, b"\xf5SHD" + struct.pack("<HHQQ", 1, 4, 8 + len(body), len(paths)) + body)

    def announce(self, epoch, ids):
        self.tell(f"epoch {epoch}\norder {epoch} begin\norder {epoch} {' '.join(map(str, ids))}\n"
                  f"order {epoch} end\n")

    def close(self):
        os.close(self.fd)


def make(**options):
    root, contents = make_tree(COUNT)
    fs = Shade(root, **{"capacity": "8M", **options})
    names = [path for path, _ in sorted(fs.samples().items(), key=lambda item: item[1])]
    return fs, names


def members(fs, group="sweep"):
    text = read(fs.at(".shade/groups", group, "members")).decode()
    return {line.split("\t")[0]: line.split("\t")[1:] for line in text.splitlines()}


def the_first_order_wins_and_all_read_it():
    fs, _ = make()
    assert os.listdir(fs.at(".shade/groups")) == []
    first, second = Member(fs, "first"), Member(fs, "second")
    assert os.listdir(fs.at(".shade/groups")) == ["sweep"]
    assert sorted(os.listdir(fs.at(".shade/groups/sweep"))) == ["members", "order", "scores"]
    assert members(fs) == {"first": ["-"] * 3, "second": ["-"] * 3}
    raises(errno.ERANGE, lambda: first.put(5, [1]))
    assert first.begin(0, first=5) == (5, 0) and second.begin(3) == (5, 0)
    raises(errno.ENOENT, lambda: first.order(5))
    weights = [float(number) for number in range(COUNT)]
    first.put(5, range(COUNT), weights)
    raises(errno.EEXIST, lambda: second.put(5, [3, 2, 1]))
    assert b"the group has an order of that epoch" in os.read(second.fd, 500)
    assert first.order(5) == second.order(5) == (list(range(COUNT)), weights)
    second.tell("order 6 begin group\norder 6 3 2 1\norder 6 end\n")
    assert first.order(6) == ([3, 2, 1], None)
    text = read(fs.at(".shade/groups/sweep/order")).decode().splitlines()
    assert text == ["5 " + " ".join(map(str, range(COUNT))), "6 3 2 1"], text
    first.close()
    second.close()
    fs.end()


def positions_follow_what_is_read_and_late_ones_join_there():
    fs, names = make()
    first = Member(fs, "first")
    first.begin(0)
    first.put(0, range(COUNT))
    first.put(1, [number ^ 1 for number in range(COUNT)])
    first.announce(0, range(COUNT))
    for number in range(15):
        read(fs.at(names[number]))
    assert members(fs)["first"] == ["0", "15", "0"], members(fs)
    late = Member(fs, "late")
    # All fits into memory: then it begins where the order does.
    assert late.begin(0) == (0, 0)
    late.close()
    wait_until(lambda: "late" not in members(fs), "forgotten")
    fs.end()
    # With a cache that is smaller than what lies between them it does not.
    root, _ = make_tree(COUNT, size=400000)
    fs = Shade(root, capacity="8M", inflight="4M")
    names = [path for path, _ in sorted(fs.samples().items(), key=lambda item: item[1])]
    first = Member(fs, "first")
    first.begin(0)
    first.put(0, range(COUNT))
    first.put(1, drawn := list(reversed(range(COUNT))))
    first.announce(0, range(COUNT))
    for number in range(15):
        read(fs.at(names[number]))
    late = Member(fs, "late")
    assert late.begin(7) == (0, 15), members(fs)
    both = late.order(0)[0][15:] + late.order(1)[0][:15]
    assert sorted(both) == list(range(COUNT)), both
    assert late.order(1)[0] != drawn
    assert members(fs)["late"] == ["0", "15", "15"]
    fs.end()


def ids_are_those_of_the_descriptor():
    fs, names = make()
    first, second, third = Member(fs, "first"), Member(fs, "second"), Member(fs, "third")
    first.begin(0)
    first.register(names[::-1])
    second.register(names[:3] + names[:1])
    first.put(0, [0, COUNT - 1, 5, COUNT - 1])
    assert first.order(0)[0] == [0, COUNT - 1, 5, COUNT - 1]
    # A file that it has twice takes turns; one that it has not is marked.
    none = 0xffffffff
    assert second.order(0)[0] == [none, 0, none, 3]
    assert third.order(0)[0] == [COUNT - 1, 0, COUNT - 6, 0]
    fs.end()


def importance_is_that_of_the_members():
    fs, _ = make()
    first, second, other = Member(fs, "first"), Member(fs, "second"), Member(fs, "other", "else")
    first.tell("score 0 1\nscore 1 2\nscore 2 3\n")
    second.tell("score 0 900\nscore 1 800\nscore 2 950\n")
    other.tell("score 0 5\nscore 7 4\n")

    def scores(group):
        text = read(fs.at(".shade/groups", group, "scores")).decode().splitlines()
        return {int(line.split()[0]): float(line.split()[1]) for line in text}
    found = scores("sweep")
    assert set(found) == {0, 1, 2} and found[2] == max(found.values()), found
    assert abs(found[0] - found[1]) < 0.01, found
    assert set(scores("else")) == {0, 7}
    first.tell("importance\n")
    data = os.read(first.fd, 4096)
    assert struct.unpack_from("<4sHHQQ", data)[2:] == (1, 8 + 24, 3), data
    assert list(struct.unpack_from("<3I", data, 24)) == [0, 1, 2]
    assert struct.unpack_from("<f", data, 24 + 12)[0] == struct.unpack("<f", struct.pack("<f", found[0]))[0]
    fs.end()


def a_member_goes_with_its_descriptor():
    fs, _ = make()
    first, second = Member(fs, "first"), Member(fs, "second")
    first.begin(0)
    first.put(0, range(COUNT))
    first.announce(0, range(COUNT))
    assert read(fs.at(".shade/jobs/first/order"))
    # Another descriptor of the same job takes over.
    again = Member(fs, "first")
    first.close()
    assert again.begin(0) == (0, 0) and "first" in members(fs)
    again.close()
    wait_until(lambda: "first" not in members(fs), "forgotten")
    wait_until(lambda: not read(fs.at(".shade/jobs/first/order")), "nothing is kept for it")
    second.tell("group\n")
    assert os.listdir(fs.at(".shade/groups")) == []
    raises(errno.ENXIO, lambda: second.begin(1))
    raises(errno.ENXIO, lambda: second.order(0))
    second.tell("group other\n")
    second.tell("group another\n")
    assert os.listdir(fs.at(".shade/groups")) == ["another"]
    raises(errno.ENOENT, lambda: second.order(0))
    root = os.open(fs.at(".shade/control"), os.O_RDWR)
    raises(errno.EPERM, lambda: os.write(root, b"group sweep\n"))
    raises(errno.EINVAL, lambda: os.write(root, b"group a/b\n"))
    raises((errno.EPERM, errno.EROFS), lambda: os.mkdir(fs.at(".shade/groups/mine")))
    os.close(root)
    fs.end()


run_tests([the_first_order_wins_and_all_read_it,
           positions_follow_what_is_read_and_late_ones_join_there,
           ids_are_those_of_the_descriptor, importance_is_that_of_the_members,
           a_member_goes_with_its_descriptor])
