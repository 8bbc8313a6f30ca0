"""The 8-bit types that values are quantized to, and how weights are rounded to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..tensor import DType
from ..utils.matrices import row_major

__all__ = ["CODES", "FP8", "INT8", "Codes", "codes_of", "nearest_fp8", "quantize_weights", "round_together"]

_RATIOS = 8  # scales that are tried within an octave; behind it FP8's codes repeat
_OWN, _CHANNEL, _FILTER = 1.0, 1.0, 0.5
"""What the products of two inputs of a filter are expected to be: of each with itself beside the others, of neighbours in a
channel, of any two. Neighbours are alike, and the mean behind an activation is not 0."""


@dataclass(frozen=True)
class Codes:
    """An 8-bit type, with zero point 0.

    Attributes:
        precision: Its name as a precision: ``"int8"`` or ``"fp8"``.
        dtype: Element type of the codes.
        largest: The largest code: a tensor's scale is amax divided by it.
        opset: The first opset of ONNX whose Q/DQ have the type, and a scale for each channel.
    """

    precision: str
    dtype: DType
    largest: int
    opset: int

    def rounded(self, values: npt.NDArray[np.float32], largest: int | None = None) -> npt.NDArray[Any]:
        """Round values in units of the scale to codes: to nearest even, saturating."""
        limit = self.largest if largest is None else largest
        if self.dtype is DType.INT8:
            values = np.rint(values)
        return np.clip(values, -limit, limit).astype(self.dtype.numpy)


INT8 = Codes("int8", DType.INT8, 127, 13)
FP8 = Codes("fp8", DType.FLOAT8E4M3FN, 448, 19)
"""E4M3: a sign, 4 bits of exponent, 3 of fraction; no infinities."""
CODES = {codes.precision: codes for codes in (INT8, FP8)}
"""Precision → its codes."""


def codes_of(precision: str) -> Codes:
    """The codes of a precision.

    Raises:
        UsageError: it is none that quantizes.
    """
    if precision not in CODES:
        raise UsageError(f"quantize: precision: expected {' or '.join(CODES)}, found {precision!r}")
    return CODES[precision]


def quantize_weights(
    weights: npt.NDArray[np.float32],
    axis: int,
    levels: int | None = None,
    *,
    shared: bool = False,
    codes: Codes = INT8,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Round weights to codes with one scale for each index of an axis.

    In int8 the largest weight becomes the largest code, and each weight the nearest. In FP8 the scale is that of the least
    squared error within an octave, and `round_together` chooses the codes.

    Args:
        weights: The values.
        axis: Which.
        levels: The largest code that is used; None: the largest that there is.
        shared: One scale for all, the largest of them.
        codes: The type.

    Returns:
        The codes in -levels..levels, and the float32 scales. A channel of zeros has the scale 1.
    """
    if codes is FP8:
        return _quantized_to_fp8(weights, axis, shared)
    levels = codes.largest if levels is None else levels
    others = tuple(k for k in range(weights.ndim) if k != axis)
    scales = (np.abs(weights).max(axis=others, initial=0).astype(np.float64) / levels).astype(np.float32)
    scales[scales < np.finfo(np.float32).tiny] = 1  # too small to divide by: such weights round to 0
    if shared:
        scales[:] = np.float32(float(np.abs(weights).max(initial=0)) / levels) or 1
    shape = [-1 if k == axis else 1 for k in range(weights.ndim)]
    return codes.rounded(weights / scales.reshape(shape), levels), scales


def round_together(steps: npt.NDArray[np.float32], taps: int) -> npt.NDArray[Any]:
    """Round filters to FP8 so that the errors of their weights cancel each other.

    A step of FP8 is up to an eighth of a weight. Rounded to nearest, the errors of a filter add up to something, which
    inputs that are alike, neighbours in a channel above all, multiply. Here each weight is moved, before it is rounded, by its
    share of what those before it are off by: what minimizes the expected square of the filter's error, if those behind it
    could be moved by any amount. No data are needed: what inputs have in common is assumed, the same for all networks.

    Args:
        steps: (F, K) weights in units of the scale, channel by channel.
        taps: Weights of a channel.

    Returns:
        (F, K) codes. A weight of 0 keeps its code.

    Source:
        The moves are GPTQ's (E. Frantar et al., ICLR 2023) for a Gram matrix of ones in blocks. That filters and channels keep
        their sums without data is SQuant's idea (C. Guo et al., "SQuant", ICLR 2022).
    """
    targets = row_major(steps.T)  # (K, F): what is rounded at a time lies together
    codes = np.empty(targets.shape, FP8.dtype.numpy)
    of_filter = np.zeros(targets.shape[1])
    of_channel = of_filter.copy()
    for k, weights in enumerate(targets):
        if k % taps == 0:
            of_channel = np.zeros_like(of_filter)
        taps_left, behind = taps - k % taps, len(targets) // taps - k // taps - 1  # weights of this channel, channels
        alone = _OWN + taps * _CHANNEL  # a channel behind, moved as a whole, against itself
        shared = _FILTER / (1 + behind * taps * _FILTER / alone)  # they take their part of the filter's error
        move = (_CHANNEL * of_channel + shared * of_filter) / (_OWN + taps_left * (_CHANNEL + shared))
        codes[k] = np.where(weights == 0, 0, FP8.rounded((weights - move).astype(np.float32)))
        error = codes[k].astype(np.float64) - weights
        of_filter += error
        of_channel += error
    return row_major(codes.T)


def nearest_fp8(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The values of the nearest codes, of two the even one, for values in -448..448: as casts there and back, in a fifth of the time.

    A float32 of 1.5 times 2^20 times a value's power of two has as many bits left below that power as FP8: 3. Adding it rounds.
    """
    least = np.maximum(np.abs(values), np.float32(2**-6))  # below, FP8's steps become no finer
    powers = (least.view(np.int32) & 0x7F800000).view(np.float32)
    coarse = powers * np.float32(1.5 * 2**20)
    rounded: npt.NDArray[np.float32] = (values + coarse) - coarse
    return rounded


def _quantized_to_fp8(
    weights: npt.NDArray[np.float32], axis: int, shared: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    filters = np.moveaxis(weights, axis, 0)
    rows = filters.reshape(len(filters), math.prod(filters.shape[1:]))
    scales = _scales_of_fp8(rows, shared)
    codes = round_together(rows / scales[:, None], math.prod(filters.shape[2:]))
    return np.ascontiguousarray(np.moveaxis(codes.reshape(filters.shape), 0, axis)), scales


def _scales_of_fp8(rows: npt.NDArray[np.float32], shared: bool) -> npt.NDArray[np.float32]:
    """The scale of each row with the least squared error, among those that map the row's largest weight to 448 down to 224."""
    largest = np.abs(rows).max(axis=1, initial=0).astype(np.float64)
    if shared:
        largest[:] = largest.max(initial=0)
    best, least = np.ones(len(rows), np.float32), np.full(len(rows), np.inf)
    for ratio in 2 ** (np.arange(_RATIOS) / _RATIOS):
        scales = (largest / FP8.largest * ratio).astype(np.float32)
        scales[scales < np.finfo(np.float32).tiny] = 1  # as in int8
        steps = rows / scales[:, None]
        errors = np.square(nearest_fp8(steps) - steps).sum(axis=1, dtype=np.float64)
        errors *= scales.astype(np.float64) ** 2
        if shared:
            errors[:] = errors.sum()
        better = errors < least
        best[better], least[better] = scales[better], errors[better]
    return best
