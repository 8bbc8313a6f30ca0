"""Operators of onnxruntime's domain ``com.microsoft``, written with ONNX's own."""

from __future__ import annotations

from .faults import ends_without_elements, has_faults, without_faults
from .table import CONTRIB
from .wide_codes import WIDE_CODES
from .write import declared, needed_opset, write_functions

__all__ = [
    "CONTRIB",
    "WIDE_CODES",
    "declared",
    "ends_without_elements",
    "has_faults",
    "needed_opset",
    "without_faults",
    "write_functions",
]
