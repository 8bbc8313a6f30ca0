"""Check inner dims of matrix products at run time: OpenVINO does not compare all of them."""

from __future__ import annotations

from typing import Any, ClassVar

from ....model.ir import dims_of, is_op
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import checked_as, checked_dims, fixed_values

__all__ = ["InnerSizes"]

_SAME_LENGTH = {
    **dict.fromkeys(operators(Trait.RETYPES) - {"CastLike"} | {"Dropout", "Identity", "Softmax"}, 1),
    **dict.fromkeys(operators(Trait.ARITHMETIC) | {"MatMul", "Max", "Min"}, None),
    "Where": 3,
}
"""Operators of attention in OpenVINO → how many of their inputs, None for all, have the last axis of what they give, or 1 in its place."""
_MATRIX = 2
"""Axes of a matrix."""


class InnerSizes(Pass):
    """Insert a Reshape before operands of MatMul and Gemm whose inner dim is unknown and not checked by OpenVINO.

    It multiplies by constants without a look at that dim, and makes one operator of MatMul, Softmax and MatMul, as in attention, which does
    not compare the numbers of keys and values (2026.4): it reads behind an operand, or leaves some of it out. Reshape moves nothing,
    and fails where there are more or fewer elements. What stays: (1) operands whose number of axes is not known; (2) dims that are
    known to be equal; (3) products of two computed operands in networks without Softmax.
    """

    name: ClassVar[str] = "inner-sizes"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        products = [node for node in model.graph if is_op(node, "MatMul") or is_op(node, "Gemm")]
        attends = any(is_op(node, "Softmax") for node in model.graph)
        constants = fixed_values(model.graph) if products else set()
        for node in products:
            fixed = [value in constants for value in node.inputs[:2]]
            for index in (0, 1):
                if fixed[1 - index] or (attends and index and not fixed[1] and node.op_type == "MatMul"):
                    modified |= _check_operand(model.graph, node, index)
        return PassResult(model, modified)


def _check_operand(graph: ir.Graph, node: ir.Node, index: int) -> bool:
    value, other = node.inputs[index], node.inputs[1 - index]
    dims, other_dims = dims_of(value), dims_of(other)
    if value is None or other is None or not dims or not other_dims:
        return False
    axis, other_axis = _inner_axis(node, index, len(dims)), _inner_axis(node, 1 - index, len(other_dims))
    dim, size = dims[axis], other_dims[other_axis]
    if (dim is not None and dim == size) or (isinstance(dim, int) and isinstance(size, int)):
        return False
    if isinstance(size, int):
        required = [size if place == axis else 0 for place in range(len(dims))]
        node.replace_input_with(index, checked_dims(graph, value, node, required))
    elif len(dims) < _MATRIX:
        return False
    else:
        node.replace_input_with(index, checked_as(graph, value, axis, node, _sources(other)))
    return True


def _sources(value: ir.Value) -> list[ir.Value]:
    """Tensors whose longest last axis a tensor has; none from inside an attention, whose fusion OpenVINO would give up."""
    sources, waiting = dict[Any, None](), [value]
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if (
            node is None
            or node.domain
            or node.op_type not in _SAME_LENGTH
            or (node.op_type == "MatMul" and len(dims_of(node.inputs[1]) or ()) < _MATRIX)
        ):
            sources[value] = None
        else:
            read = node.inputs[1:] if node.op_type == "MatMul" else node.inputs[: _SAME_LENGTH[node.op_type]]
            waiting += [tensor for tensor in read if tensor is not None and dims_of(tensor) != ()]
    return [*sources]


def _inner_axis(node: ir.Node, index: int, rank: int) -> int:
    """The axis of an operand along which the product adds up."""
    transposed = is_op(node, "Gemm") and bool(node.attributes.get_int("transB" if index else "transA", 0))
    return rank - (1 if rank == 1 or transposed == bool(index) else 2)
