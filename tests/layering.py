# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which folder may include what, that sched/ is pure, and which room of fs/ may know what:
layering.py ROOT. It first checks that it finds violations that it planted itself."""
import os
import re
import sys
import tempfile

# Own headers come without a folder, but for fs/, whose headers come with their room; these are
# what else a folder may include.
ALLOWED = {
    "include": {"folders": set()},
    "base": {"folders": set()},
    "sched": {"folders": {"include"},
              # Pure: no I/O, threads, clocks, environment or logging.
              "system": {"assert.h", "errno.h", "math.h", "stdbool.h", "stddef.h", "stdint.h",
                         "stdlib.h", "string.h", "sys/mman.h", "uthash.h"}},
    # As pure.
    "shuffle": {"folders": {"include"},
                "system": {"assert.h", "errno.h", "math.h", "stdbool.h", "stddef.h", "stdint.h",
                           "stdlib.h", "string.h"}},
    # libshade neither prints nor exits. shadectl uses it through its interface, but for its paths.
    "client/lib": {"folders": {"include"}, "headers": {"fnv.h", "grow.h", "escape.h", "mountinfo.h"}},
    "client/ctl": {"folders": {"include"},
                   "headers": {"path.h", "escape.h", "fail.h", "mountinfo.h", "number.h",
                               "option.h", "replay.h"}},
    "cuda": {"folders": {"include"}, "headers": {"fail.h", "grow.h", "lines.h", "option.h"}},
    # The daemon takes of text/ what returns errors, and exits only for a wrong command line.
    "fs": {"folders": {"include"},
           "headers": {"fnv.h", "grow.h", "escape.h", "fail.h", "mountinfo.h", "number.h", "size.h"}},
    # The simulator shares the generator of random numbers.
    "sim": {"folders": {"include"}, "headers": {"philox.h", "fail.h", "grow.h", "lines.h", "option.h",
                                                  "replay.h", "size.h", "trace.h"}},
    # Traces, for commands alone: what is wrong with one ends the program.
    "replay": {"folders": {"include"}, "headers": {"fail.h", "grow.h", "lines.h"}},
    "text": {"folders": set(), "headers": {"grow.h"}},
}

# The rooms of fs/ from the bottom up, and those that each may know besides itself; "shade" is
# include/shade.
ROOMS = {
    "base": set(),
    "source": {"base"},
    "nfs": {"base", "source"},
    "tier": {"base", "source"},
    "names": {"base", "source"},
    "cache": {"base", "source", "names", "shade"},
    "control": {"base", "source", "names", "cache", "shade"},
    "predict": {"base", "source", "names", "cache", "control", "shade"},
    "fuse": {"base", "source", "names", "cache", "control"},
    "native": {"base", "source", "names", "cache", "control", "fuse"},
    "daemon": {"base", "source", "nfs", "tier", "names", "cache", "control", "predict", "fuse", "native",
               "shade"},
}
# The cache and all below it do not know FUSE; control does not know FUSE's requests.
WITHOUT_FUSE = {"base", "source", "nfs", "tier", "names", "cache", "control", "predict"}
# base/threads.h is all that the rooms know of threads and the clock. The daemon blocks signals.
THREADS = re.compile(r"\b(pthread_\w+|clock_gettime|clock_nanosleep|nanosleep|sem_\w+)\b")
THREADS_ALLOWED = {"daemon": {"pthread_sigmask"}}
# A _locked function begins with lock_assert_held().
LOCKED = re.compile(r"^(?!\s)[^\n;{}#]*\b(\w+_locked)\([^;{}]*\)\s*\n\{\n(.*?)^\}", re.M | re.S)

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def sources(root, folder):
    for path, _, names in os.walk(os.path.join(root, folder)):
        yield from (os.path.join(path, name) for name in sorted(names) if name.endswith((".c", ".h", ".cu")))


def without_comments(text):
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)


def allowed_include(root, folder, rules, quote, name):
    if quote == "<":
        return "system" not in rules or name in rules["system"]
    if name.startswith("shade/"):
        return folder == "include" or "include" in rules["folders"]
    return name in rules.get("headers", ()) or os.path.exists(os.path.join(root, folder, name))


def violations(root):
    for folder, rules in ALLOWED.items():
        for path in sources(root, folder):
            with open(path) as file:
                text = file.read()
            shown = os.path.relpath(path, root)
            for number, line in enumerate(text.splitlines(), 1):
                found = INCLUDE.match(line)
                if found and not allowed_include(root, folder, rules, *found.groups()):
                    yield f"{shown}:{number}: {folder}/ may not include {found.group(2)}"
            if folder in ("sched", "shuffle"):
                yield from impure(shown, text)
            if folder == "fs":
                yield from outside_room(shown, text)


def impure(shown, text):
    """Calls and globals that a pure function cannot have."""
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        if re.search(r"\b(printf|fprintf|puts|getenv|time|clock_gettime|rand|random|srand|fopen|"
                     r"open|pthread_\w+)\s*\(", line):
            yield f"{shown}:{number}: {shown.split(os.sep)[0]}/ has no I/O, clocks, threads or environment: {line.strip()}"
        if re.match(r"(static )?(?!const|extern|struct \w+;|typedef|return|enum)[\w ]+\*?\w+(\[\w*\])?( =.*)?;$",
                    line) and "const" not in line and "(" not in line:
            yield f"{shown}:{number}: {shown.split(os.sep)[0]}/ has no globals: {line.strip()}"


def outside_room(shown, text):
    """What a file of fs/ knows that its room must not."""
    room = shown.split(os.sep)[1]
    if room not in ROOMS:
        yield f"{shown}:1: fs/ has no room {room}/"
        return
    code = without_comments(text)
    for number, line in enumerate(code.splitlines(), 1):
        yield from (f"{shown}:{number}: {what}" for what in wrong_in_line(room, line))
    for number, line in enumerate(code.splitlines(), 1):
        for name in THREADS.findall(line) if room != "base" else ():
            if name not in THREADS_ALLOWED.get(room, ()):
                yield f"{shown}:{number}: only base/ may use {name}"
    for found in LOCKED.finditer(code):
        if "lock_assert_held(" not in found.group(2):
            number = code.count("\n", 0, found.start()) + 1
            yield f"{shown}:{number}: {found.group(1)}() does not assert that its lock is held"


def wrong_in_line(room, line):
    include = INCLUDE.match(line)
    if include:
        quote, name = include.groups()
        known = name.split("/")[0]
        shared = name in ALLOWED["fs"]["headers"]
        if quote == '"' and not shared and known != room and known not in ROOMS[room]:
            yield f"{room}/ may not include {name}"
        if quote == "<" and room != "fuse" and re.match(r"(linux/)?fuse", name):
            yield f"{room}/ may not know FUSE: {name}"
    elif room != "fuse" and re.search(r"\bfuse_\w+", line):
        yield f"{room}/ may not know libfuse: {line.strip()}"
    elif room in WITHOUT_FUSE and re.search(r"\bFUSE_\w+", line):
        yield f"{room}/ may not know FUSE: {line.strip()}"


# Files and how many violations each has.
PLANTED = {
    "sched/bad.c": (4, '#include <stdio.h>\n#include "fs.h"\nstatic int counter;\n'
                       'int f(void)\n{\n\treturn getenv("X") != 0;\n}\n'),
    "shuffle/bad.c": (2, '#include <stdio.h>\nstatic int counter;\n'),
    "fs/attic/bad.c": (1, "int f(void);\n"),
    "fs/base/good.h": (0, "#include <pthread.h>\npthread_mutex_t *mutex;\n"),
    "fs/base/bad.c": (1, '#include "cache/good.h"\n'),
    "fs/names/bad.c": (2, '#include "shade/sched.h"\n#include <fuse_lowlevel.h>\n'),
    "fs/cache/good.h": (0, '/* fuse_req_t and pthread_t */\n#include "shade/sched.h"\n'
                           "int count_locked(struct cache *cache);\n"),
    "fs/cache/bad.c": (2, '#include "control/good.h"\nint i = FUSE_ROOT_ID;\n'),
    "fs/control/good.h": (0, '#include "base/good.h"\n#include "cache/good.h"\n'),
    "fs/control/good.c": (0, "static int count_locked(struct control *control,\n"
                             "\t\t\tint (*counts)(int))\n{\n\tint i;\n\n"
                             "\tlock_assert_held(&control->lock);\n\treturn counts(i);\n}\n"),
    "fs/control/bad.c": (5, '#include <linux/fuse.h>\n#include "fuse/good.h"\nfuse_req_t req;\n'
                            "int count_locked(struct control *control)\n{\n\tnanosleep(0, 0);\n"
                            "\treturn 0;\n}\n\nvoid f(void)\n{\n\tlock_assert_held(0);\n}\n"),
    "fs/fuse/good.h": (0, '#include <fuse_lowlevel.h>\n#include "control/good.h"\n'
                          "int i = FUSE_ROOT_ID;\n"),
    "fs/fuse/bad.c": (2, '#include "native/good.h"\nstatic sem_t end;\n'),
    "fs/native/good.h": (0, '#include "fuse/good.h"\n'),
    "fs/native/bad.c": (3, '#include "daemon/good.h"\nfuse_ino_t ino;\n'
                           "int f(void)\n{\n\treturn pthread_sigmask(0, 0, 0);\n}\n"),
    "fs/daemon/good.h": (0, '#include "native/good.h"\nint (*f)() = pthread_sigmask;\n'),
    "fs/daemon/bad.c": (1, "int f(void)\n{\n\treturn clock_gettime(0, 0);\n}\n"),
}


def selftest():
    """What was found otherwise than planted."""
    with tempfile.TemporaryDirectory() as root:
        for path, (_, text) in PLANTED.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as file:
                file.write(text)
        everything = list(violations(root))
    for path, (count, _) in PLANTED.items():
        found = [line for line in everything if line.startswith(path + ":")]
        if len(found) != count:
            yield f"{path} has {count} planted violations, found were {found}"
    below = {"shade"}
    for room, known in ROOMS.items():
        yield from (f"{room}/ may know {other}/, which is not below it" for other in known - below)
        below.add(room)


wrong = list(selftest())
if wrong:
    print("FAILED: the check itself is wrong:", *wrong, sep="\n")
    sys.exit(1)
found = list(violations(sys.argv[1]))
print("\n".join(found) or "no violations")
sys.exit(1 if found else 0)
