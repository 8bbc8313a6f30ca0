"""Copy large matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["row_major"]

_LINES = 16
"""Rows or columns that are copied at a time: the cache holds what they touch."""


def row_major(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A matrix, (M, N), whose rows lie in memory one after the other: itself, or a copy.

    NumPy copies a large transposed matrix value by value across the whole memory; part by part takes a third to a sixth of the time.
    """
    if matrix.flags.c_contiguous:
        return matrix
    copy = np.empty(matrix.shape, matrix.dtype)
    for begin in range(0, matrix.shape[1], _LINES):
        part = np.s_[:, begin : begin + _LINES]
        copy[part] = matrix[part]
    return copy
