"""Histogram of |x| of one tensor: 2048 bins, a range that grows, exact merging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CalibrationError

__all__ = ["BINS", "Histogram", "absolute_maximum"]

BINS = 2048  # TensorRT's number: Migacz, "8-bit Inference with TensorRT", GTC 2017, slide "Calibration: pseudocode"
_BITS = 11  # 2**11 == BINS
_CHUNK = 1 << 19  # values looked at together: small enough for a CPU's cache, and the whole of the extra memory
_LOWEST = -96  # exponent of the smallest range, 2**-96: its bins are still normal float32 numbers


class Histogram:
    """Counts of |x|, in 2048 equal bins of [0, range), where the range is the smallest power of two above every |x|.

    A power of two makes two things exact: the index of a bin (the product with a power of two does not round), and
    growing (when the range doubles, bins 2k and 2k+1 become bin k). The state therefore depends on the values alone,
    not on their order or on how they were cut into batches, and one pass over the data is enough.

    Attributes:
        counts: int64 (2048,), how many values fell into each bin; exact zeros are in bin 0.
        exponent: The range is 2**exponent, in the tensor's unit.
        maximum: The largest |x| seen, float32 exactly; 0.0 before any value.

    Example:
        >>> import numpy as np
        >>> histogram = Histogram()
        >>> histogram.add(np.array([0.5, -3.0], np.float32))
        >>> histogram.range, histogram.count, histogram.maximum
        (4.0, 2, 3.0)
    """

    __slots__ = ("counts", "exponent", "maximum")

    def __init__(self) -> None:
        self.counts: npt.NDArray[np.int64] = np.zeros(BINS, np.int64)
        self.exponent = _LOWEST
        self.maximum = 0.0

    @property
    def range(self) -> float:
        """Upper end of the last bin, above every |x|."""
        return math.ldexp(1.0, self.exponent)

    @property
    def width(self) -> float:
        """Width of a bin, in the tensor's unit."""
        return math.ldexp(1.0, self.exponent - _BITS)

    @property
    def count(self) -> int:
        """Number of values counted."""
        return int(self.counts.sum())

    def add(self, values: npt.ArrayLike) -> None:
        """Count the values of an array of any shape and real dtype; they are taken as float32.

        Raises:
            CalibrationError: a value is NaN or infinite; nothing was counted.
        """
        flat = np.asarray(values).reshape(-1)
        maximum = absolute_maximum(flat)
        exponent = _exponent_above(maximum)
        if exponent > self.exponent:
            self.counts, self.exponent = _coarsen(self.counts, exponent - self.exponent), exponent
        self.maximum = max(self.maximum, maximum)
        bins_per_unit = np.float32(math.ldexp(1.0, _BITS - self.exponent))
        for start in range(0, flat.size, _CHUNK):
            magnitudes = np.abs(flat[start : start + _CHUNK].astype(np.float32))
            magnitudes *= bins_per_unit
            self.counts += np.bincount(magnitudes.astype(np.intp), minlength=BINS)

    def merge(self, other: Histogram) -> Histogram:
        """Return the exact histogram of both data sets together; neither operand changes."""
        merged = Histogram()
        for part in (self, other):
            counts = _coarsen(part.counts, max(self.exponent, other.exponent) - part.exponent)
            merged.counts = merged.counts + counts
        merged.exponent = max(self.exponent, other.exponent)
        merged.maximum = max(self.maximum, other.maximum)
        return merged

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        same = (self.exponent, self.maximum) == (other.exponent, other.maximum)
        return same and bool(np.array_equal(self.counts, other.counts))

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, maximum={self.maximum:g}, range={self.range:g})"


def absolute_maximum(values: npt.NDArray[Any]) -> float:
    """Return the largest |x| of an array as a float32 number; 0.0 if the array is empty.

    Raises:
        CalibrationError: a value is NaN or infinite, also after rounding to float32.
    """
    largest = np.float32(0)
    flat = values.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        with np.errstate(over="ignore"):
            chunk = flat[start : start + _CHUNK].astype(np.float32, copy=False)
        largest = np.maximum(largest, np.maximum(chunk.max(), -chunk.min()))  # np.maximum hands NaN on
    if not np.isfinite(largest):
        raise CalibrationError(
            f"values to calibrate with: expected finite float32 numbers, found {largest} among {flat.size:,}.\n"
            "Causes: (1) the network overflows on this input; (2) the input is not preprocessed as the network expects."
        )
    return float(largest)


def _exponent_above(maximum: float) -> int:
    """Return the smallest e with maximum < 2**e, at least that of the smallest range."""
    return max(_LOWEST, math.frexp(maximum)[1]) if maximum > 0 else _LOWEST


def _coarsen(counts: npt.NDArray[np.int64], doublings: int) -> npt.NDArray[np.int64]:
    """Return the counts of the same values for a range that is 2**doublings times as large."""
    coarse = np.zeros_like(counts)
    shift = min(doublings, _BITS)
    coarse[: BINS >> shift] = counts.reshape(-1, 1 << shift).sum(axis=1)
    return coarse
