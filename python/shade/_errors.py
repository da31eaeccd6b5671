# SPDX-License-Identifier: LGPL-2.1-or-later
"""What can go wrong."""


class ShadeError(OSError):
    """A call of libshade or libshade-score failed: errno, and one sentence."""


class MountWarning(UserWarning):
    """Hints do not reach the mount, or not all of them. The training goes on."""
