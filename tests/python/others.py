# SPDX-License-Identifier: LGPL-2.1-or-later
"""Scripts that do what others' do, unmodified below the hook: every training batch is scored to its
true file, and a validation reads what it would have read without."""
import json
import os
import socket
import tempfile

from harness import HERE, Shade, check_scores, image_tree, job_stats, mount_scores, need, \
    possible_scores, python, run_tests, scratch

need("PIL", "torch", "torchvision", "shade")
COUNT = 48
# That of torch 1.13 fails with Python 3.11 unless told what to do with standard output.
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--redirects", "1",
          "--tee", "1", "--log_dir", scratch)


def make_mount():
    root = image_tree(COUNT)
    with open(os.path.join(root, "train", "labels.txt"), "w") as file:
        file.write("all classes\n")
    return Shade(root, capacity="64M")


def run(mount, name, *words, before=(), hook=True):
    """What the ranks wrote down, and standard error."""
    out = tempfile.mktemp(dir=scratch)
    folder = os.path.join(HERE, "scripts")
    done = python(*(("-m", "shade", "run") if hook else ()), *before, os.path.join(folder, name),
                  mount.at("train"), out, *words,
                  PYTHONPATH=os.pathsep.join([os.environ["PYTHONPATH"], folder]))
    results = []
    while os.path.exists(f"{out}.{len(results)}"):
        with open(f"{out}.{len(results)}") as file:
            results.append(json.load(file))
        results[-1]["losses"] = {int(key): loss for key, loss in results[-1]["losses"].items()}
    return results, done.stdout + done.stderr


def check_one(name, *words, learnt=0, unused=0):
    """On one rank. Of its batches so many come while files are learnt, and so many are not used."""
    mount = make_mount()
    (result,), said = run(mount, name, *words)
    check_scores(result["training"][learnt:], result["losses"], mount_scores(mount))
    batches = len(result["training"])
    assert f"{batches + unused} batches, {batches - learnt} scored, {unused} not" in said, said
    assert "failed" not in said and job_stats(mount)["epoch"] == 2 + unused, said
    (plain,), _ = run(mount, name, *words, hook=False)
    epoch = batches // 3
    assert result["training"][:epoch] == plain["training"][:epoch], "the first epoch is its own"
    assert result["training"][epoch:] != plain["training"][epoch:], "and no more"
    assert result["validation"] == plain["validation"]
    mount.settle()
    mount.end()


def check_two(name, *words, before=LAUNCH, learnt=0, unused=0):
    """On two ranks: they part every epoch, and all scores are of the right samples."""
    mount = make_mount()
    results, said = run(mount, name, *words, before=before)
    assert len(results) == 2, said
    wanted = {}
    for result in results:
        for batch in result["training"]:
            for number, ranks in possible_scores(batch, result["losses"]).items():
                wanted.setdefault(number, set()).update(ranks)
    scores = mount_scores(mount)
    for number, score in scores.items():
        assert round(score, 4) in wanted[number], f"{number}: {score}, not {wanted[number]}"
    assert len(scores) > COUNT * 0.9, scores
    batches = len(results[0]["training"])
    for epoch in range(3):
        both = [number for result in results
                for batch in result["training"][epoch * batches // 3:(epoch + 1) * batches // 3]
                for number in batch]
        assert len(set(both)) >= len(both) - 2, f"epoch {epoch}: {sorted(both)}"
    line = f", {batches - learnt} scored, {unused} not"
    assert said.count(line) == 2, (line, said)
    assert "failed" not in said and "own sampler draws" not in said, said
    assert job_stats(mount)["epoch"] == 2, "both are one job, which announces"
    mount.settle()
    mount.end()


def test_timm():
    check_one("like_timm.py")
    check_two("like_timm.py")


def test_references():
    check_one("like_references.py")
    check_two("like_references.py")


def test_examples():
    check_one("like_examples.py")
    check_two("like_examples.py", "spawn", "2", before=())


def test_lightning():
    check_one("like_lightning.py", unused=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    check_two("like_lightning.py", "2", str(port), before=(), unused=1)


def test_accelerate():
    check_one("like_accelerate.py")
    check_two("like_accelerate.py")


def test_plain():
    check_one("plain.py", learnt=COUNT // 8)
    check_one("plain.py", "c", learnt=COUNT // 8)
    check_two("plain.py", learnt=COUNT // 16)


if __name__ == "__main__":
    run_tests([test_timm, test_references, test_examples, test_lightning, test_accelerate,
               test_plain])
