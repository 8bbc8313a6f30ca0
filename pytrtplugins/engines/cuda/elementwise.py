"""Operators that compute each element by itself: a row an operator, as a function of arrays and as a C++ expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model.operator_traits import Trait, operators
from ...utils.optional import require

__all__ = ["ELEMENTWISE", "RECURRENT_ACTIVATIONS", "Elementwise"]


@dataclass(frozen=True)
class Elementwise:
    """How an operator is computed.

    Attributes:
        text: C++ of its operands ``{0}``, ``{1}``, …, with functions of pointwise.cu and codes.cu. Half precision comes as float.
        array: Module of arrays (NumPy or CuPy) and the same operands as arrays → result. Half precision comes as float32.
        numbers: Attributes of a node that are the last operands, in their order → what they are where the node has none.
        variadic: Whether it takes any number of inputs, the first two of them first.
    """

    text: str
    array: Callable[..., Any]
    numbers: Mapping[str, float]
    variadic: bool = False


def _row(text: str, array: Callable[..., Any], variadic: bool = False, **numbers: float) -> Elementwise:
    return Elementwise(text, array, numbers, variadic)


def _celu(xp: Any, x: Any, alpha: Any) -> Any:
    return xp.maximum(x, 0) + xp.minimum(alpha * xp.expm1(x / alpha), 0)


def _divide(xp: Any, a: Any, b: Any) -> Any:
    """The quotient; of whole numbers rounded towards zero."""
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def _erf(xp: Any, x: Any) -> Any:
    if x.dtype.kind in "iu":  # as ONNX's reference: rounded to float32, where that of 4 is 1
        return _erf(xp, x.astype(np.float64)).astype(np.float32).astype(x.dtype)
    if xp.__name__ == "numpy":
        return np.vectorize(math.erf, otypes=[x.dtype])(x)
    return require("cupyx.scipy.special", extra="cuda", package="cupy-cuda13x").erf(x)


def _gelu_tanh(xp: Any, x: Any) -> Any:
    return x * 0.5 * (1 + xp.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)))


def _power(xp: Any, a: Any, b: Any) -> Any:
    """Of whole numbers to fractions: a whole number where it is next to one, since CUDA's pow(3, 1) may be below 3."""
    found = a**b
    if a.dtype.kind != "f" and b.dtype.kind == "f":
        whole = xp.rint(found)
        found = xp.where(abs(found - whole) <= 1e-15 * abs(whole), whole, found)
    return found.astype(a.dtype)


def _shrink(xp: Any, x: Any, bias: Any, limit: Any) -> Any:
    x = x if x.dtype.kind == "f" else x.astype(np.float32)  # the fraction is cut off where the result is stored
    return xp.where(x < -limit, x + bias, xp.where(x > limit, x - bias, xp.zeros_like(x)))


def _softplus(xp: Any, x: Any) -> Any:
    return xp.logaddexp(x, xp.zeros_like(x))


