"""Fold arithmetic with dims that are known at export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...model.ir import array_of
from ...model.operator_traits import Trait, operators
from ...utils.optional import ir
from ...utils.override import override
from ..constants import PropagateConstants
from ._base import Finding, Repair

__all__ = ["ShapeArithmetic"]

_WHOLE = ("INT64", "INT32", "BOOL")
_MOVES = operators(Trait.KEEPS_ORDER) - {"Identity"}
"""Operators that give a constant other dims. Identity stays: models name weights that they share so, which would be held twice."""
_MAX_ELEMENTS = 1 << 12


class ShapeArithmetic(Repair):
    """Fold whole numbers and truth values that are computed from known dims, and constants that are only reshaped.

    What stays: arithmetic with floats, results of more than 4,096 whole numbers, and all that depends on a free dim.
    """

    name: ClassVar[str] = "shape-arithmetic"
    fault: ClassVar[bool] = False
    why: ClassVar[str] = (
        "Exporters compute dims in the network, also where they are known; other repairs need them as constants."
    )

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        before = [(node, node.op_type, node.outputs[0]) for node in model.graph if node.outputs]
        PropagateConstants(computes=_is_arithmetic)(model)
        remaining = set(model.graph)
        for node, op, _ in before:
            if node not in remaining and op != "Constant":
                yield self.finding(node, f"{op} of numbers that are known", "it is a constant")


def _is_arithmetic(node: ir.Node) -> bool:
    """Whether a node computes dims, or copies a constant."""
    if node.op_type in ("Constant", "If") or any(value.is_graph_output() for value in node.outputs):
        return False
    if node.op_type in _MOVES and node.inputs and array_of(node.inputs[0]) is not None:
        return True
    return all(_is_small(value) for value in node.outputs)


def _is_small(value: ir.Value) -> bool:
    """Whether a tensor's type and dims allow that it holds dims."""
    if value.dtype is None or value.dtype.name not in _WHOLE or value.shape is None or not value.shape.is_static():
        return False
    dims = value.shape.numpy()
    return len(dims) == 0 or (len(dims) == 1 and dims[0] <= _MAX_ELEMENTS)
