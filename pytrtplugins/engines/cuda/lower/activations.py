"""Fuse Swish, QuickGelu and Mish, which exporters write as several nodes, to one node."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ....model.ir import array_of, constant, is_op, only_read_by, swap
from ....utils.optional import ir
from .rewrite import DOMAIN, Rewrite

__all__ = ["FuseGatedActivations"]

_QUICK_GELU = np.float32(1.702)
"""The factor of x in QuickGelu's gate: https://arxiv.org/abs/1606.08415, section 2."""


class FuseGatedActivations(Rewrite["list[ir.Node]"]):
    """Mul of x and a gate of x → one node of this engine's domain.

    The gate Sigmoid(x) makes ``Swish``, Sigmoid(1.702 x) ``QuickGelu``, and Tanh(Softplus(x)) ``Mish``.

    What does not match: (1) a factor that something else reads too; (2) factors of two tensors.
    """

    name: ClassVar[str] = "gated-activations"
    needs: ClassVar[tuple[str, ...]] = ("Mul",)

    def match(self, node: ir.Node) -> list[ir.Node] | None:
        """Return the nodes from x to the product."""
        if not is_op(node, "Mul"):
            return None
        x, factor = node.inputs
        return _nodes_to_product(factor, x, node) or _nodes_to_product(x, factor, node)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: list[ir.Node]) -> None:
        """Put one node in their place."""
        kind = {"Sigmoid": "Swish", "Mul": "QuickGelu", "Softplus": "Mish"}[match[0].op_type]
        x = next(value for value in match[0].inputs if constant(value) is None)
        activation = ir.node(kind, [x], domain=DOMAIN, name=node.name)
        graph.insert_before(node, activation)
        swap(graph, match, activation.outputs[0])


def _nodes_to_product(factor: ir.Value | None, x: ir.Value | None, mul: ir.Node) -> list[ir.Node] | None:
    """Return the nodes from x to its product with a gate; None where the pattern does not match."""
    last = None if factor is None else factor.producer()
    if last is None or x is None or not only_read_by(last, mul):  # case 1
        return None
    if is_op(last, "Sigmoid") and last.inputs[0] is x:
        return [last, mul]
    first = last.inputs[0].producer() if last.inputs[0] is not None else None
    if first is None or not only_read_by(first, last):  # case 1
        return None
    if is_op(last, "Tanh") and is_op(first, "Softplus") and first.inputs[0] is x:
        return [first, last, mul]
    if is_op(last, "Sigmoid") and is_op(first, "Mul") and _is_quick_gelu_gate(first, x):
        return [first, last, mul]
    return None  # case 2


def _is_quick_gelu_gate(product: ir.Node, x: ir.Value) -> bool:
    """Whether a Mul is of x and one constant, 1.702."""
    factors = [array_of(value) for value in product.inputs if value is not x]
    return (
        len(factors) == 1 and factors[0] is not None and factors[0].size == 1 and factors[0].ravel()[0] == _QUICK_GELU
    )
