"""Match the nodes between the two MatMuls of an attention: scales, biases, masks, the Softmax and its guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, constant, dims_of, is_op, only_read_by, operand
from ....utils.optional import ir

__all__ = ["FLOATS", "Bias", "Mask", "Scores", "empty_rows", "find_scores", "scale_factor", "softmax_before"]

FLOATS = ("FLOAT", "FLOAT16")
_MASKED = -1e30
"""A score below this is none: its exponential is 0 whatever is added to it."""


@dataclass
class Scores:
    """The scores before a Softmax: factor * q kᵀ + biases.

    Attributes:
        product: The MatMul of q and k.
        factor: What its result is multiplied by.
        biases: What is added behind that.
    """

    product: ir.Node
    factor: float = 1.0
    biases: list[Bias] = field(default_factory=list)


@dataclass
class Mask:
    """A mask: scores stay where the condition equals ``kept``, and are ``fill`` elsewhere."""

    condition: ir.Value
    kept: bool
    fill: float


Bias: TypeAlias = "ir.Value | npt.NDArray[Any] | Mask"


def softmax_before(node: ir.Node) -> tuple[ir.Node, list[ir.Node]] | None:
    """Find the Softmax whose result is a MatMul's first factor, and the guards (Where) that replace parts of it by zero."""
    guards: list[ir.Node] = []
    reader, value = node, node.inputs[0]
    while value is not None and (producer := value.producer()) is not None:
        if is_op(producer, "Softmax"):
            rank, axis = len(dims_of(value) or ()), producer.attributes.get_int("axis", -1)
            alone = _readers(value) <= {reader, *(_condition_node(guard) for guard in guards)}  # case 2
            return (producer, guards) if axis in (-1, rank - 1) and alone else None  # case 1
        if _readers(value) != {reader}:  # case 2
            return None
        if is_op(producer, "Where") and _is_zero(producer.inputs[1]):
            guards.append(producer)
            reader, value = producer, producer.inputs[2]
        elif _is_float_cast(producer) or is_op(producer, "Identity") or _is_idle_dropout(producer):
            reader, value = producer, producer.inputs[0]
        else:  # case 6
            return None
    return None


def find_scores(value: ir.Value | None, reader: ir.Node) -> Scores | None:
    """Match a value as scores of an attention; None if it is none."""
    node = None if value is None else value.producer()
    if node is None or not only_read_by(node, reader):  # case 2
        return None
    if is_op(node, "MatMul"):
        return Scores(node)
    if _is_float_cast(node) or is_op(node, "Identity"):
        return find_scores(node.inputs[0], node)
    if is_op(node, "Add"):
        return _match_add(node)
    if is_op(node, "Where"):
        return _match_where(node)
    if is_op(node, "Reshape"):
        return _match_windowed_add(node)
    for x in node.inputs:
        if x is not None and scale_factor(node, x) is not None:
            scores = find_scores(x, node)
            if scores is None or scores.biases:  # case 6
                return None
            scores.factor *= scale_factor(node, x)
            return scores
    return None  # case 6


def empty_rows(guards: Sequence[ir.Node], softmax: ir.Node, biases: Sequence[Bias]) -> str | None:
    """The result of fully masked rows by the guards after a Softmax, ``"nan"`` or ``"zero"``; None for other guards."""
    result = "nan"
    for guard in guards:
        condition, test = array_of(guard.inputs[0]), _condition_node(guard)
        if condition is not None and not condition.any():
            continue
        is_nan = test is not None and is_op(test, "IsNaN") and test.inputs[0] is softmax.outputs[0]
        if not is_nan and not _is_fully_masked(test, biases):  # case 6
            return None
        result = "zero"
    return result


def scale_factor(node: ir.Node, x: ir.Value) -> Any:
    """The constant by which a Mul or Div scales a tensor; None for other nodes."""
    if node.domain or node.op_type not in ("Mul", "Div") or len(node.inputs) != 2:
        return None
    place = 1 if node.inputs[0] is x else 0
    other = node.inputs[place]
    number, dims = array_of(other) if other is not x else None, dims_of(x)
    if number is None or number.size != 1 or dims is None or number.ndim > len(dims) or constant(x) is not None:
        return None
    value = float(number.reshape(()))
    if node.op_type == "Mul":
        return value
    return 1 / value if place == 1 and value else None


# -- inside ----------------------------------------------------------------------------------------------------------------


def _readers(value: ir.Value) -> set[ir.Node | None]:
    """The nodes that read a value, without those that ask for its type alone, and None for the model's user."""
    nodes = {use.node for use in value.uses() if not (is_op(use.node, "CastLike") and use.idx == 1)}
    return nodes | ({None} if value.is_graph_output() else set())


