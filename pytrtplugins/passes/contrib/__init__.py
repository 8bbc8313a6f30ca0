"""Operators of onnxruntime's domain ``com.microsoft``, written with ONNX's own."""

from __future__ import annotations

from .faults import FAULTS
from .table import CONTRIB
from .wide_codes import WIDE_CODES
from .write import declared, needed_opset, write_functions

__all__ = ["CONTRIB", "FAULTS", "WIDE_CODES", "declared", "needed_opset", "write_functions"]
