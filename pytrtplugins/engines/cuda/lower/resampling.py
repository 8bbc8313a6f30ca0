"""Rewrite Resize as a move (nearest), or as a weighted sum of moves (linear)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, dims_of, dtype_of, is_op, operand
from ....tensor import DType
from ....utils.optional import ir
from ..device.expression import Operation
from ..device.moves import Move, Resampled
from ..operators.attributes import operator_attributes
from ..operators.resampling import ResizedAxis, nearest_places, resized_axes, weighted_places

__all__ = ["Blend", "is_move", "linear_blend", "nearest"]

Dims = tuple[int, ...]
_MAX_AXES = 3
_MAX_PART = 1 << 13
"""Of a fraction that positions are multiples of, at most."""
_MAX_NUMBER = 1 << 31
"""What indices in kernels stay below."""


@dataclass(frozen=True)
class Blend:
    """A weighted sum of values of a tensor.

    Attributes:
        moves: Where the values lie, as many as weights have elements.
        weights: Two for each axis, broadcast to the output.
        operations: The sum, of the values and then the weights.
    """

    moves: tuple[Move, ...]
    weights: tuple[npt.NDArray[np.float32], ...]
    operations: tuple[Operation, ...]


def is_move(node: ir.Node) -> bool:
    """Whether a Resize only copies values: mode nearest without extrapolation, or any mode where no axis changes."""
    at = node.attributes
    if at.get_string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return False
    return at.get_string("mode", "nearest") == "nearest" or _changes_nothing(node)


def nearest(node: ir.Node, x: Move, dims: Dims) -> Move | None:
    """The move of a Resize that `is_move`; None where integer arithmetic cannot give its positions.

    Args:
        node: The Resize.
        x: Where those of its input lie.
        dims: Of its output.
    """
    axes, at = _resized_axes(node, x.dims, dims), operator_attributes(node)
    for each in axes or ():
        places = nearest_places(at, x.dims[each.axis], each.positions)
        move = _resample_move(x, each, places)
        if move is None:
            return None
        x = move
    return None if axes is None else x


def linear_blend(node: ir.Node, x: Move, dims: Dims) -> Blend | None:
    """The weighted sum of a linear Resize of floats; arguments as for `nearest`.

    None for (1) other modes, antialiasing, extrapolation, weights of what is inside only; (2) other types than float32 and
    float16; (3) sizes or scales that are computed in the run; (4) more than three axes; (5) positions that no arithmetic of
    whole numbers gives.
    """
    at = operator_attributes(node)
    special = at.get("antialias") or at.get("exclude_outside")
    special = special or at.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if not is_op(node, "Resize") or at.get("mode") != "linear" or special:  # case 1
        return None
    if dtype_of(node.outputs[0]) not in (DType.FLOAT32, DType.FLOAT16):  # case 2
        return None
    axes = _resized_axes(node, x.dims, dims)
    if not axes or len(axes) > _MAX_AXES:  # cases 3 and 4
        return None
    moves, weights = [x], list[npt.NDArray[np.float32]]()
    for each in (_exact_positions(axis, x.dims[axis.axis]) for axis in axes):
        taps = weighted_places(at, "linear", each.positions, x.dims[each.axis], each.scale)
        along = [-1 if axis == each.axis else 1 for axis in range(each.axis, len(dims))]
        weights += [factors.reshape(along) for _, factors in taps]
        found = [_resample_move(move, each, places) for move, (places, _) in itertools.product(moves, taps)]
        moves = [move for move in found if move is not None]
        if len(moves) < len(found):  # case 5
            return None
    return Blend(tuple(moves), tuple(weights), _weighted_sum(len(axes)))


# -- inside ----------------------------------------------------------------------------------------------------------------


def _changes_nothing(node: ir.Node) -> bool:
    given, wanted = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if given is None or wanted is None or given != wanted or not all(isinstance(dim, int) for dim in given):
        return False
    return _resized_axes(node, given, wanted) == []


def _resized_axes(node: ir.Node, given: Dims, wanted: Dims) -> list[ResizedAxis] | None:
    """The resized axes; None where sizes or scales are computed in the run."""
    values = [operand(node, place) for place in (1, 2, 3)]
    numbers = [array_of(value) for value in values]
    if any(value is not None and array is None for value, array in zip(values, numbers, strict=True)):
        return None
    return list(resized_axes(operator_attributes(node), given, wanted, *numbers))


def _fit_fraction(positions: npt.NDArray[np.float64]) -> tuple[int, int, int]:
    """Fit (factor, offset, divisor) so that position i is near (i * factor + offset) / divisor; the divisor is even."""
    first, last = float(positions[0]), float(positions[-1])
    step = Fraction((last - first) / max(1, len(positions) - 1)).limit_denominator(_MAX_PART)
    begin = Fraction(first).limit_denominator(2 * step.denominator)
    divisor = math.lcm(2 * step.denominator, begin.denominator)
    return int(step * divisor), int(begin * divisor), divisor


def _exact_positions(axis: ResizedAxis, size: int) -> ResizedAxis:
    """Replace an axis's positions by exact fractions, if they differ only by float32 rounding of the scale."""
    factor, offset, divisor = _fit_fraction(axis.positions)
    exact = (np.arange(len(axis.positions)) * factor + offset) / divisor
    return replace(axis, positions=exact) if np.abs(exact - axis.positions).max() <= 1e-7 * size else axis


def _resample_move(x: Move, axis: ResizedAxis, places: npt.NDArray[np.int64]) -> Move | None:
    """The move that reads these positions of an axis, (i * a + b) // c clamped; None where no such integers exist."""
    size, count = x.dims[axis.axis], len(places)
    dims = (*x.dims[: axis.axis], count, *x.dims[axis.axis + 1 :])
    factor, offset, divisor = _fit_fraction(axis.positions)
    for more in (0, divisor, divisor // 2, divisor // 2 - 1, divisor - 1):  # rounded down, one on, to the nearest, up
        common = math.gcd(factor, offset + more, divisor)
        a, b, c = factor // common, (offset + more) // common, divisor // common
        positions = np.clip((np.arange(count) * a + b) // c, 0, size - 1)
        if np.array_equal(positions, places) and count * a + abs(b) + c < _MAX_NUMBER:
            return Resampled(dims, x, axis.axis, a, b, c)
    return None


def _weighted_sum(axes: int) -> tuple[Operation, ...]:
    """The operations of the weighted sum, axis by axis in ONNX's order."""
    count = 1 << axes
    values, operations = list(range(count)), list[Operation]()

    def emit(op: str, *reads: int) -> int:
        operations.append(Operation(op, DType.FLOAT32, reads))
        return count + 2 * axes + len(operations) - 1

    for axis in range(axes):
        half, weights = len(values) // 2, (count + 2 * axis, count + 2 * axis + 1)
        pairs = zip(values[:half], values[half:], strict=True)
        values = [emit("Add", *(emit("Mul", *each) for each in zip(pair, weights, strict=True))) for pair in pairs]
    return tuple(operations)
