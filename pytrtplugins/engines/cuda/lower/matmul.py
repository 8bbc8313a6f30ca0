"""Rewrite MatMul and Gemm with a constant matrix as a 1x1 convolution, whose pixels are the tensor's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import add_constant, array_of, dims_of, is_op, only_read_by, operand, swap
from ....utils.optional import ir
from .epilogue import comes_from_constants, fused_convolution
from .rewrite import DOMAIN, Rewrite, has_residual, has_rows, is_float, scale_of, weight_dims

__all__ = ["FuseBiases", "FuseMatMuls", "dequantize_filters"]


@dataclass(frozen=True)
class _Product:
    """The operands of a product of rows with a constant matrix.

    Attributes:
        weights: (N, K), floats, or codes of int8.
        origin: What dequantizes the codes; None for floats.
        bias: Gives each column a number: (N) or one, or nothing.
        added: What else is added, of other dims.
    """

    weights: npt.NDArray[Any]
    origin: ir.Node | None
    bias: ir.Value | None
    added: ir.Value | None


class FuseMatMuls(Rewrite[_Product]):
    """MatMul or Gemm with a constant matrix (K, N) → the engine's ``Conv`` with ``rows`` 1; see `FuseConvolutions`.

    Its input is any tensor (…, K) and its output (…, N), both linear. In memory they are images of one column whose pixels
    have K and N channels: 1x1 filters (N, K, 1, 1) make one of the other. A Gemm's alpha goes into the weights, and beta
    into the bias. A C that is more than a row is added behind it, where `FuseResiduals` finds it.

    What does not match: (1) a matrix that is computed in the run or has other than two axes; (2) an input of one axis, of unknown
    dims, or without values; (3) other types than float32 and float16; (4) a transposed input; (5) quantized weights with
    an alpha, with several scales along K, or of another type than int8; (6) a C that is computed, or not one row, with a beta.
    """

    name: ClassVar[str] = "matmuls"
    needs: ClassVar[tuple[str, ...]] = ("Gemm", "MatMul")
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> _Product | None:
        """The operands."""
        gemm = is_op(node, "Gemm")
        if not (gemm or is_op(node, "MatMul")) or not _has_rows(node.inputs[0]) or not is_float(node):  # cases 2 and 3
            return None
        at = node.attributes
        alpha, beta = at.get_float("alpha", 1.0), at.get_float("beta", 1.0)
        transposed = gemm and at.get_int("transB", 0) != 0
        if (gemm and at.get_int("transA", 0) != 0) or not comes_from_constants(node.inputs[1]):  # cases 4 and 1
            return None
        origin = node.inputs[1].producer() if node.inputs[1] is not None else None
        origin = origin if is_op(origin, "DequantizeLinear") else None
        weights = array_of(node.inputs[1] if origin is None else origin.inputs[0])
        if weights is None or weights.ndim != 2 or not weights.size:  # case 1
            return None
        if origin is not None and (
            alpha != 1 or weights.dtype != np.int8 or not _has_column_scales(origin, transposed)
        ):
            return None  # case 5
        weights = weights if transposed else weights.T
        if alpha != 1:
            weights = (weights.astype(np.float32) * np.float32(alpha)).astype(weights.dtype)
        c = operand(node, 2)
        if c is None:
            return _Product(weights, origin, None, None)
        is_row = _is_row(dims_of(c), len(weights)) if array_of(c) is not None else _is_dequantized(c, len(weights))
        if beta != 1 and not (is_row and array_of(c) is not None):  # case 6
            return None
        return _Product(weights, origin, c if is_row else None, None if is_row else c)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Product) -> None:
        """Put the engine's node in its place."""
        name = str(node.outputs[0].name)
        filters = add_constant(graph, f"{name}.weights", match.weights[..., None, None], order="K")
        if match.origin is not None:
            filters = dequantize_filters(graph, node, filters, *match.origin.inputs[1:])
        beta = node.attributes.get_float("beta", 1.0)
        bias = _make_bias(graph, name, match.bias, beta, len(match.weights))
        made = fused_convolution(graph, node, [node.inputs[0], filters, bias], rows=1)
        if match.added is None:
            swap(graph, [node], made.outputs[0])
            return
        output, result = made.outputs[0], node.outputs[0]
        output.name, output.shape, output.type = f"{name}.product", result.shape, result.type
        add = ir.node("Add", [output, match.added], name=f"{node.name}.added")
        graph.insert_before(node, add)
        swap(graph, [node], add.outputs[0])