ELEMENTWISE: Mapping[str, Elementwise] = {
    "Abs": _row("magnitude({0})", lambda xp, x: xp.abs(x)),
    "Acos": _row("arc_cosine({0})", lambda xp, x: xp.arccos(x)),
    "Acosh": _row("arc_cosine_h({0})", lambda xp, x: xp.arccosh(x)),
    "Add": _row("add({0}, {1})", lambda xp, a, b: a + b),
    "And": _row("{0} && {1}", lambda xp, a, b: a & b),
    "Asin": _row("arc_sine({0})", lambda xp, x: xp.arcsin(x)),
    "Asinh": _row("arc_sine_h({0})", lambda xp, x: xp.arcsinh(x)),
    "Atan": _row("arc_tangent({0})", lambda xp, x: xp.arctan(x)),
    "Atanh": _row("arc_tangent_h({0})", lambda xp, x: xp.arctanh(x)),
    "BitwiseAnd": _row("{0} & {1}", lambda xp, a, b: a & b),
    "BitwiseNot": _row("~{0}", lambda xp, x: ~x),
    "BitwiseOr": _row("{0} | {1}", lambda xp, a, b: a | b),
    "BitwiseXor": _row("{0} ^ {1}", lambda xp, a, b: a ^ b),
    "Ceil": _row("round_up({0})", lambda xp, x: xp.ceil(x)),
    "Celu": _row("celu({0}, {1})", _celu, alpha=1.0),
    "Cos": _row("cosine({0})", lambda xp, x: xp.cos(x)),
    "Cosh": _row("cosine_h({0})", lambda xp, x: xp.cosh(x)),
    "Div": _row("divide({0}, {1})", _divide),
    "Elu": _row("elu({0}, {1})", lambda xp, x, alpha: xp.where(x < 0, alpha * xp.expm1(x), x), alpha=1.0),
    "Equal": _row("{0} == {1}", lambda xp, a, b: a == b),
    "Erf": _row("error_function({0})", _erf),
    "Exp": _row("exponential({0})", lambda xp, x: xp.exp(x)),
    "Floor": _row("round_down({0})", lambda xp, x: xp.floor(x)),
    "Gelu": _row("gelu({0})", lambda xp, x: x * 0.5 * (1 + _erf(xp, x * np.float32(math.sqrt(0.5))))),
    "GeluTanh": _row("gelu_tanh({0})", _gelu_tanh),
    "Greater": _row("{0} > {1}", lambda xp, a, b: a > b),
    "GreaterOrEqual": _row("{0} >= {1}", lambda xp, a, b: a >= b),
    "HardSigmoid": _row(
        "hard_sigmoid({0}, {1}, {2})", lambda xp, x, alpha, beta: xp.clip(x * alpha + beta, 0, 1), alpha=0.2, beta=0.5
    ),
    "HardSwish": _row("hard_swish({0})", lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1)),
    "Identity": _row("{0}", lambda xp, x: x),
    "IsNaN": _row("{0} != {0}", lambda xp, x: xp.isnan(x)),
    "LeakyRelu": _row("leaky_relu({0}, {1})", lambda xp, x, alpha: xp.where(x < 0, x * alpha, x), alpha=0.01),
    "Less": _row("{0} < {1}", lambda xp, a, b: a < b),
    "LessOrEqual": _row("{0} <= {1}", lambda xp, a, b: a <= b),
    "Log": _row("logarithm({0})", lambda xp, x: xp.log(x)),
    "Max": _row("larger({0}, {1})", lambda xp, a, b: xp.maximum(a, b), variadic=True),
    "Min": _row("smaller({0}, {1})", lambda xp, a, b: xp.minimum(a, b), variadic=True),
    "Mish": _row("mish({0})", lambda xp, x: x * xp.tanh(_softplus(xp, x))),
    "Mul": _row("multiply({0}, {1})", lambda xp, a, b: a * b),
    "Neg": _row("negative({0})", lambda xp, x: -x),
    "Not": _row("!{0}", lambda xp, x: ~x),
    "Or": _row("{0} || {1}", lambda xp, a, b: a | b),
    "PRelu": _row("leaky_relu({0}, {1})", lambda xp, x, slope: xp.where(x < 0, x * slope, x)),
    "Pow": _row("power({0}, {1})", _power),
    "QuickGelu": _row("swish({0}, 1.702f)", lambda xp, x: x / (1 + xp.exp(x * np.float32(-1.702)))),
    "Reciprocal": _row("1 / {0}", lambda xp, x: 1 / x),
    "Relu": _row("relu({0})", lambda xp, x: xp.maximum(x, 0)),
    "Round": _row("round_to_even({0})", lambda xp, x: xp.rint(x)),
    "Selu": _row(
        "selu({0}, {1}, {2})",
        lambda xp, x, alpha, gamma: gamma * xp.where(x <= 0, alpha * xp.expm1(x), x),
        alpha=1.6732632423543772,
        gamma=1.0507009873554805,
    ),
    "Shrink": _row("shrink({0}, {1}, {2})", _shrink, bias=0.0, lambd=0.5),
    "Sigmoid": _row("sigmoid({0})", lambda xp, x: 1 / (1 + xp.exp(-x))),
    "Sign": _row("sign({0})", lambda xp, x: xp.sign(x)),
    "Sin": _row("sine({0})", lambda xp, x: xp.sin(x)),
    "Sinh": _row("sine_h({0})", lambda xp, x: xp.sinh(x)),
    "Softplus": _row("softplus({0})", _softplus),
    "Softsign": _row("{0} / (1 + magnitude({0}))", lambda xp, x: x / (1 + xp.abs(x))),
    "Sqrt": _row("square_root({0})", lambda xp, x: xp.sqrt(x)),
    "Sub": _row("subtract({0}, {1})", lambda xp, a, b: a - b),
    "Sum": _row("add({0}, {1})", lambda xp, a, b: a + b, variadic=True),
    "Swish": _row("swish({0}, {1})", lambda xp, x, alpha: x / (1 + xp.exp(-x * alpha)), alpha=1.0),
    "Tan": _row("tangent({0})", lambda xp, x: xp.tan(x)),
    "Tanh": _row("tangent_h({0})", lambda xp, x: xp.tanh(x)),
    "ThresholdedRelu": _row(
        "{0} > {1} ? {0} : 0", lambda xp, x, alpha: xp.where(x > alpha, x, xp.zeros_like(x)), alpha=1.0
    ),
    "Where": _row("{0} ? {1} : {2}", lambda xp, condition, a, b: xp.where(condition, a, b)),
    "Xor": _row("{0} != {1}", lambda xp, a, b: a ^ b),
}
"""Operator of ONNX or of this engine → its row. What nodes have beside inputs and numbers, operators/ and lower/ read."""

RECURRENT_ACTIVATIONS: Mapping[str, Elementwise] = {
    **{name.lower(): ELEMENTWISE[name] for name in operators(Trait.GATE)},
    "affine": _row("{1} * {0} + {2}", lambda xp, x, alpha, beta: alpha * x + beta, alpha=1.0, beta=0.0),
    "scaledtanh": _row(
        "{1} * tangent_h({2} * {0})", lambda xp, x, alpha, beta: alpha * xp.tanh(beta * x), alpha=1.0, beta=1.0
    ),
}
"""Activation that ONNX's recurrent layers may name, in small letters → its row."""
