# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mounts of nfs://, against a server that does what real ones never do: fake.py says how. No wrong
byte, no wait much beyond the deadline, no crash. HOSTILE SHADEFS SLOWFS SHADECTL [WORD...]: words
choose tests by their names. Exits with 0, 1, or 77 and a reason."""
import errno
import os
import random
import signal
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
# pylint: disable=wrong-import-position
from common import Shade, in_threads, read, reads_as, run_tests, running, skip, wait_until
import fake as nfs
import server as namespaces

DEADLINE_S = 1
SLACK_S = 15  # of a busy machine


class Impatient(Shade):
    """Does not wait for the scan."""

    def is_ready(self):
        try:
            return bool(self.stats())
        except OSError:
            return False


def files(count, size=300, seed=1):
    chance = random.Random(seed)
    return {b"file%04d" % number: chance.randbytes(size) for number in range(count)}


def mount(fake, kind=Shade, **options):
    options = {"capacity": "64M", "deadline": DEADLINE_S, "mountport": fake.port, "connections": 1,
               **options}
    return kind(f"nfs://127.0.0.1:{fake.port}/x", **options)


def right(fs, fake, name):
    assert read(fs.at(name.decode())) == fake.files[name], f"wrong bytes in {name}"


def fails(fs, name):
    """It does, in time; the name of its errno."""
    begin = time.monotonic()
    try:
        read(fs.at(name.decode()))
    except OSError as failure:
        waited = time.monotonic() - begin
        assert waited < DEADLINE_S + SLACK_S, f"it took {waited:.1f} s"
        return errno.errorcode[failure.errno]
    raise AssertionError(f"{name} could be read")


def names_of(fs):
    return set(os.listdir(os.fsencode(fs.path))) - {b".shade"}


def lists(fs, fake):
    """Whether the mount has all names."""
    try:
        return names_of(fs) == set(fake.files)
    except OSError:
        return False


def well_again(fs, fake, name):
    fake.reset()
    wait_until(lambda: reads_as(fs.at(name.decode()), fake.files[name]), "well again", 30)


def only(name, change):
    """A twist of this procedure's replies."""
    return lambda call, message: change(message) if call.name == name else [nfs.marked(message)]


def once(name, change):
    """The same, for the next one."""
    left = [1]

    def twist(call, message):
        if call.name == name and left:
            left.pop()
            return change(message)
        return [nfs.marked(message)]
    return twist


# --- transport -----------------------------------------------------------------------------------


def replies_cut_at_every_byte():
    fake = nfs.Fake(files(150, 40))
    fs = mount(fake)
    names = sorted(fake.files)
    for number, name in enumerate(names):
        fake.twist = once(nfs.READ, lambda message, cut=number: [nfs.marked(message)[:cut],
                                                                   nfs.CLOSE])
        right(fs, fake, name)
    assert fake.connections > len(names), fake.connections
    fs.end()
    fake.end()


def listings_cut():
    for cut in (1, 4, 30, 117, 200, 8000):
        fake = nfs.Fake(files(40))
        fake.twist = once(nfs.READDIRPLUS, lambda message, cut=cut: [nfs.marked(message)[:cut],
                                                                     nfs.CLOSE])
        fs = mount(fake)
        assert names_of(fs) == set(fake.files), cut
        fs.end()
        fake.end()


def several_fragments():
    fake = nfs.Fake({**files(40), b"large": os.urandom(3000000)})
    fake.twist = lambda call, message: [nfs.marked(message, 1 + call.xid % 9)]
    fs = mount(fake)
    for name in fake.files:
        right(fs, fake, name)
    fs.end()
    fake.end()


def one_byte_at_a_time():
    fake = nfs.Fake(files(6, 50))
    fs = mount(fake)
    fake.twist = lambda call, message: [nfs.marked(message, 5)[i:i + 1]
                                        for i in range(len(nfs.marked(message, 5)))]
    for name in fake.files:
        right(fs, fake, name)
    fs.end()
    fake.end()


def answers_to_nobody():
    """Wrong numbers before the right one, and the right one twice."""
    fake = nfs.Fake(files(20))
    fs = mount(fake)
    fake.twist = only(nfs.READ, lambda message: [
        nfs.marked(nfs.u32(struct.unpack(">I", message[:4])[0] ^ 0x5a5a) + message[4:]),
        nfs.marked(message), nfs.marked(message)])
    for name in fake.files:
        right(fs, fake, name)
    fs.end()
    fake.end()


