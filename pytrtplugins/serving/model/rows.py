"""Test whether a network computes each row of a batch independently, so that requests can be joined along the first axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...tensor import TensorDesc
from .model import Arrays

__all__ = ["rows_are_independent"]

_FREE_SIZES = (32, 1, 224)  # tried for free dims behind the first: images must often be a multiple of 32
_ROWS = 4
_PLACE = (
    1  # of the row that is compared: neighbours on both sides, and not in the middle, where a reversed batch has it too
)
_LOUD = 1000.0  # how much larger neighbours are, so that what leaks from them is seen, also through a quantizer
_TOLERANCE = 0.02  # of the mean magnitude: another kernel may compute a larger batch, in half precision or in codes
_DIFFERENT = 0.1  # share of whole numbers that may differ, such as the class of a near tie


def rows_are_independent(
    inputs: Sequence[TensorDesc], run: Callable[[Arrays], Arrays], sizes: Sequence[int] = ()
) -> bool | None:
    """Compare a row computed alone with the same row between other, larger ones.

    Args:
        inputs: Of a network whose inputs and outputs all have the same free first dim.
        run: Computes the network.
        sizes: The batches that the engine has; a batch is filled up with zeros to the next of them. Empty: any.

    Returns:
        False where the answer to a row depends on other rows, as with a softmax, a sum or a recurrence along the first axis.
        None where the network refuses the values that are tried, or gives nothing finite.
    """
    rows = min(_ROWS, max(sizes, default=_ROWS))
    if rows == 1:
        return True
    alone, joined = (next((size for size in sorted(sizes) if size >= needed), needed) for needed in (1, rows))
    for row, neighbours in _samples(inputs):
        batch = {
            name: np.concatenate([neighbours[name][:1], row[name], neighbours[name][1 : rows - 1]]) for name in row
        }
        try:
            one = {name: array[0] for name, array in run(_pad_rows(row, alone)).items()}
            other = {name: array[_PLACE] for name, array in run(_pad_rows(batch, joined)).items()}
        except Exception:  # whatever an engine or a user's plugin says of such values
            continue
        if any(np.isfinite(array.astype(np.float64)).any() for array in one.values()):
            return all(_is_same(one[name], other[name]) for name in one)
    return None


def _samples(inputs: Sequence[TensorDesc]) -> Iterator[tuple[Arrays, Arrays]]:
    """A row and its neighbours, with other sizes of free dims and signs each time."""
    for size in _FREE_SIZES:
        for signed in (True, False):
            rng = np.random.default_rng(0)
            pairs = {desc.name: _sample(desc, size, signed, rng) for desc in inputs}
            yield {name: row for name, (row, _) in pairs.items()}, {name: rows for name, (_, rows) in pairs.items()}
        if all(isinstance(dim, int) for desc in inputs for dim in desc.dims[1:]):
            return


def _sample(
    desc: TensorDesc, size: int, signed: bool, rng: np.random.Generator
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    dims = tuple(dim if isinstance(dim, int) else size for dim in desc.dims[1:])
    dtype = desc.dtype.numpy
    if dtype.kind in "iu" and dtype.itemsize == 1:
        values = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (_ROWS, *dims), dtype, endpoint=True)
        return values[:1], values[1:]
    if dtype.kind in "iub":  # often indices: 0 and 1 are within most tables
        row = rng.integers(0, 2, (1, *dims))
        return row.astype(dtype), np.concatenate([1 - row, np.ones_like(row), 1 - row]).astype(dtype)
    numbers = rng.standard_normal((_ROWS, *dims)).astype(np.float32)
    if not signed:
        numbers = np.abs(numbers) + np.float32(0.1)
    return numbers[:1].astype(dtype), (_LOUD * numbers[1:]).astype(dtype)


def _pad_rows(arrays: Arrays, rows: int) -> Arrays:
    return {
        name: np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])
        for name, array in arrays.items()
    }


def _is_same(one: npt.NDArray[np.generic], other: npt.NDArray[np.generic]) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "iub":
        return bool(np.mean(one != other) <= _DIFFERENT) if one.size else True
    first, second = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(first)
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return False
    if not finite.any():
        return True
    difference = np.mean(np.abs(first[finite] - second[finite]))
    return bool(difference <= _TOLERANCE * np.mean(np.abs(first[finite])) + 1e-6)
