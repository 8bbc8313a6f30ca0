"""Operators that work on each element by itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....utils.optional import require
from .table import OPS, Attributes, onnx_dtype, op

_UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "Abs": lambda xp, x: xp.abs(x),
    "Acos": lambda xp, x: xp.arccos(x),
    "Acosh": lambda xp, x: xp.arccosh(x),
    "Asin": lambda xp, x: xp.arcsin(x),
    "Asinh": lambda xp, x: xp.arcsinh(x),
    "Atan": lambda xp, x: xp.arctan(x),
    "Atanh": lambda xp, x: xp.arctanh(x),
    "BitwiseNot": lambda xp, x: ~x,
    "Ceil": lambda xp, x: xp.ceil(x),
    "Cos": lambda xp, x: xp.cos(x),
    "Cosh": lambda xp, x: xp.cosh(x),
    "Erf": lambda xp, x: _erf(xp, x),
    "Exp": lambda xp, x: xp.exp(x),
    "Floor": lambda xp, x: xp.floor(x),
    "HardSwish": lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1),
    "Identity": lambda xp, x: x,
    "IsNaN": lambda xp, x: xp.isnan(x),
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
    "Sinh": lambda xp, x: xp.sinh(x),
    "Softplus": lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)),
    "Softsign": lambda xp, x: x / (1 + xp.abs(x)),
    "Sqrt": lambda xp, x: xp.sqrt(x),
    "Tan": lambda xp, x: xp.tan(x),
    "Tanh": lambda xp, x: xp.tanh(x),
}
_BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Add": lambda xp, a, b: a + b,
    "And": lambda xp, a, b: a & b,
    "BitwiseAnd": lambda xp, a, b: a & b,
    "BitwiseOr": lambda xp, a, b: a | b,
    "BitwiseXor": lambda xp, a, b: a ^ b,
    "Div": lambda xp, a, b: a / b if a.dtype.kind == "f" else _divide(xp, a, b),
    "Equal": lambda xp, a, b: a == b,
    "Greater": lambda xp, a, b: a > b,
    "GreaterOrEqual": lambda xp, a, b: a >= b,
    "Less": lambda xp, a, b: a < b,
    "LessOrEqual": lambda xp, a, b: a <= b,
    "Mul": lambda xp, a, b: a * b,
    "Or": lambda xp, a, b: a | b,
    "PRelu": lambda xp, x, slope: xp.where(x < 0, x * slope, x),
    "Pow": lambda xp, a, b: _power(xp, a, b).astype(a.dtype),
    "Sub": lambda xp, a, b: a - b,
    "Xor": lambda xp, a, b: a ^ b,
}
_VARIADIC: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Max": lambda xp, a, b: xp.maximum(a, b),
    "Min": lambda xp, a, b: xp.minimum(a, b),
    "Sum": lambda xp, a, b: a + b,
}
for _name, _unary in _UNARY.items():
    OPS[_name] = lambda xp, at, dims, x, f=_unary: f(xp, x)
for _name, _binary in _BINARY.items():
    OPS[_name] = lambda xp, at, dims, a, b, f=_binary: f(xp, a, b)
for _name, _pair in _VARIADIC.items():
    OPS[_name] = lambda xp, at, dims, *values, f=_pair: functools.reduce(lambda a, b: f(xp, a, b), values)


def _erf(xp: Any, x: Any) -> Any:
    if x.dtype.kind in "iu":  # as ONNX's reference: rounded to float32, where that of 4 is 1
        return _erf(xp, x.astype(np.float64)).astype(np.float32).astype(x.dtype)
    if xp.__name__ == "numpy":
        return np.vectorize(math.erf, otypes=[x.dtype])(x)
    return require("cupyx.scipy.special", extra="cuda", package="cupy-cuda13x").erf(x)


def _divide(xp: Any, a: Any, b: Any) -> Any:
    """Whole numbers, rounded towards zero."""
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def _power(xp: Any, a: Any, b: Any) -> Any:
    """Of whole numbers to fractions: a whole number where it is next to one, since CUDA's pow(3, 1) may be below 3."""
    found = a**b
    if a.dtype.kind == "f" or b.dtype.kind != "f":
        return found
    whole = xp.rint(found)
    return xp.where(abs(found - whole) <= 1e-15 * abs(whole), whole, found)


