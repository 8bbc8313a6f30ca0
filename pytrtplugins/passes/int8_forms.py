"""Operators without an int8 kernel, written with those that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..utils.optional import require
from ._base import Pass, PassResult
from .placement import constant

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Int8Forms"]


class Int8Forms(Pass):
    """Write HardSwish as x · HardSigmoid(x), and the mean over height and width as GlobalAveragePool.

    The first is HardSwish's definition in ONNX, the second what PyTorch's newer exporter makes of adaptive pooling.
    """

    name: ClassVar[str] = "int8-forms"

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite in place."""
        onnx_ir = require("onnx_ir", extra="onnx", feature="passes")
        modified = False
        for node in [node for node in model.graph if node.domain == "" and node.inputs and node.inputs[0] is not None]:
            x, y = node.inputs[0], node.outputs[0]
            made: list[ir.Node] = []
            if node.op_type == "HardSwish":
                gate = onnx_ir.Value(name=f"{y.name}_gate", type=y.type, shape=y.shape)
                made = [
                    onnx_ir.node(
                        "HardSigmoid",
                        [x],
                        {"alpha": 1 / 6, "beta": 0.5},
                        outputs=[gate],
                        name=f"{node.name or y.name}_gate",
                    ),
                    onnx_ir.node("Mul", [x, gate], name=node.name),
                ]
            elif _is_global_mean(node):
                made = [onnx_ir.node("GlobalAveragePool", [x], name=node.name)]
            if made:
                _replace(model.graph, node, made)
                modified = True
        return PassResult(model, modified)


def _is_global_mean(node: ir.Node) -> bool:
    if node.op_type != "ReduceMean" or node.attributes.get_int("keepdims", 1) != 1:
        return False
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    held = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    axes = node.attributes.get_ints("axes", ()) if held is None else held.numpy().ravel().tolist()
    return shape is not None and len(shape) == 4 and sorted(axis % 4 for axis in axes) == [2, 3]


def _replace(graph: ir.Graph, node: ir.Node, made: list[ir.Node]) -> None:
    old, new = node.outputs[0], made[-1].outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    graph.insert_before(node, made)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
