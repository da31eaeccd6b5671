# SPDX-License-Identifier: LGPL-2.1-or-later
"""--help and the man page of shadefs name the same options: SCRIPT SHADEFS MANPAGE."""
import re
import subprocess
import sys

shown = subprocess.run([sys.argv[1], "--help"], capture_output=True, text=True, check=True).stdout
in_help = set(re.findall(r"^  (\w+)(?:=| )", shown.split("options:")[1].split("policies:")[0], re.M))
with open(sys.argv[2]) as page:
    in_page = set(re.findall(r"^\.B[RI]? (\w+)(?:=|$)", page.read().split(".SH OPTIONS")[1].split("\n.SH ")[0], re.M))
print("only in --help:", in_help - in_page, "only in the man page:", in_page - in_help)
sys.exit(0 if in_help == in_page and len(in_help) > 8 else 1)
