# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a training that is gone has left makes room: by itself once its job has ended, and at once
with shadectl forget. One that runs keeps its place. Coverage is of what a job says to read."""
import os
import subprocess
import sys

from common import SHADECTL, Shade, make_tree, read, run_tests, wait_until

# Scores all samples for its job, reads them all, and says so; ends when it is told to.
TRAINING = """
import os, sys
mount, job, hinted = sys.argv[1], sys.argv[2], sys.argv[3] == "hinted"
folder = os.path.join(mount, ".shade", *(["jobs", job] if job else []))
if job:
    os.mkdir(folder)
with open(os.path.join(mount, ".shade", "samples")) as file:
    samples = dict(line.rstrip("\\n").split("\\t") for line in file)
control = os.open(os.path.join(folder, "control"), os.O_RDWR) if hinted else -1
if hinted:
    os.write(control, "".join(f"score {number} 3\\n" for number in samples).encode())
    order = " ".join(samples)
    os.write(control, f"order 1 begin\\norder 1 {order}\\norder 1 end\\nepoch 1\\n".encode())
    os.write(control, f"order 2 begin\\norder 2 {order}\\norder 2 end\\n".encode())
for path in samples.values():
    with open(os.path.join(mount, path), "rb") as file:
        file.read()
print("read", flush=True)
sys.stdin.read()
"""


class Training:
    def __init__(self, fs, job="", hinted=True):
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, fs.path, job, "hinted" if hinted else "plain"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "read\n"

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def ctl(*words):
    return subprocess.run([SHADECTL, *words], capture_output=True, text=True, timeout=60,
                          check=False)


def mount(**options):
    root, contents = make_tree(120)
    fs = Shade(root, capacity="1M", inflight="128K", **options)
    return fs, contents


def absent(fs):
    """The path of a sample that is not in memory, and comes last in the trainings' orders: no room
    is made for it at the cost of others."""
    bits = read(fs.at(".shade", "resident"))
    return [path for path, number in fs.samples().items()
            if not bits[number // 8] >> number % 8 & 1][-1]


def is_full(fs):
    """Whether there is no room for one more."""
    fs.settle()
    done = ctl("warm", fs.path, absent(fs), "--timeout", "50")
    assert done.returncode in (0, 1), done
    assert done.returncode == 0 or "no room" in done.stderr or "not" in done.stderr, done
    return done.returncode == 1


def jobs(fs):
    return sorted(os.listdir(fs.at(".shade", "jobs")))


def it_ends_with_its_job():
    fs, _ = mount(job_grace=1)
    training = Training(fs, "a job")
    assert is_full(fs)
    training.end()
    wait_until(lambda: not jobs(fs), "the job has ended")
    assert not is_full(fs)
    training = Training(fs)  # in job 0
    assert is_full(fs)
    training.end()
    wait_until(lambda: fs.stats()["order_ahead"] == 0, "its orders are forgotten")
    assert not is_full(fs)
    fs.end()


def it_is_forgotten_at_once():
    fs, _ = mount(job_grace=3600)
    training = Training(fs, "a job")
    training.end()
    assert is_full(fs)
    assert jobs(fs) == ["a job"], jobs(fs)
    done = ctl("forget", fs.path, "another")
    assert done.returncode and "there is no such job" in done.stderr, done
    assert is_full(fs)
    done = ctl("forget", fs.path, "a job")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    assert not jobs(fs) and not is_full(fs)
    fs.end()


def those_that_run_stay():
    """Without a name all that are gone are forgotten, job 0 among them, and nobody else."""
    fs, _ = mount(job_grace=3600)
    gone, runs = Training(fs, "gone"), Training(fs, "runs")
    gone.end()
    zero = Training(fs)
    done = ctl("forget", fs.path)
    assert done.returncode == 0 and jobs(fs) == ["runs"], (done, jobs(fs))
    assert fs.stats()["order_ahead"] > 0, "job 0 runs"
    zero.end()
    assert ctl("forget", fs.path).returncode == 0
    stats = fs.stats()
    assert (stats["order_ahead"], stats["scored"], jobs(fs)) == (0, 0, ["runs"]), stats
    assert is_full(fs), "what the other one wants stays"
    # By its name it loses what it has said, and stays.
    done = ctl("forget", fs.path, "runs")
    assert done.returncode == 0 and "the job stays" in done.stdout, done
    assert jobs(fs) == ["runs"] and not read(fs.at(".shade", "jobs", "runs", "order"))
    assert not is_full(fs)
    runs.end()
    assert ctl("forget", fs.path, "runs").returncode == 0
    wait_until(lambda: ctl("forget", fs.path).returncode == 0 and not jobs(fs), "ended")
    fs.end()


def plain_readers_are_forgotten_when_told():
    """Nobody says when a training that says nothing has ended."""
    fs, _ = mount(job_grace=1)
    Training(fs, hinted=False).end()
    assert is_full(fs)
    assert ctl("forget", fs.path).returncode == 0
    assert not is_full(fs)
    fs.end()


def coverage_is_of_what_a_job_reads():
    fs, _ = mount()
    some = [path for path in fs.samples() if path.startswith("class1/")]
    numbers = " ".join(str(fs.samples()[path]) for path in some)
    os.mkdir(fs.at(".shade", "jobs", "a"))
    with open(fs.at(".shade", "jobs", "a", "control"), "w") as control:
        control.write(f"order 1 begin\norder 1 {numbers}\norder 1 end\nepoch 1\n")
        control.flush()
        for path in some[:len(some) // 2]:
            read(fs.at(path))

        def coverage():
            with open(fs.at(".shade", "jobs", "a", "stats")) as file:
                stats = dict(line.split() for line in file)
            assert int(stats["reads_samples"]) == len(some), stats
            return float(stats["coverage"])

        wait_until(lambda: coverage() == 0.5, "half of its samples are read")
        for path in some:
            read(fs.at(path))
        wait_until(lambda: coverage() == 1, "all of them")
        shown = ctl("status", fs.path).stdout
        assert "job a: " in shown and "coverage 100.0 %" in shown, shown
    fs.end()


run_tests([it_ends_with_its_job, it_is_forgotten_at_once, those_that_run_stay,
           plain_readers_are_forgotten_when_told, coverage_is_of_what_a_job_reads])
