# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real training through a real mount scores every sample by its true id."""
import json
import os
import subprocess
import sys
import tempfile

from harness import HERE, TRAIN, Shade, check_scores, image_tree, job_stats, mount_scores, need, \
    python, run_tests, scratch, wait_until

need("PIL", "torch", "torchvision", "shade")


def train(shade, *words, hook=(), **environment):
    """Runs train.py on the mount. What it wrote, and standard error."""
    out = tempfile.mktemp(dir=scratch)
    done = python(*hook, TRAIN, shade.at("train"), out, *words, **environment)
    with open(out) as file:
        result = json.load(file)
    result["losses"] = {int(key): value for key, value in result["losses"].items()}
    return result, done.stderr


def mounted(count=90):
    return Shade(image_tree(count), capacity="64M")


def test_sampler():
    shade = mounted()
    result, stderr = train(shade, "--shade", shade.path)
    assert sum(map(len, result["batches"])) == 180 and not stderr, stderr
    check_scores(result["batches"], result["losses"], mount_scores(shade))
    assert len(mount_scores(shade)) == 90, "an unscored sample comes before all others"
    assert job_stats(shade)["epoch"] == 1
    shade.settle()
    shade.end()


def test_logits_and_drop_last():
    shade = mounted()
    result, _ = train(shade, "--shade", shade.path, "--logits", "--drop-last", "--epochs", "1")
    assert [len(batch) for batch in result["batches"]] == [16] * 5
    check_scores(result["batches"], result["losses"], mount_scores(shade))
    assert len(mount_scores(shade)) == 80
    shade.settle()
    shade.end()


def test_checker_can_fail():
    """The check finds scores that belong to a neighbour, and those of another rule."""
    shade = mounted(32)
    result, _ = train(shade, "--shade", shade.path, "--epochs", "1")
    scores = mount_scores(shade)
    for wrong in ({(number + 1) % 32: score for number, score in scores.items()},
                  {number: score + 0.01 for number, score in scores.items()},
                  {number: score for number, score in scores.items() if number}):
        try:
            check_scores(result["batches"], result["losses"], wrong)
        except AssertionError:
            continue
        raise AssertionError("wrong scores were not found")
    shade.settle()
    shade.end()


def test_hook():
    shade = mounted()
    result, stderr = train(shade, "--epochs", "2", hook=("-m", "shade", "run", "--mix", "0.2"),
                           SHADE_SEED="4")
    assert result["shade"] and sum(map(len, result["batches"])) == 180
    check_scores(result["batches"], result["losses"], mount_scores(shade))
    assert len(mount_scores(shade)) == 90
    assert f"shuffle=True became shade.Sampler, mode auto, seed 4, rank 0 of 1, {shade.path}" \
        in stderr, stderr
    assert "DataLoader 2 (ImageFolder) is left alone: it does not shuffle" in stderr, stderr
    assert "at the end: DataLoader 1: 12 batches, 12 scored, 0 not" in stderr, stderr
    # The first epoch is the script's own, with its losses and gradients, bit for bit.
    plain, _ = train(shade, "--epochs", "2")
    assert plain["batches"][:6] == result["batches"][:6]
    assert plain["batches"][6:] != result["batches"][6:]
    assert plain["values"][:6] == result["values"][:6]
    shade.settle()
    shade.end()


def test_hook_ahead():
    """A script that is one batch ahead of its losses."""
    shade = mounted()
    result, stderr = train(shade, "--ahead", hook=("-m", "shade", "run"))
    check_scores(result["batches"], result["losses"], mount_scores(shade))
    assert len(mount_scores(shade)) == 90
    assert "at the end: DataLoader 1: 12 batches, 12 scored, 0 not" in stderr, stderr
    shade.settle()
    shade.end()


TRAINING = """
import sys, shade
sampler = shade.Sampler(sys.argv[2:], mount=sys.argv[1], mode="uniform")
print(sampler.job, flush=True)
for line in sys.stdin:
    for number, path in zip(range(int(line)), [sys.argv[2 + index] for index in sampler]):
        with open(path, "rb") as file:
            file.read()
    print("read", flush=True)
"""


