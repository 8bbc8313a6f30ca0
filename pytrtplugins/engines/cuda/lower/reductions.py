"""Convert reductions, softmaxes and normalizations to operations of generated kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....model.ir import add_constant, array_of, constant, dims_of, dtype_of, operand
from ....model.operator_traits import Trait, operators
from ....tensor import DType
from ....utils.optional import ir
from ..device.expression import Number
from ..operators.table import reduced_axes
from .operations import Writer
from .rewrite import DOMAIN

__all__ = ["FLOATS", "longest_row", "reduction_axes", "row_axes", "write_reduction"]

FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_FLOAT = DType.FLOAT32
_LONGEST = 1 << 15
"""Values of a row that one block still goes through."""
_MAX_BLOCKS, _CLUSTER = 128, 8
"""Blocks of a grid whose rows are shared by blocks, and blocks that share one, at most."""
_Rule = Callable[[Writer, "ir.Node", int], int]
"""Writes a node, whose rows have so many values."""


def row_axes(node: ir.Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The dims of a node's input, and the axes of its rows; None for nodes that no kernel of rows computes.

    What is none: (1) other types than floats; (2) axes that are computed in the run; (3) rows of one value, or very long ones;
    (4) outputs beside the first; (5) factors of each channel that are computed in the run.
    """
    if node.domain not in ("", DOMAIN) or node.op_type not in _RULES:
        return None
    x, outputs = node.inputs[0], [value for value in node.outputs if value.uses() or value.is_graph_output()]
    dims = dims_of(x)
    if x is None or dims is None or constant(x) is not None or outputs != [node.outputs[0]]:  # case 4
        return None
    factors = node.inputs[1:] if node.op_type.endswith("Normalization") else ()
    kinds = {dtype_of(value) for value in (x, *factors, outputs[0]) if value is not None}
    if not all(isinstance(dim, int) and dim for dim in dims) or not kinds <= set(FLOATS):
        return None  # case 1
    axes = reduction_axes(node, len(dims)) if dims else ()
    if not axes or not 1 < math.prod(dims[axis] for axis in axes) <= longest_row(node, dims, axes):  # cases 2 and 3
        return None
    if node.op_type == "InstanceNormalization" and any(array_of(value) is None for value in node.inputs[1:]):
        return None  # case 5
    return tuple(dims), axes


def write_reduction(writer: Writer, node: ir.Node) -> None:
    """Write a node that `row_axes` found to be one."""
    dims, axes = row_axes(node) or ((), ())
    writer.made[node.outputs[0]] = _RULES[node.op_type](writer, node, math.prod(dims[axis] for axis in axes))


def reduction_axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    """The axes of a row of a reduction or normalization; none where they are computed in the run."""
    kind, at = node.op_type, node.attributes
    if kind == "MeanVarianceNormalization":
        return tuple(sorted(axis % rank for axis in at.get_ints("axes", (0, 2, 3))))
    if kind in ("LogSoftmax", "LpNormalization", "Softmax"):
        return (at.get_int("axis", -1) % rank,)
    if kind in ("LayerNormalization", "RMSNormalization"):
        return tuple(range(at.get_int("axis", -1) % rank, rank))
    if kind in operators(Trait.GLOBAL_POOL) | {"InstanceNormalization"}:
        return tuple(range(2, rank))
    given = operand(node, 1)
    if given is not None and array_of(given) is None:
        return ()
    values = {"axes": list(at.get_ints("axes", [])), "noop_with_empty_axes": at.get_int("noop_with_empty_axes", 0)}
    return tuple(sorted(reduced_axes(values, array_of(given), rank)))


