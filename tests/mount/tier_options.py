# SPDX-License-Identifier: LGPL-2.1-or-later
"""The options of the tier, and what the mount does with a tier that is down, hangs, lies or shares:
over a server of a few lines. Real clusters are tested in tests/tier."""
import socket
import threading

from common import *

SECRET = "s3cr3t/w0rd@2:1"  # as generators of passwords make them


class Server:
    """Speaks as much RESP as shadefs does."""

    def __init__(self, answers=True, password=None, echoes=False):
        self.values, self.commands, self.password, self.answers = {}, [], password, answers
        self.echoes = echoes
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        stream = connection.makefile("rwb")
        trusted = self.password is None
        try:
            while line := stream.readline():
                words = []
                for _ in range(int(line[1:])):
                    size = int(stream.readline()[1:])
                    words.append(stream.read(size + 2)[:-2])
                self.commands.append(words)
                if not self.answers:
                    continue
                if words[0] == b"AUTH" and self.echoes:  # Redis does where AUTH is renamed
                    stream.write(b"-ERR unknown command 'AUTH', with args beginning with: '%s'\r\n"
                                 % b"' '".join(words[1:]))
                elif words[0] == b"AUTH":
                    trusted = words[-1].decode() == self.password
                    stream.write(b"+OK\r\n" if trusted else b"-WRONGPASS wrong\r\n")
                else:
                    stream.write(self.answer(words) if trusted else b"-NOAUTH who are you?\r\n")
                stream.flush()
        except OSError:
            pass

    def answer(self, words):
        name = words[0]
        if name == b"PING":
            return b"+PONG\r\n"
        if name == b"SETEX":
            self.values[words[1]] = words[3]
            return b"+OK\r\n"
        if name == b"EXPIRE":
            return b":%d\r\n" % (words[1] in self.values)
        if name == b"GETEX":
            value = self.values.get(words[1])
            return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
        return b"-ERR This instance has cluster support disabled\r\n"


def make_source(count=24, size=20000):
    source = tempfile.mkdtemp(prefix="source-", dir=scratch)
    for i in range(count):
        with open(os.path.join(source, f"f{i:02}"), "wb") as file:
            file.write(random.Random(i).randbytes(size + i))
    return source


def check(shade, source):
    """All bytes are the source's."""
    for name in sorted(os.listdir(source)):
        with open(os.path.join(source, name), "rb") as wanted, open(shade.at(name), "rb") as found:
            assert wanted.read() == found.read(), name


