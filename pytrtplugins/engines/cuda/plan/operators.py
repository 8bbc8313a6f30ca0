"""Standard operators that run array by array, on any layout; float16 computes in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["ACTIVATIONS", "OPS"]

ACTIVATIONS = {"Sigmoid": 0, "Tanh": 1, "Swish": 2, "Mish": 3, "HardSwish": 4}
"""Operators that one kernel runs on NHWC, as it numbers them."""

Attributes = Mapping[str, Any]
Function = Callable[..., Any]
"""Module of arrays, attributes, dims of the outputs, inputs (None where left out; constants are NumPy's) → outputs."""

_UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "Abs": lambda xp, x: xp.abs(x),
    "Ceil": lambda xp, x: xp.ceil(x),
    "Cos": lambda xp, x: xp.cos(x),
    "Exp": lambda xp, x: xp.exp(x),
    "Floor": lambda xp, x: xp.floor(x),
    "HardSwish": lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1),
    "Identity": lambda xp, x: x,
    "Log": lambda xp, x: xp.log(x),
    "Mish": lambda xp, x: x * xp.tanh(xp.logaddexp(x, xp.zeros_like(x))),
    "Neg": lambda xp, x: -x,
    "Not": lambda xp, x: ~x,
    "Reciprocal": lambda xp, x: 1 / x,
    "Relu": lambda xp, x: xp.maximum(x, 0),
    "Round": lambda xp, x: xp.rint(x),
    "Sigmoid": lambda xp, x: 1 / (1 + xp.exp(-x)),
    "Sign": lambda xp, x: xp.sign(x),
    "Sin": lambda xp, x: xp.sin(x),
    "Softplus": lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)),
    "Sqrt": lambda xp, x: xp.sqrt(x),
    "Swish": lambda xp, x: x / (1 + xp.exp(-x)),
    "Tanh": lambda xp, x: xp.tanh(x),
}
_BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Add": lambda xp, a, b: a + b,
    "And": lambda xp, a, b: a & b,
    "Div": lambda xp, a, b: a / b if a.dtype.kind == "f" else xp.trunc(a / b).astype(a.dtype),
    "Equal": lambda xp, a, b: a == b,
    "Greater": lambda xp, a, b: a > b,
    "Less": lambda xp, a, b: a < b,
    "Mul": lambda xp, a, b: a * b,
    "Or": lambda xp, a, b: a | b,
    "PRelu": lambda xp, x, slope: xp.where(x < 0, x * slope, x),
    "Pow": lambda xp, a, b: (a**b).astype(a.dtype),
    "Sub": lambda xp, a, b: a - b,
}
_VARIADIC: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Max": lambda xp, a, b: xp.maximum(a, b),
    "Min": lambda xp, a, b: xp.minimum(a, b),
    "Sum": lambda xp, a, b: a + b,
}
OPS: dict[str, Function] = {
    **{name: (lambda xp, at, dims, x, f=f: f(xp, x)) for name, f in _UNARY.items()},
    **{name: (lambda xp, at, dims, a, b, f=f: f(xp, a, b)) for name, f in _BINARY.items()},
    **{
        name: (lambda xp, at, dims, *values, f=f: functools.reduce(lambda a, b: f(xp, a, b), values))
        for name, f in _VARIADIC.items()
    },
}
"""Operator → its function."""


def _op(name: str) -> Callable[[Function], Function]:
    def keep(function: Function) -> Function:
        OPS[name] = function
        return function

    return keep


def _axes(attributes: Attributes, given: Any, rank: int) -> tuple[int, ...]:
    axes = given if given is not None else attributes.get("axes")
    return tuple(range(rank)) if axes is None else tuple(int(axis) % rank for axis in np.asarray(axes).ravel())


@_op("LeakyRelu")
def _leaky_relu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return xp.where(x < 0, x * np.float32(at.get("alpha", 0.01)), x)


@_op("Elu")
def _elu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return xp.where(x < 0, np.float32(at.get("alpha", 1.0)) * xp.expm1(x), x)


@_op("Selu")
def _selu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    alpha, gamma = at.get("alpha", 1.6732632423543772), at.get("gamma", 1.0507009873554805)
    return np.float32(gamma) * xp.where(x <= 0, np.float32(alpha) * xp.expm1(x), x)


