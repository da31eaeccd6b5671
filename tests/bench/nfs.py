# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench nfs: files of an NFS server read once, through a fresh mount of nfs:// in no order
and in an order that it knows, against libnfs's own open, read and close; how much of a narrow link
is used; and a scan. Server, network and mounts are in namespaces of their own."""
import os
import resource
import subprocess
import sys
import tempfile
import time

import lab

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nfs"))
# pylint: disable=wrong-import-position
import server as nfs

FILE_BYTES = 110_000
DELAYS_US = (0, 250, 1000)  # one way
DEPTHS = (1, 4, 16, 64)     # of libnfs; the best of them is compared, too
EQUAL = (1, 16)             # depths at which both are measured
FILES_A_READER = 250        # at most, so that one reader far away does not take minutes
LINK = 200_000_000          # bytes a second of the narrow link
LINK_DELAY_US = 250
GOAL_LIBNFS, GOAL_LINK = 2, 0.9


class Clock:
    """Processor time from here on: of the server, and of the client, which is the programs that
    were called meanwhile and the daemon of a mount."""

    def __init__(self, ganesha, mount=None):
        self.ganesha, self.mount = ganesha, mount
        self.begin = self.now()

    def now(self):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (self.mount.cpu_s() if self.mount else 0, used.ru_utime + used.ru_stime,
                self.ganesha.cpu_s())

    def figures(self, files):
        daemon, readers, server = ((after - before) / files * 1e6
                                   for after, before in zip(self.now(), self.begin))
        figures = {"client us": daemon + readers, "server us": server}
        return {**figures, "cpu us": daemon} if self.mount else figures


class Source:
    """An export of files, and the way there."""

    def __init__(self, bench, files):
        self.lab = bench
        self.tree = bench.make_tree(bench.ram, 10, files, FILE_BYTES)
        self.names = [os.path.relpath(path, self.tree) for path in lab.files_below(self.tree)]
        self.ganesha = nfs.Ganesha(tempfile.mkdtemp(dir=bench.ram), nfs.export(self.tree))
        bench.running.append(self.ganesha)
        self.proxy = nfs.Proxy(bench.program("nfs-proxy"))
        bench.running.append(self.proxy)
        self.port, self.seed = nfs.NFS_PORT, 0

    def end(self):
        for each in (self.proxy, self.ganesha):
            self.lab.running.remove(each)
            each.end()

    def go_by(self, delay_us, rate=0):
        """By the proxy, unless the way is free."""
        self.proxy.tell("delay", delay_us)
        self.proxy.tell("rate", rate)
        self.port = self.proxy.port if delay_us or rate else nfs.NFS_PORT

    def some(self, readers):
        """Names to read, in another sequence each time."""
        self.seed += 1
        return lab.shuffled(self.names, self.seed)[:FILES_A_READER * readers]

    def libnfs(self, depth, kind=""):
        """Files a second."""
        names = self.some(depth)
        url = (f"nfs://127.0.0.1/export?version=3&nfsport={self.port}"
               f"&mountport={nfs.MOUNT_PORT}")
        clock = Clock(self.ganesha)
        seconds, files, total, *_ = self.lab.call("nfs-libnfs", url, f"{kind}{depth}",
                                                  data=lab.as_input("/" + name for name in names))
        if files != len(names) or total != len(names) * FILE_BYTES:
            raise lab.Unavailable(f"libnfs read {files:.0f} of {len(names)} files")
        return {"files/s": files / seconds, **clock.figures(files)}

    def mount(self, mode):
        size = len(self.names) * FILE_BYTES
        return lab.Shade(self.lab, f"nfs://127.0.0.1:{self.port}/export", mode=mode,
                         mountport=nfs.MOUNT_PORT, capacity=2 * size + (64 << 20))

    def shadefs(self, mode, readers, known):
        """Files a second; processor time of the daemon and RPCs for a file."""
        return measure(self, self.mount(mode), self.some(readers), readers, known)


def announce(mount, names):
    """An order, as any trainer can."""
    with open(os.path.join(mount.path, ".shade", "samples")) as file:
        ids = {path: number for number, path in (line.rstrip("\n").split("\t") for line in file)}
    lines = ["order 0 begin"]
    for first in range(0, len(names), 100):
        lines.append("order 0 " + " ".join(ids[name] for name in names[first:first + 100]))
    lines += ["order 0 end", "epoch 0", ""]
    return "\n".join(lines).encode()


def measure(source, mount, names, readers, known):
    """The clock begins when the order is told. Then the daemon may be ahead of the readers."""
    try:
        lab.files_below(mount.path)
        mount.settle()
        paths = lab.as_input(os.path.join(mount.path, name) for name in names)
        order = announce(mount, names) if known else None
        before, clock = mount.stats(), Clock(source.ganesha, mount)
        start = time.monotonic()
        if known:
            with open(os.path.join(mount.path, ".shade", "control"), "wb", buffering=0) as file:
                file.write(order)
        seconds, files, total = source.lab.call("bench-read", "shared", readers, len(names),
                                                data=paths)
        if known:
            seconds = time.monotonic() - start
        mount.settle()
        after = mount.stats()
        if total != len(names) * FILE_BYTES:
            raise lab.Unavailable(f"{total:.0f} bytes were read")
        return {"files/s": files / seconds, "MB/s": total / seconds / 1e6, **clock.figures(files),
                "RPCs": (after["nfs_rpcs"] - before["nfs_rpcs"]) / files}
    finally:
        mount.end()


def works_of(source, modes, has_libnfs):
    works = {}
    if has_libnfs:
        works |= {("libnfs", depth, False): (lambda d=depth: source.libnfs(d)) for depth in DEPTHS}
        works["libnfs, one context", 16, False] = lambda: source.libnfs(16, "async:")
    for mode in modes:
        for readers in EQUAL:
            works[mode, readers, False] = (lambda m=mode, r=readers: source.shadefs(m, r, False))
        works[mode, 16, True] = lambda m=mode: source.shadefs(m, 16, True)
    return works


def middle(results, key):
    values = [result[key] for result in results if key in result]
    return lab.median(values) if values else None


def compare(report, values, delay_us):
    """Each way with libnfs at the same depth, and with its best one."""
    speeds = {key: [result["files/s"] for result in results] for key, results in values.items()}
    libnfs = [key for key in speeds if key[0].startswith("libnfs")]
    best = max(libnfs, key=lambda key: lab.median(speeds[key])) if libnfs else None
    rows = []
    for key, results in values.items():
        who, depth, known = key
        row = {"path": who if key in libnfs else f"shadefs, {who}", "readers": depth,
               "order": "-" if key in libnfs else "known" if known else "none",
               "one way ms": delay_us / 1000, "files/s": lab.median(speeds[key]),
               "spread": lab.spread(speeds[key]), "RPCs a file": middle(results, "RPCs"),
               "daemon us": middle(results, "cpu us"), "client us": middle(results, "client us"),
               "server us": middle(results, "server us")}
        if best:
            equal = ("libnfs", depth, False)
            row["/ libnfs"] = ratio(speeds[key], speeds[equal]) if equal in speeds else None
            row["/ best libnfs"] = ratio(speeds[key], speeds[best])
        rows.append(row)
        if best and key not in libnfs and not known:
            report.target(f"{who}: {depth} readers, {delay_us / 1000} ms, files/s of libnfs",
                          row["/ libnfs"], GOAL_LIBNFS, least=True, unit="x")
    return rows


def ratio(ours, theirs):
    return lab.median([a / b for a, b in zip(ours, theirs)])


def measure_link(source, report, options, modes):
    source.go_by(LINK_DELAY_US, LINK)
    rows = []
    works = {(mode, known): (lambda m=mode, k=known: source.shadefs(m, 16, k))
             for mode in modes for known in (False, True)}
    for (mode, known), results in lab.interleaved(rounds(options), works).items():
        shares = [result["MB/s"] * 1e6 / LINK for result in results]
        rows.append({"path": f"shadefs, {mode}", "order": "known" if known else "none",
                     "MB/s": middle(results, "MB/s"), "of the link": lab.median(shares),
                     "spread": lab.spread(shares)})
        if known:
            report.target(f"{mode}: share of a link of {LINK // 1000000} MB/s, order known",
                          lab.median(shares), GOAL_LINK, least=True, unit="x")
    report.table(f"16 readers, a link of {LINK // 1000000} MB/s, {LINK_DELAY_US / 1000} ms one way",
                 rows)


def scan(bench, ganesha, count, mode):
    """All names and attributes, as a fresh mount takes them in."""
    start, before = time.monotonic(), ganesha.cpu_s()
    mount = lab.Shade(bench, "nfs://127.0.0.1/export", mode=mode, mountport=nfs.MOUNT_PORT,
                      capacity=64 << 20)
    seconds = time.monotonic() - start
    found = {"files/s": count / seconds, "RPCs": mount.stats()["nfs_rpcs"],
             "cpu us": mount.cpu_s() / count * 1e6,
             "server us": (ganesha.cpu_s() - before) / count * 1e6}
    mount.end()
    return found


def measure_scan(bench, report, options, mode):
    """Where the server asks its file system, and where it remembers."""
    count = 2000 if options.quick else options.scan_files
    report.say(f"scan: {count} files")
    folders = max(1, count // 1000)
    tree = bench.make_tree(bench.ram, folders, count, 0)
    rows = []
    for title, expiration in (("Attr_Expiration_Time = 0", 0), ("it remembers all", -1)):
        ganesha = nfs.Ganesha(tempfile.mkdtemp(dir=bench.ram), nfs.LARGE_CACHE,
                              nfs.export(tree, expiration=expiration))
        bench.running.append(ganesha)
        results = lab.interleaved(1 if options.quick else 3, {
            "scan": lambda g=ganesha: scan(bench, g, count, mode)})["scan"]
        rows.append({"server": title, "files/s": middle(results, "files/s"),
                     "spread": lab.spread([result["files/s"] for result in results]),
                     "RPCs": middle(results, "RPCs"), "daemon us a file": middle(results, "cpu us"),
                     "server us a file": middle(results, "server us")})
        bench.running.remove(ganesha)
        ganesha.end()
    report.table(f"a scan of {count} files in {folders} directories, {mode}", rows)


def over_the_kernel(source, modes):
    """The same export, mounted by the kernel, below shadefs: works, or a reason why not."""
    point = tempfile.mkdtemp(prefix="kernel-", dir=source.lab.disk)
    done = subprocess.run(["mount", "-t", "nfs", "-o", "vers=3,nolock,proto=tcp,mountproto=tcp,"
                           f"port={source.port},mountport={nfs.MOUNT_PORT}", "127.0.0.1:/export",
                           point], capture_output=True, text=True, check=False)
    if done.returncode:  # had the kernel one, mount would have loaded it
        with open("/proc/filesystems") as file:
            has_client = "\tnfs\n" in file.read()
        raise lab.Unavailable(done.stderr.strip() if has_client else
                              "this kernel has no NFS client")

    def through(mode):
        mount = lab.Shade(source.lab, point, mode=mode, capacity=len(source.names) * FILE_BYTES * 2)
        try:
            names = source.some(16)
            lab.files_below(mount.path)
            paths = lab.as_input(os.path.join(mount.path, name) for name in names)
            seconds, files, _ = source.lab.call("bench-read", "shared", 16, len(names), data=paths)
            return {"files/s": files / seconds}
        finally:
            mount.end()

    return {mode: (lambda m=mode: through(m)) for mode in modes}


def measure_kernel(source, report, options, modes):
    rows = []
    for delay_us in DELAYS_US:
        source.go_by(delay_us)
        try:
            works = over_the_kernel(source, modes)
        except lab.Unavailable as reason:
            rows.append({"path": "shadefs over the kernel's client", "why not": str(reason)})
            break
        for mode, results in lab.interleaved(rounds(options), works).items():
            rows.append({"path": f"shadefs, {mode}, over the kernel's client",
                         "one way ms": delay_us / 1000, "files/s": middle(results, "files/s")})
    report.table("16 readers, no order, over the kernel's NFS client", rows)


def rounds(options):
    return options.rounds or (1 if options.quick else 5)


def begin():
    def more(parser):
        parser.add_argument("--scan-files", type=int, default=1000000,
                            help="how many files are scanned (default: a million)")
        parser.add_argument("--only", choices=["speed", "link", "scan"],
                            help="one part of it")

    if lacking := nfs.missing_packages():
        lab.skip("these packages are missing: " + " ".join(lacking))
    if "--help" not in sys.argv and "-h" not in sys.argv:
        try:
            nfs.enter_namespaces()
        except OSError as refusal:
            lab.skip(f"there are no namespaces of our own: {refusal}")
    return lab.begin("nfs", more)


def main():
    options, bench, report = begin()
    modes, reasons = lab.modes_at_hand(bench, options.mode)
    source = Source(bench, 64 if options.quick else 4000)
    has_libnfs = os.path.exists(os.path.join(bench.build, "tests/nfs/nfs-libnfs"))
    if options.only in (None, "speed"):
        rows = [] if has_libnfs else [{"path": "libnfs", "why not": "libnfs-dev was not found"}]
        for delay_us in DELAYS_US[:1] if options.quick else DELAYS_US:
            report.say(f"{delay_us / 1000} ms one way: {len(source.names)} files")
            source.go_by(delay_us)
            values = lab.interleaved(rounds(options), works_of(source, modes, has_libnfs))
            rows += compare(report, values, delay_us)
        rows += [{"path": f"shadefs, {mode}", "why not": why} for mode, why in reasons.items()]
        report.table(f"files of {FILE_BYTES // 1000} KB once each, cold", rows)
        measure_kernel(source, report, options, modes)
    if options.only in (None, "link"):
        measure_link(source, report, options, modes)
    source.end()
    if options.only in (None, "scan") and modes:
        measure_scan(bench, report, options, modes[0])
    report.end()


main()
