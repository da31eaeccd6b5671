# SPDX-License-Identifier: LGPL-2.1-or-later
"""An NFSv3 server of one directory in memory, for what real servers never do. It serves the mount
protocol at the same port, on loopback. A test changes what it answers:

    fake.status[procedure] = [70, 0]  the next calls have these statuses; the last one stays
    fake.read_attributes = False      replies of READ have no attributes (entry_attributes and
                                      entry_handles: the same of READDIRPLUS)
    fake.most = 1000                  no READ gives more bytes
    fake.delay_s[procedure] = 2       each reply comes so much later
    fake.root, fake.fsid              numbers of the directory and of its file system
    fake.twist = function             of (call, message): the list of what is sent instead, bytes
                                      with their record marks; CLOSE in it closes the connection

Calls are counted by procedure, in fake.calls."""
import collections
import socket
import struct
import threading
import time

NFS, MOUNT = 100003, 100005
(GETATTR, LOOKUP, ACCESS, READLINK, READ, READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF) = (
    "GETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "READDIR", "READDIRPLUS", "FSSTAT", "FSINFO",
    "PATHCONF")
NAMES = {(NFS, 0): "NULL", (NFS, 1): GETATTR, (NFS, 3): LOOKUP, (NFS, 4): ACCESS,
         (NFS, 5): READLINK, (NFS, 6): READ, (NFS, 16): READDIR, (NFS, 17): READDIRPLUS,
         (NFS, 18): FSSTAT, (NFS, 19): FSINFO, (NFS, 20): PATHCONF,
         (MOUNT, 0): "NULL", (MOUNT, 1): "MNT", (MOUNT, 3): "UMNT", (MOUNT, 5): "EXPORT"}
CLOSE = None
OK, NOENT, IO, STALE, BAD_COOKIE, NOTSUPP, JUKEBOX = 0, 2, 5, 70, 10003, 10004, 10008
ROOT = 1
CHUNK = 1 << 20

Call = collections.namedtuple("Call", "xid program procedure name arguments")


def u32(value):
    return struct.pack(">I", value)


def u64(value):
    return struct.pack(">Q", value)


def opaque(data):
    return u32(len(data)) + data + bytes(-len(data) % 4)


