# SPDX-License-Identifier: LGPL-2.1-or-later
"""The name of a training on a mount, where nobody has given it one. Every training has a job of its
own, or two of them would use up each other's orders; the ranks of one training share it."""
import os
import re
import sys
from typing import Mapping

NAME_MAX = 63  # bytes, of a job's directory


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")


def name_of(environment: Mapping[str, str], world: int, script: str, process: int) -> str:
    """`python -m shade run` names all that it starts; a launcher's ranks meet at one address, which
    no other training of this machine has. Else it is the process. Ranks that were started in
    another way have different names until they agree, when their first epoch begins."""
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if environment.get("SHADE_RUN"):
        name = environment["SHADE_RUN"]
    elif world > 1 and address and port:
        name = f"ranks-{address}-{port}"
    else:
        head = _plain(os.path.splitext(os.path.basename(script))[0]) or "python"
        name = f"{head[:NAME_MAX - 12]}-{process}"
    return _plain(name)[:NAME_MAX] or f"python-{process}"


def own_name(world: int = 1) -> str:
    """Of this process."""
    return name_of(os.environ, world, sys.argv[0] if sys.argv else "", os.getpid())
