# SPDX-License-Identifier: LGPL-2.1-or-later
"""Losses of our own, from what a model gave and the labels of the batch: for scripts whose loss is
none that is known by name (label smoothing by hand, binary cross-entropy, mixup...). They are
computed beside the script's, and serve to rank samples, not to learn from."""
from collections.abc import Mapping
from typing import Any, List, Optional

import torch
from torch.nn import functional

IGNORED = -100  # what cross_entropy takes for "no label"


def first_tensor(value: Any, depth: int = 0) -> Optional[torch.Tensor]:
    """Of what a model returns: a tensor, or one in front of others (auxiliary heads)."""
    if isinstance(value, torch.Tensor):
        return value
    if depth == 2:
        return None
    parts: List[Any] = []
    if isinstance(value, Mapping):
        parts = [value["logits"]] if "logits" in value else list(value.values())
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    found = (first_tensor(part, depth + 1) for part in parts)
    return next((tensor for tensor in found if tensor is not None and tensor.dim()), None)


def may_be_logits(tensor: Optional[torch.Tensor]) -> bool:
    """Whether a model may have given this for a batch, to learn from it."""
    return tensor is not None and tensor.is_floating_point() and tensor.requires_grad and \
        tensor.dim() >= 1 and tensor.shape[0] > 0


def _classes(logits: torch.Tensor, labels: torch.Tensor) -> Optional[torch.Tensor]:
    """The labels, if they are classes of these logits."""
    if labels.is_floating_point() or labels.dtype == torch.bool or logits.dim() < 2:
        return None
    wanted = (logits.shape[0], *logits.shape[2:])
    if tuple(labels.shape) != wanted:
        if labels.numel() != logits.shape[0] or logits.dim() != 2:
            return None
        labels = labels.reshape(wanted)
    labels = labels.to(logits.device, torch.int64)
    known = labels[labels != IGNORED]
    if logits.shape[1] < 2 or (known.numel() and
                               not 0 <= int(known.min()) <= int(known.max()) < logits.shape[1]):
        return None
    return labels


def _parts(logits: torch.Tensor, labels: torch.Tensor) -> Optional[torch.Tensor]:
    """The labels, if they are shares from 0 to 1, one for each of these logits."""
    if labels.numel() != logits.numel() or labels.shape[0] != logits.shape[0]:
        return None
    labels = labels.to(logits.device, logits.dtype).reshape(logits.shape)
    return labels if 0 <= float(labels.min()) and float(labels.max()) <= 1 else None


def _losses(logits: torch.Tensor, labels: torch.Tensor) -> Optional[torch.Tensor]:
    classes = _classes(logits, labels)
    if classes is not None:
        return functional.cross_entropy(logits, classes, reduction="none")
    parts = _parts(logits, labels)
    if parts is None:
        return None
    soft = labels.is_floating_point() and logits.dim() == 2 and logits.shape[1] > 1 and \
        bool(torch.allclose(parts.sum(1), torch.ones(1, dtype=parts.dtype, device=parts.device),
                            atol=1e-3))
    if soft:  # a distribution over classes
        return -(parts * functional.log_softmax(logits, 1)).sum(1)
    return functional.binary_cross_entropy_with_logits(logits, parts, reduction="none")


def own_losses(logits: torch.Tensor, labels: List[torch.Tensor]) -> Optional[torch.Tensor]:
    """One loss for each sample; None: no label fits these logits, or more than one does."""
    with torch.no_grad():
        logits = logits.detach().float()
        found = [losses for losses in (_losses(logits, label) for label in labels)
                 if losses is not None]
        if len(found) != 1:
            return None
        return found[0].reshape(logits.shape[0], -1).mean(1)
