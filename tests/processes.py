# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which process is the daemon: what the user starts is a supervisor, and the daemon is its child."""

GUARD = "shadefs-guard"
DAEMON = "shadefs-daemon"


def children(pid):
    """Processes that it has started and that it has not yet waited for; none if it is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def has_ended(pid):
    """Whether or not somebody has waited for it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def family(pid):
    """A process, its children, theirs, and so on."""
    return [pid, *(one for child in children(pid) for one in family(child))]


def daemons(supervisor):
    """Those that serve, have served and are not reaped yet, or are about to. What else a supervisor
    starts has other names."""
    return [pid for pid in children(supervisor) if name_of(pid) == DAEMON]


def daemon_pid(supervisor):
    """The process that serves: the supervisor's child. Without a supervisor it is the process itself,
    whose child is only its watchdog. For a moment after a death there is no child, and for another
    one it is the dead one."""
    found = [pid for pid in children(supervisor)
             if name_of(pid) != GUARD or name_of(supervisor) == GUARD]
    return found[0] if found else supervisor
