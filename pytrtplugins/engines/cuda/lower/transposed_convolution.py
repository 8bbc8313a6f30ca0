"""Rewrite ConvTranspose as Conv and DepthToSpace (sub-pixel convolution)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, dims_of, is_op, operand, swap
from ....utils.optional import ir
from ....utils.override import override
from .new_nodes import NewNodes
from .rewrite import Rewrite, is_around_zero, is_float

__all__ = ["ConvTransposeToConv", "PhaseAxis", "transposed_windows"]

_ANY = 1 << 20
"""A size in the place of an unknown one: what the convolution is does not depend on it."""


@dataclass(frozen=True)
class PhaseAxis:
    """One axis of a ConvTranspose as an axis of a Conv whose channels are blocks of ``stride`` output values.

    Value o of the output is value (o + shift) % stride of block (o + shift) // stride; its place in the block is its phase.

    Attributes:
        stride: Values of a block.
        shift: Values of the first block that are cut off.
        taps: Which tap of the filter each tap of the convolution is, [phase, tap]; -1: none.
        pads: Zeros before and behind the input.
        blocks: How many the convolution gives.
        size: Values that are wanted.
        is_free: Whether the input's size is unknown: the last two are those of an input of `_ANY` values, and differ by it.
    """

    stride: int
    shift: int
    taps: npt.NDArray[np.int64]
    pads: tuple[int, int]
    blocks: int
    size: int
    is_free: bool

    @classmethod
    def of(cls, kernel: int, stride: int, dilation: int, pad: int, given: int, wanted: int, is_free: bool) -> PhaseAxis:
        """Choose the shift whose convolution has the fewest taps, then the one that cuts the fewest values off.

        Args:
            kernel: Taps of the filter.
            stride: Values of the output from one of the input to the next.
            dilation: Values of the output from one tap to the next.
            pad: Values of the whole output that come before what is wanted.
            given: Values of the input.
            wanted: Values of the output.
            is_free: Whether these two are examples.
        """
        last = (kernel - 1) * dilation

        def shifted(shift: int) -> PhaseAxis:
            """Input i times tap t is part of output i * stride + t * dilation - pad: block q sums inputs from q - most to q - least."""
            first = pad - shift
            least, most = min(0, -((stride - 1 + first) // stride)), max(0, (last - first) // stride)
            at = np.arange(stride)[:, None] + first + stride * np.arange(most, least - 1, -1)
            taps = np.where((at >= 0) & (at <= last) & (at % dilation == 0), at // dilation, -1)
            behind = max(0, -(-(wanted + shift) // stride) - given - least)
            return cls(stride, shift, taps, (most, behind), given + behind + least, wanted, is_free)

        return min(map(shifted, range(stride)), key=lambda axis: (axis.taps.shape[1], axis.shift))

    @property
    def is_cut(self) -> bool:
        """Whether a Slice must crop the blocks, which have more values than the output."""
        return self.stride * self.blocks != self.size

    @property
    def end(self) -> int:
        """The ``ends`` of the Slice that crops the blocks."""
        behind = self.stride * self.blocks - self.shift - self.size
        return (-behind or np.iinfo(np.int64).max) if self.is_free else self.shift + self.size


@dataclass(frozen=True)
class _Match:
    """The two axes (rows, columns), the weights or their codes, the DequantizeLinear of the codes, and the bias."""

    axes: tuple[PhaseAxis, PhaseAxis]
    weights: npt.NDArray[Any]
    origin: ir.Node | None
    bias: npt.NDArray[Any] | None


class ConvTransposeToConv(Rewrite[_Match]):
    """ConvTranspose → Conv, DepthToSpace, and a Slice where the blocks must be cropped.

    The pixels of an output fall into phases, by their places between those of the input. Each phase is a convolution with a
    part of the taps; one convolution gives them all as channels, with filters of ceil(k / stride) taps, as every other is run.
    Blocks of pixels are made of channels by a move.

    What does not match: (1) a convolution of another rank, where it is none of images already; (2) one whose weights or bias
    are computed in the run; (3) one whose input has no values, or an unknown size where the output's is an attribute, or two unknown
    sizes where the strides differ; (4) weights whose codes are around another zero point than 0, or have scales along another axis
    than the filters; (5) other types than float32 and float16.
    """

    name: ClassVar[str] = "phases"
    needs: ClassVar[tuple[str, ...]] = ("ConvTranspose",)

    @override
    def match(self, node: ir.Node) -> _Match | None:
        if not is_op(node, "ConvTranspose") or not is_float(node):  # case 5
            return None
        sizes = _window_sizes(node)
        if sizes is None:  # cases 1 and 3
            return None
        weights, origin = _weights_and_origin(node)
        bias = _constant_values(operand(node, 2))
        if weights is None or (operand(node, 2) is not None and bias is None):  # cases 2 and 4
            return None
        given, wanted, free = sizes
        down, across = map(
            PhaseAxis.of, *transposed_windows(node, weights.shape[2:], given, wanted), given, wanted, free
        )
        return _Match((down, across), weights, origin, bias)

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Match) -> None:
        made, (down, across), group = _Nodes(graph, node), match.axes, node.attributes.get_int("group", 1)
        x, dims = node.inputs[0], dims_of(node.outputs[0]) or ()
        weights, phases = _convolution_weights(match, group), down.stride * across.stride
        bias = () if match.bias is None else (_convolution_bias(match.bias, phases, group),)
        read = [x, made.filters(weights, match.origin, phases), *bias]
        pads = [axis.pads[end] for end in (0, 1) for axis in match.axes]
        value = made.add("Conv", read, "phases", (len(weights), *_block_dims(match.axes)), pads=pads, group=group)
        value = _blocks_to_pixels(made, value, match.axes, len(weights) // phases, group)
        cut = [(index + 2, axis) for index, axis in enumerate(match.axes) if axis.is_cut]
        if cut:
            begins, ends = [axis.shift for _, axis in cut], [axis.end for _, axis in cut]
            numbers = map(np.array, (begins, ends, [index for index, _ in cut]))
            value = made.add("Slice", [value, *numbers], "inside", dims[1:])
        swap(graph, [node], value)


class _Nodes(NewNodes):
    """Add nodes whose outputs keep the batch of the replaced output; ``dims`` are those after the batch."""

    @override
    def _output_dims(self, dims: Sequence[Any]) -> Sequence[Any]:
        assert self.y.shape is not None
        return [self.y.shape[0], *dims]

    def filters(self, weights: npt.NDArray[Any], origin: ir.Node | None, phases: int) -> npt.NDArray[Any] | ir.Value:
        """Return the weights, or the output of a new DequantizeLinear of their codes."""
        if origin is None:
            return weights
        steps, zero = (array_of(operand(origin, index)) for index in (1, 2))
        parts = [np.tile(each, phases) if each.size > 1 else each for each in (steps, zero) if each is not None]
        value = self.add("DequantizeLinear", [weights, *parts], "weights", weights.shape[1:], axis=0)
        value.shape = ir.Shape(weights.shape)
        return value


# -- inside ----------------------------------------------------------------------------------------------------------------


def _weights_and_origin(node: ir.Node) -> tuple[npt.NDArray[Any] | None, ir.Node | None]:
    """Return the weights or their codes, (C, K / group, …), and their DequantizeLinear; None in cases 2 and 4."""
    value = operand(node, 1)
    origin = None if value is None else value.producer()
    if origin is None or not is_op(origin, "DequantizeLinear"):
        return array_of(value), None
    codes, steps = (array_of(operand(origin, index)) for index in range(2))
    if codes is None or steps is None or not is_around_zero(origin):
        return None, None
    by_filter = origin.attributes.get_int("axis", 1) % codes.ndim == 1 and node.attributes.get_int("group", 1) == 1
    return (codes, origin) if steps.size == 1 or (steps.ndim == 1 and by_filter) else (None, None)


def _constant_values(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """Return the values of a constant, dequantized if it is stored as codes; None if it is computed."""
    origin = None if value is None else value.producer()
    if origin is None or not is_op(origin, "DequantizeLinear"):
        return array_of(value)  # type: ignore[no-any-return]
    codes, steps = (array_of(operand(origin, index)) for index in range(2))
    if codes is None or steps is None or not is_around_zero(origin):
        return None
    return codes.astype(np.float32) * steps.astype(np.float32)  # type: ignore[no-any-return]


def transposed_windows(
    node: ir.Node, kernel: Sequence[int], given: Sequence[int], wanted: Sequence[int]
) -> tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]:
    """Return kernel, strides, dilations and the pads before the output of a ConvTranspose, each by axis."""
    at, ones = node.attributes, [1] * len(kernel)
    strides, dilations = at.get_ints("strides", ones), at.get_ints("dilations", ones)
    mode = at.get_string("auto_pad", "NOTSET")
    if mode == "NOTSET" and "output_shape" not in at:
        return kernel, strides, dilations, at.get_ints("pads", [0] * 2 * len(kernel))[: len(kernel)]
    extra = at.get_ints("output_padding", [0] * len(kernel))
    axes = zip(given, strides, kernel, dilations, extra, wanted, strict=True)
    rest = [max(0, (x - 1) * s + (k - 1) * d + 1 + more - y) for x, s, k, d, more, y in axes]
    return kernel, strides, dilations, [all_ // 2 if mode == "SAME_UPPER" else all_ - all_ // 2 for all_ in rest]


def _convolution_weights(match: _Match, group: int) -> npt.NDArray[Any]:
    """Rearrange the weights of a ConvTranspose as those of the Conv: (K * phases, C / group, taps down, taps across)."""
    down, across = (axis.taps for axis in match.axes)
    parts = match.weights.reshape(group, -1, *match.weights.shape[1:]).swapaxes(1, 2)
    result = np.zeros((group, len(down), len(across), *parts.shape[1:3], down.shape[1], across.shape[1]), parts.dtype)
    for i, r in np.argwhere(down >= 0):
        for j, s in np.argwhere(across >= 0):
            result[:, i, j, :, :, r, s] = parts[..., down[i, r], across[j, s]]
    if group > 1:  # a filter's phases side by side
        result = np.moveaxis(result, 3, 1)
    return result.reshape(-1, *result.shape[-3:])


def _convolution_bias(bias: npt.NDArray[Any], phases: int, group: int) -> npt.NDArray[Any]:
    return np.tile(bias, phases) if group == 1 else bias.repeat(phases)


def _window_sizes(node: ir.Node) -> tuple[Sequence[int], Sequence[int], Sequence[bool]] | None:
    """Return (H, W) of input and output, and which are free, with an example size; None in cases 1 and 3."""
    at, weights = node.attributes, dims_of(operand(node, 1)) or ()
    given, wanted = (list((dims_of(value) or ())[2:]) for value in (node.inputs[0], node.outputs[0]))
    if len(given) != 2 or len(wanted) != 2 or 0 in (*given, *wanted) or len(weights) != 4:
        return None
    strides, dilations = (at.get_ints(name, [1, 1]) for name in ("strides", "dilations"))
    free = [not isinstance(size, int) for size in given]
    if any(free) and ("output_shape" in at or (all(free) and strides[0] != strides[1])):
        return None
    mode, extra = at.get_string("auto_pad", "NOTSET"), at.get_ints("output_padding", [0, 0])
    pads = at.get_ints("pads", [0] * 4) if mode == "NOTSET" else [0] * 4
    for axis in (axis for axis in range(2) if free[axis]):
        given[axis], reach = _ANY, (weights[2 + axis] - 1) * dilations[axis] + 1
        whole = (_ANY - 1) * strides[axis] + reach + extra[axis] - pads[axis] - pads[axis + 2]
        wanted[axis] = _ANY * strides[axis] if mode.startswith("SAME") else whole
    return (given, wanted, free) if all(isinstance(size, int) for size in wanted) else None


def _block_dims(axes: tuple[PhaseAxis, PhaseAxis], strides: Sequence[int] = (1, 1)) -> list[int | None]:
    """Dims of the blocks, times ``strides``; None along an axis whose input size is unknown."""
    return [None if axis.is_free else axis.blocks * stride for axis, stride in zip(axes, strides, strict=True)]


def _blocks_to_pixels(
    made: _Nodes, x: ir.Value, axes: tuple[PhaseAxis, PhaseAxis], channels: int, group: int
) -> ir.Value:
    """Move the channels of each pixel to a block of pixels: DepthToSpace, or Reshape and Transpose if strides differ."""
    s, t = (axis.stride for axis in axes)
    dims = (channels, *_block_dims(axes, (s, t)))
    if s == t == 1:
        return x
    if s == t:
        return made.add("DepthToSpace", [x], "blocks", dims, blocksize=s, mode="DCR" if group == 1 else "CRD")
    parts, order = ((s, t, channels), (0, 3, 4, 1, 5, 2)) if group == 1 else ((channels, s, t), (0, 1, 4, 2, 5, 3))
    parted = (*parts, *_block_dims(axes))
    x = made.add("Reshape", [x, _reshape_target(parted)], "parted", parted)
    x = made.add("Transpose", [x], "turned", [(0, *parted)[axis] for axis in order[1:]], perm=list(order))
    return made.add("Reshape", [x, _reshape_target(dims)], "blocks", dims)


def _reshape_target(dims: Sequence[int | None]) -> npt.NDArray[np.int64]:
    """The ``shape`` input of a Reshape that keeps the batch and has these dims after it."""
    return np.array([0, *(-1 if size is None else size for size in dims)], np.int64)
