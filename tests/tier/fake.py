# SPDX-License-Identifier: LGPL-2.1-or-later
"""A mount whose engine says whatever it likes. Reads go on and are right, and counters tell of
it."""
import os
import socket
import subprocess
import threading
import time

from harness import DELAY_US, TIMEOUT_S, Slow, Tiered, choose, make_files, run_tests, scratch, wait_until
from resp import bulk, read_reply

FILES, SIZE = 8, 3000
NODES, SMALL = 100, 100  # where replies are cut
GO_ON = TIMEOUT_S + 20  # seconds that no read takes, on a busy machine
NOT_A_CLUSTER = b"-ERR This instance has cluster support disabled\r\n"


class Cut(bytes):
    """What is sent before the connection is closed."""


class Hang(bytes):
    """What is sent before nothing more is."""


class Flood(bytes):
    """What is sent over and over."""


class Trickle(bytes):
    """What is sent piece by piece, and takes longer than a mount waits, but never pauses so long."""


class Fake:
    """A server on a port of its own. `answer` gets the words of a command and returns a reply."""

    def __init__(self, answer, port=0, host="127.0.0.1"):
        self.answer, self.asked, self.values = answer, [], {}
        self.listener = socket.create_server((host, port), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.connections = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            file = connection.makefile("rb")
            while True:
                words = read_reply(file)
                self.asked.append(kind_of(words))
                self.send(connection, self.answer(self, words))
        except (OSError, EOFError, ValueError):
            pass
        connection.close()

    @staticmethod
    def send(connection, reply):
        step = len(reply) // 10 if isinstance(reply, Trickle) else len(reply)
        for at in range(0, len(reply), step or 1):
            connection.sendall(reply[at:at + step])
            time.sleep(2 * TIMEOUT_S / 10 if isinstance(reply, Trickle) else 0)
        while isinstance(reply, Flood):
            connection.sendall(reply)
        if isinstance(reply, Cut):
            raise EOFError
        while isinstance(reply, Hang) and connection.recv(65536):
            pass

    def end(self):
        self.listener.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def kind_of(words):
    """Reads and writes have two names each, with and without a time to live."""
    name = words[0].upper()
    return {b"GETEX": b"GET", b"SETEX": b"SET"}.get(name, name)


def good(fake, words):
    """What a single server answers."""
    name = kind_of(words)
    if name == b"GET":
        return bulk(fake.values.get(words[1]))
    if name == b"SET":
        fake.values[words[1]] = words[3 if words[0].upper() == b"SETEX" else 2]
    if name in (b"SET", b"AUTH", b"ASKING"):
        return b"+OK\r\n"
    if name in (b"EXPIRE", b"DEL"):
        return b":%d\r\n" % (words[1] in fake.values)
    if name == b"PING":
        return b"+PONG\r\n"
    return NOT_A_CLUSTER


def to(command, reply):
    """A server that is good but for this command."""
    def answer(fake, words):
        if kind_of(words) != command:
            return good(fake, words)
        return reply(fake, words) if callable(reply) else reply
    return answer


def one_range(first, last, host, port):
    return (b"*1\r\n*3\r\n:%d\r\n:%d\r\n*3\r\n" % (first, last) + bulk(host.encode())
            + b":%d\r\n" % port + bulk(b"a" * 40))


def everything_is_put():
    """The other tests begin with what this one leaves."""
    fake = Fake(good)
    mount = Tiered(tree, [fake.address])
    mount.see(contents)
    wait_until(lambda: len(fake.values) == FILES, "everything is put")
    wait_until(lambda: mount.count("puts") == FILES, "and counted")
    mount.end()
    fake.end()
    values.update(fake.values)


def run(answer, hits=0, moves=True, ahead=True, **options):
    """A mount whose engine answers so. Sees that bytes are right, and that counters move."""
    fake = Fake(answer)
    fake.values = dict(values)
    mount = Tiered(tree, [fake.address], **options)
    try:
        times = (mount.see_ahead if ahead else mount.see)(contents)
        assert max(times) < GO_ON, times
        stats = mount.stats()
        assert stats["tier_hits"] <= hits, stats
        if moves:
            wait_until(lambda: any(mount.count(name) for name in ("errors", "misses", "fallbacks")),
                       "a counter moves")
        assert fake.asked, "nobody asked"
        begin = time.monotonic()
        mount.end()
        assert time.monotonic() - begin < GO_ON, "its end takes long"
    finally:
        fake.end()
    return stats


def each(replies, hits=0):
    """Runs all of them, several at a time, since most of it is waiting."""
    failures = []
    waiting = list(replies.items())

    def work():
        while waiting:
            try:
                name, answer = waiting.pop(0)
            except IndexError:
                return
            try:
                run(answer, hits, moves=not hits)
            except BaseException as failure:  # pylint: disable=broad-except
                failures.append((name, failure))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise AssertionError(failures) from failures[0][1]


def a_good_one_is_used():
    """The others mean something only if this holds."""
    stats = run(good, hits=FILES, moves=False)
    assert stats["tier_hits"] == FILES, stats


def errors_are_no_answers():
    each({error: to(b"GET", b"-" + error.encode() + b"\r\n") for error in (
        "OOM command not allowed when used memory > 'maxmemory'.",
        "LOADING Redis is loading the dataset in memory", "CLUSTERDOWN Hash slot not served",
        "CLUSTERDOWN The cluster is down", "NOAUTH Authentication required.",
        "READONLY You can't write against a read only replica.", "TRYAGAIN Multiple keys",
        "WRONGTYPE Operation against a key", "NOPERM this user has no permissions",
        "ERR max number of clients reached", "BUSY Redis is busy", "MASTERDOWN Link", "",
        "x" * 5000)})


def puts_that_fail_hurt_nobody():
    fake = Fake(to(b"SET", b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"))
    mount = Tiered(tree, [fake.address])
    mount.see(contents)
    wait_until(lambda: mount.count("errors") + mount.count("puts_dropped"), "it is counted")
    assert not fake.values and not mount.count("puts")
    assert 1 <= mount.read_log().count("OOM") <= 3, mount.read_log()
    mount.end()
    fake.end()


def one_that_is_full_now_and_then_is_told_once():
    """As Redis is without eviction, where others remove keys."""
    refusals = []

    def answer(fake, words):
        if kind_of(words) == b"SET":
            refusals.append(not (refusals and refusals[-1]))
            return b"-OOM command not allowed\r\n" if refusals[-1] else b"+OK\r\n"
        return good(fake, words)

    fake = Fake(answer)
    mount = Tiered(tree, [fake.address])

    def is_over():
        mount.see_again_ahead(contents)
        return sum(refusals) >= 3
    wait_until(is_over, "it was full three times")
    assert mount.read_log().count("OOM") == 1, mount.read_log()
    mount.end()
    fake.end()


def redirections_lead_nowhere():
    def moved_to_itself(fake, words):
        return b"-MOVED 1 127.0.0.1:%d\r\n" % fake.port

    def asks_itself(fake, words):
        return b"-ASK 1 127.0.0.1:%d\r\n" % fake.port

    replies = {
        "to nowhere": b"-MOVED 1 127.0.0.1:1\r\n", "ask nowhere": b"-ASK 1 127.0.0.1:1\r\n",
        "a loop": moved_to_itself, "a loop of ask": asks_itself,
        "out of range": b"-MOVED 16384 127.0.0.1:7001\r\n",
        "negative": b"-MOVED -1 127.0.0.1:7001\r\n",
        "huge": b"-MOVED 99999999999999999999 127.0.0.1:7001\r\n",
        "no port": b"-MOVED 1 127.0.0.1\r\n", "port 0": b"-MOVED 1 127.0.0.1:0\r\n",
        "large port": b"-MOVED 1 127.0.0.1:65536\r\n", "no host": b"-MOVED 1 :7001\r\n",
        "a name": b"-MOVED 1 no.such.host.invalid:7001\r\n", "nothing": b"-MOVED\r\n",
        "a slot alone": b"-MOVED 1\r\n", "more": b"-ASK 1 127.0.0.1:1 what else\r\n",
        "a long name": b"-MOVED 1 " + b"x" * 3000 + b":7001\r\n",
    }
    each({name: to(b"GET", reply) for name, reply in replies.items()})


def two_nodes_that_send_each_other_on():
    def sends_on(fake, words):
        if kind_of(words) != b"GET":
            return good(fake, words)
        other = pair[fake is pair[0]]
        return b"-MOVED 1 127.0.0.1:%d\r\n" % other.port

    pair = [Fake(sends_on), Fake(sends_on)]
    mount = Tiered(tree, [fake.address for fake in pair])
    mount.see_ahead(contents)
    gets = sum(fake.asked.count(b"GET") for fake in pair)
    assert 0 < gets <= 6 * FILES, f"{gets} requests for {FILES} files: five redirections are enough"
    mount.end()
    for fake in pair:
        fake.end()


def a_slot_that_moved_is_found():
    """MOVED and ASK lead to a second node, which has the values."""
    for word in (b"MOVED", b"ASK"):
        def sends_on(fake, words):
            if kind_of(words) in (b"GET", b"SET"):
                return b"-%s %d 127.0.0.1:%d\r\n" % (word, 1, other.port)
            return good(fake, words)

        other, first = Fake(good), Fake(sends_on)
        other.values = dict(values)
        mount = Tiered(tree, [first.address])
        mount.see_ahead(contents)
        assert mount.count("hits") >= FILES - 1, mount.stats()
        asked = other.asked.count(b"ASKING")
        assert asked >= FILES - 1 if word == b"ASK" else asked == 0, other.asked
        mount.end()
        first.end()
        other.end()


def maps_that_are_wrong():
    def map_is(reply):
        return to(b"CLUSTER", reply)

    whole = one_range(0, 16383, "127.0.0.1", 1)
    maps = {
        "a slot out of range": one_range(0, 16384, "127.0.0.1", 7001),
        "negative slots": one_range(-5, 3, "127.0.0.1", 7001),
        "backwards": one_range(9, 3, "127.0.0.1", 7001),
        "to nowhere": whole, "port 0": one_range(0, 16383, "127.0.0.1", 0),
        "a large port": one_range(0, 16383, "127.0.0.1", 70000),
        "no such host": one_range(0, 16383, "no.such.host.invalid", 7001),
        "empty": b"*0\r\n", "nothing": b"*-1\r\n", "a number": b":7\r\n",
        "a string": b"$1\r\nx\r\n", "a status": b"+OK\r\n",
        "deep": b"*1\r\n" * 1000, "huge": b"*1000000000\r\n",
        "an endless one": Flood(b"*1\r\n"), "cut": Cut(whole[:20]), "silence": Hang(b""),
        "garbage": b"\0\xff\r\n\r\n",
    }
    # Whoever gives no map may still have values: they tell themselves whether they are right.
    each({name: map_is(reply) for name, reply in maps.items()}, hits=FILES)


def garbage_for_a_value():
    def value(change):
        def reply(fake, words):
            return change(fake.values.get(words[1]) or b"x")
        return to(b"GET", reply)

    each({
        "no length": to(b"GET", b"$\r\n"), "letters": to(b"GET", b"$abc\r\n"),
        "negative": to(b"GET", b"$-2\r\n"), "very negative": to(b"GET", b"$-99999999999999\r\n"),
        "huge": to(b"GET", b"$99999999999999999999\r\nxyz"),
        "large": to(b"GET", b"$4294967296\r\n" + b"x" * 4000),
        "large and endless": to(b"GET", Flood(b"$536870912\r\n" + b"x" * 65536)),
        "endless line": to(b"GET", Flood(b"$" + b"1" * 4096)),
        "endless status": to(b"GET", Flood(b"+" + b"x" * 4096)),
        "endless replies": to(b"GET", Flood(b"$-1\r\n")),
        "an array": to(b"GET", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        "an integer": to(b"GET", b":5\r\n"),
        "a status": to(b"GET", b"+OK\r\n"), "no reply at all": to(b"GET", b"hello\r\n"),
        "zeros": to(b"GET", b"\0" * 100),
        "a byte less": value(lambda v: bulk(v[:-1])),
        "a byte more": value(lambda v: bulk(v + b"x")),
        "empty": value(lambda v: bulk(b"")), "a head alone": value(lambda v: bulk(v[:64])),
        "half a head": value(lambda v: bulk(v[:30])),
        "two replies": to(b"GET", b"$-1\r\n$-1\r\n"), "silence": to(b"GET", Hang(b"")),
        "another's": to(b"GET", lambda fake, words: bulk(next(iter(
            value for key, value in fake.values.items() if key != words[1])))),
    })


def a_value_without_its_end():
    """It may be taken, since its bytes are right; what comes after it must not be lost in it."""
    run(to(b"GET", lambda fake, words: bulk(fake.values.get(words[1]))[:-2] + b"xx"), hits=FILES,
        moves=False)


def cut_at_every_byte():
    """Replies that end at byte after byte. A node whose connection was cut is left alone for a
    second, so there are as many as there are files, and these are small."""
    root, many = make_files(NODES, SMALL)
    filler = Fake(good)
    mount = Tiered(root, [filler.address])
    mount.see(many)
    wait_until(lambda: len(filler.values) == NODES, "everything is put")
    mount.end()
    whole = len(bulk(next(iter(filler.values.values()))))
    left = list(range(whole))
    lock = threading.Lock()

    def answer(fake, words):
        if kind_of(words) == b"CLUSTER":
            return map_of(nodes)
        if kind_of(words) != b"GET":
            return good(fake, words)
        reply = bulk(filler.values.get(words[1]))
        with lock:
            return Cut(reply[:left.pop(0)]) if left else reply

    nodes = [Fake(answer) for _ in range(NODES)]
    mount = Tiered(root, [nodes[0].address])

    def is_over():
        mount.see_again_ahead(many)
        return not left
    wait_until(is_over, "every byte was the last one once")
    assert mount.count("errors") >= whole, mount.stats()
    mount.end()
    for node in (*nodes, filler):
        node.end()


def map_of(nodes):
    """Equal parts for all."""
    parts = []
    for number, node in enumerate(nodes):
        first, last = (16384 * at // len(nodes) for at in (number, number + 1))
        parts.append(one_range(first, last - 1, "127.0.0.1", node.port)[4:])
    return b"*%d\r\n" % len(parts) + b"".join(parts)


def silence_costs_one_timeout():
    """A server that accepts and says nothing: whoever asks first waits, and nobody after that."""
    fake = Fake(lambda fake, words: Hang(b""))
    slow = Slow(tree, delay_us=DELAY_US)
    mount = Tiered(slow.path, [fake.address], tier_timeout=2)
    times = mount.see(contents)
    waited = [spent for spent in times if spent > 1]
    assert len(waited) <= 3, times
    mount.end()
    fake.end()


def one_that_recovers_is_used_again():
    broken = threading.Event()
    broken.set()

    def answer(fake, words):
        return b"-LOADING Redis is loading\r\n" if broken.is_set() else good(fake, words)

    fake = Fake(answer)
    fake.values = dict(values)
    mount = Tiered(tree, [fake.address])
    mount.see_ahead(contents)
    assert mount.count("hits") == 0
    broken.clear()

    def is_hit():
        mount.see_again_ahead(contents)
        return mount.count("hits") > 0
    wait_until(is_hit, "it is asked again")
    mount.end()
    fake.end()


def another_address_of_the_name_answers():
    """The first one swallows what is sent there, as a broken network does."""
    hosts = os.path.join(scratch, "hosts")
    with open(hosts, "w") as file:
        file.write("127.0.0.1 two.test\n127.0.0.2 two.test\n")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    first = socket.getaddrinfo("two.test", 1, type=socket.SOCK_STREAM)[0][4]
    with socket.socket() as hole:
        hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hole.bind((first[0], 0))
        hole.listen(0)
        others = [socket.socket() for _ in range(4)]
        for other in others:  # these fill its queue, and the kernel answers no more
            other.setblocking(False)
            other.connect_ex(hole.getsockname())
        second = {"127.0.0.1": "127.0.0.2", "127.0.0.2": "127.0.0.1"}[first[0]]
        fake = Fake(good, hole.getsockname()[1], second)
        fake.values = dict(values)
        mount = Tiered(tree, [f"two.test:{fake.port}"])

        def is_hit():
            mount.see_again_ahead(contents)
            return mount.count("hits") > 0
        wait_until(is_hit, "the other one is asked", 20)
        mount.end()
        for other in others:
            other.close()
    fake.end()
    subprocess.run(["umount", "/etc/hosts"], check=True)


def a_cluster_that_is_made_later():
    """Its nodes are up before anybody has given them slots, which can take long."""
    made = threading.Event()

    def answer(fake, words):
        if kind_of(words) == b"CLUSTER":
            return one_range(0, 16383, "127.0.0.1", fake.port) if made.is_set() else b"*0\r\n"
        if made.is_set() or kind_of(words) == b"PING":
            return good(fake, words)
        return b"-CLUSTERDOWN Hash slot not served\r\n"

    fake = Fake(answer)
    fake.values = dict(values)
    mount = Tiered(tree, [fake.address])
    mount.see_ahead(contents)
    wait_until(lambda: b"CLUSTER" in fake.asked, "it was asked for its slots")
    mount.see_again_ahead(contents)
    assert mount.count("hits") == 0
    made.set()

    def is_hit():
        mount.see_again_ahead(contents)
        return mount.count("hits") > 0
    wait_until(is_hit, "it is asked for keys")
    mount.end()
    fake.end()


def one_that_is_too_slow_is_tried_one_by_one():
    """It answers everything, but values take longer than the timeout. When it is tried again, one
    read waits for it, and not all."""
    fake = Fake(to(b"GET", lambda fake, words: Trickle(good(fake, words))))
    fake.values = dict(values)
    mount = Tiered(tree, [fake.address])
    mount.see_ahead(contents)
    wait_until(lambda: not mount.stats()[f"tier_node_{fake.address}_up"], "it is down")
    before = mount.count("errors")
    begin = time.monotonic()
    while time.monotonic() - begin < 10 * TIMEOUT_S:
        mount.see_again_ahead(contents)
    seconds = time.monotonic() - begin
    errors = mount.count("errors") - before  # one for the read, one for the server
    assert 0 < errors <= 2 + 2 * seconds, f"{errors} errors in {seconds:.1f} s"
    mount.end()
    fake.end()


tree, contents = make_files(FILES, SIZE)
values = {}
TESTS = [a_good_one_is_used, errors_are_no_answers, puts_that_fail_hurt_nobody,
         one_that_is_full_now_and_then_is_told_once,
         redirections_lead_nowhere, two_nodes_that_send_each_other_on, a_slot_that_moved_is_found,
         maps_that_are_wrong, garbage_for_a_value, a_value_without_its_end, cut_at_every_byte, silence_costs_one_timeout,
         one_that_recovers_is_used_again, a_cluster_that_is_made_later,
         another_address_of_the_name_answers,
         one_that_is_too_slow_is_tried_one_by_one]
run_tests([everything_is_put, *choose(TESTS)])
