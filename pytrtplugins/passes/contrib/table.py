"""Table of function bodies, by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...validation.operators import CONTRIB
from .attention import ATTENTION
from .classic import CLASSIC
from .fused import FUSED
from .node import ContribNode
from .packed import PACKED
from .quantized import INTEGER, QUANTIZED

__all__ = ["BODIES", "CONTRIB", "Table"]

Table = Mapping[tuple[str, str], Callable[[ContribNode], str]]
"""Domain and operator → a function of a node that gives ONNX text, in opset 13 and newer."""

BODIES: Table = {
    **{(CONTRIB, op_type): body for op_type, body in {**FUSED, **QUANTIZED, **ATTENTION, **PACKED}.items()},
    **{("ai.onnx.ml", op_type): body for op_type, body in CLASSIC.items()},
    **{("", op_type): body for op_type, body in INTEGER.items()},
}
"""The operators of onnxruntime, those of ``ai.onnx.ml`` that compute floats alone, and those of ONNX that its quantizer writes."""
