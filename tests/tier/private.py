# SPDX-License-Identifier: LGPL-2.1-or-later
"""Network and mounts of our own, so that servers can have any port and nothing is left behind."""
import os
import sys

MARK = "SHADE_TIER_PRIVATE"
ENTER = 'mount -t tmpfs none /run && ip link set lo up && exec "$@"'


def enter():
    """Begins this script again, in the same process: returns in the namespaces."""
    if os.environ.get(MARK) == str(os.getpid()):
        return
    os.environ[MARK] = str(os.getpid())
    os.execvp("unshare", ["unshare", "-n", "-m", "sh", "-c", ENTER, "sh", sys.executable,
                          *sys.argv])
