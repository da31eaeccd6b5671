# SPDX-License-Identifier: LGPL-2.1-or-later
"""All that libshade defines for others begins with shade_, in the shared library and in the static
one: symbols.py SHARED STATIC."""
import re
import shutil
import subprocess
import sys

if not shutil.which("nm"):
    print("there is no nm")
    sys.exit(77)
wrong = []
for options, path in ((["-D"], sys.argv[1]), (["-g"], sys.argv[2])):
    shown = subprocess.run(["nm", "--defined-only", *options, path], capture_output=True, text=True,
                           check=True).stdout
    names = re.findall(r"^[0-9a-f]+ [A-Za-z] (\w+)", shown, re.M)
    if "shade_open" not in names:
        wrong.append(f"{path}: there is no shade_open")
    wrong += [f"{path}: {name}" for name in names if not name.startswith("shade_")]
print("\n".join(wrong) or "all names begin with shade_")
sys.exit(1 if wrong else 0)
