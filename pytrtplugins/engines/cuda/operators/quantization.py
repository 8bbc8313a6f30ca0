"""Quantization operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import Attributes, op

__all__ = ["centered", "requantized", "spread"]

_LIMITS = {
    **{number: (np.iinfo(kind).min, np.iinfo(kind).max) for number, kind in enumerate(("u1", "i1", "u2", "i2"), 2)},
    21: (0, 15),
    22: (-8, 7),
    25: (0, 3),
    26: (-2, 1),
}
"""ONNX's number of a type of codes that are whole numbers → the least and the largest."""


@op("QuantizeLinear")
def _quantize(xp: Any, attributes: Attributes, dims: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    limits = _LIMITS.get(attributes.get("output_dtype") or 2)
    codes = x / _along(xp, attributes, x, scale)
    if limits is None:  # real ones, which are rounded as they are stored
        return codes
    codes = xp.rint(codes)
    if zero is not None:
        codes = codes + _along(xp, attributes, x, zero).astype(np.float32)
    return xp.clip(codes, *limits)


@op("DequantizeLinear")
def _dequantize(xp: Any, attributes: Attributes, dims: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    values = x.astype(np.float32)
    if zero is not None:
        values = values - _along(xp, attributes, x, zero).astype(np.float32)
    return values * _along(xp, attributes, x, scale)


@op("DynamicQuantizeLinear")
def _dynamic_quantize(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    low, high = xp.minimum(x.min(), 0), xp.maximum(x.max(), 0)
    scale = xp.where(high > low, (high - low) / np.float32(255), np.float32(1))  # of zeros 1, as onnxruntime has it
    zero = xp.clip(xp.rint(-low / scale), 0, 255)
    return [xp.clip(xp.rint(x / scale) + zero, 0, 255), scale, zero]


def centered(xp: Any, codes: Any, zero: Any, axis: int) -> Any:
    """Codes less their zero point, as int32; one axis of zero points, for each row or column, gets another behind or before it."""
    values = codes.astype(np.int32)
    return values if zero is None else values - spread(xp, xp.asarray(zero).astype(np.int32), axis)


def spread(xp: Any, numbers: Any, axis: int) -> Any:
    """Scales or zero points of a matrix: one, or one for each row or column, with an axis for the others."""
    if numbers.size == 1:
        return numbers.reshape(())
    return xp.expand_dims(numbers, axis) if numbers.ndim == 1 else numbers


def requantized(xp: Any, values: Any, zero: Any) -> Any:
    """Values in units of the output's scale, rounded, around the zero point, within its type."""
    limits = np.iinfo(zero.dtype)
    return xp.clip(xp.rint(values) + xp.asarray(zero).astype(np.float32).reshape(()), limits.min, limits.max)


def _along(xp: Any, attributes: Attributes, x: Any, values: Any) -> Any:
    """Scales or zero points: one, one for each index of an axis, or one for each block of an axis."""
    values = xp.asarray(values)
    if values.ndim == 0 or values.size == 1:
        return values.reshape(())
    axis, block = attributes.get("axis", 1) % x.ndim, attributes.get("block_size", 0)
    if block:
        return xp.take(xp.repeat(values, block, axis=axis), xp.arange(x.shape[axis]), axis=axis)
    return values.reshape([values.size if place == axis else 1 for place in range(x.ndim)])
