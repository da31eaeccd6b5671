# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a training has after a batch, as the scorer takes it. Tensors are known by what they can
do, so that torch need not be imported for lists and arrays."""
from array import array
from typing import Any, Dict, List, NamedTuple

from . import _libs
from .scorer import DTYPES


class Batch(NamedTuple):
    """Fields of struct shade_score_batch, and what must live as long as their pointers."""
    samples: int
    fields: Dict[str, Any]
    keep: List[Any]
    device: Any = None  # of torch, if it is all there and the scorer's, too


def is_tensor(value: Any) -> bool:
    """Of torch."""
    return hasattr(value, "data_ptr") and hasattr(value, "detach")


def _shape(value: Any) -> List[int]:
    if hasattr(value, "shape"):
        return list(value.shape)
    shape: List[int] = []
    while hasattr(value, "__len__"):
        shape.append(len(value))
        if not len(value):
            break
        value = value[0]
    return shape


def from_losses(losses: Any, on_device: bool) -> Batch:
    """One loss for each sample."""
    shape = _shape(losses)
    if len(shape) != 1:
        raise ValueError("one loss for each sample is wanted, as reduction='none' gives them, not "
                         + ("a single number" if not shape else f"the shape {tuple(shape)}"))
    if is_tensor(losses) and losses.is_cuda and on_device:
        losses = losses.detach().float().contiguous()
        return Batch(shape[0], {"losses": losses.data_ptr(), "memory": 1}, [losses], losses.device)
    values = _libs.as_floats(losses)
    return Batch(shape[0], {"losses": values.buffer_info()[0]}, [values])


def _from_tensors(logits: Any, labels: Any, on_device: bool) -> Batch:
    logits, labels = logits.detach(), labels.detach()
    on_device = on_device and logits.is_cuda
    if on_device:
        labels = labels.to(logits.device)
    else:
        logits, labels = logits.cpu(), labels.cpu()
    dtype = str(logits.dtype).rpartition(".")[2]
    if dtype not in DTYPES:
        logits, dtype = logits.float(), "float32"
    count, classes = logits.shape
    # Rows that are one and the same (expand) or overlap have a stride that means another thing
    # to the library.
    if logits.stride(1) != 1 or logits.stride(0) < classes:
        logits = logits.contiguous()
    labels = labels.long().contiguous()
    return Batch(count, {"logits": logits.data_ptr(), "classes": classes,
                         "row_stride": logits.stride(0) if count > 1 else classes,
                         "dtype": DTYPES[dtype], "label_bytes": 8, "labels": labels.data_ptr(),
                         "memory": int(on_device)},
                 [logits, labels], logits.device if on_device else None)


def from_logits(logits: Any, labels: Any, on_device: bool) -> Batch:
    """A row of logits and the right class for each sample."""
    shape, label_shape = _shape(logits), _shape(labels)
    if len(shape) != 2 or label_shape != shape[:1]:
        raise ValueError("logits of the shape (samples, classes) and a class for each sample are "
                         f"wanted, not {tuple(shape)} and {tuple(label_shape)}; for other tasks "
                         "give the losses")
    if is_tensor(logits) and is_tensor(labels):
        return _from_tensors(logits, labels, on_device)
    rows = logits.tolist() if hasattr(logits, "tolist") else logits
    values = array("f", (value for row in rows for value in row))
    classes = array("q", labels.tolist() if hasattr(labels, "tolist") else labels)
    return Batch(shape[0], {"logits": values.buffer_info()[0], "classes": shape[1],
                            "label_bytes": 8, "labels": classes.buffer_info()[0]},
                 [values, classes])