@_op("HardSigmoid")
def _hard_sigmoid(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return xp.clip(x * np.float32(at.get("alpha", 0.2)) + np.float32(at.get("beta", 0.5)), 0, 1)


@_op("Clip")
def _clip(xp: Any, at: Attributes, dims: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    if low is not None:
        x = xp.maximum(x, xp.asarray(low))
    return x if high is None else xp.minimum(x, xp.asarray(high))


@_op("Softmax")
def _softmax(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    axis = at.get("axis", -1)
    powers = xp.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@_op("Where")
def _where(xp: Any, at: Attributes, dims: Any, condition: Any, a: Any, b: Any) -> Any:
    return xp.where(condition, a, b)


def _reduce(name: str, function: Callable[[Any, Any, Any, bool], Any]) -> None:
    def run(xp: Any, at: Attributes, dims: Any, x: Any, axes: Any = None) -> Any:
        return function(xp, x, _axes(at, axes, x.ndim), bool(at.get("keepdims", 1)))

    OPS[name] = run


_reduce("ReduceMean", lambda xp, x, axes, keep: x.mean(axis=axes, keepdims=keep))
_reduce("ReduceSum", lambda xp, x, axes, keep: x.sum(axis=axes, keepdims=keep))
_reduce("ReduceMax", lambda xp, x, axes, keep: x.max(axis=axes, keepdims=keep))
_reduce("ReduceMin", lambda xp, x, axes, keep: x.min(axis=axes, keepdims=keep))
_reduce("ReduceL2", lambda xp, x, axes, keep: xp.sqrt((x * x).sum(axis=axes, keepdims=keep)))
_reduce("ReduceSumSquare", lambda xp, x, axes, keep: (x * x).sum(axis=axes, keepdims=keep))


@_op("GlobalAveragePool")
def _global_average(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)


@_op("GlobalMaxPool")
def _global_max(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


@_op("MatMul")
def _matmul(xp: Any, at: Attributes, dims: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b)


@_op("Gemm")
def _gemm(xp: Any, at: Attributes, dims: Any, a: Any, b: Any, c: Any = None) -> Any:
    a, b = (a.T if at.get("transA") else a), (b.T if at.get("transB") else b)
    result = xp.matmul(a, b) * np.float32(at.get("alpha", 1.0))
    return result if c is None else result + c * np.float32(at.get("beta", 1.0))


def _to_dims(xp: Any, at: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return x.reshape(dims[0])


for _name in ("Flatten", "Reshape", "Squeeze", "Unsqueeze"):
    OPS[_name] = _to_dims


@_op("Expand")
def _expand(xp: Any, at: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return xp.broadcast_to(x, dims[0])


@_op("Transpose")
def _transpose(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return x.transpose(at.get("perm"))


@_op("Concat")
def _concat(xp: Any, at: Attributes, dims: Any, *values: Any) -> Any:
    return xp.concatenate([xp.asarray(value) for value in values], axis=at["axis"])


@_op("Split")
def _split(xp: Any, at: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    axis = at.get("axis", 0)
    ends = np.cumsum([shape[axis] for shape in dims])[:-1]
    return xp.split(x, [int(end) for end in ends], axis=axis)


@_op("Slice")
def _slice(
    xp: Any, at: Attributes, dims: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    chosen = [slice(None)] * x.ndim
    along = range(len(starts)) if axes is None else axes
    for index, axis in enumerate(along):
        step = 1 if steps is None else int(steps[index])
        begin, end = int(starts[index]), int(ends[index])
        past = step < 0 and end < -x.shape[axis]
        chosen[int(axis)] = slice(begin, None if past else end, step)
    return x[tuple(chosen)]


@_op("Pad")
def _pad(xp: Any, at: Attributes, dims: Any, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    room = [(0, 0)] * x.ndim
    half = len(pads) // 2
    for index, axis in enumerate(range(x.ndim) if axes is None else axes):
        room[int(axis)] = int(pads[index]), int(pads[index + half])
    mode = at.get("mode", "constant")
    if mode == "constant":
        return xp.pad(x, room, constant_values=0.0 if value is None else float(np.asarray(value).reshape(())))
    return xp.pad(x, room, mode=mode)


@_op("Gather")
def _gather(xp: Any, at: Attributes, dims: Any, x: Any, indices: Any) -> Any:
    return xp.take(x, xp.asarray(indices), axis=at.get("axis", 0))


@_op("Resize")
def _resize(xp: Any, at: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    for axis, (old, new) in enumerate(zip(x.shape, dims[0], strict=True)):
        if new % old == 0 and new != old:
            x = xp.repeat(x, new // old, axis=axis)
        elif new != old:
            x = xp.take(x, xp.asarray(np.floor(np.arange(new) * (old / new)).astype(np.int64)), axis=axis)
    return x


@_op("Cast")
def _cast(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return x  # the output's memory has the type


@_op("QuantizeLinear")
def _quantize(xp: Any, at: Attributes, dims: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    unsigned = zero is None or zero.dtype == np.uint8
    codes = xp.rint(x / _along(xp, at, x, scale))
    if zero is not None:
        codes = codes + _along(xp, at, x, zero).astype(np.float32)
    return xp.clip(codes, 0, 255) if unsigned else xp.clip(codes, -128, 127)


@_op("DequantizeLinear")
def _dequantize(xp: Any, at: Attributes, dims: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    values = x.astype(np.float32)
    if zero is not None:
        values = values - _along(xp, at, x, zero).astype(np.float32)
    return values * _along(xp, at, x, scale)


def _along(xp: Any, at: Attributes, x: Any, values: Any) -> Any:
    values = xp.asarray(values)
    if values.ndim == 0 or values.size == 1:
        return values.reshape(())
    shape = [1] * x.ndim
    shape[at.get("axis", 1)] = values.size
    return values.reshape(shape)
