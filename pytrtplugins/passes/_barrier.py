"""What OpenVINO moves and joins nothing across: Max of a tensor with itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..utils.optional import require

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["kept_apart"]


def kept_apart(graph: ir.Graph, value: ir.Value, reader: ir.Node) -> ir.Value:
    """A tensor that is ``value``, by a Max that stands before one of its readers; OpenVINO 2026.4 does not see that they are equal."""
    onnx_ir = require("onnx_ir", extra="onnx", feature="passes")
    same: ir.Value = onnx_ir.Value(type=value.type, shape=value.shape)
    graph.insert_before(reader, onnx_ir.node("Max", [value, value], outputs=[same]))
    return same
