"""The 8-bit types that values are quantized to, and how weights are rounded to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..tensor import DType

__all__ = ["CODES", "FP8", "INT8", "Codes", "codes_of", "quantize_weights"]


@dataclass(frozen=True)
class Codes:
    """One type of codes, around the zero point 0.

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
        """Values in units of the scale as codes: the nearest, of two the even one, the largest for what lies beyond it."""
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

    Args:
        weights: The values.
        axis: Which.
        levels: The largest code that is used; None: the largest that there is.
        shared: One scale for all, the largest of them.
        codes: The type.

    Returns:
        The codes in -levels..levels, and the float32 scales. A channel of zeros has the scale 1.
    """
    levels = codes.largest if levels is None else levels
    others = tuple(k for k in range(weights.ndim) if k != axis)
    scales = (np.abs(weights).max(axis=others, initial=0).astype(np.float64) / levels).astype(np.float32)
    scales[scales < np.finfo(np.float32).tiny] = 1  # too small to divide by: such weights round to 0
    if shared:
        scales[:] = np.float32(float(np.abs(weights).max(initial=0)) / levels) or 1
    shape = [-1 if k == axis else 1 for k in range(weights.ndim)]
    return codes.rounded(weights / scales.reshape(shape), levels), scales
