"""A node's attributes, with what the types of its tensors say."""

from __future__ import annotations

from typing import Any

from ....model.ir import is_op
from ....plugin.onnx_node import node_attributes
from ....utils.optional import ir

__all__ = ["operator_attributes"]


def operator_attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes that a function of `OPS` gets; a QuantizeLinear always has its ``output_dtype``."""
    attributes = node_attributes(node)
    if is_op(node, "QuantizeLinear") and node.outputs[0].dtype is not None:
        attributes["output_dtype"] = int(node.outputs[0].dtype)
    return attributes
