"""Rewrite operators of onnxruntime's domain ``com.microsoft`` with ONNX's own."""

from __future__ import annotations

from .faults import crashes_without_elements, has_faults, rewrite_faulty_operators
from .table import CONTRIB
from .wide_codes import WIDE_CODES
from .write import declare_contrib_domain, needed_opset, write_functions

__all__ = [
    "CONTRIB",
    "WIDE_CODES",
    "crashes_without_elements",
    "declare_contrib_domain",
    "has_faults",
    "needed_opset",
    "rewrite_faulty_operators",
    "write_functions",
]