def garbage():
    """Then the same file, from a server that is well again."""
    chance = random.Random(3)

    def with_length(length):
        return lambda message: [nfs.u32(length) + message]

    def with_word(place, value):
        return lambda message: [nfs.marked(message[:place] + nfs.u32(value) + message[place + 4:])]

    head = 24 + 4 + 88  # of RPC, the status, the attributes
    twists = {
        "random bytes": lambda message: [chance.randbytes(500)],
        "a huge record": with_length(0xffffffff),
        "empty fragments": lambda message: [nfs.u32(0) * 1000 + nfs.marked(message)],
        "an empty record": lambda message: [nfs.u32(0x80000000)],
        "a call": with_word(4, 0),
        "a long verifier": with_word(16, 0xfffffff0),
        "no such status": with_word(24, 4711),
        "a short record": lambda message: [nfs.marked(message[:60])],
        "a long count": with_word(head, 0x7fffffff),
        "a long length": with_word(head + 8, 0x7fffffff),
        "a length beyond the record": with_word(head + 8, 0xfffffffe),
        "more bytes than asked for": lambda message: [nfs.marked(
            message[:head] + nfs.u32(5000) + nfs.u32(1) + nfs.opaque(bytes(5000)))],
        "odd attributes": with_word(28, 7),
    }
    fake = nfs.Fake(files(2 * len(twists)))
    fs = mount(fake)
    names = sorted(fake.files)
    for number, (what, twist) in enumerate(twists.items()):
        fake.twist = once(nfs.READ, twist)
        try:
            right(fs, fake, names[2 * number])
            print(what, "and then the right bytes")
        except OSError as failure:
            print(what, errno.errorcode[failure.errno])
        well_again(fs, fake, names[2 * number])
        right(fs, fake, names[2 * number + 1])
    fs.end()
    fake.end()


def garbage_for_ever():
    fake = nfs.Fake(files(10))
    fs = mount(fake)
    names = sorted(fake.files)
    right(fs, fake, names[0])
    fs.settle()
    for number, twist in enumerate((lambda call, message: [os.urandom(300)],
                                    lambda call, message: [nfs.CLOSE],
                                    lambda call, message: [])):
        fake.twist = twist
        print(fails(fs, names[1 + number]))
        right(fs, fake, names[0])  # a hit
        well_again(fs, fake, names[1 + number])
    fs.end()
    fake.end()


def denied():
    """AUTH_ERROR, and other ways to say no to a call."""
    fake = nfs.Fake(files(10))
    fs = mount(fake)
    names = sorted(fake.files)
    bodies = {"AUTH_ERROR": nfs.u32(1) + nfs.u32(1) + nfs.u32(1) + nfs.u32(5),
              "RPC_MISMATCH": nfs.u32(1) + nfs.u32(1) + nfs.u32(0) + nfs.u32(2) + nfs.u32(2)}
    for state, name in enumerate(("PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS",
                                  "SYSTEM_ERR")):
        bodies[name] = nfs.accepted(0, nfs.u32(2) + nfs.u32(4), state + 1)[4:]
    for number, (what, body) in enumerate(bodies.items()):
        fake.twist = only(nfs.READ, lambda message, body=body: [nfs.marked(message[:4] + body)])
        print(what, fails(fs, names[number]))
        well_again(fs, fake, names[number])
    fs.end()
    fake.end()


def a_reply_that_never_comes():
    """While others come over the same connection: it is asked for again."""
    fake = nfs.Fake(files(300))
    fake.twist = once(nfs.READDIRPLUS, lambda message: [])
    fs = mount(fake, Impatient)
    over = threading.Event()

    def traffic():
        while not over.wait(0.02):
            os.statvfs(fs.path)

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        wait_until(lambda: lists(fs, fake), "all names", 60)
    finally:
        over.set()
        thread.join()
    fs.end()
    fake.end()


def slower_than_the_deadline():
    """Each part of a listing takes longer than readers wait: it comes nevertheless."""
    fake = nfs.Fake(files(30))
    fake.delay_s = {nfs.READDIRPLUS: 2 * DEADLINE_S}
    fs = mount(fake, Impatient)
    wait_until(lambda: lists(fs, fake), "all names", 60)
    print(fake.calls)
    fs.end()
    fake.end()


# --- reads ---------------------------------------------------------------------------------------


def reads_without_attributes():
    """Their version is asked for after them."""
    fake = nfs.Fake({**files(10), b"large": os.urandom(2500000)})
    fs = mount(fake)
    fake.read_attributes = False
    for name in fake.files:
        right(fs, fake, name)
    assert fake.calls[nfs.GETATTR] >= len(fake.files), fake.calls
    fs.end()
    fake.end()