def marked(message, fragments=1):
    """With record marks, in so many fragments."""
    size = -(-len(message) // fragments)
    parts = [message[i:i + size] for i in range(0, len(message), size)]
    return b"".join(u32(len(part) | (0x80000000 if part is parts[-1] else 0)) + part
                    for part in parts)


def accepted(xid, body, state=0):
    """A reply to a call that was accepted; state 0 is success."""
    return u32(xid) + u32(1) + u32(0) + u32(0) + u32(0) + u32(state) + body


class Cursor:
    """Reads XDR."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def u32(self):
        self.at += 4
        return struct.unpack_from(">I", self.data, self.at - 4)[0]

    def u64(self):
        self.at += 8
        return struct.unpack_from(">Q", self.data, self.at - 8)[0]

    def opaque(self):
        length = self.u32()
        found = self.data[self.at:self.at + length]
        self.at += length + -length % 4
        return found


class Fake:
    def __init__(self, files):
        """From names, as bytes, to contents."""
        self.lock = threading.Lock()
        self.files = dict(files)
        self.ids = {name: ROOT + 1 + number for number, name in enumerate(self.files)}
        self.ctime = 1000000000
        self.status = {}
        self.read_attributes = self.entry_attributes = self.entry_handles = True
        self.most = CHUNK
        self.root, self.fsid = ROOT, 7
        self.delay_s = {}
        self.twist = None
        self.entries = None  # of the directory, instead of what it has
        self.calls = collections.Counter()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def reset(self):
        """Well again."""
        self.status, self.twist, self.entries, self.most = {}, None, None, CHUNK
        self.delay_s = {}
        self.read_attributes = self.entry_attributes = self.entry_handles = True

    # --- connections ---

    def accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            with connection, connection.makefile("rb") as stream:
                while message := self.receive(stream):
                    for piece in self.answer(message):
                        if piece is CLOSE:
                            return
                        connection.sendall(piece)
        except OSError:
            pass

    @staticmethod
    def receive(stream):
        message, last = b"", False
        while not last:
            mark = stream.read(4)
            if len(mark) < 4:
                return None
            length = struct.unpack(">I", mark)[0]
            last, length = length >> 31, length & 0x7fffffff
            message += stream.read(length)
        return message

    def answer(self, message):
        cursor = Cursor(message)
        xid, _, _, program, _, procedure = (cursor.u32() for _ in range(6))
        for _ in range(2):
            cursor.u32()
            cursor.opaque()
        name = NAMES.get((program, procedure), "?")
        call = Call(xid, program, procedure, name, cursor)
        time.sleep(self.delay_s.get(name, 0))
        with self.lock:
            self.calls[name] += 1
            reply = accepted(xid, self.reply(call))
            return self.twist(call, reply) if self.twist else [marked(reply)]

    # --- procedures ---

    def reply(self, call):
        status = self.status.get(call.name, [OK])
        number = status.pop(0) if len(status) > 1 else status[0]
        if number:
            return u32(number) + self.of_failure(call)
        work = getattr(self, "do_" + call.name.lower(), None)
        return work(call.arguments) if work else b""

    @staticmethod
    def of_failure(call):
        """What follows a status that is an error: attributes that are not there."""
        return b"" if call.name in (GETATTR, "MNT") else u32(0)

    def find(self, handle):
        number = struct.unpack(">Q", handle)[0] if len(handle) == 8 else 0
        if number == self.root:
            return self.root, None
        return next(((number, name) for name, has in self.ids.items() if has == number),
                    (None, None))

    def attributes(self, number):
        name = self.find(u64(number))[1]
        size = len(self.files[name]) if name is not None else 4096
        when = u32(self.ctime) + u32(0)
        kind, mode = (2, 0o755) if number == self.root else (1, 0o644)
        return (u32(kind) + u32(mode) + u32(1) + u32(0) + u32(0) + u64(size) + u64(size)
                + u64(0) + u64(self.fsid) + u64(number) + when * 3)

    def some_attributes(self, number):
        return u32(1) + self.attributes(number)

    def do_mnt(self, _):
        return u32(OK) + opaque(u64(self.root)) + u32(1) + u32(1)

    def do_export(self, _):
        return u32(0)

    def do_getattr(self, arguments):
        number = self.find(arguments.opaque())[0]
        return u32(OK) + self.attributes(number) if number else u32(STALE)

    def do_lookup(self, arguments):
        folder, name = arguments.opaque(), arguments.opaque()
        if self.find(folder)[0] != self.root or name not in self.files:
            return u32(NOENT) + u32(0)
        number = self.ids[name]
        return (u32(OK) + opaque(u64(number)) + self.some_attributes(number)
                + self.some_attributes(self.root))

    def do_access(self, arguments):
        number = self.find(arguments.opaque())[0]
        return u32(OK) + self.some_attributes(number) + u32(arguments.u32())

    def do_read(self, arguments):
        number, name = self.find(arguments.opaque())
        offset, count = arguments.u64(), arguments.u32()
        if name is None:
            return u32(STALE) + u32(0)
        data = self.files[name][offset:offset + min(count, self.most)]
        attributes = self.some_attributes(number) if self.read_attributes else u32(0)
        at_end = offset + len(data) >= len(self.files[name])
        return u32(OK) + attributes + u32(len(data)) + u32(at_end) + opaque(data)

    def listing(self):
        """(cookie, number, name); the cookie is that of the next entry."""
        found = [(b".", self.root), (b"..", self.root),
                 *((name, self.ids[name]) for name in self.files)]
        return [(place + 1, number, name) for place, (name, number) in enumerate(found)]

    def do_readdirplus(self, arguments):
        arguments.opaque()
        cookie = arguments.u64()
        entries = (self.entries or self.listing)()
        out = u32(OK) + self.some_attributes(self.root) + u64(1)
        room, done = 30000, True
        for place, number, name in entries:
            if self.entries is None and place <= cookie:
                continue
            if room < 0:
                done = False
                break
            entry = u32(1) + u64(number) + opaque(name) + u64(place)
            entry += self.some_attributes(number) if self.entry_attributes else u32(0)
            entry += u32(1) + opaque(u64(number)) if self.entry_handles else u32(0)
            room -= len(entry)
            out += entry
        return out + u32(0) + u32(done and self.entries is None)

    def do_fsstat(self, _):
        return u32(OK) + self.some_attributes(self.root) + u64(1 << 30) * 6 + u32(0)

    def do_fsinfo(self, _):
        return (u32(OK) + self.some_attributes(self.root) + u32(CHUNK) + u32(CHUNK) + u32(4096)
                + u32(CHUNK) + u32(CHUNK) + u32(4096) + u32(65536) + u64(1 << 60) + u32(0) + u32(1)
                + u32(0x1b))

    def do_pathconf(self, _):
        return u32(OK) + self.some_attributes(self.root) + u32(1) + u32(255) + u32(1) * 4
