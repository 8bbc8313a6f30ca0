"""Separate reductions along the last of three axes from constants after them: OpenVINO mistakes their axis."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import array_of, dims_of
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import insert_fusion_barrier

__all__ = ["ReducesApart"]

_AXES = 3
_GLOBAL = operators(Trait.GLOBAL_POOL)
_APART = (
    operators(Trait.SUBGRAPHS)
    | operators(Trait.READS_SHAPE)
    | {"ArgMax", "ArgMin", "Concat", "Gather", "MatMul", "Max"}
)
"""Operators behind which nothing joins the reduction; Max is what keeps two apart."""


class ReducesApart(Pass):
    """Insert Max(x, x) between a reduction of 3-D tensors and operators with constants that differ along the second axis.

    OpenVINO lets a reduction along the last axis compute the products and sums behind it, and there reads constants of the second axis
    as if they lay along another one (2026.4). Max(x, x), which is x, keeps them apart.
    """

    name: ClassVar[str] = "reduces-apart"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in [node for node in model.graph if _reduces_three_axes(node)]:
            result = node.outputs[0]
            for reader, place in [(use.node, use.idx) for use in result.uses() if _meets_constants(use.node)]:
                reader.replace_input_with(place, insert_fusion_barrier(model.graph, result, reader))
                modified = True
        return PassResult(model, modified)


def _reduces_three_axes(node: ir.Node) -> bool:
    if node.domain or not (node.op_type.startswith("Reduce") or node.op_type in _GLOBAL):
        return False
    dims = dims_of(node.inputs[0])
    return dims is None or len(dims) == _AXES


def _meets_constants(node: ir.Node) -> bool:
    """Whether a node, or one of a row of nodes that read nothing else but constants, reads a constant of several numbers."""
    while node.op_type not in _APART:
        arrays = [array for value in node.inputs if (array := array_of(value)) is not None]
        if any(array.size > 1 and array.dtype.kind not in "iu" for array in arrays):
            return True
        readers = [use.node for output in node.outputs for use in output.uses()]
        if len(readers) != 1:
            return any(map(_meets_constants, readers))
        node = readers[0]
    return False
