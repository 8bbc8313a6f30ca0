"""Separate products from quantized weights with scales along the summed axis: OpenVINO applies them to columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ....model.ir import array_of, constant, is_op
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import insert_fusion_barrier

__all__ = ["RowScalesApart"]

_PLAIN = 2
"""Axes of a matrix."""


class RowScalesApart(Pass):
    """Insert Max(x, x) between Gemm or MatMul and a constant quantized matrix with one scale per row.

    OpenVINO multiplies codes in its product, and takes as many scales as it finds for scales of columns, or of blocks of them (2026.4),
    whether DequantizeLinear or Cast and Mul have written them. It is right where each column has its own. Max(x, x), which is x, keeps
    the product apart.
    """

    name: ClassVar[str] = "row-scales-apart"

    @override
    def call(self, model: ir.Model) -> PassResult:
        readers = [node for node in model.graph if is_op(node, "Gemm") or is_op(node, "MatMul")]
        changed = [node for node in readers if _has_scales_of_rows(node)]
        for node in changed:
            matrix = node.inputs[1]
            assert matrix is not None
            node.replace_input_with(1, insert_fusion_barrier(model.graph, matrix, node))
        return PassResult(model, bool(changed))


def _has_scales_of_rows(product: ir.Node) -> bool:
    """Whether a product's second operand has codes with scales that differ along its rows, of which columns share some."""
    value = product.inputs[1]
    columns = 0 if product.attributes.get_int("transB", 0) else 1
    while value is not None and (node := value.producer()) is not None and is_op(node, "Transpose"):
        columns = 1 - columns
        value = node.inputs[0]
    scales = None if value is None else _scales(value.producer())
    if scales is None:
        return False
    dims, factors = scales
    return len(dims) == _PLAIN and factors[1 - columns] > 1 and factors[columns] < dims[columns]


def _scales(node: ir.Node | None) -> tuple[Sequence[int], list[int]] | None:
    """Dims of a matrix of codes, and how many scales it has along each axis; None where a node gives no such matrix."""
    if node is not None and is_op(node, "DequantizeLinear"):
        codes, scales = constant(node.inputs[0]), array_of(node.inputs[1])
        if codes is None or scales is None:
            return None
        dims, axis = codes.shape.numpy(), node.attributes.get_int("axis", 1)
        if scales.ndim == 1 and -len(dims) <= axis < len(dims):
            return dims, [scales.size if place == axis % len(dims) else 1 for place in range(len(dims))]
        return (dims, [*scales.shape]) if scales.ndim == len(dims) else None
    if node is None or not is_op(node, "Mul"):
        return None
    for codes_side, scales_side in (node.inputs, node.inputs[::-1]):
        scales, sizes = array_of(scales_side), _code_dims(codes_side)
        if scales is not None and sizes is not None and scales.ndim <= len(sizes):
            return sizes, [1] * (len(sizes) - scales.ndim) + [*scales.shape]
    return None


def _code_dims(value: ir.Value | None) -> Sequence[int] | None:
    """Dims of constant codes, also after a Cast, and a Sub for zero points; None for any other tensor."""
    node = None if value is None else value.producer()
    if node is not None and is_op(node, "Sub"):
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    codes = constant(node.inputs[0]) if node is not None and is_op(node, "Cast") else None
    return None if codes is None else codes.shape.numpy()
