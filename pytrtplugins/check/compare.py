"""Compare two results: whether they are equal, and where they first differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["TOLERANCES", "difference", "differences"]

TOLERANCES = {"float64": (1e-4, 1e-5), "float32": (1e-4, 1e-5), "float16": (1e-2, 1e-3), "bfloat16": (2e-2, 1e-2)}
"""Relative and absolute tolerance by element type, for results summed in another order; integers are exact."""


def difference(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, worst: int = 5) -> str:
    """Describe how two arrays differ; empty when they are the same.

    The element type of what is expected chooses the tolerances that are not given; the ``worst`` elements are named.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)}, expected {list(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"element type {actual.dtype}, expected {expected.dtype}"
    if actual.tobytes() == expected.tobytes():  # so it is most of the time
        return ""
    relative, absolute = TOLERANCES.get(expected.dtype.name, (0.0, 0.0))
    rtol, atol = relative if rtol is None else rtol, absolute if atol is None else atol
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        wrong = ~(error <= atol + rtol * np.abs(b)) & (error != 0)
    if not wrong.any():
        return ""
    excess = np.where(wrong, np.where(np.isnan(error), np.inf, error), -1.0).ravel()
    order = np.argsort(-excess, kind="stable")[: min(worst, int(wrong.sum()))]
    lines = []
    for place in order:
        index = tuple(map(int, np.unravel_index(place, expected.shape)))
        lines.append(f"{list(index)}: {actual[index]}, expected {expected[index]}")
    return f"{int(wrong.sum())} of {wrong.size} elements differ; worst at {'; '.join(lines)}"


def differences(actual: Sequence[Any], expected: Sequence[Any]) -> str:
    """The first difference between two lists of outputs."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, expected {len(expected)}"
    for index, (first, other) in enumerate(zip(actual, expected, strict=True)):
        text = difference(first, other)
        if text:
            return f"output {index}: {text}"
    return ""
