"""Operators that work on each element by itself."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..elementwise import ELEMENTWISE, Elementwise
from .table import OPS, Attributes, Function, onnx_dtype, op


def _function(row: Elementwise) -> Function:
    """The function of an operator that has nothing but inputs and numbers."""

    def run(xp: Any, attributes: Attributes, dims: Any, *inputs: Any) -> Any:
        if row.variadic:
            return functools.reduce(lambda a, b: row.array(xp, a, b), inputs)
        return row.array(
            xp, *inputs, *(np.float32(attributes.get(name, number)) for name, number in row.numbers.items())
        )

    return run


OPS.update({name: _function(row) for name, row in ELEMENTWISE.items()})


@op("Gelu")
def _gelu(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return ELEMENTWISE["GeluTanh" if attributes.get("approximate", "none") == "tanh" else "Gelu"].array(xp, x)


@op("IsInf")
def _is_inf(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    positive, negative = bool(attributes.get("detect_positive", 1)), bool(attributes.get("detect_negative", 1))
    return xp.isinf(x) & ((x > 0) & positive | (x < 0) & negative)


@op("Clip")
def _clip(xp: Any, attributes: Attributes, dims: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    limits = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)  # what a bound is that is left out
    low, high = (  # arrays: CuPy takes -65504 of float16, given as a number, for minus infinity
        np.array(limit, x.dtype) if bound is None else bound for limit, bound in ((limits.min, low), (limits.max, high))
    )
    return xp.minimum(xp.maximum(x, xp.asarray(low)), xp.asarray(high))


@op("Mod")
def _mod(xp: Any, attributes: Attributes, dims: Any, a: Any, b: Any) -> Any:
    if attributes.get("fmod") or a.dtype.kind != "f":
        return xp.fmod(a, b) if attributes.get("fmod") else a % b
    rest = xp.fmod(a, b)  # CuPy's % makes NaN of infinite divisors
    return xp.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@op("BitShift")
def _bit_shift(xp: Any, attributes: Attributes, dims: Any, a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    amount = xp.where(inside, b, xp.zeros_like(b))
    if attributes["direction"] == "LEFT":
        return xp.where(inside, a << amount, xp.zeros_like(a))
    return xp.where(inside, a >> amount, xp.where(a < 0, ~xp.zeros_like(a), xp.zeros_like(a)))  # the sign stays


@op("Mean")
def _mean(xp: Any, attributes: Attributes, dims: Any, *values: Any) -> Any:
    return functools.reduce(lambda a, b: a + b, values) / len(values)


@op("Cast", "CastLike")
def _cast(xp: Any, attributes: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return x  # the output's memory has the type


@op("BitCast", raw=True)
def _bit_cast(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return x.view(onnx_dtype(attributes["to"]))


@op("Dropout")
def _dropout(xp: Any, attributes: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return [x, xp.ones(x.shape, bool)][: len(dims)]  # that of inference: all is kept
