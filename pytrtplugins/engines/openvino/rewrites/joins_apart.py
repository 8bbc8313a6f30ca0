"""Separate Concat from network inputs with dims that may contradict: OpenVINO copies inputs before it compares them."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import dims_of, is_op
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import insert_fusion_barrier

__all__ = ["JoinsApart"]

_VIEWS = operators(Trait.KEEPS_ORDER) | {"Cast", "Dropout", "Transpose"}
"""Operators whose result may lie where their input lies."""


class JoinsApart(Pass):
    """Insert Max(x, x) between network inputs and a Concat whose other dims may differ.

    OpenVINO copies inputs to their places in the result of such a Concat as soon as they are given (2026.4), and writes over other
    memory where they do not fit; it compares their dims only afterwards. Max(x, x), which is x, keeps them apart. What stays: (1)
    Concat of tensors whose dims have the same numbers and names; (2) Concat behind an axis that is longer than 1, since its
    inputs do not lie in one piece of the result; (3) tensors that are computed.
    """

    name: ClassVar[str] = "joins-apart"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in [node for node in model.graph if is_op(node, "Concat") and _may_contradict(node)]:
            for index, value in enumerate(node.inputs):
                if value is not None and _is_given(value):
                    node.replace_input_with(index, insert_fusion_barrier(model.graph, value, node))
                    modified = True
        return PassResult(model, modified)


def _may_contradict(node: ir.Node) -> bool:
    """Whether inputs of a Concat may be written in place into its result, and differ along another axis."""
    shapes = [dims_of(value) for value in node.inputs]
    known_shapes = [dims for dims in shapes if dims is not None]
    if not known_shapes or len(shapes) == 1:
        return len(shapes) > 1
    axis = node.attributes.get_int("axis", 0) % max(1, len(known_shapes[0]))
    if any(isinstance(dim, int) and dim > 1 for dims in known_shapes for dim in dims[:axis]):
        return False
    others = {(*dims[:axis], *dims[axis + 1 :]) for dims in known_shapes}
    named = all(isinstance(dim, int) or dim is not None for dims in others for dim in dims)
    return len(known_shapes) < len(shapes) or len(others) > 1 or not named


def _is_given(value: ir.Value | None) -> bool:
    """Whether a tensor is an input of the network, or lies where one lies."""
    while value is not None and (node := value.producer()) is not None:
        if node.domain or node.op_type not in _VIEWS:
            return False
        value = node.inputs[0]
    return value is not None and value.const_value is None
