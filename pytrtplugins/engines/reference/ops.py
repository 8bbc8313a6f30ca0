"""ONNX operators in NumPy, one function each: obvious, exact, slow. What other engines are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .codes import CODE_OPS
from .elementwise import ELEMENTWISE_OPS
from .shapes import COORDINATES, ROUNDINGS, SHAPE_OPS
from .sums import SUM_OPS
from .windows import WINDOW_OPS

__all__ = ["KNOWN_VALUES", "OPS"]

OPS: dict[str, Callable[..., Any]] = {
    **CODE_OPS,
    **ELEMENTWISE_OPS,
    **SHAPE_OPS,
    **SUM_OPS,
    **WINDOW_OPS,
}
"""Name of an operator → function (attributes, *inputs) → output, or a list of outputs."""

_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")

KNOWN_VALUES: dict[str, dict[str, Sequence[Any]]] = {
    "AveragePool": {"auto_pad": _AUTO_PADS},
    "BatchNormalization": {"training_mode": (0,)},
    "Conv": {"auto_pad": _AUTO_PADS},
    "ConvTranspose": {"auto_pad": ("NOTSET", "VALID"), "output_shape": ()},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "LpNormalization": {"p": (1, 2)},
    "MaxPool": {"auto_pad": _AUTO_PADS},
    "Pad": {"mode": ("constant",)},
    "QuantizeLinear": {"block_size": (0,), "output_dtype": (0,)},
    "Resize": {
        "mode": ("nearest",),
        "coordinate_transformation_mode": COORDINATES,
        "nearest_mode": ROUNDINGS,
        "keep_aspect_ratio_policy": ("stretch",),
    },
}
"""Operator → attributes whose other values would change its meaning → the values that are computed here."""
