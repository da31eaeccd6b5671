# SPDX-License-Identifier: LGPL-2.1-or-later
"""The systemd units as systemd reads them, and what shadefs-unit writes for them: units.py ROOT.
Without systemd-analyze the first part is left out; nothing is started."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = sys.argv[1]
UNIT = os.path.join(ROOT, "packaging", "shadefs-unit")
# What systemd-analyze security may say of the service, in tenths: it runs as root, mounts, and can
# have no mount namespace of its own.
EXPOSURE = 45
# Parts of names that shells, systemd and mount(8) have their own ideas of.
ODD = ["plain", "a b", "quo\"ted, sing'le", "dollar$HOME", "${SOURCE}$(id)", "back\\slash", "back`id`tick", "100%",
       "%i;# *", " first=com,ma", "-dash-übung"]
scratch = tempfile.mkdtemp(prefix="shade-units-")
failed = []


def expect(holds, what):
    if not holds:
        failed.append(what)
        print("FAILED:", what)


def run(*arguments, root=None):
    return subprocess.run([UNIT, *(["--root", root] if root else []), *arguments],
                          capture_output=True, text=True)


def read(path):
    with open(path) as file:
        return file.read()


def unquote(text, special):
    """Undoes what systemd undoes in double quotes."""
    assert text[0] == text[-1] == '"', text
    return re.sub(r"\\([%s])" % re.escape(special), r"\1", text[1:-1])


def make(name, *parts):
    path = os.path.join(scratch, name, *parts)
    os.makedirs(path, exist_ok=True)
    return path


def what_it_writes():
    for number, odd in enumerate(ODD):
        source, point = make(f"s{number}", odd), make(f"m{number}", odd, "point")
        root = make(f"root{number}")
        done = run("--files", "1000", "data", source, point, "8G", "allow_other", "policy=lru", root=root)
        expect(done.returncode == 0 and not done.stderr, f"{odd}: {done}")
        conf = dict(line.split("=", 1) for line in read(f"{root}/etc/shadefs/data.conf").splitlines()
                    if not line.startswith("#"))
        expect(unquote(conf["SOURCE"], '\\"`$') == source, f"{odd}: {conf}")
        expect(unquote(conf["MOUNTPOINT"], '\\"`$') == point, f"{odd}: {conf}")
        expect(conf["OPTIONS"] == f'"capacity={8 << 30},allow_other,policy=lru"', f"{odd}: {conf}")
        dropin = read(f"{root}/etc/systemd/system/shadefs@data.service.d/50-shadefs.conf")
        expect(f"\nMemoryLow={8 << 30}\nMemoryMax={(8 << 30) + (256 << 20) + 1000 * 2048}\n" in dropin, dropin)
        done = run("data", source, point, "8G", root=root)
        expect(done.returncode == 1 and "--force" in done.stderr, f"written over: {done}")
        expect(run("--force", "data", source, point, "8G", root=root).returncode == 0, "--force")


def what_it_writes_for_a_server():
    point, root = make("server", "point"), make("server-root")
    done = run("data", "nfs://server/a%20b", point, "8G", "uid=7", root=root)
    expect(done.returncode == 0 and not done.stderr, f"nfs://: {done}")
    expect('SOURCE="nfs://server/a%20b"\n' in read(f"{root}/etc/shadefs/data.conf"), "the URL is kept")
    dropin = read(f"{root}/etc/systemd/system/shadefs@data.service.d/50-shadefs.conf")
    expect("AF_INET6" in dropin and "CAP_NET_BIND_SERVICE" in dropin and "nfs:" not in dropin, dropin)
    done = run("tier", make("server", "files"), point, "8G", "tier=redis://a:6379,b:6379", root=root)
    dropin = read(f"{root}/etc/systemd/system/shadefs@tier.service.d/50-shadefs.conf")
    expect("AF_INET6" in dropin and "CAP_NET_BIND_SERVICE" not in dropin, dropin)
    if shutil.which("systemd-escape"):
        done = run("--mount", "nfs://server/a%20b", point, "8G", root=root)
        expect(done.returncode == 0 and not done.stderr, f"nfs://: {done}")
    for wrong in ["nfs://server", "nfs:///export", "nfs://", "nfs://server/a\nb", "server:/export"]:
        done = run("other", wrong, point, "8G", root=root)
        expect(done.returncode == 1 and "SOURCE" in done.stderr, f"{wrong!r} is accepted: {done}")


def settings(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")


def what_it_writes_for_a_mount():
    for number, odd in enumerate(ODD):
        source, point = make(f"ms{number}", odd), make(f"mm{number}", odd, "point")
        root = make(f"mroot{number}")
        arguments = ["--mount", "--files", "1000", source, point, "8G", "allow_other", "fsname=50%"]
        done = run(*arguments, root=root)
        expect(done.returncode == 0 and not done.stderr, f"{odd}: {done}")
        name = subprocess.run(["systemd-escape", "--path", "--suffix=mount", point], capture_output=True,
                              text=True, check=True).stdout.strip()
        expect(done.stdout.endswith(f"systemctl enable --now '{name}'\n"), f"{odd}: {done}")
        expect(os.listdir(f"{root}/etc") == ["systemd"], f"{odd}: more than the unit")
        unit = settings(read(f"{root}/etc/systemd/system/{name}"))
        expect(unit["What"].replace("%%", "%") == source and unit["Where"].replace("%%", "%") == point, f"{odd}: {unit}")
        expect(unit["Options"] == f"capacity={8 << 30},allow_other,fsname=50%%,_netdev", f"{odd}: {unit}")
        expect((int(unit["MemoryLow"]), int(unit["MemoryMax"])) ==
               (8 << 30, (8 << 30) + (256 << 20) + 1000 * 2048), f"{odd}: {unit}")
        done = run(*arguments, root=root)
        expect(done.returncode == 1 and "--force" in done.stderr, f"written over: {done}")
        expect(run("--force", *arguments, root=root).returncode == 0, "--force")
    root = make("mount-refused")
    for arguments, words in (([source, point], "say SOURCE"), ([make("end "), point, "1G"], "blank"),
                             ([source, make("end\\"), "1G"], "backslash"), ([source, point, "1X"], "1X")):
        done = run("--mount", *arguments, root=root)
        expect(done.returncode == 1 and words in done.stderr and not done.stdout, f"{arguments}: {done}")
    expect(not os.listdir(root), "nothing is written by mistake")
    # The example is one that it could have written.
    root, point = make("example"), make("example-point")
    expect(run("--mount", "--files", "1281167", make("nfs"), point, "64G", root=root).returncode == 0, "the example")
    folder = f"{root}/etc/systemd/system"
    unit = settings(read(os.path.join(folder, os.listdir(folder)[0])))
    example = settings(read(os.path.join(ROOT, "packaging", "systemd", "mnt-imagenet.mount")))
    expect(unit.keys() == example.keys() and unit["MemoryMax"] == example["MemoryMax"]
           and example["MemoryLow"] == "64G", f"the example: {example}, not {unit}")


def what_it_refuses():
    source, point, root = make("source"), make("point"), make("refused")
    for arguments, words in ((["x", source, point], "CAPACITY"), (["../x", source, point, "1G"], "NAME"),
                             (["x", "source", point, "1G"], "SOURCE"), (["x", source, "/nonexistent", "1G"], "make it"),
                             (["x", source, point, "1X"], "1X"), (["x", source, point, "-1"], "-1"),
                             (["x", source, point, ""], "CAPACITY"), (["x", source, point, "0%"], "0%"),
                             (["x", source, point, "101%"], "101%"), (["x", source, point, "1K"], "1M"),
                             (["x", source, point, "9999999T"], "9999999T"),
                             (["x", source, point, "99999999999999999999"], "9999"),
                             (["x", source, point, "1G", "capacity=2G"], "capacity"),
                             (["x", source + "\n", point, "1G"], "newline"),
                             (["x", source, make("a\nExecStart=id"), "1G"], "newline"),
                             (["x", source + "/\033[2J", point, "1G"], "control"),
                             (["x", source, point, "1G", "fsname=a\nb"], "control"),
                             (["x\ny", source, point, "1G"], "NAME"), (["x y", source, point, "1G"], "NAME"),
                             (["x%i", source, point, "1G"], "NAME"), (["$(id)", source, point, "1G"], "NAME"),
                             (["--files", "many", "x", source, point, "1G"], "many"),
                             (["--size", "x", source, point, "1G"], "--size"), (["--files"], "--files")):
        done = run(*arguments, root=root)
        expect(done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1
               and not done.stdout, f"{arguments}: {done}")
    expect(not os.listdir(root), "nothing is written by mistake")
    with open("/proc/meminfo") as file:
        ram = int(file.readline().split()[1]) * 1024
    done = run("x", source, point, "50%", root=root)
    expect(done.returncode == 0 and not done.stderr, f"a share: {done}")
    done = run("y", source, point, str(ram + 1), root=root)
    expect(done.returncode == 0 and "more than" in done.stderr, f"more than there is: {done}")
    expect(f"capacity={ram * 50 // 100}" in read(f"{root}/etc/shadefs/x.conf"), "of RAM")


def what_systemd_says():
    units, root = make("units"), make("verified")
    shutil.copytree(os.path.join(ROOT, "packaging", "systemd"), units, dirs_exist_ok=True)
    text = read(os.path.join(units, "shadefs@.service.in")).replace("@SBINDIR@/shadefs", "/bin/true")
    expect("\nExecReload=@BINDIR@/shadectl upgrade ${MOUNTPOINT}\n" in text, "a reload upgrades, and waits")
    text = text.replace("@BINDIR@/shadectl", "/bin/true")
    with open(os.path.join(units, "shadefs@.service"), "w") as file:
        file.write(text)
    for name, odd in (("plain", "plain"), ("odd", "a b\\c\"d%e$f")):
        run(name, make("source", odd), make("point", odd), "1G", root=root)
        shutil.copytree(f"{root}/etc/systemd/system/shadefs@{name}.service.d", f"{units}/shadefs@{name}.service.d")
        run("--mount", make("source", odd), make("point", odd), "1G", root=root)
    mounts = [name for name in os.listdir(f"{root}/etc/systemd/system") if name.endswith(".mount")]
    for name in mounts:
        shutil.copy(f"{root}/etc/systemd/system/{name}", units)
    expect(len(mounts) == 2, mounts)

    def verify(*names):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *names],
                              capture_output=True, text=True, cwd=units,
                              env={**os.environ, "SYSTEMD_UNIT_PATH": units + ":", "SYSTEMD_LOG_COLOR": "0"})
        return done.returncode, done.stderr

    for name in ("shadefs@plain.service", "shadefs@odd.service", "shadefs.slice", "mnt-imagenet.mount", *mounts):
        code, said = verify(name)
        ours = [line for line in said.splitlines() if "shadefs" in line or "imagenet" in line or "units" in line]
        expect(code == 0 and not ours, f"{name}: {said}")
    exposure(units, text)
    with open(os.path.join(units, "shadefs@plain.service.d", "bad.conf"), "w") as file:
        file.write("[Service]\nMemoryLou=1\nMemoryMax=much\nKillMode=some\n")
    said = verify("shadefs@plain.service")[1]
    expect("MemoryLou" in said and "much" in said and "some" in said, f"mistakes are not found: {said}")


def exposure(units, text):
    """The service keeps out of what it does not need, and of mount namespaces."""
    def judge(threshold):
        return subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                               f"--threshold={threshold}", "./shadefs@plain.service"],
                              capture_output=True, text=True, cwd=units)

    hides = re.findall(r"^(?:Private(?!Network)\w+|Protect(?!Clock|Hostname)\w+|MountFlags|RootDirectory|\w+Paths)=",
                       text, re.M)
    expect(not hides, f"these would hide the mount from everybody: {hides}")
    shutil.copy(os.path.join(units, "shadefs@.service"), os.path.join(units, "shadefs@plain.service"))
    done = judge(EXPOSURE)
    if "offline" in done.stderr:
        print("this systemd-analyze cannot judge a unit that is not loaded")
    else:
        expect(done.returncode == 0, f"the service is too exposed: {done.stdout[-3000:]}{done.stderr}")
        expect(judge(EXPOSURE - 20).returncode != 0, "any service would be good enough")
    os.unlink(os.path.join(units, "shadefs@plain.service"))


try:
    what_it_writes()
    what_it_refuses()
    what_it_writes_for_a_server()
    if shutil.which("systemd-escape"):
        what_it_writes_for_a_mount()
    else:
        print("without systemd-escape no mount unit was written")
    if shutil.which("systemd-analyze"):
        what_systemd_says()
    else:
        print("without systemd-analyze the units themselves were not looked at")
finally:
    shutil.rmtree(scratch)
print("failed:", len(failed))
sys.exit(1 if failed else 0)