def refused(options, *parts):
    point = tempfile.mkdtemp(dir=scratch)
    done = subprocess.run([SHADEFS, "-f", "-o", options, source_of_all, point], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1, (options, done)
    assert all(part in done.stderr for part in parts), (options, done.stderr)
    assert SECRET not in done.stderr, done.stderr


def wrong_options():
    refused("tier=redis://h:1", "volume=NAME")
    refused(f"tier=redis://u:{SECRET}@h,volume=v", "option tier takes redis://HOST:PORT")
    refused("tier=memcached://h:1,volume=v", "option tier takes redis://HOST:PORT")
    refused("tier=redis://h:1,:2,volume=v", "option tier takes")
    refused("tier_key=/dev/null", "need tier=")
    refused("tier=redis://h:1,volume=v,tier_timeout=0", "tier_timeout")
    refused("tier=redis://h:1,volume=v,tier_key=/nowhere", "/nowhere")
    refused("tier=redis://h:1,volume=v,tier_key=/dev/null", "less than 16 bytes")
    refused("tier=redis://h:1,volume=v,tier_password=/dev/null", "no password")
    refused("tier=redis://h:1,volume=" + "v" * 300, "volume")
    refused("tier=redis://h:1,nonsense,volume=v", "nonsense")


def secrets_do_not_show():
    """The value of tier= goes on after commas, and its password is nowhere to be seen."""
    server, other = Server(password=SECRET), Server(password=SECRET)
    shade = Shade(source_of_all, tier=f"redis://me:{SECRET}@{server.address},{other.address}",
                  volume="v@w", capacity="32M", log="debug")
    check(shade, source_of_all)
    wait_until(lambda: [b"AUTH", b"me", SECRET.encode()] in server.commands, "authenticated")
    with open(shade.at(".shade", "config")) as file:
        config = file.read()
    assert f"tier redis://{server.address},{other.address} #" in config, config
    assert "capacity 33554432 #" in config and "volume v@w #" in config, config
    with open(f"/proc/{shade.process.pid}/cmdline") as file:
        line = file.read()
    assert f"tier=redis://me:{'*' * len(SECRET)}@{server.address}," in line, line
    shade.end()
    for text in (config, line, shade.read_log()):
        assert SECRET not in text, text


def errors_that_repeat_the_password():
    server = Server(password=SECRET, echoes=True)
    shade = Shade(source_of_all, tier=f"redis://me:{SECRET}@{server.address}", volume="v",
                  log="debug")
    check(shade, source_of_all)
    wait_until(lambda: "tier" in shade.read_log(), "the log says why")
    shade.end()
    assert "AUTH" in shade.read_log() and SECRET not in shade.read_log(), shade.read_log()


def passwords_from_elsewhere():
    name = os.path.join(scratch, "password")
    with open(name, "w") as file:
        file.write(SECRET + "\n")
    server = Server(password=SECRET)
    shade = Shade(source_of_all, tier=f"redis://{server.address}", volume="v", tier_password=name)
    wait_until(lambda: [b"AUTH", SECRET.encode()] in server.commands, "authenticated by a file")
    shade.end()
    server.commands.clear()
    os.environ["SHADEFS_TIER_PASSWORD"] = SECRET
    try:
        shade = Shade(source_of_all, tier=f"redis://{server.address}", volume="v")
    finally:
        del os.environ["SHADEFS_TIER_PASSWORD"]
    wait_until(lambda: [b"AUTH", SECRET.encode()] in server.commands, "authenticated by environment")
    with open(f"/proc/{shade.process.pid}/environ") as file:
        assert SECRET not in file.read()
    shade.end()


def a_tier_that_is_down():
    """Nobody listens, or somebody who knows another password: reads go on, with one line."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        down = "127.0.0.1:%d" % free.getsockname()[1]
    closed = Server(password="another one")
    for address, why in ((down, "refused"), (closed.address, "NOAUTH")):
        shade = Shade(source_of_all, tier=f"redis://{address}", volume="v")
        check(shade, source_of_all)
        stats = shade.stats()
        assert stats["tier_hits"] == 0 and stats["tier_fallbacks"] > 0, stats
        assert stats["tier_errors"] > 0 and stats[f"tier_node_{address}_up"] == 0, stats
        shade.end()
        lines = [line for line in shade.read_log().splitlines() if "tier" in line]
        assert len(lines) == 1 and why in lines[0], lines


def a_tier_that_hangs():
    """It costs one timeout, not one a read, and the end does not wait for it."""
    server = Server(answers=False)
    began = time.monotonic()
    shade = Shade(source_of_all, tier=f"redis://{server.address}", volume="v", tier_timeout=3)
    check(shade, source_of_all)
    assert shade.stats()["tier_errors"] >= 1
    shade.end()
    took = time.monotonic() - began
    assert took < 3 * len(os.listdir(source_of_all)) / 2, took


def a_deadline_before_the_timeout():
    """Reads that wait for the tier are cancelled like those that wait for the source."""
    server = Server(answers=False)
    shade = Shade(source_of_all, tier=f"redis://{server.address}", volume="v", tier_timeout=500,
                  deadline=1)
    codes = []
    for name in sorted(os.listdir(source_of_all))[:4]:
        try:
            assert read(shade.at(name)) == read(os.path.join(source_of_all, name))
        except OSError as error:
            codes.append(error.errno)
    assert codes and set(codes) == {errno.ETIMEDOUT}, codes
    shade.end()


def mounts_share():
    """What one mount has read the next one gets without the source; damage and lies are misses."""
    source = make_source()
    slow = Slow(source, read_delay_us=10000)
    server = Server()
    options = {"tier": f"redis://{server.address}", "volume": "v", "tier_timeout": 20}
    first = Shade(slow.path, **options)
    check(first, source)
    wait_until(lambda: len(server.values) == len(os.listdir(source)), "all are put")
    stats = first.stats()
    assert stats["tier_puts"] == len(server.values) and not stats["tier_hits"], stats
    first.end()

    second = Shade(slow.path, **options)
    check(second, source)
    stats = second.stats()
    assert stats["tier_hits"] > len(server.values) / 2, stats
    assert stats["tier_hits"] + stats["backend_reads"] == len(server.values), stats
    assert stats["tier_errors"] == 0 == stats["tier_misses"], stats
    second.end()

    for i, key in enumerate(sorted(server.values)):
        value = bytearray(server.values[key])
        if i % 3 == 0:
            value[random.randrange(len(value))] ^= 1
        server.values[key] = bytes(value[:-1] if i % 3 == 1 else value)
    third = Shade(slow.path, **options)
    check(third, source)
    stats = third.stats()
    assert stats["tier_errors"] > 0 and stats["tier_misses"] == stats["tier_errors"], stats
    third.end()

    key = os.path.join(scratch, "key")
    with open(key, "w") as file:
        file.write("a secret of more than 16 bytes")
    fourth = Shade(slow.path, tier_key=key, **options)
    check(fourth, source)
    assert fourth.stats()["tier_hits"] == 0, fourth.stats()
    fourth.end()
    slow.end()


def no_older_than_staleness():
    """The tier goes on having what the source has replaced. Memory has room for a few of the files,
    so each is asked for there time and again."""
    source = make_source(8, 200000)
    slow = Slow(source, read_delay_us=10000)
    server = Server()
    options = {"tier": f"redis://{server.address}", "volume": "v", "tier_timeout": 20}
    first = Shade(slow.path, **options)
    check(first, source)
    wait_until(lambda: len(server.values) == 8, "all are put")
    first.end()
    second = Shade(slow.path, staleness=2, capacity="1M", policy="lru", **options)
    check(second, source)
    with open(os.path.join(source, "f00"), "wb") as file:
        file.write(b"new")

    def is_new():
        for i in range(1, 8):
            read(second.at(f"f{i:02}"))
        try:
            return read(second.at("f00")) == b"new"
        except OSError as error:
            assert error.errno == errno.ESTALE, error
            return False
    wait_until(is_new, "the new version shows")
    second.end()
    slow.end()


def without_staleness_there_is_no_tier():
    """Nothing is known of the source then that was not asked just now."""
    server = Server()
    shade = Shade(source_of_all, tier=f"redis://{server.address}", volume="v", staleness=0,
                  capacity="1M")
    for _ in range(10):
        check(shade, source_of_all)
    asked = {words[0] for words in server.commands}
    assert not asked & {b"GETEX", b"EXPIRE", b"SETEX"}, asked
    shade.end()


source_of_all = make_source()
run_tests([wrong_options, secrets_do_not_show, errors_that_repeat_the_password,
           passwords_from_elsewhere, a_tier_that_is_down,
           a_tier_that_hangs, a_deadline_before_the_timeout, mounts_share, no_older_than_staleness,
           without_staleness_there_is_no_tier])