def another_version():
    """Its bytes come with attributes of their own: an error, and then the new ones."""
    fake = nfs.Fake(files(6))
    fs = mount(fake, staleness=1)
    for name in fake.files:
        with fake.lock:
            fake.files[name] = bytes(len(fake.files[name]))
            fake.ctime += 1
        try:
            found = read(fs.at(name.decode()))
            assert found == fake.files[name], "old and new"
        except OSError as failure:
            assert failure.errno in (errno.ESTALE, errno.EIO), failure
    for name in fake.files:
        wait_until(lambda: reads_as(fs.at(name.decode()), fake.files[name]), "the new version")
    fs.end()
    fake.end()


def a_version_that_comes_between_two_reads():
    """Each reply tells what it is of: neither are two versions mixed, nor does one go by the
    other's dates."""
    size = 3 << 20
    fake = nfs.Fake({b"large": b"a" * size})
    fs = mount(fake, staleness=600)
    serve = fake.do_read

    def serve_and_change(arguments):
        reply = serve(arguments)
        if fake.files[b"large"][:1] == b"a":
            fake.files[b"large"] = b"b" * size
            fake.ctime += 1
        return reply

    fake.do_read = serve_and_change
    try:
        found = read(fs.at("large"))
        assert set(found) == set(b"b") and len(found) == size, "two versions in one"
        assert int(os.stat(fs.at("large")).st_ctime) == fake.ctime, "with the date of the other"
    except OSError as failure:
        assert failure.errno in (errno.ESTALE, errno.EIO), failure
    wait_until(lambda: reads_as(fs.at("large"), b"b" * size), "the new version")
    assert int(os.stat(fs.at("large")).st_ctime) == fake.ctime, "with the date of the other"
    fs.end()
    fake.end()


def short_reads():
    fake = nfs.Fake({**files(4, 5000), b"large": os.urandom(1300000)})
    fs = mount(fake)
    fake.most = 70000
    right(fs, fake, b"large")
    fake.most = 999
    names = sorted(fake.files)
    for name in names[:3]:
        right(fs, fake, name)
    fake.most = 0  # no byte, and no end either
    print("nothing at all:", fails(fs, names[3]))
    well_again(fs, fake, names[3])
    fs.end()
    fake.end()


def not_now():
    """JUKEBOX: try again later. A little later is enough, or there is an error in time."""
    fake = nfs.Fake(files(3))
    fs = mount(fake)
    names = sorted(fake.files)
    fake.status[nfs.READ] = [nfs.JUKEBOX, nfs.JUKEBOX, nfs.OK]
    right(fs, fake, names[0])
    fake.status[nfs.READ] = [nfs.JUKEBOX]
    print("JUKEBOX for ever:", fails(fs, names[1]))
    well_again(fs, fake, names[1])
    fs.end()
    fake.end()


def stale_handles():
    """Once: the name is looked up. For ever: an error."""
    fake = nfs.Fake(files(4))
    fs = mount(fake)
    names = sorted(fake.files)
    before = fake.calls[nfs.LOOKUP]
    fake.status[nfs.READ] = [nfs.STALE, nfs.OK]
    right(fs, fake, names[0])
    assert fake.calls[nfs.LOOKUP] > before, fake.calls
    fake.status[nfs.READ] = [nfs.STALE]
    print("STALE for ever:", fails(fs, names[1]))
    fake.status[nfs.LOOKUP] = [nfs.IO]
    print("and no name:", fails(fs, names[2]))
    for name in names[1:]:
        well_again(fs, fake, name)
    fs.end()
    fake.end()


def a_large_file_lets_others_pass():
    """Who asks for a small file meanwhile does not wait for all of the large one."""
    fake = nfs.Fake({b"large": bytes(48 << 20), **files(2)})
    fs = mount(fake, capacity="1G", inflight="256M", deadline=60)
    asked, reads = threading.Event(), []

    def twist(call, message):
        if call.name == nfs.READ:
            reads.append(len(message) > 1000)
            if len(reads) > 3:
                asked.wait(60)
        return [nfs.marked(message)]

    fake.twist = twist
    readers = [threading.Thread(target=right, args=(fs, fake, name))
               for name in (b"large", b"file0001")]
    readers[0].start()
    wait_until(lambda: len(reads) > 3, "the large file is on its way")
    before = fs.stats()["inflight_bytes"]
    readers[1].start()
    wait_until(lambda: fs.stats()["inflight_bytes"] > before, "the small one is asked for")
    time.sleep(0.2)  # and the server, too
    asked.set()
    for reader in readers:
        reader.join(60)
    print(f"{reads.index(False)} of {len(reads)} READs came before that of the small file")
    assert reads.index(False) < 40, reads
    fs.end()
    fake.end()