def _condition_node(guard: ir.Node) -> ir.Node | None:
    """The node that computes the condition of a Where; None for an input or constant."""
    return None if guard.inputs[0] is None else guard.inputs[0].producer()


def _is_fully_masked(test: ir.Node | None, biases: Sequence[Bias]) -> bool:
    """Whether a condition is true of rows whose largest bias is minus infinity, as in ONNX's definition of Attention."""
    if test is None or not is_op(test, "Equal"):
        return False
    largest, number = None if test.inputs[0] is None else test.inputs[0].producer(), _constant_values(test.inputs[1])
    if (
        largest is None
        or not is_op(largest, "ReduceMax")
        or number is None
        or number.max() != -np.inf
        or len(biases) != 1
    ):
        return False
    axes = array_of(operand(largest, 1))
    return largest.inputs[0] is biases[0] and axes is not None and axes.tolist() == [-1]


def _is_zero(value: ir.Value | None) -> bool:
    number = _constant_values(value)
    return number is not None and not number.any()


def _constant_values(value: ir.Value | None) -> Any:
    """The values of a constant, possibly before a CastLike; None if it is computed."""
    node = None if value is None else value.producer()
    return _constant_values(node.inputs[0]) if node is not None and is_op(node, "CastLike") else array_of(value)


def _match_add(node: ir.Node) -> Scores | None:
    for x, bias in (node.inputs, node.inputs[::-1]):
        scores = find_scores(x, node)
        if scores is not None and bias is not None and _broadcasts_into(bias, x):
            scores.biases.append(bias)
            return scores
    return None


def _match_where(node: ir.Node) -> Scores | None:
    condition, *sides = node.inputs
    for kept, (x, other) in ((True, sides), (False, sides[::-1])):
        number = array_of(other)
        if number is None or number.size != 1 or not float(number.reshape(())) < _MASKED:  # case 7
            continue
        scores = find_scores(x, node)
        if scores is not None and condition is not None and _broadcasts_into(condition, x):
            scores.biases.append(Mask(condition, kept, float(number.reshape(()))))
            return scores
    return None


def _match_windowed_add(node: ir.Node) -> Scores | None:
    """Reshape, Add, Reshape: scores (B W, H, M, L) as (B, W, H, M, L), to which (1, W, 1 or H, M, L) is added.

    The sum of all that is added then repeats for each of B. What is computed in the run does not match, nor what differs by window
    already.
    """
    add = node.inputs[0].producer() if node.inputs[0] is not None else None
    outer = dims_of(node.outputs[0])
    if add is None or not is_op(add, "Add") or not only_read_by(add, node) or outer is None or len(outer) != 4:
        return None
    for x, added in (add.inputs, add.inputs[::-1]):
        before, array, inner = None if x is None else x.producer(), array_of(added), dims_of(x)
        if (
            before is None
            or array is None
            or inner is None
            or not is_op(before, "Reshape")
            or not only_read_by(before, add)
        ):
            continue
        whole = dims_of(before.inputs[0])
        window = inner[1:]
        if len(window) != 4 or any(not isinstance(dim, int) for dim in window) or whole is None:
            continue
        if whole[1:] != window[1:] or outer[1:] != window[1:] or array.ndim != 5 or array.shape[:2] != (1, window[0]):
            continue
        scores = find_scores(before.inputs[0], before)
        if scores is None or any(_first_dim(bias) not in (None, 1) for bias in scores.biases):
            return None
        scores.biases.append(array[0])
        return scores
    return None


def _first_dim(bias: Bias) -> Any:
    """The first of the four dims of a bias; None if it has fewer axes."""
    if isinstance(bias, np.ndarray):
        return bias.shape[0]
    dims = dims_of(bias.condition if isinstance(bias, Mask) else bias)
    return "unknown" if dims is None else dims[0] if len(dims) == 4 else None


def _broadcasts_into(value: ir.Value, x: ir.Value | None) -> bool:
    """Whether a bias or condition has at most as many axes as the scores."""
    dims, scores = dims_of(value), dims_of(x)
    return dims is not None and scores is not None and len(dims) <= len(scores)


def _is_float_cast(node: ir.Node) -> bool:
    kinds = [
        None if value is None or value.dtype is None else value.dtype.name
        for value in (node.inputs[0], node.outputs[0])
    ]
    return is_op(node, "Cast") and all(kind in (*FLOATS, "BFLOAT16") for kind in kinds)


def _is_idle_dropout(node: ir.Node) -> bool:
    if not is_op(node, "Dropout") or any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return False
    mode = operand(node, 2)
    array = array_of(mode)
    return mode is None or (array is not None and not array.any())  # case 8
