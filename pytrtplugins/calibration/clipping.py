"""Estimate the cost of clipping at a threshold: the int8 signal-to-noise ratio with and without it, from a histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .histogram import BINS, Histogram

__all__ = ["MAX_LOST_DB", "Clipping", "clipping_of", "expected_sqnr"]

MAX_LOST_DB = 1.0
"""A threshold that costs more signal to noise than this, in dB, clips more than it should."""

_LEVELS = 127
_POINTS = 8  # values that stand for those of a bin


@dataclass(frozen=True)
class Clipping:
    """The effect of clipping on a tensor.

    Attributes:
        amax: The |x| at which it saturates, in its unit.
        maximum: The largest |x| seen.
        share: Part of the values that saturate, 0..1.
        sqnr: Expected signal to noise of its int8 values, in dB.
        unclipped_sqnr: Expected signal to noise without clipping, in dB: with ``maximum`` as threshold, as `MinMaxCalibrator` does.
    """

    tensor: str
    amax: float
    maximum: float
    share: float
    sqnr: float
    unclipped_sqnr: float

    @property
    def lost(self) -> float:
        """Loss of signal to noise by clipping, in dB; negative if it gains."""
        return self.unclipped_sqnr - self.sqnr

    def __str__(self) -> str:
        """Return the values as a sentence."""
        return (
            f"{self.tensor!r} saturates at {self.amax:.3g} of {self.maximum:.3g} ({100 * self.share:.2g} % of its values): "
            f"{self.sqnr:.1f} dB instead of {self.unclipped_sqnr:.1f}"
        )


def expected_sqnr(histogram: Histogram, amax: float) -> float:
    """Return the expected signal to noise of a tensor's int8 values with a threshold, in dB; infinite without error.

    The values of a bin are taken to lie evenly in it, those of bin 0 at 0, where most of them are behind a ReLU. The error
    is that of rounding to steps of amax/127, and |x| - amax above the threshold.

    Args:
        histogram: Counts of |x|.
        amax: The threshold, in the tensor's unit, above 0.
    """
    counts = histogram.counts.astype(np.float64)
    values = (np.arange(BINS * _POINTS).reshape(BINS, _POINTS) + 0.5) * (histogram.width / _POINTS)
    values[0] = 0
    step = amax / _LEVELS
    errors = values - np.minimum(np.rint(values / step), _LEVELS) * step
    signal, noise = (float(counts @ (x**2).mean(axis=1)) for x in (values, errors))
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else math.inf


def clipping_of(tensor: str, histogram: Histogram, amax: float) -> Clipping | None:
    """Return the effect of a threshold that costs more than `MAX_LOST_DB`; None if it costs less."""
    if not 0 < amax < histogram.maximum:
        return None
    sqnr, unclipped_sqnr = expected_sqnr(histogram, amax), expected_sqnr(histogram, histogram.maximum)
    if unclipped_sqnr - sqnr <= MAX_LOST_DB:
        return None
    clipped_count = histogram.counts[min(BINS, math.ceil(amax / histogram.width)) :].sum()
    return Clipping(tensor, amax, histogram.maximum, float(clipped_count / histogram.count), sqnr, unclipped_sqnr)
