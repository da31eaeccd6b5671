# SPDX-License-Identifier: LGPL-2.1-or-later
"""A worker of a loader as SHADE has it: SOURCE ROOM ADDRESS... It has a client of its own to the
cluster, asks with EXISTS and then GETs, reads a file whose key is not there, and puts it. A queue of
its own with ROOM entries decides what is put: when it is full, a sample gets in only if it is more
important than the least important one, which is deleted then.

Reads lines of "ID PATH" pairs, separated by tabs, an epoch each; answers with the hits."""
import heapq
import os
import random
import sys

try:
    from redis.cluster import ClusterNode, RedisCluster
except ImportError:
    sys.exit(0)

SOURCE, ROOM = sys.argv[1], int(sys.argv[2])
NODES = [ClusterNode(*address.rsplit(":", 1)) for address in sys.argv[3:]]


class Queue:
    """Keys that this process has put, by importance."""

    def __init__(self, client):
        self.client, self.entries = client, []
        self.chance = random.Random(os.getpid())

    def offer(self, key, data):
        entry = (self.chance.random(), key)  # uniform orders: every score is as good as another
        if len(self.entries) < ROOM:
            heapq.heappush(self.entries, entry)
        elif self.entries and entry > self.entries[0]:
            self.client.delete(heapq.heapreplace(self.entries, entry)[1])
        else:
            return
        self.client.set(key, data)


def read(client, queue, key, path):
    """Whether it was a hit."""
    if client.exists(key) and client.get(key) is not None:
        return True
    with open(os.path.join(SOURCE, path), "rb") as file:
        queue.offer(key, file.read())
    return False


def main():
    client = RedisCluster(startup_nodes=NODES, require_full_coverage=False)
    queue = Queue(client)
    print("ready", flush=True)
    for line in sys.stdin:
        pairs = [pair.split(" ", 1) for pair in line.rstrip("\n").split("\t")]
        print(sum(read(client, queue, *pair) for pair in pairs), flush=True)


main()
