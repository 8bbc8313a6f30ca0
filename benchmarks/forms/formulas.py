"""Formulas of versions of operators that are no longer defined, and that libraries lack or compute as the newer ones, from ONNX's text."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["LEGACY", "NEWEST", "SAME_AS"]

_Attributes = Mapping[str, Any]
_Formula = Callable[[int, _Attributes, Sequence[Any]], Any]


def _broadcast(function: Callable[[Any, Any], Any]) -> _Formula:
    """Before opset 7 the second operand lies along the axes of the first from ``axis`` on, if ``broadcast`` is set."""

    def formula(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
        if version >= 7:
            raise NotImplementedError
        a, b = operands
        if attributes.get("broadcast", 0) and b.ndim:
            begin = attributes.get("axis", a.ndim - b.ndim)
            b = b.reshape(b.shape + (1,) * (a.ndim - begin - b.ndim))
        return function(a, b)

    return formula


def _divided(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return a / b
    below = a // b
    return np.asarray(below + ((below * b != a) & ((a < 0) != (b < 0))), a.dtype)


def _prelu(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
    if version >= 7:
        raise NotImplementedError
    x, slope = operands
    if slope.size > 1:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return np.where(x < 0, x * slope, x)


def _flat_softmax(version: int, attributes: _Attributes, operands: Sequence[Any], kind: str) -> Any:
    if version >= 13:
        raise NotImplementedError
    (x,) = operands
    axis = attributes.get("axis", 1) % x.ndim
    rows = x.astype(np.float64).reshape(int(np.prod(x.shape[:axis])), -1)
    if kind == "hard":
        result = np.eye(rows.shape[1])[rows.argmax(1)]
    else:
        shifted = rows - rows.max(1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        result = logs if kind == "log" else np.exp(logs)
    return result.reshape(x.shape).astype(x.dtype)


def _softmax(kind: str) -> _Formula:
    return lambda version, attributes, operands: _flat_softmax(version, attributes, operands, kind)


def _legacy_concat(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
    if version >= 4:
        raise NotImplementedError
    return np.concatenate(operands, attributes.get("axis", 1))


def _legacy_tile(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
    if version >= 6:
        raise NotImplementedError
    x, tiles, axis = operands
    repeats = [1] * x.ndim
    repeats[int(axis.reshape(()))] = int(tiles.reshape(()))
    return np.tile(x, repeats)


def _legacy_gemm(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
    if version >= 7:
        raise NotImplementedError
    a, b, c = operands
    a, b = a.T if attributes.get("transA") else a, b.T if attributes.get("transB") else b
    wide = attributes.get("alpha", 1.0) * (a.astype(np.float64) @ b) + attributes.get("beta", 1.0) * c
    return wide.astype(operands[0].dtype)


def _lrn(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
    (x,) = operands
    wide, size = x.astype(np.float64), attributes["size"]
    before, behind = (size - 1) // 2, size // 2
    sums = [np.square(wide[:, max(0, c - before) : c + behind + 1]).sum(1) for c in range(x.shape[1])]
    scale = attributes.get("bias", 1.0) + attributes.get("alpha", 1e-4) / size * np.stack(sums, 1)
    return (wide / scale ** attributes.get("beta", 0.75)).astype(x.dtype)


def _global_max_pool(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
    (x,) = operands
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


def _clip(version: int, attributes: _Attributes, operands: Sequence[Any]) -> Any:
    """From version 11 on bounds are inputs, by default the least and the largest number of the type."""
    if version < 11:
        raise NotImplementedError
    x, low, high = (*operands, None, None)[:3]
    limits = np.iinfo(x.dtype) if x.dtype.kind in "iu" else ml_dtypes.finfo(x.dtype)
    return np.minimum(np.maximum(x, limits.min if low is None else low), limits.max if high is None else high)


LEGACY: dict[str, _Formula] = {
    "Clip": _clip,
    "GlobalMaxPool": _global_max_pool,
    "Add": _broadcast(operator.add),
    "Sub": _broadcast(operator.sub),
    "Mul": _broadcast(operator.mul),
    "Div": _broadcast(_divided),
    "Pow": _broadcast(lambda a, b: np.power(a, b).astype(a.dtype)),
    "And": _broadcast(np.logical_and),
    "Or": _broadcast(np.logical_or),
    "Xor": _broadcast(np.logical_xor),
    "Equal": _broadcast(operator.eq),
    "Less": _broadcast(operator.lt),
    "Greater": _broadcast(operator.gt),
    "PRelu": _prelu,
    "LRN": _lrn,
    "Softmax": _softmax("soft"),
    "LogSoftmax": _softmax("log"),
    "Hardmax": _softmax("hard"),
    "Concat": _legacy_concat,
    "Tile": _legacy_tile,
    "Gemm": _legacy_gemm,
}
"""Operator → its formula, which raises NotImplementedError for newer versions."""

NEWEST = {
    "Clip": 28,
    "GlobalMaxPool": 28,
    "LRN": 28,
    "Softmax": 12,
    "LogSoftmax": 12,
    "Hardmax": 12,
    "Concat": 3,
    "Tile": 5,
}
"""The newest version that a formula is for; of all others 6."""

SAME_AS = {
    **dict.fromkeys(["AveragePool", "GlobalLpPool", "LSTM", "RNN", "Sum", "Mean", "Max", "Min", "Upsample"], 7),
    **dict.fromkeys(["MaxPool"], 8),
    **dict.fromkeys(["Selu", "InstanceNormalization", "Clip", "Elu", "HardSigmoid", "LeakyRelu"], 6),
    **dict.fromkeys(["Dropout"], 7),
    **dict.fromkeys(["BatchNormalization"], 7),
    **dict.fromkeys(["LpPool", "Split", "Pad"], 2),
}
"""Operator → a version of it which means the same as all older ones, once attributes without a meaning are dropped."""
