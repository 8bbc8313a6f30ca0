"""Rewrite GroupNormalization as LayerNormalization between two Reshapes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import add_constant, array_of, dims_of, is_op, operand, set_attributes
from ....utils.optional import ir
from ....utils.override import override
from .rewrite import Rewrite

__all__ = ["GroupNormToLayerNorm"]

Dims = tuple[int, ...]


class GroupNormToLayerNorm(Rewrite["tuple[Dims, Dims]"]):
    """GroupNormalization → Reshape, LayerNormalization over a group's channels and pixels, Reshape; sizes are known.

    Channels become two axes, (groups, channels of a group), and factors have these axes too.

    What does not match: (1) unknown sizes; (2) factors that are computed in the run.
    """

    name: ClassVar[str] = "groups"
    needs: ClassVar[tuple[str, ...]] = ("GroupNormalization",)

    @override
    def match(self, node: ir.Node) -> tuple[Dims, Dims] | None:
        if not is_op(node, "GroupNormalization"):
            return None
        dims, groups = dims_of(node.inputs[0]), node.attributes.get_int("num_groups", 1)
        if dims is None or not all(isinstance(dim, int) and dim for dim in dims) or dims[1] % groups:  # case 1
            return None
        if any(array_of(operand(node, index)) is None for index in (1, 2)):  # case 2
            return None
        return tuple(dims), (dims[0], groups, dims[1] // groups, *dims[2:])

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[Dims, Dims]) -> None:
        (dims, parted), y = match, node.outputs[0]
        name, ones = str(y.name), [1] * (len(match[0]) - 2)

        def factor(place: int) -> npt.NDArray[np.generic]:
            values = np.asarray(array_of(operand(node, place))).reshape(parted[1], -1, *ones)
            return np.broadcast_to(values, (*parted[1:3], *ones))  # before opset 21 a group has one

        def reshaped(x: ir.Value, to: Dims, what: str) -> ir.Node:
            shape = add_constant(graph, f"{name}.{what}.dims", np.array(to, np.int64))
            return _typed(ir.node("Reshape", [x, shape], name=f"{name}.{what}"), f"{name}.{what}", to)

        def _typed(made: ir.Node, title: str, to: Dims) -> ir.Node:
            value = made.outputs[0]
            value.name, value.shape, value.type = title, ir.Shape(to), node.inputs[0].type  # type: ignore[union-attr]
            return made

        before = reshaped(node.inputs[0], parted, "parted")  # type: ignore[arg-type]
        factors = [
            add_constant(graph, f"{name}.{what}", factor(place)) for place, what in ((1, "factor"), (2, "offset"))
        ]
        rows = ir.node("LayerNormalization", [before.outputs[0], *factors], name=node.name)
        set_attributes(rows, {"axis": 2, "epsilon": node.attributes.get_float("epsilon", 1e-5)})
        _typed(rows, f"{name}.rows", parted)
        behind = reshaped(rows.outputs[0], dims, "joined")
        graph.insert_before(node, [before, rows, behind])
        y.replace_all_uses_with(behind.outputs[0], replace_graph_outputs=True)
        y.name, behind.outputs[0].name = None, name
        graph.remove(node, safe=True)
