"""ONNX operators in NumPy, one function each: obvious, exact, slow. What other engines are compared with.

Sums of products are taken in float64 and rounded to float32 once, so the results are nearer to the true ones than those
of an engine that sums in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .windows import WINDOW_OPS

__all__ = ["COORDINATES", "OPS", "ROUNDINGS", "dequantize", "quantize"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]


def quantize(x: Array, scale: Array, zero: Array, axis: int = 1) -> Array:
    """saturate(round_half_to_even(x / scale) + zero), in float32 as ONNX and TensorRT define it."""
    limits = np.iinfo(zero.dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        codes = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis).astype(np.float32)
    clipped: Array = np.clip(codes, limits.min, limits.max).astype(zero.dtype)
    return clipped


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


def _in_double(function: Callable[[Array], Array]) -> Callable[..., Array]:
    """An operator of one input that is computed in float64."""

    def run(a: Attributes, x: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
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
    return x / y if x.dtype.kind == "f" else (np.trunc(x / y)).astype(x.dtype)


def _batch_norm(a: Attributes, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    s, b, m, v = (
        value.astype(np.float64).reshape(1, -1, *[1] * (x.ndim - 2)) for value in (scale, bias, mean, variance)
    )
    result: Array = ((x - m) / np.sqrt(v + a.get("epsilon", 1e-5)) * s + b).astype(x.dtype)
    return result


def _leaky(a: Attributes, x: Array) -> Array:
    return np.where(x < 0, x * x.dtype.type(a.get("alpha", 0.01)), x)


def _elu(a: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.where(wide < 0, a.get("alpha", 1.0) * np.expm1(np.minimum(wide, 0)), wide).astype(x.dtype)


def _selu(a: Attributes, x: Array) -> Array:
    wide, alpha = x.astype(np.float64), a.get("alpha", 1.6732632423543772)
    y: Array = a.get("gamma", 1.0507009873554805) * np.where(wide > 0, wide, alpha * np.expm1(np.minimum(wide, 0)))
    return y.astype(x.dtype)


def _hard_sigmoid(a: Attributes, x: Array) -> Array:
    wide: Array = a.get("alpha", 0.2) * x.astype(np.float64) + a.get("beta", 0.5)
    return np.clip(wide, 0, 1).astype(x.dtype)


def _softmax(a: Attributes, x: Array) -> Array:
    axis = a.get("axis", -1)
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    result: Array = (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)
    return result


def _clip(a: Attributes, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    return np.clip(x, low, high).astype(x.dtype)


def _gemm(a: Attributes, x: Array, y: Array, bias: Array | None = None) -> Array:
    left, right = (x.T if a.get("transA") else x), (y.T if a.get("transB") else y)
    product = a.get("alpha", 1.0) * np.matmul(left.astype(np.float64), right.astype(np.float64))
    result: Array = (product if bias is None else product + a.get("beta", 1.0) * bias).astype(x.dtype)
    return result


def _matmul(a: Attributes, x: Array, y: Array) -> Array:
    result: Array = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    return result


def _concat(a: Attributes, *values: Array) -> Array:
    return np.concatenate(values, axis=a["axis"])


def _reshape(a: Attributes, x: Array, shape: Array) -> Array:
    sizes = [x.shape[k] if size == 0 and not a.get("allowzero") else int(size) for k, size in enumerate(shape)]
    return x.reshape(sizes)


def _transpose(a: Attributes, x: Array) -> Array:
    return np.ascontiguousarray(np.transpose(x, a.get("perm")))


_PLACES: dict[str, Callable[[Array, Any, int, int], Array]] = {  # (index, factor, old size, new size) → place in x
    "asymmetric": lambda index, factor, old, new: index / factor,
    "half_pixel": lambda index, factor, old, new: (index + np.float32(0.5)) / factor - np.float32(0.5),
    "align_corners": lambda index, factor, old, new: index * np.float32(old - 1) / np.float32(max(new - 1, 1)),
}
_NEAREST: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda place: np.ceil(place - np.float32(0.5)),
    "round_prefer_ceil": lambda place: np.floor(place + np.float32(0.5)),
}
COORDINATES, ROUNDINGS = tuple(_PLACES), tuple(_NEAREST)


def _resize(
    a: Attributes, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Array:
    """To the nearest pixel; the places are float32, as in onnxruntime."""
    place = _PLACES[a.get("coordinate_transformation_mode", "half_pixel")]
    nearest = _NEAREST[a.get("nearest_mode", "round_prefer_floor")]
    for k, axis in enumerate(a.get("axes", range(x.ndim))):
        old = x.shape[axis]
        if sizes is None:
            factor = np.float32(1 if scales is None else scales[k])
            new = int(np.float32(old) * factor)
        else:
            new = int(sizes[k])
            factor = np.float32(new) / np.float32(old)
        if factor != 1:
            places = nearest(place(np.arange(new, dtype=np.float32), factor, old, new))
            x = np.take(x, np.clip(places, 0, old - 1).astype(np.int64), axis=axis)
    return x


def _slice(
    a: Attributes, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    where = range(len(starts)) if axes is None else axes
    by = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(where, starts, ends, by, strict=True):
        stop = None if step < 0 and end <= -x.shape[axis] - 1 else int(end)
        index[axis] = slice(int(start), stop, int(step))
    return x[tuple(index)]


def _split(a: Attributes, x: Array, sizes: Array | None = None) -> list[Array]:
    axis = a.get("axis", 0)
    count = a.get("num_outputs", 1)
    parts = [-(-x.shape[axis] // count)] * (count - 1) if sizes is None else list(sizes[:-1])
    return np.split(x, np.cumsum(parts), axis=axis)


def _squeeze(a: Attributes, x: Array, axes: Array | None = None) -> Array:
    return np.squeeze(x, None if axes is None else tuple(int(axis) for axis in axes))


def _unsqueeze(a: Attributes, x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(int(axis) for axis in axes))


def _flatten(a: Attributes, x: Array) -> Array:
    axis = a.get("axis", 1)
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(a: Attributes, x: Array, axes: Array | None = None) -> Array:
        over = None if axes is None or not len(axes) else tuple(int(axis) for axis in axes)
        if over is None and a.get("noop_with_empty_axes"):
            return x
        return function(x.astype(np.float64), axis=over, keepdims=bool(a.get("keepdims", 1))).astype(x.dtype)

    return run


def _space_to_depth(a: Attributes, x: Array) -> Array:
    n, c, h, w = x.shape
    s = a["blocksize"]
    return x.reshape(n, c, h // s, s, w // s, s).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * s * s, h // s, w // s)


def _depth_to_space(a: Attributes, x: Array) -> Array:
    n, c, h, w = x.shape
    s = a["blocksize"]
    if a.get("mode", "DCR") == "DCR":
        blocks = x.reshape(n, s, s, c // s**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // s**2, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // s**2, h * s, w * s)


def _pad(a: Attributes, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
    where = list(range(x.ndim)) if axes is None else [int(axis) for axis in axes]
    width = [(0, 0)] * x.ndim
    for k, axis in enumerate(where):
        width[axis] = (int(pads[k]), int(pads[k + len(where)]))
    return np.pad(x, width, constant_values=0 if value is None else value.item())


def _cast(a: Attributes, x: Array) -> Array:
    from ..._optional import require

    return x.astype(require("onnx.helper", extra="onnx").tensor_dtype_to_np_dtype(a["to"]))


def _constant_of_shape(a: Attributes, shape: Array) -> Array:
    value = a.get("value", np.zeros(1, np.float32))
    return np.full([int(size) for size in shape], value.item(), value.dtype)


OPS: dict[str, Any] = {
    **WINDOW_OPS,
    "Abs": lambda a, x: np.abs(x),
    "Add": _binary(np.add),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DequantizeLinear": _dequantize_linear,
    "Div": _binary(_divide),
    "DepthToSpace": _depth_to_space,
    "Dropout": lambda a, x, *_: [x, np.ones(x.shape, np.bool_)],
    "Elu": _elu,
    "Equal": _binary(np.equal),
    "Exp": _in_double(np.exp),
    "Expand": lambda a, x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(s) for s in shape))),
    "Flatten": _flatten,
    "Gather": lambda a, x, index: np.take(x, index, axis=a.get("axis", 0)),
    "Gemm": _gemm,
    "HardSigmoid": _hard_sigmoid,
    "Identity": lambda a, x: x,
    "LeakyRelu": _leaky,
    "Log": _in_double(np.log),
    "MatMul": _matmul,
    "Max": _many(np.maximum),
    "Min": _many(np.minimum),
    "Mish": _in_double(lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "Mul": _binary(np.multiply),
    "Neg": lambda a, x: -x,
    "PRelu": lambda a, x, slope: np.where(x < 0, x * slope, x),
    "Pad": _pad,
    "Pow": lambda a, x, y: np.power(x.astype(np.float64), y).astype(x.dtype),
    "QuantizeLinear": _quantize_linear,
    "ReduceMean": _reduce(np.mean),
    "ReduceSum": _reduce(np.sum),
    "Relu": lambda a, x: np.maximum(x, 0),
    "Reshape": _reshape,
    "Resize": _resize,
    "Selu": _selu,
    "Shape": lambda a, x: np.array(x.shape[a.get("start", 0) : a.get("end")], np.int64),
    "Sigmoid": _in_double(lambda x: 1 / (1 + np.exp(-x))),
    "Slice": _slice,
    "Softmax": _softmax,
    "Softplus": _in_double(lambda x: np.logaddexp(x, 0)),
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Sqrt": _in_double(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Tanh": _in_double(np.tanh),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": lambda a, condition, x, y: np.where(condition, x, y),
}
"""Name of an operator → function (attributes, *inputs) → output, or a list of outputs."""
