"""Rewrite operators without an int8 kernel with operators that have one."""

from __future__ import annotations

from typing import ClassVar

from ..model.ir import array_of, operand, swap
from ..utils.optional import ir
from ..utils.override import override
from ._base import Pass, PassResult

__all__ = ["Int8Forms"]


class Int8Forms(Pass):
    """Write HardSwish as x · HardSigmoid(x), and the mean over height and width as GlobalAveragePool.

    The first is HardSwish's definition in ONNX, the second what PyTorch's newer exporter makes of adaptive pooling.
    """

    name: ClassVar[str] = "int8-forms"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in [node for node in model.graph if node.domain == "" and node.inputs and node.inputs[0] is not None]:
            x, y = node.inputs[0], node.outputs[0]
            nodes: list[ir.Node] = []
            if node.op_type == "HardSwish":
                gate = ir.Value(name=f"{y.name}_gate", type=y.type, shape=y.shape)
                nodes = [
                    ir.node(
                        "HardSigmoid",
                        [x],
                        {"alpha": 1 / 6, "beta": 0.5},
                        outputs=[gate],
                        name=f"{node.name or y.name}_gate",
                    ),
                    ir.node("Mul", [x, gate], name=node.name),
                ]
            elif _is_global_mean(node):
                nodes = [ir.node("GlobalAveragePool", [x], name=node.name)]
            if nodes:
                model.graph.insert_before(node, nodes)
                swap(model.graph, [node], nodes[-1].outputs[0])
                modified = True
        return PassResult(model, modified)


def _is_global_mean(node: ir.Node) -> bool:
    if node.op_type != "ReduceMean" or node.attributes.get_int("keepdims", 1) != 1:
        return False
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    axes_array = array_of(operand(node, 1))
    axes = node.attributes.get_ints("axes", ()) if axes_array is None else axes_array.ravel().tolist()
    return shape is not None and len(shape) == 4 and sorted(axis % 4 for axis in axes) == [2, 3]
