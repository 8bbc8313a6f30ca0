"""Operators that compute each element of their result from one element of every input; 8-bit codes too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...model.proto import numpy_type
from ...tensor import Array
from ...utils.optional import require

__all__ = ["ELEMENTWISE_OPS"]

Attributes = Mapping[str, Any]


def _in_double(function: Callable[[Array], Array]) -> Callable[..., Array]:
    """An operator of one input that is computed in float64."""

    def run(a: Attributes, x: Array) -> Array:
        return function(x.astype(np.float64)).astype(x.dtype)

    return run


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def run(a: Attributes, x: Array, y: Array) -> Array:
        return function(x, y)

    return run


def _many(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def run(a: Attributes, first: Array, *rest: Array) -> Array:
        for value in rest:
            first = function(first, value)
        return first

    return run


def _divide(x: Array, y: Array) -> Array:
    """Integers are divided as in C: towards zero."""
    if x.dtype.kind == "f":
        return x / y
    rounded_down = (x % y != 0) & ((x < 0) != (y < 0))
    return np.asarray(x // y + rounded_down, x.dtype)


def _mod(a: Attributes, x: Array, y: Array) -> Array:
    """The sign is the divisor's; with ``fmod`` it is the dividend's, as in C."""
    return np.asarray(np.fmod(x, y) if a.get("fmod", 0) else np.mod(x, y))


def _clip(a: Attributes, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """A bound that is left out is the least or largest finite number of the type."""
    limits = np.iinfo(x.dtype) if x.dtype.kind in "iu" else require("ml_dtypes", extra="onnx").finfo(x.dtype)
    bounds = (limits.min if low is None else low, limits.max if high is None else high)
    low, high = (np.asarray(bound).astype(x.dtype) for bound in bounds)
    if low.size != 1 or high.size != 1:
        raise ValueError(f"its bounds have {low.size} and {high.size} numbers, and one each is expected")
    return np.minimum(np.maximum(x, low), high)


def _cast(a: Attributes, x: Array) -> Array:
    return x.astype(numpy_type(a["to"]))


def _leaky(a: Attributes, x: Array) -> Array:
    return np.where(x < 0, x * x.dtype.type(a.get("alpha", 0.01)), x)


def _elu(a: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.where(wide < 0, a.get("alpha", 1.0) * np.expm1(np.minimum(wide, 0)), wide).astype(x.dtype)


def _selu(a: Attributes, x: Array) -> Array:
    wide, alpha = x.astype(np.float64), a.get("alpha", 1.6732632423543772)
    y = a.get("gamma", 1.0507009873554805) * np.where(wide > 0, wide, alpha * np.expm1(np.minimum(wide, 0)))
    return y.astype(x.dtype)


def _hard_sigmoid(a: Attributes, x: Array) -> Array:
    wide = a.get("alpha", 0.2) * x.astype(np.float64) + a.get("beta", 0.5)
    return np.clip(wide, 0, 1).astype(x.dtype)


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)


def _quantize(a: Attributes, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """saturate(round_half_to_even(x / scale) + zero), in float32 as ONNX and TensorRT define it."""
    if zero is None:
        zero = np.zeros_like(scale, numpy_type(a["output_dtype"]) if a.get("output_dtype") else np.uint8)
    limits = np.iinfo(zero.dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        codes = np.rint(x / along(a, scale, x)) + along(a, zero, x).astype(np.float32)
    return np.clip(codes, limits.min, limits.max).astype(zero.dtype)


def _dequantize(a: Attributes, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """(x - zero) · scale, in float32."""
    centred = x.astype(np.int32) if zero is None else x.astype(np.int32) - along(a, zero, x).astype(np.int32)
    return centred.astype(np.float32) * along(a, scale, x)


def _dynamic_quantize(a: Attributes, x: Array) -> list[Array]:
    """Codes of uint8 for the range of the values and 0; the scale is 1 where all are 0, as in onnxruntime."""
    low, high = np.minimum(x.min(initial=0), np.float32(0)), np.maximum(x.max(initial=0), np.float32(0))
    scale = np.asarray((high - low) / np.float32(255) if high > low else 1, np.float32)
    zero = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
    return [_quantize(a, x, scale, np.asarray(zero)), scale, np.asarray(zero)]


def along(a: Attributes, value: Array, x: Array) -> Array:
    """Scales or zero points of codes: one, one for each index of an axis, or one for each block of an axis."""
    if value.size == 1:
        return value.reshape(())
    axis = a.get("axis", 1) % x.ndim
    if block := a.get("block_size", 0):
        return np.take(np.repeat(value, block, axis=axis), np.arange(x.shape[axis]), axis=axis)
    return value.reshape([-1 if k == axis else 1 for k in range(x.ndim)])


ELEMENTWISE_OPS: dict[str, Callable[..., Any]] = {
    "Abs": lambda a, x: np.abs(x),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "Ceil": lambda a, x: np.ceil(x),
    "Clip": _clip,
    "DequantizeLinear": _dequantize,
    "Div": _binary(_divide),
    "Dropout": lambda a, x, *_: [x, np.ones(x.shape, np.bool_)],
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Elu": _elu,
    "Equal": _binary(np.equal),
    "Erf": _in_double(_erf),
    "Exp": _in_double(np.exp),
    "Floor": lambda a, x: np.floor(x),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _in_double(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "Identity": lambda a, x: x,
    "LeakyRelu": _leaky,
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Log": _in_double(np.log),
    "Max": _many(np.maximum),
    "Mean": lambda a, *values: (sum(value.astype(np.float64) for value in values) / len(values)).astype(
        values[0].dtype
    ),
    "Min": _many(np.minimum),
    "Mish": _in_double(lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "Mod": _mod,
    "Mul": _binary(np.multiply),
    "Neg": lambda a, x: -x,
    "Not": lambda a, x: np.logical_not(x),
    "Or": _binary(np.logical_or),
    "PRelu": lambda a, x, slope: np.where(x < 0, x * slope, x),
    "Pow": lambda a, x, y: np.power(x.astype(np.float64), y).astype(x.dtype),
    "QuantizeLinear": _quantize,
    "Reciprocal": lambda a, x: np.reciprocal(x),
    "Relu": lambda a, x: np.maximum(x, x.dtype.type(0)),
    "Round": lambda a, x: np.rint(x),
    "Selu": _selu,
    "Sigmoid": _in_double(lambda x: 1 / (1 + np.exp(-x))),
    "Sign": lambda a, x: np.sign(x),
    "Softplus": _in_double(lambda x: np.logaddexp(x, 0)),
    "Sqrt": _in_double(np.sqrt),
    "Sub": _binary(np.subtract),
    "Sum": _many(np.add),
    "Tanh": _in_double(np.tanh),
    "Where": lambda a, condition, x, y: np.where(condition, x, y),
}
"""Name of an operator → function (attributes, *inputs) → output, or a list of outputs."""
