"""Copy large matrices, and fill large arrays in several threads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["fill_parts", "row_major"]

_LINES = 16
"""Rows or columns that are copied at a time: the cache holds what they touch."""
_THREADED, _THREADS = 1 << 20, 8
"""Bytes from which threads copy, and how many there are at most."""


def row_major(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A matrix, (M, N), whose rows lie in memory one after the other: itself, or a copy.

    NumPy copies a large transposed matrix value by value across the whole memory; part by part takes a third to a sixth of the time.
    Several threads copy parts of a very large one.
    """
    if matrix.flags.c_contiguous:
        return matrix
    copy, columns = np.empty(matrix.shape, matrix.dtype), matrix.T
    fill_parts(copy.T, lambda part: np.copyto(copy.T[part], columns[part]))
    return copy


def fill_parts(array: npt.NDArray[Any], fill: Callable[[slice], object]) -> npt.NDArray[Any]:
    """Call ``fill`` with slices that cover an array's first axis, in several threads where the array is large, and return the array.

    A slice has few lines, so that what they touch stays in the cache. NumPy lets other threads run while it copies, converts or takes
    many values.
    """
    lines = range(0, len(array), _LINES)
    if array.nbytes < _THREADED or len(lines) < 2:
        _fill_lines(lines, fill)
        return array
    share = -(-len(lines) // _THREADS)
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        shares = [lines[first : first + share] for first in range(0, len(lines), share)]
        for _ in pool.map(_fill_lines, shares, itertools.repeat(fill)):
            pass
    return array


def _fill_lines(begins: range, fill: Callable[[slice], object]) -> None:
    for begin in begins:
        fill(slice(begin, begin + _LINES))
