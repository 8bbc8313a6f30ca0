"""Fuse Swish and Mish, which exporters write as several nodes, to one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ....model.ir import is_op, only_read_by, swap
from ....utils.optional import require
from .rewrite import DOMAIN, Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["FuseSwishMish"]


class FuseSwishMish(Rewrite["list[ir.Node]"]):
    """Mul of x and Sigmoid(x) → ``Swish``; of x and Tanh(Softplus(x)) → ``Mish``, both of this engine's domain.

    What does not match: (1) a factor that something else reads too; (2) factors of two tensors.
    """

    name: ClassVar[str] = "swish-mish"
    needs: ClassVar[tuple[str, ...]] = ("Mul",)

    def match(self, node: ir.Node) -> list[ir.Node] | None:
        """Return the nodes from x to the product."""
        if not is_op(node, "Mul"):
            return None
        x, factor = node.inputs
        return _nodes_to_product(factor, x, node) or _nodes_to_product(x, factor, node)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: list[ir.Node]) -> None:
        """Put one node in their place."""
        kind = "Swish" if len(match) == 2 else "Mish"
        x = match[0].inputs[0]
        made = require("onnx_ir", extra="onnx").node(kind, [x], domain=DOMAIN, name=node.name)
        graph.insert_before(node, made)
        swap(graph, match, made.outputs[0])


def _nodes_to_product(factor: ir.Value | None, x: ir.Value | None, mul: ir.Node) -> list[ir.Node] | None:
    """Return the nodes from x to x * Sigmoid(x) or x * Tanh(Softplus(x)); None where the pattern does not match."""
    last = None if factor is None else factor.producer()
    if last is None or x is None or not only_read_by(last, mul):  # case 1
        return None
    if is_op(last, "Sigmoid") and last.inputs[0] is x:
        return [last, mul]
    first = last.inputs[0].producer() if is_op(last, "Tanh") and last.inputs[0] is not None else None
    if first is not None and is_op(first, "Softplus") and first.inputs[0] is x and only_read_by(first, last):
        return [first, last, mul]
    return None  # case 2
