"""Fuse scaled dot-product attention, written as MatMul, Softmax and MatMul, to one node."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....model.ir import add_constant, array_of, dims_of, is_op, only_read_by, swap
from ....model.operator_traits import Trait, operators
from ....utils.optional import ir
from .rewrite import DOMAIN, Rewrite
from .scores import FLOATS, Bias, Mask, Scores, empty_rows, find_scores, scale_factor, softmax_before

__all__ = ["MOVING", "FuseAttention"]

MOVING = operators(Trait.STRIDED)
"""Operators whose results can be views of what they read, with other strides."""
_WHOLE = operators(Trait.KEEPS_ORDER) | {"Expand", "Transpose"}
_MAX_HEAD = 256


@dataclass
class _Found:
    scores: Scores
    scales: list[tuple[ir.Node, ir.Value]]
    empty: str


class FuseAttention(Rewrite["_Found"]):
    """MatMul, Softmax along the last axis, MatMul → this engine's ``Attention``, with what exporters write between them.

    Inputs: q (…, M, D), the transpose of k (…, D, L), v (…, L, E), and what is added to the scores or nothing, which broadcasts
    to (…, M, L); where it has P matrices along the first of four axes and the scores a multiple of them, they repeat.
    Attributes: ``scale`` of the scores; ``empty``: ``"nan"``, or ``"zero"`` where rows of which nothing is left give zeros.

    What is taken in: (a) numbers that q, k or the scores are multiplied with or divided by, before layout changes too; (b) tensors
    added to the scores, several of them, in windows of 5 axes too as Swin does it; (c) Where with a condition and a number
    below -1e30; (d) Casts between float types, Dropout of inference; (e) Where that gives zeros to rows of which nothing is left,
    behind the Softmax. Transposes and what else only moves values stay, and become strides when the run is planned
    (`pytrtplugins.engines.cuda.plan.attention`).

    What does not match: (1) a Softmax along another axis; (2) scores or probabilities that something else reads too, as an output
    of the model; (3) tensors of ranks that differ, or of other ranks than 2 to 5, or of 5 axes of which the first two differ, in what is
    added other than from 1; (4) other types than float32 and
    float16; (5) a head of more than 256 values, for which products of matrices are faster; (6) anything else between, as
    DequantizeLinear, or a scale behind what is added; (7) Where with a larger number; (8) Dropout as in training.
    """

    name: ClassVar[str] = "attention"
    needs: ClassVar[tuple[str, ...]] = ("Softmax",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> _Found | None:
        """The scores, what q and k are scaled by, and what becomes of empty rows."""
        found = softmax_before(node) if is_op(node, "MatMul") else None
        if found is None:
            return None
        softmax, guards = found
        scores = find_scores(softmax.inputs[0], softmax)
        empty = None if scores is None else empty_rows(guards, softmax, scores.biases)
        if scores is None or empty is None or not _fits(scores, node):
            return None
        scales = [scale for value in scores.product.inputs for scale in _scaling_nodes(value, scores.product)]
        return _Found(scores, scales, empty)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Found) -> None:
        """Put one node in their place."""
        factor, scores = match.scores.factor, match.scores
        for scale, x in match.scales:
            factor *= scale_factor(scale, x)
            scale.outputs[0].replace_all_uses_with(x)
        q, k = scores.product.inputs
        inputs = [q, k, node.inputs[1]]
        biases = [bias for bias in scores.biases if not _is_zero_bias(bias, scores.product)]
        if biases:
            inputs.append(_sum_biases(graph, node, biases))
        attributes: dict[str, Any] = {"scale": float(factor), "empty": match.empty}
        made = ir.node("Attention", inputs, attributes, domain=DOMAIN, name=node.name)
        graph.insert_before(node, made)
        swap(graph, [node], made.outputs[0])


# -- inside ----------------------------------------------------------------------------------------------------------------


def _fits(scores: Scores, last: ir.Node) -> bool:
    values = [*scores.product.inputs, last.inputs[1]]
    dims = [dims_of(value) for value in values]
    ranks = {None if each is None else len(each) for each in dims}
    if len(ranks) > 1 or not ranks & {2, 3, 4, 5}:  # case 3
        return False
    if 5 in ranks:  # case 3
        leading = {each[:2] for each in dims if each is not None}
        if len(leading) > 1 or None in leading.pop() or not all(map(_is_constant_along_batch, scores.biases)):
            return False
    if any(value is None or value.dtype is None or value.dtype.name not in FLOATS for value in values):  # case 4
        return False
    if len({value.dtype for value in values if value is not None}) > 1:  # case 4
        return False
    heads = (dims[0][-1], dims[2][-1])  # type: ignore[index]
    return not any(isinstance(head, int) and head > _MAX_HEAD for head in heads)  # case 5


def _is_constant_along_batch(bias: Bias) -> bool:
    """Whether a bias for scores of 5 axes is constant along the first axis."""
    value = bias.condition if isinstance(bias, Mask) else bias
    dims = value.shape if isinstance(value, np.ndarray) else dims_of(value)
    return dims is not None and (len(dims) < 5 or dims[0] == 1)


def _scaling_nodes(value: ir.Value | None, reader: ir.Node) -> list[tuple[ir.Node, ir.Value]]:
    """Return the nodes that multiply a factor of the product by a number, each with the value that it scales."""
    node = None if value is None else value.producer()
    if node is None or not only_read_by(node, reader):
        return []
    if not node.domain and node.op_type in _WHOLE:
        return _scaling_nodes(node.inputs[0], node)
    for x in node.inputs:
        if x is not None and scale_factor(node, x) is not None:
            return [(node, x), *_scaling_nodes(x, node)]
    return []


def _is_zero_bias(bias: Bias, product: ir.Node) -> bool:
    """Whether a bias is constant zeros that do not enlarge the scores by broadcasting."""
    array = array_of(bias) if not isinstance(bias, (np.ndarray, Mask)) else None
    dims = dims_of(product.outputs[0])
    if array is None or array.any() or dims is None:
        return False
    own = (1,) * (len(dims) - array.ndim) + array.shape
    return all(size in (1, dim) for size, dim in zip(own, dims, strict=True))


def _sum_biases(graph: ir.Graph, node: ir.Node, biases: Sequence[Bias]) -> ir.Value:
    """Add up all biases of the scores; constants are summed at build time."""
    arrays = [
        bias if isinstance(bias, np.ndarray) else None if isinstance(bias, Mask) else array_of(bias) for bias in biases
    ]
    name = f"{node.outputs[0].name}.bias"
    known = [array.astype(np.float32) for array in arrays if array is not None]
    values = [bias for bias, array in zip(biases, arrays, strict=True) if array is None]
    written = [_bias_value(graph, node, bias, f"{name}{index}") for index, bias in enumerate(values)]
    if known:
        written.append(add_constant(graph, name, functools.reduce(np.add, known)))
    if len({value.dtype for value in written}) > 1:
        written = [_cast_to_float32(graph, node, value) for value in written]
    total = written[0]
    for index, value in enumerate(written[1:]):
        total = _insert_node(graph, node, "Add", [total, value], f"{name}.sum{index}", total.dtype)
    return total


def _bias_value(graph: ir.Graph, node: ir.Node, bias: Any, name: str) -> ir.Value:
    """Return a bias as a value; of a mask, the output of a new Where of 0 and its fill value."""
    if not isinstance(bias, Mask):
        return bias  # type: ignore[no-any-return]
    sides = [
        add_constant(graph, f"{name}.{side}", np.asarray(number, np.float32))
        for side, number in (("kept", 0.0), ("masked", bias.fill))
    ]
    kind = ir.DataType.FLOAT
    value = _insert_node(
        graph, node, "Where", [bias.condition, *(sides if bias.kept else sides[::-1])], f"{name}.mask", kind
    )
    value.shape = bias.condition.shape
    return value


def _cast_to_float32(graph: ir.Graph, node: ir.Node, value: ir.Value) -> ir.Value:
    """Return the value as float32, through a new Cast if needed."""
    kind = ir.DataType.FLOAT
    if value.dtype == kind:
        return value
    cast = _insert_node(graph, node, "Cast", [value], f"{node.outputs[0].name}.{value.name}.float", kind, to=int(kind))
    cast.shape = value.shape
    return cast


def _insert_node(
    graph: ir.Graph, node: ir.Node, op_type: str, inputs: Sequence[ir.Value], name: str, kind: Any, **attributes: Any
) -> ir.Value:
    """Insert a node before another and return its output; its dims are inferred when the run is planned."""
    inserted = ir.node(op_type, inputs, attributes, name=name)
    value: ir.Value = inserted.outputs[0]
    value.name, value.type = name, ir.TensorType(kind)
    graph.insert_before(node, inserted)
    return value
