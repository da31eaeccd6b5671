# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a document of ours tells people to type: its code blocks, and the commands in them and in
running text. Pure: from text to lists.

An indented block is for the shell. Everything else has a fence that names its language: python, c,
fstab, or text for what is not to be typed (output, diagrams, settings, synopses)."""
import re
from typing import NamedTuple

# What a word in backquotes must begin with to be a command, if something follows it.
PROGRAMS = {"apt-get", "cc", "chmod", "cp", "curl", "dmesg", "docker", "echo", "fusermount3", "git",
            "grep", "journalctl", "man", "meson", "mkdir", "mount", "ninja", "pip", "pkg-config",
            "python3", "redis-cli", "redis-server", "rmdir", "rpcinfo", "sed", "shade-score",
            "shade-sim", "shadectl", "shadefs", "shadefs-unit", "showmount", "sudo", "systemctl",
            "systemd-run", "torchrun", "umount"}
FOLDERS = re.compile(r"(scripts|build|packaging)/.*[^/]$")  # of the project's own programs
LANGUAGES = {"shell", "python", "c", "fstab", "text", "output"}
MARKER = re.compile(r"( *)([-*]|\d+\.) +")


class Block(NamedTuple):
    line: int      # of its first line, from 1
    language: str
    text: str


def indent_of(line):
    return len(line) - len(line.lstrip(" "))


def split(text):
    """The blocks, and the running text without them."""
    found, prose, lines = [], [], text.split("\n")
    base, at = 0, 0  # how far the list is indented that we are in
    while at < len(lines):
        line, blank = lines[at], at == 0 or not lines[at - 1].strip()
        marker = MARKER.match(line)
        if line.strip().startswith("```"):
            end = next(number for number in range(at + 1, len(lines))
                       if lines[number].strip() == "```")
            found.append(block_of(lines, at + 1, end, indent_of(line), line.strip()[3:]))
            at = end + 1
        elif line.strip() and blank and indent_of(line) >= base + 4:
            end = at
            while end < len(lines) and (not lines[end].strip() or indent_of(lines[end]) >= base + 4):
                end += 1
            found.append(block_of(lines, at, end, base + 4, "shell"))
            at = end
        else:
            if marker:
                base = marker.end()
            elif line.strip() and indent_of(line) < base:
                base = 0
            prose.append(line)
            at += 1
    return found, "\n".join(prose)


def block_of(lines, begin, end, indent, language):
    text = "\n".join(line[indent:] for line in lines[begin:end]).strip("\n")
    return Block(begin + 1, {"sh": "shell", "bash": "shell"}.get(language, language), text)


def shell_commands(text):
    """The commands of a block, each with its continued lines and its here-document."""
    found, lines = [], iter(text.split("\n"))
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        while line.endswith("\\"):
            line += "\n" + next(lines)
        document = re.search(r"<<'?(\w+)'?", line)
        if document:
            body = list(iter(lambda: next(lines), document[1]))
            line = "\n".join([line, *body, document[1]])
        found.append(line)
    return found


def key_of(command):
    """What a command is called in the table: its first line without a comment, continued lines
    joined."""
    line = command.replace("\\\n", " ").split("\n")[0]
    return " ".join(re.sub(r"\s#\s.*", "", line).split())


def is_command(text):
    words = [word for word in text.split() if not re.match(r"[A-Z_]+=", word)]
    return bool(words) and bool(FOLDERS.match(words[0]) and not re.search(r"\.\w+$", words[0])
                                or words[0] in PROGRAMS and len(words) > 1)


def mentioned(prose):
    """Commands in backquotes."""
    return [key_of(" ".join(text.split())) for text in re.findall(r"`([^`]+)`", prose)
            if is_command(text)]


def shown(block):
    """Commands in a block that is not to be typed, such as a synopsis."""
    return [key_of(line) for line in block.text.split("\n")
            if not line.startswith(" ") and is_command(line)]
