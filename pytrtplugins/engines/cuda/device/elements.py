"""Store, decode and encode element types that NumPy and CuPy lack, such as FP8 and 4-bit types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ....tensor import SMALL_DTYPES, DType
from ....utils.optional import require

__all__ = ["decoded", "encoded", "from_stored", "stored", "to_stored"]

_HALVES = (DType.FLOAT16, DType.BFLOAT16)
_SMALL_WHOLE = {DType.INT4: (4, True), DType.UINT4: (4, False), DType.INT2: (2, True), DType.UINT2: (2, False)}
"""Type → its bits, and whether it has a sign; each number takes a byte."""
_SMALL_REAL = tuple(dtype for dtype in SMALL_DTYPES if dtype not in _SMALL_WHOLE)
"""Stored as their bits, a byte each."""


def stored(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of a tensor in the device's memory."""
    if dtype in _SMALL_REAL:
        return np.dtype(np.uint8)
    if dtype in _SMALL_WHOLE:
        return np.dtype(np.int8 if _SMALL_WHOLE[dtype][1] else np.uint8)
    return dtype.numpy


def to_stored(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert a host array to the device's storage type."""
    dtype = DType.of(array)
    if dtype in _SMALL_REAL:
        return np.ascontiguousarray(array).reshape(array.shape).view(np.uint8)
    return array.astype(stored(dtype)) if dtype in _SMALL_WHOLE else array


def from_stored(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Convert an array from the device's storage type to its own type."""
    if dtype in _SMALL_REAL:
        return array.view(dtype.numpy)
    return array.astype(dtype.numpy) if dtype in _SMALL_WHOLE else array


def decoded(xp: Any, values: Any, dtype: DType) -> Any:
    """Decode stored values to a type with arithmetic; floats below 32 bits become float32."""
    if dtype in _SMALL_REAL:
        return xp.take(_on_device(xp, _meanings, dtype), values.astype(np.int32))
    return values.astype(np.float32) if dtype in _HALVES else values


def encoded(xp: Any, values: Any, dtype: DType, attributes: Mapping[str, Any], raw: bool = False) -> Any:
    """Round results to an element type, and return them as it is stored.

    Args:
        xp: Module of arrays.
        values: What an operator gave.
        dtype: The tensor's type.
        attributes: The operator's, of which ``saturate`` and ``round_mode`` say how to round.
        raw: Whether the values are the bits of the type already.
    """
    values = xp.asarray(values)
    if raw and dtype in _SMALL_REAL:
        return values & 0xF if dtype is DType.FLOAT4E2M1 else values
    if dtype is DType.FLOAT8E8M0:
        return _powers(xp, values.astype(np.float32), attributes)
    if dtype in _SMALL_REAL:
        return _nearest_codes(xp, values.astype(np.float32), dtype, bool(attributes.get("saturate", 1)))
    if dtype in _SMALL_WHOLE:
        bits, signed = _SMALL_WHOLE[dtype]
        low = values.astype(np.int64) & ((1 << bits) - 1)  # the lowest bits stay, as of wider types
        return ((low ^ (1 << bits - 1)) - (1 << bits - 1) if signed else low).astype(stored(dtype))
    return values


@functools.cache
def _meanings(dtype: DType) -> npt.NDArray[np.float32]:
    """The table of the values of all codes of a type."""
    count = 16 if dtype is DType.FLOAT4E2M1 else 256
    return np.arange(count, dtype=np.uint8).view(dtype.numpy).astype(np.float32)


@functools.cache
def _rounding(dtype: DType) -> tuple[npt.NDArray[np.float32], int, int, int]:
    """What lies halfway between neighbours from 0 on; the bit of the sign; the codes of infinity and of what is not a number."""
    meanings = _meanings(dtype)
    sign = len(meanings) // 2
    finite = meanings[:sign][np.isfinite(meanings[:sign])].astype(np.float64)
    finite = np.append(finite, 2 * finite[-1] - finite[-2])  # where the next would be
    special = np.array([np.inf, np.nan], np.float32)
    require("ml_dtypes", extra="onnx", feature=f"dtype {dtype}")
    with np.errstate(all="ignore"):
        infinity, nothing = special.astype(dtype.numpy).view(np.uint8)
    return ((finite[1:] + finite[:-1]) / 2).astype(np.float32), sign, int(infinity), int(nothing)


def _halfway(dtype: DType) -> npt.NDArray[np.float32]:
    return _rounding(dtype)[0]


_tables: dict[tuple[Any, ...], Any] = {}


def _on_device(xp: Any, table: Callable[[DType], npt.NDArray[Any]], dtype: DType) -> Any:
    """Return a table on the device; it is copied at the first use, which is never during a graph capture."""
    if xp is np:
        return table(dtype)
    key = table, dtype, xp.cuda.runtime.getDevice()
    if key not in _tables:
        _tables[key] = xp.asarray(table(dtype))
        xp.cuda.get_current_stream().synchronize()
    return _tables[key]


def _nearest_codes(xp: Any, values: Any, dtype: DType, saturate: bool) -> Any:
    """The nearest code, of two the even one; what is too large becomes the largest, or infinity where the type has it."""
    _, sign, infinity, nothing = _rounding(dtype)
    points, size = _on_device(xp, _halfway, dtype), xp.abs(values)
    below, above = (
        xp.searchsorted(points, size.reshape(-1), side=side).reshape(size.shape) for side in ("left", "right")
    )
    code = xp.where(below % 2 == 0, below, above)
    last = len(points) - 1
    if saturate or dtype is DType.FLOAT4E2M1:
        code = xp.minimum(code, last)
    code = xp.where(code > last, infinity, code)
    negative = xp.signbit(values)
    if dtype.value.endswith("fnuz"):  # which has no negative zero: that code is not a number
        negative &= code > 0
    code = xp.where(negative, code | sign, code)
    return xp.where(xp.isnan(values), nothing, code).astype(np.uint8)


def _powers(xp: Any, values: Any, attributes: Mapping[str, Any]) -> Any:
    """Encode to powers of two (FLOAT8E8M0), whose code is the exponent of float32."""
    bits = values.view(np.uint32)
    exponent, fraction = ((bits >> 23) & 0xFF).astype(np.int32), bits & 0x7FFFFF
    mode, special = attributes.get("round_mode", "nearest"), exponent == 0xFF
    half = 1 << 22
    if mode == "nearest":
        up = (fraction > half) | ((fraction == half) & (exponent > 0))
    elif mode == "up":
        up = fraction > xp.where(exponent > 0, 0, half)  # below them lies the least power, which has no code below it
    else:
        up = xp.zeros(exponent.shape, bool)
    if attributes.get("saturate", 1):
        up = up & (exponent < 0xFE)
    lacking = values < 0  # for which the type has no code
    if "round_mode" not in attributes:  # not of a Cast: 0 has none either
        lacking = values <= 0
    return xp.where(special | lacking, 0xFF, exponent + up).astype(np.uint8)
