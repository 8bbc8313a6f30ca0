"""The loops of a generated kernel: the axes of its tensors in the order of memory, as few as they can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .index import Index
from .layout import Format, Strides

__all__ = [
    "Axis",
    "Loops",
    "aligned_strides",
    "collapsed",
    "index_lines",
    "indices",
    "offset_terms",
    "padded_channels",
]


@dataclass(frozen=True)
class Axis:
    """A run of indices.

    Attributes:
        size: How many there are.
        strides: Values between neighbours in each tensor, 0 where it is broadcast.
        of: Which axes of the dims it is made of, the outermost first, and their sizes.
    """

    size: int
    strides: tuple[int, ...]
    of: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Loops:
    """What each thread of a kernel does, and where.

    Attributes:
        outer: Axes, the innermost last.
        inner: The axis whose values a thread has several of, side by side.
        lanes: How many.
        valid: Indices of the inner axis that hold values; those behind are padding, which is written as zero.
        packed: Whether the values of a thread lie side by side in a tensor, at a multiple of what one access moves.
    """

    outer: tuple[Axis, ...]
    inner: Axis
    lanes: int
    valid: int
    packed: tuple[bool, ...]

    @property
    def items(self) -> int:
        """What is spread over threads: pieces of ``lanes`` values."""
        return math.prod(axis.size for axis in self.outer) * -(-self.inner.size // self.lanes)

    def place(self) -> list[str]:
        """C: where ``item`` is on each axis, in ``i0``, ``i1``, … and, on the inner one, ``first``."""
        groups = -(-self.inner.size // self.lanes)
        lines = [f"unsigned const group = item % {groups}u, first = group * {self.lanes}u;"]
        return [*lines, f"unsigned left = item / {groups}u;", *index_lines(self.outer, "i", "left")]

    def offset(self, tensor: int) -> str:
        """C: how many values lie before a thread's first in a tensor."""
        terms = offset_terms(self.outer, "i", tensor)
        if self.inner.strides[tensor]:
            terms.append(f"first * {self.inner.strides[tensor]}u")
        return " + ".join(terms) or "0u"

    def at(self, rank: int, run: int, lane: Index) -> list[Index]:
        """Where a value is on each axis of the dims: one of a run of ``run`` lanes, the run being number ``part`` of a thread's."""
        groups, parts = -(-self.inner.size // self.lanes), self.lanes // run
        inner = Index.counter("group", groups) * self.lanes + Index.counter("part", parts) * run + lane
        outer = [(axis, Index.counter(f"i{index}", axis.size)) for index, axis in enumerate(self.outer)]
        return indices(rank, [*outer, (self.inner, inner)])


def indices(rank: int, places: Sequence[tuple[Axis, Index]]) -> list[Index]:
    """Convert indices along the loops' axes to indices along the tensor's dims."""
    result = [Index()] * rank
    for axis, index in places:
        rest = index
        for place, (dim, size) in reversed(list(enumerate(axis.of))):
            result[dim] = rest % size if place else rest
            rest //= size
    return result


def index_lines(axes: Sequence[Axis], name: str, number: str) -> list[str]:
    """C: the index on each axis, in ``name0``, ``name1``, …, of what a variable counts along all of them; it is used up."""
    lines = []
    for index in reversed(range(len(axes))):
        size = axes[index].size
        lines.append(f"unsigned const {name}{index} = {number}{f' % {size}u' if index else ''};")
        if index:
            lines.append(f"{number} /= {size}u;")
    return lines


def offset_terms(axes: Sequence[Axis], name: str, tensor: int) -> list[str]:
    """C: how many values lie before these indices in a tensor, axis by axis."""
    return [f"{name}{index} * {axis.strides[tensor]}u" for index, axis in enumerate(axes) if axis.strides[tensor]]


def aligned_strides(form: Format | Strides, dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor along dims to which it is broadcast, 0 along broadcast axes."""
    own = zip(form.dims, form.strides, strict=True)
    return (0,) * (len(dims) - len(form.dims)) + tuple(0 if size == 1 else stride for size, stride in own)


def padded_channels(form: Format) -> int:
    """Channels of an NHWC tensor with those that fill its last 16 bytes, as far as a pixel has room for them."""
    channels = form.dims[1]
    return channels if channels % form.vector == 0 else min(form.pitch, -(-channels // form.vector) * form.vector)


def collapsed(axes: Sequence[Axis]) -> list[Axis]:
    """Drop axes of size 1, and merge neighbouring axes that are contiguous in all tensors."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if merged and all(o == i * axis.size for o, i in zip(merged[-1].strides, axis.strides, strict=True)):
            merged[-1] = Axis(merged[-1].size * axis.size, axis.strides, (*merged[-1].of, *axis.of))
        else:
            merged.append(axis)
    return merged
