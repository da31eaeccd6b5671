# SPDX-License-Identifier: LGPL-2.1-or-later
"""Redis's protocol in few lines, for both ends: what tests ask real servers, and what the fake one
is asked."""
import socket


class RedisError(Exception):
    """A reply that begins with -."""


def encode(*words):
    """A command."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part)
                                              for part in parts)


def bulk(value):
    return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)


def read_reply(file):
    """From a file of bytes: int, bytes, None, or a list of them; commands are lists, too."""
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise RedisError(rest.decode())
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    count = int(rest)
    if count < 0:
        return None
    if kind == b"*":
        return [read_reply(file) for _ in range(count)]
    assert kind == b"$", line
    data = file.read(count + 2)
    if len(data) < count + 2:
        raise EOFError
    return data[:-2]


class Client:
    """A connection. Redirections are the caller's."""

    def __init__(self, port, host="127.0.0.1", password=None, seconds=30):
        self.socket = socket.create_connection((host, port), seconds)
        self.file = self.socket.makefile("rb")
        if password:
            self.call("AUTH", *([password] if isinstance(password, str) else password))

    def call(self, *words):
        self.socket.sendall(encode(*words))
        return read_reply(self.file)

    def all(self, commands):
        """Sends many at once; their replies, errors among them."""
        self.socket.sendall(b"".join(encode(*words) for words in commands))
        return [self.reply() for _ in commands]

    def reply(self):
        try:
            return read_reply(self.file)
        except RedisError as error:
            return error

    def close(self):
        self.file.close()
        self.socket.close()


def slot_of(key):
    """The hash slot of a key: CRC16 of it, or of what is in its first braces."""
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1:end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc % 16384
