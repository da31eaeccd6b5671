# SPDX-License-Identifier: LGPL-2.1-or-later
"""What bench-read does with `each`, from Python: READERS COUNT [REDIS_PORT] < PATHS. A file is
read by open().read(); with a port, the keys of that name by EXISTS and GET, which is what SHADE's
loader does. Prints seconds, files read, bytes."""
import mmap
import os
import struct
import sys
import time

readers, count = int(sys.argv[1]), int(sys.argv[2])
port = int(sys.argv[3]) if len(sys.argv) > 3 else None
paths = [os.fsdecode(path) for path in sys.stdin.buffer.read().split(b"\0") if path]
board = mmap.mmap(-1, mmap.PAGESIZE)  # byte 0: go; from 8 on 8 bytes a reader: ready, then bytes


def read_files(first):
    total = 0
    for number in range(first, first + count):
        with open(paths[number % len(paths)], "rb") as file:
            total += len(file.read())
    return total


def get_keys(client, first):
    total = 0
    for number in range(first, first + count):
        key = paths[number % len(paths)]
        if client.exists(key):
            total += len(client.get(key))
    return total


def work(reader):
    client = None
    first = len(paths) * reader // readers
    if port:
        import redis  # pylint: disable=import-outside-toplevel
        client = redis.Redis(host="127.0.0.1", port=port)
        client.ping()
    place = 8 + 8 * reader
    board[place] = 1
    while not board[0]:
        time.sleep(0.0001)
    total = get_keys(client, first) if client else read_files(first)
    board[place:place + 8] = struct.pack("<Q", total)


def main():
    children = []
    for reader in range(readers):
        child = os.fork()
        if not child:
            work(reader)
            os._exit(0)
        children.append(child)
    while not all(board[8 + 8 * reader] for reader in range(readers)):
        time.sleep(0.0001)
    start = time.perf_counter()
    board[0] = 1
    failed = [status for status in (os.waitpid(child, 0)[1] for child in children) if status]
    seconds = time.perf_counter() - start
    total = sum(struct.unpack_from("<Q", board, 8 + 8 * reader)[0] for reader in range(readers))
    print(f"{seconds:.9f} {count * readers} {total}")
    sys.exit(1 if failed else 0)


main()