def test_two_trainings():
    """Each has a job of its own, unasked, and does not use up the other's order."""
    shade = mounted(40)
    paths = sorted(shade.at(path) for path in shade.samples() if path.endswith(".png"))
    both = [subprocess.Popen([sys.executable, "-c", TRAINING, shade.path, *paths], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        jobs = [training.stdout.readline().strip() for training in both]
        assert len(set(jobs)) == 2 and set(os.listdir(shade.at(".shade", "jobs"))) == set(jobs)

        def step(training, count):
            training.stdin.write(f"{count}\n")
            training.stdin.flush()
            assert training.stdout.readline() == "read\n"
        step(both[0], 0)
        step(both[1], 40)
        wait_until(lambda: job_stats(shade, jobs[1])["order_ahead"] == 40, "one epoch was read")
        stats = [job_stats(shade, job) for job in jobs]
        assert [each["order_ahead"] for each in stats] == [80, 40], stats
        assert stats[0]["accesses"] == 0 and stats[1]["accesses"] == 40, stats
    finally:
        for training in both:
            training.stdin.close()
            training.wait()
    shade.settle()
    shade.end()


def test_state():
    """What one run has scored, the next one goes on with."""
    shade = mounted()
    state = os.path.join(scratch, "hook-state")
    hook = ("-m", "shade", "run", "--mode", "pads", "--state", state)
    first, said = train(shade, hook=hook)
    assert "goes on" not in said, said
    plain, _ = train(shade)
    assert first["batches"][:6] == plain["batches"][:6], "nothing is known before"
    again, said = train(shade, hook=hook)
    assert f"goes on with the scores of {state}" in said, said
    assert again["batches"][:6] != plain["batches"][:6], "shade draws from the beginning"
    with open(state, "w") as file:
        file.write("{}")
    done = python(*hook, TRAIN, shade.at("train"), "out", check=False)
    assert done.returncode == 2 and "is not a state" in done.stderr, done.stderr
    shade.settle()
    shade.end()


def test_bound_folder():
    """As in a container that has a folder of the mount alone: .shade is found by SHADE_CONTROL, and
    without it one sentence says what to bind."""
    shade = mounted(32)
    data, control = (tempfile.mkdtemp(prefix="bound-", dir=scratch) for _ in range(2))
    for path, point in ((shade.at("train"), data), (shade.at(".shade"), control)):
        subprocess.run(["mount", "--bind", path, point], check=True)
    out = os.path.join(scratch, "bound.json")
    try:
        hook = ("-m", "shade", "run", TRAIN, data, out)
        said = python(*hook).stderr
        assert "left alone" in said and "SHADE_CONTROL" in said, said
        said = python(*hook, SHADE_CONTROL=control).stderr
        assert "at the end: DataLoader 1: 4 batches, 4 scored, 0 not" in said, said
        with open(out) as file:
            result = json.load(file)
        losses = {int(key): value for key, value in result["losses"].items()}
        check_scores(result["batches"], losses, mount_scores(shade))
        assert job_stats(shade)["epoch"] == 1
    finally:
        for point in (data, control):
            subprocess.run(["umount", "-l", point], check=True)
    shade.settle()
    shade.end()


def test_no_hook():
    """Off unless asked for, whatever the environment names."""
    shade = mounted(32)
    result, stderr = train(shade, "--epochs", "1", SHADE_MOUNT=shade.path)
    assert not result["shade"] and not stderr, stderr
    assert not mount_scores(shade)
    shade.settle()
    shade.end()


def test_hook_elsewhere():
    """Files that are on no shadefs are left alone, a mount that is none is refused."""
    root = os.path.join(image_tree(16), "train")
    out = os.path.join(scratch, "out.json")
    stderr = python("-m", "shade", "run", TRAIN, root, out, "--epochs", "1").stderr
    assert "left alone: its files are not on a shadefs" in stderr, stderr
    assert "no DataLoader was changed" in stderr, stderr
    done = python("-m", "shade", "run", "--mount", root, TRAIN, root, out, check=False)
    assert done.returncode == 2 and "no shadefs is mounted" in done.stderr, done.stderr
    stderr = python("-m", "shade", "run", "--mount", "none", TRAIN, root, out, "--epochs",
                    "1").stderr
    assert "no mount" in stderr and "1 batches, 1 scored" in stderr, stderr


def test_refused():
    """What cannot be run is said in one sentence, and not with a traceback."""
    for words, environment, sentence in (
            ((TRAIN,), {"SHADE_SEED": "x"}, "SHADE_SEED is a number, not 'x'"),
            ((TRAIN,), {"SHADE_SEED": "-1"}, "seed is out of range: -1"),
            ((TRAIN,), {"SHADE_MODE": "best"}, "mode is one of"),
            (("--rep", "0", TRAIN), {}, "rep"),
            (("--mix", "2", TRAIN), {}, "mix is a share from 0 to 1, not 2.0"),
            (("/nowhere/train.py",), {}, "No such file or directory: '/nowhere/train.py'"),
            (("-m", "nowhere.train"), {}, "no module 'nowhere.train'")):
        done = python("-m", "shade", "run", *words, check=False, **environment)
        assert done.returncode == 2 and sentence in done.stderr, (words, done.stderr)
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("shade: "), done.stderr
    done = python("-m", "shade", "run", "--seed", "1", TRAIN, "-h", SHADE_SEED="x")
    assert "--drop-last" in done.stdout, "the option is the one that counts"
    for mode in ("auto", "pads", "echo", "paper"):
        python("-m", "shade", "run", "--mode", mode, "-m", "this")
    done = python("-m", "shade", "run", "-m", "timeit", "-n", "1", "pass")
    assert "loop" in done.stdout and "no DataLoader was changed" in done.stderr


def test_examples():
    shade = mounted(64)
    examples = os.path.join(HERE, "..", "..", "examples")
    done = python(os.path.join(examples, "pytorch_imagefolder.py"), shade.at("train"), "--epochs",
                  "2", "--size", "8")
    assert "hit ratio" in done.stdout, done.stdout
    assert len(mount_scores(shade)) == 64
    done = python(os.path.join(examples, "plain_loop.py"), shade.at("train"), "--epochs", "2")
    assert "coverage" in done.stdout, done.stdout
    shade.settle()
    shade.end()


run_tests([test_sampler, test_logits_and_drop_last, test_checker_can_fail, test_hook,
           test_hook_ahead, test_two_trainings, test_state, test_bound_folder, test_no_hook, test_hook_elsewhere, test_refused, test_examples])
