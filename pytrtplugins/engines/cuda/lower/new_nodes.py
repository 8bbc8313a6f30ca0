"""Nodes that a rewrite adds before the one that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....model.ir import add_constant
from ....tensor import SymbolicDim
from ....utils.optional import ir

__all__ = ["NewNodes"]


class NewNodes:
    """Adds nodes before a node; their outputs are named after its output and have its element type.

    Args:
        graph: The graph of the node.
        node: The node that they replace.
    """

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self.graph, self.node, self.y = graph, node, node.outputs[0]

    def add(
        self,
        op: str,
        inputs: Sequence[Any],
        what: str,
        dims: Sequence[Any],
        like: ir.Value | None = None,
        is_named: bool = False,
        domain: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """Add a node.

        Args:
            op: Type of the operator.
            inputs: Its inputs; arrays become constants.
            what: What is appended to the names of the node and its output.
            dims: Dims of its output.
            like: A tensor of its output's element type; default: the output of the node that is replaced.
            is_named: Whether it has the name of the node that is replaced, as convolutions and products have.
            domain: Of its operator.
            **attributes: Its attributes.

        Returns:
            Its output.
        """
        name = f"{self.y.name}.{what}"
        values = [
            add_constant(self.graph, f"{name}.{index}", each) if isinstance(each, np.ndarray) else each
            for index, each in enumerate(inputs)
        ]
        title = self.node.name if is_named or op in ("Conv", "MatMul") else f"{self.node.name}.{what}"
        node = ir.node(op, values, attributes, domain=domain, name=title)
        value: ir.Value = node.outputs[0]
        value.name, value.type, value.shape = (
            name,
            (like or self.y).type,
            ir.Shape(map(_plain, self._output_dims(dims))),
        )
        self.graph.insert_before(self.node, node)
        return value

    def _output_dims(self, dims: Sequence[Any]) -> Sequence[Any]:
        return dims


def _plain(dim: Any) -> Any:
    """A dim as onnx-ir knows it: symbols by their names."""
    return str(dim) if isinstance(dim, SymbolicDim) else dim
