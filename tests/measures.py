"""How far numbers are from those that were wanted; equal is equal, whatever their size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def sqnr(wanted: Any, found: Any) -> float:
    """Signal to quantization noise in dB, summed in float64; infinite where the two are equal."""
    noise = _power(np.subtract(wanted, found, dtype=np.float64))
    signal = _power(np.asarray(wanted, np.float64))
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def relative(found: Any, wanted: Any) -> float:
    """The norm of the difference, relative to the norm of what was wanted; 0 where the two are equal."""
    return _ratio(np.linalg.norm(np.ravel(_difference(found, wanted))), np.linalg.norm(np.ravel(wanted)))


def relative_error(found: Any, wanted: Any) -> float:
    """Largest difference, relative to the largest magnitude wanted; 0 where the two are equal."""
    difference = np.abs(_difference(np.ravel(found), np.ravel(wanted)))
    return _ratio(difference.max(initial=0.0), np.abs(wanted).max(initial=0.0))


def _difference(found: Any, wanted: Any) -> Any:
    return np.subtract(found, wanted, dtype=np.float64)


def _power(values: Any) -> float:
    return float((values**2).sum())


def _ratio(noise: Any, size: Any) -> float:
    if not noise:
        return 0.0
    return float(noise / size) if size else math.inf
