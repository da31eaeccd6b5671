# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the simulator's tests share: running it, and saying what went wrong."""
import json
import subprocess
import sys

SIM = sys.argv[1]
failures = 0


def check(holds, what):
    """Counts a failure, and says what failed."""
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def finish():
    print("failures:", failures)
    sys.exit(1 if failures else 0)


def run(*arguments, stdin=None):
    """The finished process of one call."""
    return subprocess.run([SIM, *map(str, arguments)], input=stdin, text=True,
                          capture_output=True, timeout=600)


def results(*arguments, stdin=None):
    """The rows of a call that must work, by policy."""
    return {row["policy"]: row for row in rows(*arguments, stdin=stdin)}


def rows(*arguments, stdin=None):
    """The rows of a call that must work."""
    done = run(*arguments, "--json", stdin=stdin)
    if done.returncode:
        print("FAILED: shade-sim", *arguments, done.stderr)
        sys.exit(1)
    return json.loads(done.stdout)
