# SPDX-License-Identifier: LGPL-2.1-or-later
"""Killing the trainer leaves the mount serving; killing the mount leaves the trainer going."""
import os
import signal
import subprocess
import sys
import warnings

from harness import TRAIN, Shade, image_tree, job_file, job_stats, mount_scores, need, run_tests, scratch, \
    wait_until

need("torch", "PIL", "torchvision", "shade")
import shade  # noqa: E402 pylint: disable=wrong-import-position


def test_trainer_killed():
    source = image_tree(64)
    mount = Shade(source, capacity="64M")
    trainer = subprocess.Popen([sys.executable, TRAIN, mount.at("train"),
                                os.path.join(scratch, "never"), "--shade", mount.path,
                                "--epochs", "1000000", "--batch-size", "4"],
                               start_new_session=True)
    try:
        wait_until(lambda: len(mount_scores(mount)) > 30, "training", 60)
    finally:
        os.killpg(trainer.pid, signal.SIGKILL)
        trainer.wait()
    for path in mount.samples():
        with open(mount.at(path), "rb") as one, open(os.path.join(source, path), "rb") as other:
            assert one.read() == other.read(), path
    # The next training begins at its first epoch, whatever was left of the last.
    sampler = shade.Sampler([mount.at(path) for path in mount.samples()], mount=mount.path)
    list(sampler)
    stats = job_stats(mount, sampler.job)
    assert stats["epoch"] == 0 and stats["order_ahead"] == 67, stats
    mount.settle()
    mount.end()


def test_mount_killed():
    source = image_tree(64)
    mount = Shade(source, capacity="64M")
    names = sorted(mount.samples())
    # In a mode that does not look at what is resident, so that the orders can be known.
    sampler = shade.Sampler([mount.at(name) for name in names], mount=mount.path, seed=2,
                            mode="uniform")
    twin = shade.Sampler(len(names), seed=2, mode="uniform")

    def epoch(kill_at=None):
        order = list(sampler)
        assert order == list(twin), "sampling goes on as if nothing had happened"
        for first in range(0, len(order), 8):
            if first == kill_at:
                mount.die()
            losses = [float(number) for number in order[first:first + 8]]
            sampler.update(losses)
            twin.update(losses)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        epoch()
        assert len(mount_scores_of(mount)) == len(names)
        epoch(kill_at=32)
        epoch()
        epoch()
    assert [warning.category for warning in caught] == [shade.MountWarning], \
        [str(warning.message) for warning in caught]
    assert "sampling goes on" in str(caught[0].message) and sampler.mount is None
    assert all(score > 0 for score in sampler.scorer.scores())

    # It comes back in the same place: hints reach it again from the next epoch on.
    subprocess.run(["umount", "-l", mount.path], check=True)
    log = open(mount.log, "ab")
    mount.process = subprocess.Popen([sys.argv[1], "-f", "-o", "capacity=64M", source, mount.path],
                                     stdout=log, stderr=log)
    wait_until(lambda: os.path.exists(mount.at(".shade", "stats"))
               and mount.stats()["scan_complete"] == 1, "mounted again")
    epoch()
    assert sampler.mount is not None and job_stats(mount)["epoch"] == 4
    assert len(mount_scores_of(mount)) > 20
    log.close()
    mount.settle()
    mount.end()


def mount_scores_of(mount):
    with open(job_file(mount, "scores")) as file:
        return [line for line in file if float(line.split("\t")[1]) >= 0]


def test_unmounted_at_start():
    mount = Shade(image_tree(8))
    files = [mount.at(name) for name in mount.samples()]
    mount.die()
    try:
        shade.Sampler(files, mount=mount.path)
    except shade.ShadeError as failure:
        assert "is gone" in str(failure), failure
        return
    raise AssertionError("no error")


run_tests([test_trainer_killed, test_mount_killed, test_unmounted_at_start])
