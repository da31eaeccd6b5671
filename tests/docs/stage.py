# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where the commands of the documents are run: a machine that looks as they expect. /mnt and /run
are empty, /usr and /etc have a layer over them with what an installation would put there, and the
addresses of docs/cluster.md are on loopback. A checkout has the build directory as `build`."""
import errno
import glob
import os
import random
import re
import signal
import subprocess
import time

SECONDS = 120  # that nothing here takes, on a busy machine
IMAGES = 48
SHELL = "set -e -o pipefail\n"
NODES = [f"10.0.0.{number}" for number in (1, 2, 3, 4)]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
METRICS = "/run/node-exporter"
# What a document names and a small machine has not, and what would take long.
REPLACED = {
    "/nfs/imagenet": "/mnt/nfs/imagenet",
    "/var/lib/prometheus/node-exporter": METRICS,
    "/tmp/": "/run/",
    "capacity=64G": "capacity=64M",
    "imagenet 64G": "imagenet 64M",
    "num_workers=8": "num_workers=2",
    "range(90)": "range(2)",
    "--samples 100000": "--samples 500",
    "shade-sim compare": "shade-sim compare --samples 500",
    "run --sim": "run --sim 500",
    " MNT": " /mnt/imagenet",
}

# A training as many have it, for one process or several.
TRAIN = """
import os, sys, torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor
data = ImageFolder("/mnt/imagenet/train", ToTensor())
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, len(data.classes)))
sampler = None
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    sampler = DistributedSampler(data)
for epoch in range(2):
    for images, labels in DataLoader(data, 8, shuffle=sampler is None, sampler=sampler):
        torch.nn.functional.cross_entropy(model(images), labels).backward()
print("trained", len(data))
"""

# What scripts have when they come to the lines that the documents show.
PRELUDE = """
import torch, torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor
import shade
class Writer:
    def add_scalar(self, tag, value, step):
        pass
dist.init_process_group("gloo", init_method="file:///run/store", rank=0, world_size=1)
transform, writer, mount = ToTensor(), Writer(), "/mnt/imagenet"
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
criterion = torch.nn.CrossEntropyLoss(reduction="none")
dataset = ImageFolder("/mnt/imagenet/train", transform)
loader = DataLoader(dataset, 16)
"""

# What C programs have declared.
C_PRELUDE = """
#include <stdio.h>
#include <shade/client.h>
#include <shade/score.h>
void function(const char *const *paths, uint32_t count, uint64_t epochs, const uint8_t *resident,
              uint32_t rank, uint32_t world, uint32_t *IDS, uint64_t room,
              const uint32_t *batch_ids, const float *losses);
