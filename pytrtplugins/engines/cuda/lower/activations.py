"""Activations that models write with several operators → one node, which one kernel runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ....passes import Pass, PassResult
from ....utils.optional import require
from .epilogue import DOMAIN, is_op, only_read_by, swap

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["FuseSwishMish"]


class FuseSwishMish(Pass):
    """Mul of x and Sigmoid(x) → ``Swish``; of x and Tanh(Softplus(x)) → ``Mish``, both of this engine's domain."""

    name: ClassVar[str] = "swish-mish"

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place."""
        onnx_ir, modified = require("onnx_ir", extra="onnx"), False
        for mul in [node for node in model.graph if is_op(node, "Mul")]:
            for x, factor in (mul.inputs, mul.inputs[::-1]):
                nodes = _chain(factor, x, mul)
                if nodes:
                    kind = "Swish" if len(nodes) == 2 else "Mish"
                    made = onnx_ir.node(kind, [x], domain=DOMAIN, name=mul.name)
                    model.graph.insert_before(mul, made)
                    swap(model.graph, nodes, made.outputs[0])
                    modified = True
                    break
        return PassResult(model, modified)


def _chain(factor: ir.Value | None, x: ir.Value | None, mul: ir.Node) -> list[ir.Node]:
    """The nodes from x to its product with Sigmoid(x) or Tanh(Softplus(x)) that nothing else reads; else none."""
    last = None if factor is None else factor.producer()
    if last is None or x is None or not only_read_by(last, mul):
        return []
    if is_op(last, "Sigmoid") and last.inputs[0] is x:
        return [last, mul]
    first = last.inputs[0].producer() if is_op(last, "Tanh") and last.inputs[0] is not None else None
    if first is not None and is_op(first, "Softplus") and first.inputs[0] is x and only_read_by(first, last):
        return [first, last, mul]
    return []