class FuseBiases(Rewrite["tuple[ir.Node, npt.NDArray[Any]]"]):
    """Add of a constant row behind a product with a constant matrix → into its bias.

    What does not match: (1) a convolution of images; (2) one that something else reads too; (3) a constant that is not a row;
    (4) a product that has an activation, a residual or codes already.
    """

    name: ClassVar[str] = "biases"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def match(self, node: ir.Node) -> tuple[ir.Node, npt.NDArray[Any]] | None:
        """The product, and the row."""
        if not is_op(node, "Add"):
            return None
        for product, row in (node.inputs, node.inputs[::-1]):
            conv, array = None if product is None else product.producer(), array_of(row)
            if conv is None or array is None or not is_op(conv, "Conv", DOMAIN):
                continue
            at, filters = conv.attributes, weight_dims(conv)[0]
            rank = len(dims_of(product) or ())
            fits = (
                has_rows(conv) and only_read_by(conv, node) and array.ndim <= rank and _is_row(array.shape, filters)
            )  # cases 1 to 3
            bias = array_of(conv.inputs[2])
            if fits and at.get_string("activation") == "linear" and not has_residual(conv) and bias is not None:
                return None if scale_of(conv, "y_scale") else (conv, bias + array.reshape(-1))  # case 4
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, npt.NDArray[Any]]) -> None:
        """Let the product add."""
        conv, bias = match
        conv.replace_input_with(2, add_constant(graph, f"{node.outputs[0].name}.bias", bias))
        swap(graph, [node], conv.outputs[0])


def dequantize_filters(graph: ir.Graph, node: ir.Node, codes: ir.Value, *operands: ir.Value | None) -> ir.Value:
    """Dequantize the filters of a product by a new DequantizeLinear before its node, and return its output.

    Args:
        graph: The node's.
        node: The MatMul or its like, whose second input has the type of the result.
        codes: (N, K, 1, 1).
        operands: Scales and, if there are any, zero points, of one filter each, or one of all.
    """
    made = ir.node("DequantizeLinear", [codes, *operands], {"axis": 0}, name=f"{codes.name}.floats")
    floats: ir.Value = made.outputs[0]
    floats.name, floats.shape, floats.type = f"{codes.name}.floats", codes.shape, node.inputs[1].type  # type: ignore[union-attr]
    graph.insert_before(node, made)
    return floats


# -- inside ----------------------------------------------------------------------------------------------------------------


def _has_rows(x: ir.Value | None) -> bool:
    dims = dims_of(x) or ()
    return len(dims) >= 2 and isinstance(dims[-1], int) and 0 not in dims  # else case 2 of `FuseMatMuls`


def _has_column_scales(origin: ir.Node, transposed: bool) -> bool:
    """Whether int8 weights have one scale, or one for each column of the result."""
    steps = array_of(origin.inputs[1])
    axis = origin.attributes.get_int("axis", 1)
    return steps is not None and (steps.size == 1 or (steps.ndim == 1 and axis % 2 == (0 if transposed else 1)))


def _is_row(dims: tuple[Any, ...] | None, filters: int) -> bool:
    """Whether a tensor of these dims broadcasts along all rows: (N) or one number."""
    return dims is not None and (not dims or dims[-1] in (1, filters)) and all(dim == 1 for dim in dims[:-1])


def _is_dequantized(c: ir.Value, filters: int) -> bool:
    """Whether C is computed from constants alone and has dims (N)."""
    return comes_from_constants(c) and dims_of(c) == (filters,)


def _make_bias(graph: ir.Graph, name: str, c: ir.Value | None, beta: float, filters: int) -> ir.Value:
    """Return the bias, (N) float32, as a constant, or the value that constant folding makes one."""
    array = np.zeros(1, np.float32) if c is None else array_of(c)
    if array is None:
        assert c is not None
        return c
    row = np.broadcast_to(array.reshape(-1).astype(np.float32) * np.float32(beta), (filters,))
    return add_constant(graph, f"{name}.bias", row)
