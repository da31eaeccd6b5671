# SPDX-License-Identifier: LGPL-2.1-or-later
"""Help, man page and completions of shadectl name the same verbs and options:
names.py SHADECTL ROOT."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

VERBS = set("status stats top report score order epoch warm evict pin unpin capacity policy rescan "
            "forget upgrade umount debug".split())
SHADECTL, ROOT = sys.argv[1:3]
failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def text_of(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


def same(found, wanted, what):
    check(found == wanted, f"{what}: lacks {sorted(wanted - found)}, has {sorted(found - wanted)}")


def options_in(text):
    return set(re.findall(r"--[a-z]+", text.replace("\\-", "-")))


def complete(*words):
    """What bash would offer for the last word."""
    script = ('. "$1"; shift; COMP_WORDS=(shadectl "$@"); COMP_CWORD=$#; _shadectl; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    path = os.path.join(ROOT, "client/ctl/completion/shadectl.bash")
    done = subprocess.run(["bash", "-c", script, "bash", path, *words], capture_output=True,
                          text=True)
    check(done.returncode == 0 and not done.stderr, f"bash: {done.stderr}")
    return set(done.stdout.split("\n")) - {""}


def policies():
    """Those of the registry but for what only the simulator has."""
    names = []
    for path in sorted(os.listdir(os.path.join(ROOT, "sched"))):
        if path.startswith("policy_") and path.endswith(".c"):
            names += re.findall(r'\.name = "([a-z]+)"', text_of("sched/" + path))
    return set(names)


shown = subprocess.run([SHADECTL, "--help"], capture_output=True, text=True, check=True).stdout
same(set(re.findall(r"^  ([a-z]+) MNT", shown, re.M)), VERBS, "verbs of --help")
options = options_in(shown)
check({"--file", "--null", "--json", "--once", "--interval", "--timeout", "--lazy", "--output",
       "--help", "--version"} == options, f"options of --help: {options}")

page = text_of("docs/man/shadectl.1")
same(set(re.findall(r'^\.BI ([a-z]+) " MNT', page, re.M)), VERBS, "verbs of the man page")
same(options_in(page[page.index(".SH OPTIONS"):page.index(".SH PATHS")]), options,
     "options of the man page")
if shutil.which("groff"):
    done = subprocess.run(["groff", "-ww", "-man", "-Tutf8",
                           os.path.join(ROOT, "docs/man/shadectl.1")], capture_output=True)
    check(not done.returncode and not done.stderr, f"groff: {done.stderr.decode()}")

bash = text_of("client/ctl/completion/shadectl.bash")
same(complete(""), VERBS | {"--help", "--version"}, "verbs offered by bash")
same(complete("un"), {"unpin"}, "un in bash")
same(set().union(*(complete(verb, "/", "--") for verb in VERBS)) | {"--version"}, options,
     "options offered by bash")
for verb in VERBS:
    usage = subprocess.run([SHADECTL, verb, "--help"], capture_output=True, text=True).stdout
    usage = usage.replace("-f ", "--file ").replace("-o ", "--output ").replace("-0", "--null")
    usage = usage.splitlines()[0]
    same(complete(verb, "/", "--"), options_in(usage) | {"--help"}, f"options of {verb} in bash")
offered = complete("policy", "/", "")
check("shade" in offered <= policies(), f"policies offered by bash: {offered - policies()}")
with tempfile.TemporaryDirectory() as top:
    os.makedirs(f"{top}/below/inner")
    same(complete("status", f"{top}/be"), {f"{top}/below"}, "directories in bash")
    same(complete("warm", f"{top}/below", "inn"), {"inner"}, "paths of the mount in bash")
    same(complete("score", "/", "-f", f"{top}/be"), {f"{top}/below"}, "files in bash")
    # A mount may have any name. /proc/self/mounts is somebody else's, so the list is ours here.
    hostile = f"{top}/$(touch {top}/ran)`touch {top}/ran`;*"
    script = '_shadectl_mounts() { printf "%s\\n" "$HOSTILE"; }'
    done = subprocess.run(
        ["bash", "-c", f'. "$1"; {script}; COMP_WORDS=(shadectl status "$2"); COMP_CWORD=2; '
         '_shadectl; printf "%s\n" "${COMPREPLY[@]}"', "bash",
         os.path.join(ROOT, "client/ctl/completion/shadectl.bash"), top],
        capture_output=True, text=True, env={**os.environ, "HOSTILE": hostile}, check=True)
    same(set(done.stdout.splitlines()), {hostile}, "a hostile mount in bash")
    check(not os.path.exists(f"{top}/ran"), "completion ran what a mount is named")

zsh = text_of("client/ctl/completion/_shadectl")
same(set(re.findall(r"^\t\t'([a-z]+):", zsh, re.M)), VERBS, "verbs of zsh")
same(options_in(zsh), options, "options of zsh")
same(set(re.search(r"2:policy:\(([^)]*)\)", zsh)[1].split()), offered, "policies of zsh")
ZSH = os.path.abspath(os.path.join(ROOT, "client/ctl/completion/_shadectl"))
# The functions that zsh has for completions; these print what they are given. The kernel's list of
# mounts is ours.
IN_ZSH = """
awk() { command awk "$1" "$MOUNTS" }
compadd() { print -rl -- "compadd" "${(@P)@[-1]}" }
_describe() { : }
_arguments() { : }
_directories() { print -r -- directories }
_files() { print -rl -- files "$@"; return $(( $# == 0 )) }
CURRENT=2 words=(shadectl '')
. "$FILE" >/dev/null
words=(warm "$2")
$1
"""


def in_zsh(function, word, lines):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        done = subprocess.run(["zsh", "-f", "-c", IN_ZSH, "zsh", function, word],
                              capture_output=True, text=True, cwd="/usr",
                              env={**os.environ, "MOUNTS": file.name, "FILE": ZSH})
    check(done.returncode == 0 and not done.stderr, f"zsh: {done.stderr}")
    return done.stdout.splitlines()


if shutil.which("zsh"):
    done = subprocess.run(["zsh", "-n", ZSH], capture_output=True)
    check(not done.returncode, f"zsh: {done.stderr.decode()}")
    with tempfile.TemporaryDirectory() as top:
        names = ["/mnt/plain", f"/mnt/$(touch {top}/ran)`touch {top}/ran`;*~ (x) 'a' \"b\"",
                 "/mnt/back\\slash\\e[31m", "-a"]
        escaped = [name.replace("\\", "\\134").replace(" ", "\\040") for name in names]
        lines = [*(f"s {name} fuse.shadefs ro 0 0\n" for name in escaped),
                 "shadefs /mnt/native overlay ro 0 0\n", "s /mnt/other fuse.other ro 0 0\n"]
        offered = in_zsh("_shadectl_mounts", "", lines)
        check(offered == ["compadd", *names, "/mnt/native"], f"mounts in zsh: {offered}")
        check(in_zsh("_shadectl_mounts", "", []) == ["directories"], "directories in zsh")
        word = f"a[$(touch {top}/ran)]"
        for given, wanted in ((word, f"/usr/{word}"), ("'/mnt/a b'", "/mnt/a b")):
            offered = in_zsh("_shadectl_paths", given, [])
            check(offered == ["files", "files", "-W", wanted], f"paths in zsh: {offered}")
        check(not os.path.exists(f"{top}/ran"), "completion in zsh ran what a mount is named")

print("failures:", failures)
sys.exit(1 if failures else 0)