@op("LeakyRelu")
def _leaky_relu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return xp.where(x < 0, x * np.float32(at.get("alpha", 0.01)), x)


@op("Elu")
def _elu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return xp.where(x < 0, np.float32(at.get("alpha", 1.0)) * xp.expm1(x), x)


@op("Celu")
def _celu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    alpha = np.float32(at.get("alpha", 1.0))
    return xp.maximum(x, 0) + xp.minimum(alpha * xp.expm1(x / alpha), 0)


@op("Selu")
def _selu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    alpha, gamma = at.get("alpha", 1.6732632423543772), at.get("gamma", 1.0507009873554805)
    return np.float32(gamma) * xp.where(x <= 0, np.float32(alpha) * xp.expm1(x), x)


@op("HardSigmoid")
def _hard_sigmoid(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return xp.clip(x * np.float32(at.get("alpha", 0.2)) + np.float32(at.get("beta", 0.5)), 0, 1)


@op("ThresholdedRelu")
def _thresholded_relu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return xp.where(x > np.float32(at.get("alpha", 1.0)), x, xp.zeros_like(x))


@op("Shrink")
def _shrink(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    bias, limit = np.float32(at.get("bias", 0.0)), np.float32(at.get("lambd", 0.5))
    x = x if x.dtype.kind == "f" else x.astype(np.float32)  # the fraction is cut off where the result is stored
    return xp.where(x < -limit, x + bias, xp.where(x > limit, x - bias, xp.zeros_like(x)))


@op("Swish")
def _swish(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return x / (1 + xp.exp(-x * np.float32(at.get("alpha", 1.0))))


@op("GeluTanh")
def _gelu_tanh(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return x * 0.5 * (1 + xp.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)))


@op("Gelu")
def _gelu(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    if at.get("approximate", "none") == "tanh":
        return _gelu_tanh(xp, at, dims, x)
    return x * 0.5 * (1 + _erf(xp, x * np.float32(math.sqrt(0.5))))


@op("IsInf")
def _is_inf(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    positive, negative = bool(at.get("detect_positive", 1)), bool(at.get("detect_negative", 1))
    return xp.isinf(x) & ((x > 0) & positive | (x < 0) & negative)


@op("Clip")
def _clip(xp: Any, at: Attributes, dims: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    limits = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)  # what a bound is that is left out
    low, high = (  # arrays: CuPy takes -65504 of float16, given as a number, for minus infinity
        np.array(limit, x.dtype) if bound is None else bound for limit, bound in ((limits.min, low), (limits.max, high))
    )
    return xp.minimum(xp.maximum(x, xp.asarray(low)), xp.asarray(high))


@op("Mod")
def _mod(xp: Any, at: Attributes, dims: Any, a: Any, b: Any) -> Any:
    if at.get("fmod") or a.dtype.kind != "f":
        return xp.fmod(a, b) if at.get("fmod") else a % b
    rest = xp.fmod(a, b)  # CuPy's % makes NaN of infinite divisors
    return xp.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@op("BitShift")
def _bit_shift(xp: Any, at: Attributes, dims: Any, a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    amount = xp.where(inside, b, xp.zeros_like(b))
    if at["direction"] == "LEFT":
        return xp.where(inside, a << amount, xp.zeros_like(a))
    return xp.where(inside, a >> amount, xp.where(a < 0, ~xp.zeros_like(a), xp.zeros_like(a)))  # the sign stays


@op("Where")
def _where(xp: Any, at: Attributes, dims: Any, condition: Any, a: Any, b: Any) -> Any:
    return xp.where(condition, a, b)


@op("Mean")
def _mean(xp: Any, at: Attributes, dims: Any, *values: Any) -> Any:
    return functools.reduce(lambda a, b: a + b, values) / len(values)


@op("Cast", "CastLike")
def _cast(xp: Any, at: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return x  # the output's memory has the type


@op("BitCast", raw=True)
def _bit_cast(xp: Any, at: Attributes, dims: Any, x: Any) -> Any:
    return x.view(onnx_dtype(at["to"]))


@op("Dropout")
def _dropout(xp: Any, at: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return [x, xp.ones(x.shape, bool)][: len(dims)]  # that of inference: all is kept