# --- the top -------------------------------------------------------------------------------------


def another_top():
    """The directory that is exported was replaced by another one."""
    fake = nfs.Fake(files(6))
    fs = mount(fake, staleness=1)
    right(fs, fake, b"file0000")
    number = os.stat(fs.path).st_ino
    with fake.lock:
        fake.root = 5000
        fake.files[b"more"], fake.ids[b"more"] = b"bytes", 6000
    wait_until(lambda: reads_as(fs.at("more"), b"bytes"), "the new top", 30)
    assert os.stat(fs.path).st_ino == number
    for name in fake.files:
        right(fs, fake, name)
    fs.end()
    fake.end()


def another_number_of_the_file_system():
    """As after a restart of the server."""
    fake = nfs.Fake(files(6))
    fs = mount(fake, staleness=1)
    right(fs, fake, b"file0000")
    with fake.lock:
        fake.fsid += 1
        fake.files[b"more"], fake.ids[b"more"] = b"bytes", 6000
    for name in sorted(fake.files):
        wait_until(lambda: reads_as(fs.at(name.decode()), fake.files[name]), name, 30)
    fs.end()
    fake.end()


# --- listings ------------------------------------------------------------------------------------


def entries_without_attributes():
    for attributes, handles in ((False, True), (True, False), (False, False)):
        fake = nfs.Fake(files(30))
        fake.entry_attributes, fake.entry_handles = attributes, handles
        fs = mount(fake)
        assert names_of(fs) == set(fake.files), (attributes, handles)
        for name in sorted(fake.files)[:10]:
            right(fs, fake, name)
        fs.end()
        fake.end()


def bad_cookies():
    """Once, in the middle of a listing: it begins again, and has each name once."""
    fake = nfs.Fake(files(900))  # several replies
    fake.status[nfs.READDIRPLUS] = [nfs.OK, nfs.OK, nfs.BAD_COOKIE, nfs.OK]
    fs = mount(fake)
    wait_until(lambda: names_of(fs) == set(fake.files), "all names", 30)
    right(fs, fake, b"file0899")
    fs.end()
    fake.end()


def bad_cookies_for_ever():
    fake = nfs.Fake(files(900))
    fake.status[nfs.READDIRPLUS] = [nfs.OK, nfs.BAD_COOKIE]
    end_in_time(fake)


def evil_names():
    """They are left out, and the others stay."""
    fake = nfs.Fake(files(5))
    evil = [b"a/b", b"../../etc/passwd", b"/", b"", b"..", b".", b"nul\0byte", b"n" * 300,
            b"n" * 5000]

    def entries():
        number = nfs.ROOT + 1
        good = [(place + 1, fake.ids[name], name) for place, name in enumerate(sorted(fake.files))]
        return good + [(100 + place, number, name) for place, name in enumerate(evil)]

    def with_end(call, message):
        return [nfs.marked(message[:-4] + nfs.u32(1) if call.name == nfs.READDIRPLUS else message)]

    fake.entries, fake.twist = entries, with_end
    fs = mount(fake, Impatient)
    time.sleep(0.3)
    try:
        found = names_of(fs)
        print(len(found), "names")
        assert not found & set(evil) and found <= set(fake.files), found
    except OSError as failure:  # nobody has to make sense of such a reply
        print("no listing:", errno.errorcode[failure.errno])
    end(fs)
    fake.end()


def the_same_entries_again_and_again():
    fake = nfs.Fake(files(5))
    fake.entries = lambda: [(7, number, name) for name, number in fake.ids.items()]
    end_in_time(fake)


def cookies_in_a_circle():
    """Whoever lists gets an error in time, and the names once the server is well."""
    fake = nfs.Fake(files(12))
    names, turn = sorted(fake.files), [0]

    def entries():
        turn[0] = (turn[0] + 1) % 3
        return [(1 + place, fake.ids[names[place]], names[place])
                for place in range(4 * turn[0], 4 * turn[0] + 4)]

    fake.entries = entries
    fs = mount(fake, Impatient)
    failure = []

    def work():
        try:
            failure.append(names_of(fs))
        except OSError as error:
            failure.append(errno.errorcode[error.errno])

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(DEADLINE_S + SLACK_S)
    assert failure == ["EIO"], failure
    fake.reset()
    wait_until(lambda: lists(fs, fake), "well again", 30)
    fs.end()
    fake.end()


