# SPDX-License-Identifier: LGPL-2.1-or-later
"""Golden counts: every policy at eight capacities on a stored trace. A change of any count
must be meant: `golden.py SIM TRACE COUNTS --update` writes them anew."""
import json
import sys

from common import check, finish, results

TRACE, COUNTS = sys.argv[2:4]
CAPACITIES = ["1%", "5%", "10%", "20%", "35%", "50%", "75%", "100%"]
POLICIES = "shade,shade-naive,app,icache,minio,lru,lfu,fifo,min"
KEYS = ("hits", "admissions", "bypasses", "evictions", "bytes_fetched")


def count():
    found = {}
    for capacity in CAPACITIES:
        rows = results("replay", "--trace", TRACE, "--capacity", capacity, "--policy", POLICIES)
        for policy, row in rows.items():
            found.setdefault(policy, {})[capacity] = [row[key] for key in KEYS]
    return found


found = count()
if "--update" in sys.argv:
    with open(COUNTS, "w") as file:
        file.write("{\n" + ",\n".join(
            f' "{policy}": {{\n' + ",\n".join(
                f'  "{capacity}": {json.dumps(counts)}' for capacity, counts in rows.items())
            + "\n }" for policy, rows in found.items()) + "\n}\n")
with open(COUNTS) as file:
    expected = json.load(file)
check(set(expected) == set(found), "other policies than stored")
for policy, rows in expected.items():
    for capacity, counts in rows.items():
        check(found[policy][capacity] == counts,
              f"{policy} at {capacity}: {found[policy][capacity]}, not {counts}")
for capacity in CAPACITIES:
    check(found["shade"][capacity] == found["shade-naive"][capacity],
          f"shade and its naive reference differ at {capacity}")
# The counts tell the policies apart.
check(len({json.dumps(rows) for rows in found.values()}) == len(found) - 1,
      "two policies have the same counts")
finish()
