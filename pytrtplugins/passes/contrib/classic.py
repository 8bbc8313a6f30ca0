"""Function bodies of ``ai.onnx.ml`` for operators on floats, such as linear models and scalers; not for trees and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .node import ContribNode, NotWritableError, ints, number

__all__ = ["CLASSIC"]


def _floats(name: str, values: Sequence[float], *dims: int) -> str:
    """A statement that makes a tensor of float32, by default a vector."""
    sizes = ", ".join(map(str, dims or (len(values),)))
    return f"{name} = Constant <value = float[{sizes}] {{{', '.join(repr(float(value)) for value in values)}}}> ()"


def _features(node: ContribNode) -> str:
    """ArrayFeatureExtractor: columns of the last axis; a vector is one row."""
    if node.dtype(0) == "object":
        raise NotWritableError("it reads texts")
    rows = "Identity (x0)" if len(node.dims(0)) > 1 else "Unsqueeze (x0, first)"
    return f"""{ints("first", [0])}
        {ints("flat", [-1])}
        places = Reshape (x1, flat)
        rows = {rows}
        y0 = Gather <axis = -1> (rows, places)"""


def _scaler(node: ContribNode) -> str:
    """Scaler: (x - offset) · scale in float32."""
    _check_type(node)
    return f"""x = Cast <to = 1> (x0)
        {_floats("offset", node.attribute("offset", [0.0]))}
        {_floats("scale", node.attribute("scale", [1.0]))}
        moved = Sub (x, offset)
        y0 = Mul (moved, scale)"""


def _binarizer(node: ContribNode) -> str:
    """Binarizer: 1 where x is larger than the threshold, else 0."""
    _check_type(node)
    return f"""x = Cast <to = 1> (x0)
        {number("threshold", node.attribute("threshold", 0.0))}
        larger = Greater (x, threshold)
        y0 = {node.cast("larger")}"""


def _normalizer(node: ContribNode) -> str:
    """Normalizer: each row over its norm, and as it is where that is 0; MAX is the largest number, and not the largest magnitude."""
    _check_type(node)
    norm = _NORMS.get(node.attribute("norm", "MAX"))
    if norm is None or len(node.dims(0)) != _MATRIX:
        raise NotWritableError("it has another norm, or reads no matrix")
    return f"""x = Cast <to = 1> (x0)
        {ints("one", [1])}
        {norm}
        {number("zero", 0.0)}
        {number("unit", 1.0)}
        empty = Equal (norm, zero)
        divisor = Where (empty, unit, norm)
        y0 = Div (x, divisor)"""


def _regressor(node: ContribNode) -> str:
    """LinearRegressor: x · coefficients + intercepts."""
    _check_type(node)
    targets, coefficients = node.attribute("targets", 1), node.attribute("coefficients")
    if node.attribute("post_transform", "NONE") != "NONE" or len(node.dims(0)) != _MATRIX:
        raise NotWritableError("its results are transformed, or it reads no matrix")
    return f"""x = Cast <to = 1> (x0)
        {_floats("weights", coefficients, targets, len(coefficients) // targets)}
        {_floats("bias", node.attribute("intercepts", [0.0] * targets))}
        y0 = Gemm <transB = 1> (x, weights, bias)"""


def _imputer(node: ContribNode) -> str:
    """Imputer: replaces one number, which may be NaN, by given values."""
    values, replaced = node.attribute("imputed_value_floats", None), node.attribute("replaced_value_float", 0.0)
    if not values or node.dtype(0) != "float":
        raise NotWritableError("it replaces whole numbers")
    missing = "IsNaN (x0)" if replaced != replaced else "Equal (x0, replaced)"
    return f"""{_floats("values", values)}
        {number("replaced", 0.0 if replaced != replaced else replaced)}
        missing = {missing}
        y0 = Where (missing, values, x0)"""


def _check_type(node: ContribNode) -> None:
    """Require numbers that onnxruntime computes with in float32."""
    if node.dtype(0) not in ("float", "int32", "int64"):
        raise NotWritableError("it reads other numbers than float32 and whole ones")


_MATRIX = 2
"""Axes of a matrix."""
_NORMS = {
    "MAX": "norm, place = TopK <axis = 1> (x, one)",
    "L1": "magnitudes = Abs (x)\nnorm = ReduceSum (magnitudes, one)",
    "L2": "squares = Mul (x, x)\nsum = ReduceSum (squares, one)\nnorm = Sqrt (sum)",
}

CLASSIC: Mapping[str, Callable[[ContribNode], str]] = {
    "ArrayFeatureExtractor": _features,
    "Binarizer": _binarizer,
    "Imputer": _imputer,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
}
