"""A pattern of nodes → fewer nodes, wherever it matches: what the fusions of this engine are made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from ....passes import Pass, PassResult
from ....utils.optional import require

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "DOMAIN",
    "Rewrite",
    "add_constant",
    "constant",
    "convolution_before",
    "has_residual",
    "is_op",
    "only_read_by",
    "scale_of",
    "set_attributes",
    "swap",
]

DOMAIN = "pytrtplugins.cuda"
"""Of the fused nodes. ``Conv`` reads x, weights, bias, and optionally a residual and the weights' scales; see `FuseConvolutions`."""
Match = TypeVar("Match")


class Rewrite(Pass, Generic[Match]):
    """Looks at each node once, in the graph's order, and rewrites those where the pattern matches.

    A subclass says in its docstring which cases do not match, by number, and names the number where it tells them apart.

    Attributes:
        leaves_unused: Whether nodes that a rewrite leaves without a reader are removed in the end.
    """

    leaves_unused: ClassVar[bool] = False

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite in place."""
        modified = False
        self.begin(model.graph)
        for node in list(model.graph):
            match = self.match(node) if node.graph is not None else None  # else an earlier rewrite removed it
            if match is not None:
                self.rewrite(model.graph, node, match)
                modified = True
        if modified and self.leaves_unused:
            require("onnx_ir.passes.common", extra="onnx").RemoveUnusedNodesPass()(model)
        return PassResult(model, modified)

    def begin(self, graph: ir.Graph) -> None:  # most patterns need one node and its neighbours
        """Look at the whole graph before its nodes."""

    @abstractmethod
    def match(self, node: ir.Node) -> Match | None:
        """What `rewrite` has to know of the pattern that ends at a node; None where it does not match."""

    @abstractmethod
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: Match) -> None:
        """Change the graph."""


def is_op(node: ir.Node | None, op_type: str, domain: str = "") -> bool:
    """Whether a node is of this type and domain."""
    return node is not None and node.op_type == op_type and node.domain == domain


def only_read_by(node: ir.Node, reader: ir.Node) -> bool:
    """Whether a node's only output has one reader, and is no output of the model."""
    output = node.outputs[0]
    return [use.node for use in output.uses()] == [reader] and not output.is_graph_output()


def convolution_before(node: ir.Node) -> ir.Node | None:
    """The fused convolution whose output this node reads first, and it alone; None for others."""
    conv = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    return conv if conv is not None and is_op(conv, "Conv", DOMAIN) and only_read_by(conv, node) else None


def has_residual(conv: ir.Node) -> bool:
    """Whether a fused convolution adds a tensor."""
    return len(conv.inputs) > 3 and conv.inputs[3] is not None


def constant(value: ir.Value | None) -> Any:
    """A constant's NumPy array; None for what is computed or absent."""
    if value is None:
        return None
    tensor = require("onnx_ir", extra="onnx", feature="engine 'cuda'").convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def set_attributes(node: ir.Node, values: dict[str, Any]) -> None:
    """Set attributes, of whatever kind."""
    onnx_ir = require("onnx_ir", extra="onnx")
    for attribute in onnx_ir.convenience.convert_attributes(values):
        node.attributes[attribute.name] = attribute


def scale_of(node: ir.Node, name: str) -> float:
    """A scale among a fused node's attributes; 0 where it has none."""
    attribute = node.attributes.get(name)
    return 0.0 if attribute is None else attribute.as_float()


def swap(graph: ir.Graph, nodes: Iterable[ir.Node], value: ir.Value) -> None:
    """Let a value stand for the first output of the last of the nodes, under its name; remove the nodes, last first."""
    nodes = list(nodes)
    after = nodes[-1].outputs[0]
    name, shape, kind = after.name, after.shape, after.type
    after.replace_all_uses_with(value, replace_graph_outputs=True)
    for node in reversed(nodes):
        graph.remove(node, safe=True)
    value.name, value.shape, value.type = name, shape, kind


def add_constant(graph: ir.Graph, name: str, array: Any) -> ir.Value:
    """A new initializer under a free name."""
    onnx_ir = require("onnx_ir", extra="onnx")
    while name in graph.initializers:
        name += "_"
    tensor = onnx_ir.tensor(np.ascontiguousarray(array), name=name)
    value: ir.Value = onnx_ir.Value(
        name=name, shape=tensor.shape, type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value