"""


def replace(text):
    for old, new in REPLACED.items():
        text = text.replace(old, new)
    return text


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def answers(mount):
    """Whether its daemon does: the kernel remembers names and attributes for longer."""
    try:
        return bool(read(f"{mount}/.shade/stats"))
    except OSError:
        return False


def call(*words):
    subprocess.run(words, check=True, timeout=SECONDS)


class Stage:
    """The machine, and what is done on it."""

    def __init__(self, source, build, folder, skip):
        self.source, self.build, self.folder = source, build, folder
        self.checkout = os.path.join(folder, "checkout")
        self.python, self.servers = [], []
        self.environments, self.helps = {}, {}  # of documents, of benchmarks
        self.environment = {"PATH": PATH, "HOME": folder, "LANG": "C.UTF-8", "TERM": "dumb",
                            "PYTHONPATH": os.path.join(build, "python"), "OMP_NUM_THREADS": "1",
                            "PYTHONDONTWRITEBYTECODE": "1", "MANPAGER": "cat"}
        for point in ("/run", "/mnt"):
            call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", point)
        call("ip", "link", "set", "lo", "up")
        for address in NODES:
            call("ip", "address", "add", f"{address}/32", "dev", "lo")
        for place in ("/usr", "/etc"):
            self.layer(place, skip)
        self.install()
        self.make_data()

    @staticmethod
    def layer(place, skip):
        """What is written there from now on is ours alone."""
        upper, work = (f"/run/layers{place}/{name}" for name in ("upper", "work"))
        os.makedirs(upper)
        os.makedirs(work)
        done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                               f"lowerdir={place},upperdir={upper},workdir={work}", place],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            skip(f"no overlay over {place}: {done.stderr.strip()}")

    def install(self):
        """What `meson install` would leave, and a checkout; the test `install` does the former."""
        for place, name in (("sbin/shadefs", "fs/shadefs"), ("sbin/mount.fuse.shadefs", "fs/shadefs"),
                            ("bin/shadectl", "client/shadectl"), ("bin/shade-sim", "sim/shade-sim"),
                            ("bin/shade-score", "cuda/shade-score")):
            program = os.path.join(self.build, name)
            assert os.access(program, os.X_OK), program
            if os.path.lexists(f"/usr/{place}"):
                os.remove(f"/usr/{place}")
            os.symlink(program, f"/usr/{place}")
        call("cp", f"{self.source}/packaging/shadefs-unit", "/usr/sbin/shadefs-unit")
        call("install", "-D", "-m", "644", f"{self.source}/packaging/redis/shadefs-redis.conf",
             "/usr/share/doc/shadefs/examples/shadefs-redis.conf")
        for section in (1, 8):
            os.makedirs(f"/usr/local/share/man/man{section}", exist_ok=True)
            call("sh", "-c", f"cp '{self.source}'/docs/man/*.{section} "
                             f"/usr/local/share/man/man{section}")
        os.mkdir(self.checkout)
        for name in os.listdir(self.source):
            if not name.startswith(("build", ".")):
                os.symlink(os.path.join(self.source, name), os.path.join(self.checkout, name))
        os.symlink(self.build, os.path.join(self.checkout, "build"))
        os.mkdir(METRICS)
        os.mkdir("/run/state")
        write(os.path.join(self.checkout, "train.py"), TRAIN)
        write("/usr/local/bin/train", "#!/bin/sh\nprintf '0 0 1.5\\n0 1 2.5\\n0 end\\n'\n", 0o755)

    @staticmethod
    def make_data():
        """A small ImageFolder where the NFS server would be."""
        from PIL import Image
        chance = random.Random(1)
        for number in range(IMAGES):
            path = f"/mnt/nfs/imagenet/train/class{number % 4}/{number:03}.png"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Image.frombytes("RGB", (8, 8), chance.randbytes(192)).save(path)
        os.mkdir("/mnt/imagenet")

    def execute(self, words, text="", environment=None, folder=None):
        """Runs it; its exit status and all that it printed. Daemons that it leaves have the file,
        so that nobody waits for them."""
        log = os.path.join(self.folder, "log")
        with open(log, "w") as file, subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, text=True,
                env=environment or self.environment, cwd=folder or self.checkout) as process:
            try:
                process.communicate(text, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return None, read(log)
        return process.returncode, read(log)

    def shell(self, where, path, commands, entered):
        """Runs them in one shell, whose variables the document's next blocks have, too; in a shell
        that a command has begun, if one has."""
        environment = self.environments.get(path, self.environment)
        script = SHELL + "set -x\n" + replace("\n".join(commands)) + "\n"
        kept = os.path.join(self.folder, "environment")
        if not entered:
            script += f"set +x\nenv -0 > '{kept}'\n"
        begin = time.monotonic()
        code, said = self.execute(entered.split() if entered else ["bash"], script, environment)
        assert code == 0, f"exit {code}: {said[-3000:]}"
        print(f"{time.monotonic() - begin:5.1f} s  {where}", flush=True)
        if path and not entered:
            self.environments[path] = dict(pair.split("=", 1)
                                           for pair in read(kept).split("\0") if pair)
        self.see_what_came(commands)

    def see_what_came(self, commands):
        """Of commands that could do nothing and still succeed."""
        last = commands[-1].split("\n")[0]
        if re.search(r"(?<!u)mount.* /mnt/imagenet$|(shadefs|run) .*/mnt/imagenet$", replace(last)):
            assert os.path.exists("/mnt/imagenet/.shade/control"), "nothing is mounted"
            self.see_files()
        if last.startswith("shadefs-metrics "):
            lines = [line for line in read(f"{METRICS}/shadefs-imagenet.prom").split("\n")
                     if line and not line.startswith("#")]
            assert len(lines) > 20 and all(re.match(r'\w+\{mount="imagenet"', line)
                                           for line in lines), lines

    @staticmethod
    def see_files():
        for folder, _, names in os.walk("/mnt/nfs/imagenet"):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file, \
                        open(path.replace("/mnt/nfs", "/mnt"), "rb") as other:
                    assert file.read() == other.read(), path

    def kill_daemon(self):
        """Readers get errors, and nobody waits."""
        self.have_mount(False)
        self.have_mount(True)
        for folder in glob.glob("/proc/[0-9]*"):
            if read(f"{folder}/comm") == "shadefs\n":
                os.kill(int(os.path.basename(folder)), signal.SIGKILL)
        end = time.monotonic() + SECONDS
        while answers("/mnt/imagenet"):
            assert time.monotonic() < end, "the mount goes on"
            time.sleep(0.02)
        try:
            self.see_files()
        except OSError as failure:
            assert failure.errno in (errno.ENOTCONN, errno.ECONNABORTED), failure
        else:
            raise AssertionError("files of a dead mount can be read")

    def have_mount(self, wanted):
        mounted = answers("/mnt/imagenet")
        if wanted and not mounted:
            code, said = self.execute(["shadefs", "-o", "capacity=64M", "/mnt/nfs/imagenet",
                                       "/mnt/imagenet"])
            assert code == 0, said
        elif mounted and not wanted:
            code, said = self.execute(["shadectl", "umount", "/mnt/imagenet"])
            assert code == 0, said

    @staticmethod
    def write_fstab(line):
        write("/etc/fstab", replace(line) + "\n")

    def mount_by_fstab(self, where, line):
        """As at boot; a server that is not there is only checked."""
        self.write_fstab(line)
        fake = ["-f"] if line.startswith("nfs://") else []
        code, said = self.execute(["mount", *fake, "/mnt/imagenet"])
        assert code == 0, f"{where}: {said}"
        if not fake:
            self.see_files()
            self.have_mount(False)

    def start_cluster(self, settings):
        """`redis-server /etc/shadefs/redis.conf` on four machines, with these settings on top."""
        plain = read("/etc/shadefs/redis.conf")
        for address in NODES:
            folder = f"/run/redis-{address}"
            os.mkdir(folder)
            write(f"{folder}/redis.conf", "\n".join([
                plain, settings.replace("10.0.0.1", address).replace("64gb", "64mb"),
                # Other machines send from an address of their own; loopback takes the receiver's.
                f"bind-source-addr {address}", f"dir {folder}\n"]))
            with open(f"{folder}/log", "w") as log:
                self.servers.append(subprocess.Popen(["redis-server", f"{folder}/redis.conf"],
                                                     stdout=log, stderr=log))
        for address in NODES:
            end = time.monotonic() + SECONDS
            while "Ready to accept" not in read(f"/run/redis-{address}/log"):
                assert time.monotonic() < end, read(f"/run/redis-{address}/log")
                time.sleep(0.05)

    def check_bench(self, keys):
        """They take long, and the tests bench_* run the programs; but the options are theirs."""
        for key in keys:
            name, *words = key.split()[1:] or ["train"]
            if name in ("score", "sched"):
                assert os.access(f"{self.build}/tests/bench/bench-{name}", os.X_OK), key
                continue
            if name not in self.helps:
                self.helps[name] = self.execute(["/usr/bin/python3", f"tests/bench/{name}.py",
                                                 "build", "--help"])
            code, said = self.helps[name]
            assert code == 0, said
            unknown = {word for word in words if word.startswith("--")} - set(options(said))
            assert not unknown, f"'{key}': there is no {unknown}"

    def check_names(self, text):
        """A synopsis of scripts/bench has all benchmarks, and no others."""
        code, said = self.execute(["scripts/bench"])
        usage = next(line for line in said.split("\n") if line.startswith("usage: "))
        assert code == 2 and usage.split()[-1] == text.split()[1], f"{text}, not {usage}"

    def check_options(self, text):
        """A synopsis of the hook has all options, and no others."""
        code, said = self.execute(["python3", "-m", "shade", "run", "--help"])
        told, there = set(options(text)), set(options(said)) - {"--help"}
        assert code == 0 and told == there, f"only in one of both: {told ^ there}: {said}"

    def compile(self, where, text):
        ids = "" if "ids[]" in text else "uint32_t *ids = IDS; uint32_t n; (void)n;\n"
        code, said = self.execute(
            ["cc", "-std=c99", "-Wall", "-fsyntax-only", "-x", "c", f"-I{self.source}/include", "-"],
            C_PRELUDE.rstrip(";\n") + "\n{\n" + ids + re.sub(r"\.\.\. ", "", text) + "\n}\n")
        assert code == 0, f"{where}: {said}"

    def run_python(self):
        """All blocks in one process, one after the other, as a script has them."""
        self.have_mount(True)
        script = PRELUDE
        for where, text in self.python:
            script += f"print({where!r}, flush=True)\nexec(compile({replace(text)!r}, {where!r}, " \
                      "'exec'))\n"
        begin = time.monotonic()
        code, said = self.execute(["/usr/bin/python3", "-"], script)
        assert code == 0, said[-3000:]
        print(f"{time.monotonic() - begin:5.1f} s  Python", flush=True)


def options(text):
    return re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
