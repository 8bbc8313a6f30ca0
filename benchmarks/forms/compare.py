"""Whether two results are the same: dtypes, dims and numbers, within what rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .draft import is_float

__all__ = ["difference"]

_RELATIVE = {"float64": 1e-6, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
_CODES = frozenset(("QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear", "com.microsoft.QGemm"))
"""Operators whose results are codes, which rounding changes by one step."""


def difference(
    expected: Sequence[Any], results: Sequence[Any], operator: str, exact: bool, loose: float, half: bool = False
) -> str:
    """What differs first; empty where nothing does.

    Args:
        expected: Arrays of the oracle.
        results: Arrays to compare.
        operator: What computed them.
        exact: Whether they are values of the operands.
        loose: Factor on the tolerance.
        half: Whether the form computes in half precision inside, so that float32 results carry its error.
    """
    if len(expected) != len(results):
        return f"{len(results)} outputs, expected {len(expected)}"
    for index, (right, result) in enumerate(zip(expected, results, strict=True)):
        text = _differs(np.asarray(right), np.asarray(result), operator, exact, loose, half)
        if text:
            return f"output {index}: {text}"
    return ""


def _differs(right: Any, result: Any, operator: str, exact: bool, loose: float, half: bool) -> str:
    if right.dtype != result.dtype:
        return f"{result.dtype}, expected {right.dtype}"
    if right.shape != result.shape:
        return f"dims {result.shape}, expected {right.shape}"
    if not right.size:
        return ""
    if not is_float(right.dtype):
        step = 1 if (operator in _CODES or ".QLinear" in operator) and right.dtype.itemsize == 1 else 0
        wrong = (
            np.abs(right.astype(object) - result.astype(object)) > step if right.dtype != np.bool_ else right != result
        )
        return _example(right, result, wrong)
    a, b = right.astype(np.float64), result.astype(np.float64)
    name = "float16" if half and right.dtype in (np.float32, np.float64) else right.dtype.name
    relative = _RELATIVE.get(name, 0.1) * loose
    if exact and not half and name in ("float32", "float64"):
        relative = _RELATIVE[name] / 10
    finite = a[np.isfinite(a)]
    absolute = relative * min(1.0, float(np.abs(finite).max(initial=0.0))) * 0.3 + np.finfo(np.float32).tiny
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= absolute + relative * np.abs(a)
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(a) & near)
    return _example(right, result, ~same)


def _example(right: Any, result: Any, wrong: Any) -> str:
    places = np.argwhere(wrong)
    if not len(places):
        return ""
    place = tuple(int(i) for i in places[0])
    return f"{len(places)} of {right.size} differ, at {place} {result[place]}, expected {right[place]} ({right.dtype})"
