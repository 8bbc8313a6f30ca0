"""The launches that darknet's layers share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..cuda import Constant, CudaKernel
from ..tensor import Array, TensorDesc
from ._activations import Part

__all__ = ["HEAD", "KERNELS", "head_slots", "launch_head", "same_layout"]

KERNELS = Path(__file__).parents[1] / "kernels"
HEAD = CudaKernel.from_file(KERNELS / "head.cu", "head")
_KINDS = {"as-is": 0, "logistic": 1, "softmax": 2}
_SCALED = 4


def same_layout(position: int, descs: Sequence[TensorDesc], dtypes: Sequence[Any]) -> bool:
    """Whether a tensor is linear or NHWC, of one of these types, and like the first one."""
    desc, first = descs[position], descs[0]
    return (
        desc.layout in ("linear", "nhwc")
        and desc.dtype in dtypes
        and (desc.layout, desc.dtype) == (first.layout, first.dtype)
    )


def head_slots(parts: Sequence[Part], scaled: bool = False) -> Constant:
    """What the kernel does with which entries: one slot per entry, or per softmax; ``scaled``: the first part has a factor."""
    slots = []
    for number, (kind, begin, end) in enumerate(parts):
        code = _KINDS[kind] + (_SCALED if scaled and number == 0 else 0)
        ranges = [(begin, end)] if kind == "softmax" else [(entry, entry + 1) for entry in range(begin, end)]
        slots += [(code, low, high) for low, high in ranges]
    return Constant(np.array(slots, np.int32))


def launch_head(
    x: Array,
    y: Array,
    slots: Constant,
    entries: int,
    *,
    nhwc: bool,
    stream: Any,
    first: tuple[float, float] = (1.0, 0.0),
) -> None:
    """Apply the slots' activations to each box of x."""
    n, c, h, w = x.shape
    count, boxes, area = len(slots.array), c // entries, h * w
    inner, outer = (boxes * count, area) if nhwc else (area, boxes * count)
    HEAD.launch(
        x, y, slots, count, boxes, entries, area, nhwc, first, threads=(inner, outer, n), block=(64, 4), stream=stream
    )
