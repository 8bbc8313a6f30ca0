"""ONNX operators written with NumPy's API; they run on CuPy or NumPy arrays."""

from . import (  # noqa: F401  # they put their operators into the tables
    elementwise,
    indexing,
    linear,
    movement,
    normalization,
    quantization,
    recurrent,
    reductions,
    resampling,
    selection,
    shapes,
    signal,
    windows,
)
from .table import HOST_INPUTS, OPS, RAW, can_be_captured, computed, unsupported_reason

__all__ = ["HOST_INPUTS", "OPS", "RAW", "can_be_captured", "computed", "unsupported_reason"]
