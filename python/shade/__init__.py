# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tells a shadefs mount what a training will read, and what matters to it.

    sampler = shade.Sampler(dataset, mount="/mnt/imagenet")
    for images, labels in DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=4):
        losses = cross_entropy(model(images), labels, reduction="none")
        sampler.update(losses)

docs/python.md has all of it. Nothing here imports torch unless the program has done so.
"""
from ._errors import MountWarning, ShadeError
from .mount import Mount, Sample
from .sampler import Sampler
from .scorer import Scorer

try:
    from ._built import VERSION as __version__
except ImportError:  # the source tree, where nothing was built
    __version__ = "unknown"

__all__ = ["Mount", "MountWarning", "Sample", "Sampler", "Scorer", "ShadeError", "__version__"]
