"""The operators between numbers and their 8-bit codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...tensor import Array

__all__ = ["CODE_OPS", "dequantize", "quantize"]

Attributes = Mapping[str, Any]


def quantize(x: Array, scale: Array, zero: Array, axis: int = 1) -> Array:
    """saturate(round_half_to_even(x / scale) + zero), in float32 as ONNX and TensorRT define it."""
    limits = np.iinfo(zero.dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        codes = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis).astype(np.float32)
    return np.clip(codes, limits.min, limits.max).astype(zero.dtype)


def dequantize(x: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    """(x - zero) · scale, in float32."""
    centred = x.astype(np.int32) if zero is None else x.astype(np.int32) - _along(zero, x, axis).astype(np.int32)
    return centred.astype(np.float32) * _along(scale, x, axis)


def _along(value: Array, x: Array, axis: int) -> Array:
    return (
        value.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)]) if value.size > 1 else value.reshape(())
    )


def _quantize_linear(a: Attributes, x: Array, scale: Array, zero: Array | None = None) -> Array:
    return quantize(x, scale, np.zeros_like(scale, np.uint8) if zero is None else zero, a.get("axis", 1))


def _dequantize_linear(a: Attributes, x: Array, scale: Array, zero: Array | None = None) -> Array:
    return dequantize(x, scale, zero, a.get("axis", 1))


CODE_OPS: dict[str, Callable[..., Any]] = {"DequantizeLinear": _dequantize_linear, "QuantizeLinear": _quantize_linear}
"""Name of an operator → function (attributes, *inputs) → output."""
