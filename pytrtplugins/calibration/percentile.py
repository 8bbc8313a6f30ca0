"""Percentile calibration: a given share of the values saturates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..utils.override import override
from .calibrator import HistogramCalibrator
from .histogram import Histogram

__all__ = ["PercentileCalibrator", "percentile_threshold"]


class PercentileCalibrator(HistogramCalibrator):
    """Calibrator with a threshold at a percentile of |x|: a fixed share of the values saturates.

    The idea of TensorRT's ``IInt8LegacyCalibrator`` (its quantile), whose header its tables carry.

    Args:
        percentile: Share of all values, in percent, that stays below the threshold; 0 < percentile <= 100.

    Raises:
        UsageError: the percentile is out of range.

    Example:
        >>> import numpy as np
        >>> calibrator = PercentileCalibrator(percentile=50)
        >>> calibrator.observe("x", np.linspace(0, 127, 100_001))
        >>> round(float(calibrator.compute_table()["x"]), 2)
        0.5
    """

    algorithm = "LegacyCalibration"

    def __init__(
        self, batches: Iterable[Any] | None = None, *, cache: str | Path | None = None, percentile: float = 99.99
    ) -> None:
        if not 0 < percentile <= 100:
            raise UsageError(f"PercentileCalibrator: percentile: expected 0 < percentile <= 100, found {percentile}.")
        super().__init__(batches, cache=cache)
        self.percentile = float(percentile)

    @property
    @override
    def signature(self) -> str:
        return f"{self.get_algorithm()} percentile={self.percentile:g}"

    def _histogram_amax(self, histogram: Histogram) -> float:
        return min(percentile_threshold(histogram, self.percentile), histogram.maximum)


def percentile_threshold(histogram: Histogram, percentile: float) -> float:
    """Return the upper end of the first bin up to which ``percentile`` % of the values lie; 0.0 without values."""
    rank = math.ceil(histogram.count * percentile / 100)
    if rank == 0:
        return 0.0
    return float(np.searchsorted(np.cumsum(histogram.counts), rank) + 1) * histogram.width
