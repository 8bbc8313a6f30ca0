"""Operators that only move values → where each value comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, is_op, operand
from ....model.slices import bounded_slice
from ....utils.optional import ir
from ..device.moves import Expanded, Gathered, Move, Transposed, Wrapped, blocks_of, joined, padded, reshaped, sliced
from .resampling import is_move, nearest

__all__ = ["is_mover", "moved"]

Dims = tuple[int, ...]
_Rule = Callable[["ir.Node", "ir.Value", Move, Dims], "Move | None"]


def is_mover(node: ir.Node) -> bool:
    """Whether a node gives values of its inputs, and nothing else but padding."""
    if is_op(node, "Resize"):
        return is_move(node)
    return not node.domain and node.op_type in _MOVERS


def moved(
    node: ir.Node, value: ir.Value, move: Callable[[ir.Value], Move], dims: Callable[[ir.Value], Dims]
) -> Move | None:
    """Where the values of an output lie.

    Args:
        node: `is_mover` found that it is one.
        value: The output.
        move: An input → where its values lie.
        dims: Of a tensor.

    Returns:
        The move; None where operands are computed in the run, or say something that no move does.
    """
    given = [each for each in node.inputs if each is not None]
    if node.op_type == "Concat":
        return joined([move(each) for each in given], node.attributes.get_int("axis", 0) % len(dims(value)))
    x, result = move(given[0]), dims(value)
    if node.op_type == "Split":
        axis, place = node.attributes.get_int("axis", 0) % len(x.dims), list(node.outputs).index(value)
        begin = sum(dims(each)[axis] for each in node.outputs[:place])
        first = [begin if each == axis else 0 for each in range(len(x.dims))]
        return sliced(x, first, result, [1] * len(x.dims))
    return _RULES[node.op_type](node, value, x, result)


def _reshape(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move:
    return reshaped(x, dims)


def _transpose(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move:
    return Transposed(dims, x, tuple(node.attributes.get_ints("perm", list(reversed(range(len(dims)))))))


def _expand(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move:
    return Expanded(dims, x)


def _gather(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move | None:
    """One place of an axis, or places that lie evenly along each axis of the indices."""
    index, axis = array_of(node.inputs[1]), node.attributes.get_int("axis", 0) % len(x.dims)
    if index is not None and index.size > 1:
        return _gather_evenly(x, dims, axis, np.where(index < 0, index + x.dims[axis], index))
    if index is None or index.size != 1:
        return None
    place = int(index.reshape(())) % x.dims[axis]
    first = [place if each == axis else 0 for each in range(len(x.dims))]
    sizes = tuple(1 if each == axis else size for each, size in enumerate(x.dims))
    return reshaped(sliced(x, first, sizes, [1] * len(sizes)), dims)


def _gather_evenly(x: Move, dims: Dims, axis: int, places: npt.NDArray[np.int64]) -> Move | None:
    """Places of an axis that are sums of multiples of their indices; None for others, and those that do not exist."""
    first, steps = int(places.flat[0]), []
    for other, size in enumerate(places.shape):
        second = [int(other == each and size > 1) for each in range(places.ndim)]
        steps.append(int(places[tuple(second)]) - first)
    even = first + sum(index * step for index, step in zip(np.indices(places.shape), steps, strict=True))
    if min(steps) < 0 or int(places.max()) >= x.dims[axis] or not np.array_equal(even, places):
        return None
    return Gathered(dims, x, axis, first, tuple(steps))


def _slice(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move | None:
    starts, ends, axes, steps = (array_of(operand(node, index)) for index in range(1, 5))
    given = [operand(node, index) is not None for index in (3, 4)]
    if starts is None or ends is None or (given[0] and axes is None) or (given[1] and steps is None):
        return None
    first, strides = [0] * len(dims), [1] * len(dims)
    numbers = range(len(starts)) if axes is None else axes
    for index, axis in enumerate(int(number) % len(dims) for number in numbers):
        step = 1 if steps is None else int(steps[index])
        first[axis] = bounded_slice(x.dims[axis], int(starts[index]), int(ends[index]), step).start
        strides[axis] = step
    return sliced(x, first, dims, strides)


def _pad(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move | None:
    pads, number, axes = (array_of(operand(node, index)) for index in range(1, 4))
    given = [operand(node, index) is not None for index in (2, 3)]
    plain = node.attributes.get_string("mode", "constant") == "constant"
    if pads is None or (given[0] and number is None) or (given[1] and axes is None):
        return None
    if not plain and pads.any():
        return None
    before = [0] * len(dims)
    for index, axis in enumerate(range(len(dims)) if axes is None else axes):
        before[int(axis)] = int(pads[index])
    fill: Any = 0 if number is None else np.asarray(number).reshape(()).item()
    return padded(x, before, dims, fill)


def _resize(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move | None:
    return nearest(node, x, dims)


def _tile(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move:
    for axis, size in enumerate(dims):
        if size != x.dims[axis]:
            x = Wrapped((*x.dims[:axis], size, *x.dims[axis + 1 :]), x, axis, 0)
    return x


def _to_space(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move:
    side, apart = node.attributes.get_int("blocksize", 1), node.attributes.get_string("mode", "DCR") == "CRD"
    return blocks_of(x, side, apart)


def _to_depth(node: ir.Node, value: ir.Value, x: Move, dims: Dims) -> Move:
    """Blocks of pixels to channels: parted, turned and joined again."""
    s, plain = node.attributes.get_int("blocksize", 1), node.attributes.get_string("mode", "DCR") == "DCR"
    n, c, h, w = x.dims
    parts, order = (n, c, h // s, s, w // s, s), (0, 3, 5, 1, 2, 4) if plain else (0, 1, 3, 5, 2, 4)
    turned = Transposed(tuple(parts[axis] for axis in order), reshaped(x, parts), order)
    return reshaped(turned, dims)


_RULES: dict[str, _Rule] = {
    "DepthToSpace": _to_space,
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "Identity": _reshape,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _to_depth,
    "Squeeze": _reshape,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
_MOVERS = frozenset((*_RULES, "Concat", "Split"))
