"""Saturation thresholds by KL divergence: TensorRT's entropy calibration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .calibrator import HistogramCalibrator
from .histogram import Histogram

__all__ = ["EntropyCalibrator", "entropy_threshold"]

_LEVELS = 128  # int8 magnitudes 0..127
_TIE = 1e-9  # nats: divergences closer than this are equal, and the larger threshold wins


class EntropyCalibrator(HistogramCalibrator):
    """Calibrator that saturates where the KL divergence between float and int8 distributions is smallest.

    The choice of TensorRT's ``IInt8EntropyCalibrator2``: rare large activations are clipped, so that the common small
    ones get finer steps. On networks whose large activations carry the meaning it clips far too much: begin with
    `MinMaxCalibrator`, and mind the warning of `clippings`.

    Source:
        S. Migacz, "8-bit Inference with TensorRT", GTC 2017; see `entropy_threshold` for the details.

    Example:
        >>> import numpy as np
        >>> calibrator = EntropyCalibrator()
        >>> calibrator.observe("x", np.linspace(-1, 1, 10_000))
        >>> calibrator.compute_table().header
        'TRT-101601-EntropyCalibration2'
    """

    algorithm = "EntropyCalibration2"

    def _histogram_amax(self, histogram: Histogram) -> float:
        # The middle of the bin above the last candidate may lie above every value; such a range would be wasted.
        return min(entropy_threshold(histogram.counts, histogram.width), histogram.maximum)


def entropy_threshold(counts: npt.NDArray[np.int64], width: float) -> float:
    """Return the |x| at which int8 should saturate, by the smallest KL divergence.

    For every i from 128 bins up to the last bin that holds anything: P is the first i bins with everything above added
    to the last of them; Q is the first i bins alone, merged into 128 levels, each level's mass spread evenly over
    those of its bins that are not empty. The i with the smallest KL(P‖Q) gives the threshold (i + 0.5)·width.

    What the slides leave open, and what is done here:

    - Bin j belongs to level floor(j·128/i), as in NVIDIA's pytorch-quantization (calib/histogram.py,
      ``_compute_amax_entropy``; TensorRT repository, tools/pytorch-quantization), so levels differ by one bin at most.
    - Bin 0 counts as much as bin 1, as there. Values around 0, above all the exact zeros behind a ReLU, are the mode of
      most tensors and are stored well under any threshold; with their full weight the divergence measures little else,
      and picks thresholds that clip far too much.
    - "No saturation" is a candidate: caches written by TensorRT hold 3c010a14 for softmax outputs, which is
      2048.5/2048/127, so i = 2048 is among its candidates too.
    - A candidate whose last bin is empty while something lies above it has an infinite divergence, as the formula
      says. A lone value far above all others is therefore not clipped; `PercentileCalibrator` clips it.
    - Equal divergences: the largest threshold wins, as there.

    Args:
        counts: (2048,) counts of |x| in bins of equal width from 0 up.
        width: Width of a bin, in the tensor's unit.

    Returns:
        The threshold in the tensor's unit; 0.0 if nothing was counted.
    """
    candidates, divergences = kl_divergences(counts)
    if candidates.size == 0:  # nothing above bin 128: no more than one bin a level, nothing to choose
        used = np.flatnonzero(counts)
        return (int(used[-1]) + 0.5) * width if used.size else 0.0
    best = candidates[divergences <= divergences.min() + _TIE].max()
    return (float(best) + 0.5) * width


def kl_divergences(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Return every candidate i and its KL(P‖Q) in nats, computed at once from prefix sums.

    With b the bins, O what lies above bin i-1, M and c the mass and the number of used bins of a level, N all values
    and S those below i: N·KL = Σ b·log b + [(b+O)·log(b+O) - b·log b]_(last bin) - Σ_levels M·log(M/c) -
    O·log(M/c)_(last level) - N·log N + N·log S.
    """
    bins = counts.astype(np.float64)
    bins[0] = bins[1]
    used = np.flatnonzero(bins)
    i = np.arange(_LEVELS, used[-1] + 2 if used.size else 0)
    if i.size == 0:
        return i, np.empty(0)
    sums, entropies, used_bins = (_prefix_sums(values) for values in (bins, _x_log_x(bins), np.sign(bins)))
    edges = (np.arange(_LEVELS + 1) * i[:, None] + _LEVELS - 1) // _LEVELS  # first bin of each level: ceil(l·i/128)
    mass = np.diff(sums[edges], axis=1)
    mean = mass / np.maximum(np.diff(used_bins[edges], axis=1), 1)
    total, below, last = sums[-1], sums[i], bins[i - 1]
    above = total - below
    with np.errstate(divide="ignore", invalid="ignore"):
        log_mean = np.where(mass > 0, np.log(np.where(mass > 0, mean, 1)), 0)
        p_log_p = entropies[i] - _x_log_x(last) + _x_log_x(last + above)
        p_log_q = (mass * log_mean).sum(axis=1) + above * log_mean[:, -1]
        divergences = (p_log_p - p_log_q) / total + np.log(below / total)
    divergences[(above > 0) & (last == 0)] = np.inf
    return i, divergences


def _prefix_sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the sums of the first k values, for k = 0 .. len."""
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))


def _x_log_x(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return x·log x, with 0·log 0 = 0."""
    result: npt.NDArray[np.float64] = values * np.log(np.where(values > 0, values, 1))
    return result
