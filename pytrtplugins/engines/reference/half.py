"""Half precision as GPUs compute it: storage in 16 bits, arithmetic and sums in float32 or better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["half_type", "is_half", "run_wide"]

_HALF = ("float16", "bfloat16")


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether it is float16 or bfloat16; the latter is ml_dtypes', which NumPy does not take for a float."""
    return dtype.name in _HALF


def half_type(values: Sequence[npt.NDArray[Any] | None]) -> np.dtype[Any] | None:
    """The half type among the inputs of an operator; None if there is none."""
    return next((value.dtype for value in values if value is not None and is_half(value.dtype)), None)


def run_wide(function: Callable[..., Any], attributes: Any, values: Sequence[Any], keeps_type: bool) -> list[Any]:
    """Run an operator that reads half numbers: they are widened to float32, and what it gives is rounded once.

    Args:
        function: The operator in NumPy.
        attributes: Its attributes.
        values: Its inputs, one of which at least is half.
        keeps_type: Whether a float32 result is rounded to the inputs' half type; Cast says its type itself.
    """
    dtype = half_type(values)
    wide = [value.astype(np.float32) if value is not None and is_half(value.dtype) else value for value in values]
    result = function(attributes, *wide)
    results = result if isinstance(result, list) else [result]
    if not keeps_type or dtype is None:
        return results
    return [value.astype(dtype) if value.dtype.kind == "f" else value for value in results]
