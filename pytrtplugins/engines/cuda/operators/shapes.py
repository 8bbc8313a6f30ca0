"""Operators whose values are dims, or whose dims are values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....tensor import DType
from ..device.elements import decoded, to_stored
from .table import Attributes, op


@op("Shape", capturable=False)
def _shape(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return np.array(x.shape[attributes.get("start", 0) : attributes.get("end", x.ndim)], np.int64)


@op("Size", capturable=False)
def _size(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return np.array(math.prod(x.shape), np.int64)


@op("ConstantOfShape", host_inputs=(0,))
def _constant_of_shape(xp: Any, attributes: Attributes, dims: Any, sizes: Any) -> Any:
    value = attributes.get("value")
    filler = np.zeros(1, np.float32) if value is None else np.asarray(value)
    filler = decoded(np, to_stored(filler), DType.of(filler))
    return xp.full([int(size) for size in sizes], filler.reshape(()).item(), filler.dtype)


@op("Range", host_inputs=(0, 1, 2))
def _range(xp: Any, attributes: Attributes, dims: Any, begin: Any, end: Any, step: Any) -> Any:
    first, last, by = (np.asarray(value).reshape(()) for value in (begin, end, step))
    count = max(0, math.ceil((float(last) - float(first)) / float(by)))
    wide = first.dtype if first.dtype.kind in "iu" else np.dtype(np.float64)
    return (xp.arange(count, dtype=wide) * by.astype(wide).item() + first.astype(wide).item()).astype(first.dtype)