def an_endless_directory():
    fake = nfs.Fake(files(5))
    count = [0]

    def entries():
        count[0] += 50
        return [(place, nfs.ROOT + 1, b"endless%09d" % place)
                for place in range(count[0], count[0] + 50)]

    fake.entries = entries
    end_in_time(fake)


def end(fs):
    """In time, and without a crash; whether it calls itself well does not matter."""
    begin = time.monotonic()
    fs.process.send_signal(signal.SIGTERM)
    code = fs.process.wait(DEADLINE_S + 2 * SLACK_S)
    assert time.monotonic() - begin < DEADLINE_S + SLACK_S, "it took long to end"
    text = fs.read_log()
    assert code in (0, 1) and "Sanitizer" not in text and "runtime error" not in text, (code, text)
    running.remove(fs)


def end_in_time(fake):
    """A mount whose directory cannot be listed ends, or fails to begin, in time."""
    try:
        fs = mount(fake, Impatient)
    except AssertionError as failure:
        print(str(failure).strip())
        assert "ended: shadefs:" in str(failure), failure
        for each in list(running):
            assert each.process.wait(30) == 1
            running.remove(each)
    else:
        in_threads(3, lambda _: time.sleep(0.3))
        end(fs)
    fake.end()


# --- starts --------------------------------------------------------------------------------------


def starts_that_fail():
    for name, twist in {
            "MNT": [only("MNT", lambda message: [nfs.marked(message[:24] + nfs.u32(13))]),
                    only("MNT", lambda message: [nfs.CLOSE]),
                    only("MNT", lambda message: []),
                    only("MNT", lambda message: [nfs.marked(message[:24] + nfs.u32(0)
                                                            + nfs.u32(0xffffff))])],
            "FSINFO": [only(nfs.FSINFO, lambda message: [nfs.marked(message[:40])]),
                       only(nfs.FSINFO, lambda message: [])]}.items():
        for each in twist:
            fake = nfs.Fake(files(2))
            fake.twist = each
            begin = time.monotonic()
            try:
                end(mount(fake, Impatient))
                assert name != "MNT", "it began without a root"
            except AssertionError as failure:
                print(name, str(failure).strip())
                assert "ended: shadefs:" in str(failure), failure
                for other in list(running):
                    assert other.process.wait(30) == 1
                    running.remove(other)
            assert time.monotonic() - begin < DEADLINE_S + 2 * SLACK_S
            fake.end()


def silent_after_the_first_answers():
    """Wherever in its start a server falls silent, the start is over in time."""
    for answers in range(5):
        fake = nfs.Fake(files(2))
        left = [answers]

        def twist(call, message, left=left):
            left[0] -= call.name == nfs.GETATTR
            return [] if left[0] < 0 else [nfs.marked(message)]

        fake.twist = twist
        begin = time.monotonic()
        end_in_time(fake)
        assert time.monotonic() - begin < 2 * (DEADLINE_S + SLACK_S)


def zero_sized_bounds():
    """FSINFO says that no READ has a byte: some bound is taken, or it does not begin."""
    fake = nfs.Fake(files(3))
    fake.twist = only(nfs.FSINFO, lambda message: [nfs.marked(
        message[:-52] + nfs.u32(0) * 7 + message[-24:])])
    try:
        fs = mount(fake, Impatient)
    except AssertionError as failure:
        print(str(failure).strip())
        assert "ended: shadefs:" in str(failure), failure
        running.clear()
    else:
        wait_until(lambda: names_of(fs) == set(fake.files), "names")
        right(fs, fake, b"file0001")
        end(fs)
    fake.end()


if "SHADE_TEST_SKIP" in os.environ:
    skip(os.environ["SHADE_TEST_SKIP"])
try:
    namespaces.enter_namespaces()
except OSError as refusal:
    skip(f"there are no namespaces of our own: {refusal}")
run_tests([test for test in (
    replies_cut_at_every_byte, listings_cut, several_fragments, one_byte_at_a_time,
    answers_to_nobody, garbage, garbage_for_ever, denied, a_reply_that_never_comes,
    slower_than_the_deadline, reads_without_attributes, another_version,
    a_version_that_comes_between_two_reads, short_reads, not_now,
    stale_handles, a_large_file_lets_others_pass, another_top, another_number_of_the_file_system,
    entries_without_attributes, bad_cookies, bad_cookies_for_ever, evil_names,
    the_same_entries_again_and_again, cookies_in_a_circle, an_endless_directory,
    starts_that_fail, silent_after_the_first_answers, zero_sized_bounds)
    if not sys.argv[4:] or any(word in test.__name__ for word in sys.argv[4:])])
