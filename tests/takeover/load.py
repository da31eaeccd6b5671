# SPDX-License-Identifier: LGPL-2.1-or-later
"""The readers of this folder, as tests in tests/mount start them."""
import signal
import subprocess

from common import running


class Readers:
    """The program, until its time is over or end()."""

    def __init__(self, program, path, files, size, seconds=600, hints=1, seed=1):
        self.process = subprocess.Popen(
            [program, "read", path, str(files), str(size), f"seconds={int(seconds)}", "threads=16",
             f"hints={hints}", f"seed={seed}", "patience=40"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.seed, self.errors = seed, ""
        running.append(self)

    def end(self):
        """What it has counted."""
        self.process.send_signal(signal.SIGTERM)
        out, self.errors = self.process.communicate(timeout=90)
        running.remove(self)
        counts = {key: int(value) for key, value in (line.split() for line in out.splitlines())}
        assert counts, f"the readers ended with {self.process.returncode}: {self.errors}"
        print("  ", ", ".join(f"{key} {value}" for key, value in counts.items()), flush=True)
        bad = counts["errors"] or counts["wrong_bytes"] or counts["hung"]
        assert self.process.returncode == bool(bad), self.process.returncode
        return counts

    def end_well(self):
        counts = self.end()
        assert not counts["errors"] and not counts["wrong_bytes"] and not counts["hung"], \
            f"{counts}, --seed {self.seed}: {self.errors}"
        assert counts["reads"] and counts["lists"], counts
        return counts

    def end_with_errors(self):
        """That the mount gives errors is right here. Wrong bytes and waiting for ever never are."""
        counts = self.end()
        assert counts["errors"] and not counts["wrong_bytes"] and not counts["hung"], \
            f"{counts}: {self.errors}"
        return counts

    def read_log(self):
        return self.errors

    def kill(self):
        self.process.kill()
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            print("the readers cannot be killed")
