# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which folder may include what, and that sched/ is pure: layering.py ROOT. Looks first
whether it finds violations that it planted itself."""
import os
import re
import sys

# Own headers come without a folder, but for fs/, whose headers come with their room; these are
# what else a folder may include.
ALLOWED = {
    "include": {"folders": set()},
    "base": {"folders": set()},
    "sched": {"folders": {"include"},
              # Pure: no I/O, threads, clocks, environment or logging.
              "system": {"assert.h", "errno.h", "math.h", "stdbool.h", "stddef.h", "stdint.h",
                         "stdlib.h", "string.h", "sys/mman.h", "uthash.h"}},
    # libshade neither prints nor exits. shadectl uses it through its interface, but for its paths.
    "client/lib": {"folders": {"include"}, "headers": {"fnv.h", "grow.h", "escape.h"}},
    "client/ctl": {"folders": {"include"},
                   "headers": {"path.h", "escape.h", "fail.h", "mountinfo.h", "number.h",
                               "option.h"}},
    "cuda": {"folders": {"include"}, "headers": {"fail.h", "grow.h", "lines.h", "option.h"}},
    # The daemon takes of text/ what returns errors, and exits only for a wrong command line.
    "fs": {"folders": {"include"},
           "headers": {"fnv.h", "grow.h", "escape.h", "fail.h", "mountinfo.h", "number.h", "size.h"}},
    # The simulator shares the generator of random numbers.
    "sim": {"folders": {"include"}, "headers": {"philox.h", "fail.h", "grow.h", "lines.h", "option.h", "size.h"}},
    "text": {"folders": set(), "headers": {"grow.h"}},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def sources(root, folder):
    for path, _, names in os.walk(os.path.join(root, folder)):
        yield from (os.path.join(path, name) for name in sorted(names) if name.endswith((".c", ".h", ".cu")))


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
            if folder == "sched":
                yield from impure(shown, text)


def impure(shown, text):
    """Calls and globals that a pure function cannot have."""
    code = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    for number, line in enumerate(code.splitlines(), 1):
        if re.search(r"\b(printf|fprintf|puts|getenv|time|clock_gettime|rand|random|srand|fopen|"
                     r"open|pthread_\w+)\s*\(", line):
            yield f"{shown}:{number}: sched/ has no I/O, clocks, threads or environment: {line.strip()}"
        if re.match(r"(static )?(?!const|extern|struct \w+;|typedef|return|enum)[\w ]+\*?\w+(\[\w*\])?( =.*)?;$",
                    line) and "const" not in line and "(" not in line:
            yield f"{shown}:{number}: sched/ has no globals: {line.strip()}"


def selftest():
    import tempfile
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "sched"))
        with open(os.path.join(root, "sched", "bad.c"), "w") as file:
            file.write('#include <stdio.h>\n#include "fs.h"\nstatic int counter;\n'
                       'int f(void)\n{\n\treturn getenv("X") != 0;\n}\n')
        return len(list(violations(root))) == 4


if not selftest():
    print("FAILED: the planted violations were not found")
    sys.exit(1)
found = list(violations(sys.argv[1]))
print("\n".join(found) or "no violations")
sys.exit(1 if found else 0)