def longest_row(node: ir.Node, dims: Sequence[int], axes: Sequence[int]) -> int:
    """Values that a row may have: more where rows are few, but not in reductions over an image's pixels, which may be NHWC."""
    count = math.prod(size for axis, size in enumerate(dims) if axis not in axes)
    over_pixels = len(dims) == 4 and 1 not in axes and 2 in axes
    of_channels = node.op_type in operators(Trait.GLOBAL_POOL) | {"InstanceNormalization"}
    if len(dims) - 1 not in axes or of_channels or over_pixels:
        return _LONGEST
    return _LONGEST * min(_CLUSTER, max(1, _MAX_BLOCKS // count))


def _number(value: float) -> Number:
    return Number.of(np.float32(value), _FLOAT)


def _input(writer: Writer, node: ir.Node) -> Any:
    return writer.read(node.inputs[0])  # type: ignore[arg-type]


def _reduced(op: str, before: Callable[[Writer, Any], Any] | None = None, after: str = "", mean: bool = False) -> _Rule:
    def write(writer: Writer, node: ir.Node, length: int) -> int:
        x = _input(writer, node)
        found = writer.emit(op, _FLOAT, x if before is None else before(writer, x))
        if mean:
            found = writer.emit("Mul", _FLOAT, found, _number(1 / length))
        return writer.emit(after, _FLOAT, found) if after else found

    return write


def _square(writer: Writer, x: Any) -> int:
    return writer.emit("Mul", _FLOAT, x, x)


def _log_sum_exp(writer: Writer, node: ir.Node, length: int) -> int:
    shifted, top = _subtract_max(writer, node)
    total = writer.emit("ReduceSum", _FLOAT, writer.emit("Exp", _FLOAT, shifted))
    return writer.emit("Add", _FLOAT, writer.emit("Log", _FLOAT, total), top)


def _subtract_max(writer: Writer, node: ir.Node) -> tuple[int, int]:
    """Write x - max(x) of each row; return its index and that of the maximum."""
    x = _input(writer, node)
    top = writer.emit("ReduceMax", _FLOAT, x)
    return writer.emit("Sub", _FLOAT, x, top), top


def _softmax(writer: Writer, node: ir.Node, length: int) -> int:
    powers = writer.emit("Exp", _FLOAT, _subtract_max(writer, node)[0])
    total = writer.emit("ReduceSum", _FLOAT, powers)
    return writer.emit("Mul", _FLOAT, powers, writer.emit("Div", _FLOAT, _number(1), total))


def _log_softmax(writer: Writer, node: ir.Node, length: int) -> int:
    shifted = _subtract_max(writer, node)[0]
    total = writer.emit("ReduceSum", _FLOAT, writer.emit("Exp", _FLOAT, shifted))
    return writer.emit("Sub", _FLOAT, shifted, writer.emit("Log", _FLOAT, total))


def _inverse_root(writer: Writer, node: ir.Node, values: Any, length: int) -> int:
    """Write 1 / sqrt(mean(values²) + epsilon)."""
    total = writer.emit("ReduceSum", _FLOAT, _square(writer, values))
    mean = writer.emit("Mul", _FLOAT, total, _number(1 / length))
    epsilon = _number(node.attributes.get_float("epsilon", 1e-5))
    root = writer.emit("Sqrt", _FLOAT, writer.emit("Add", _FLOAT, mean, epsilon))
    return writer.emit("Div", _FLOAT, _number(1), root)


def _normalize(writer: Writer, node: ir.Node, length: int) -> int:
    """Values of mean 0 and variance 1; the variance from a second pass."""
    x = _input(writer, node)
    mean = writer.emit("Mul", _FLOAT, writer.emit("ReduceSum", _FLOAT, x), _number(1 / length))
    centered = writer.emit("Sub", _FLOAT, x, mean)
    return writer.emit("Mul", _FLOAT, centered, _inverse_root(writer, node, centered, length))


def _mean_variance_norm(writer: Writer, node: ir.Node, length: int) -> int:
    x = _input(writer, node)
    mean = writer.emit("Mul", _FLOAT, writer.emit("ReduceSum", _FLOAT, x), _number(1 / length))
    centered = writer.emit("Sub", _FLOAT, x, mean)
    total = writer.emit("ReduceSum", _FLOAT, _square(writer, centered))
    deviation = writer.emit("Sqrt", _FLOAT, writer.emit("Mul", _FLOAT, total, _number(1 / length)))
    return writer.emit("Div", _FLOAT, centered, writer.emit("Add", _FLOAT, deviation, _number(1e-9)))


def _lp_norm(writer: Writer, node: ir.Node, length: int) -> int:
    """Write x / norm(x) of each row; a row of zeros stays."""
    op = "ReduceL1" if node.attributes.get_int("p", 2) == 1 else "ReduceL2"
    norm = _RULES[op](writer, node, length)
    quotient = writer.emit("Div", _FLOAT, _input(writer, node), norm)
    is_zero = writer.emit("Equal", DType.BOOL, norm, _number(0))
    return writer.emit("Where", _FLOAT, is_zero, _number(0), quotient)


def _scaled(writer: Writer, values: int, *factors: Any) -> int:
    for op, factor in zip(("Mul", "Add"), factors, strict=False):
        values = writer.emit(op, _FLOAT, values, factor)
    return values


def _layer_norm(writer: Writer, node: ir.Node, length: int) -> int:
    factors = [writer.read(value) for value in node.inputs[1:] if value is not None]
    return _scaled(writer, _normalize(writer, node, length), *factors)


def _rms_norm(writer: Writer, node: ir.Node, length: int) -> int:
    x = _input(writer, node)
    factors = [writer.read(value) for value in node.inputs[1:] if value is not None]
    return _scaled(writer, writer.emit("Mul", _FLOAT, x, _inverse_root(writer, node, x, length)), *factors)


def _instance_norm(writer: Writer, node: ir.Node, length: int) -> int:
    ones = [1] * (len(dims_of(node.inputs[0]) or ()) - 2)
    factors = [
        add_constant(writer.graph, f"{node.outputs[0].name}.{what}", array_of(value).reshape(-1, *ones))
        for what, value in zip(("factor", "offset"), node.inputs[1:], strict=True)
    ]
    return _scaled(writer, _normalize(writer, node, length), *map(writer.read, factors))


_RULES: dict[str, _Rule] = {
    "GlobalAveragePool": _reduced("ReduceSum", mean=True),
    "GlobalMaxPool": _reduced("ReduceMax"),
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance_norm,
    "RMSNormalization": _rms_norm,
    "ReduceL1": _reduced("ReduceSum", lambda writer, x: writer.emit("Abs", _FLOAT, x)),
    "ReduceL2": _reduced("ReduceSum", _square, "Sqrt"),
    "ReduceLogSum": _reduced("ReduceSum", after="Log"),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _reduced("ReduceMax"),
    "ReduceMean": _reduced("ReduceSum", mean=True),
    "ReduceMin": _reduced("ReduceMin"),
    "ReduceProd": _reduced("ReduceProd"),
    "ReduceSum": _reduced("ReduceSum"),
    "ReduceSumSquare": _reduced("ReduceSum", _square),
    "Softmax": _softmax,
}
