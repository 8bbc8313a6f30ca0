"""Strided views of tensors: the result of Transpose, Reshape, Slice and Expand without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["Strided", "contiguous"]

Axis = tuple[tuple[int, int], ...]
"""Sizes and strides of the axes that make up one, the outermost first; none is of size 1."""


@dataclass(frozen=True)
class Strided:
    """A view of a tensor that lies linearly.

    An axis may be made up of several, as a Reshape joins them, which a later one may part again.

    Attributes:
        axes: What each axis is made of.
        offset: Of the first value.
    """

    axes: tuple[Axis, ...]
    offset: int = 0

    @property
    def dims(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(math.prod(size for size, _ in axis) for axis in self.axes)

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Distance between neighbours along each axis, in values, 0 along an axis of one; None where an axis has several."""
        if any(len(axis) > 1 for axis in self.axes):
            return None
        return tuple(axis[0][1] if axis else 0 for axis in self.axes)

    def transposed(self, axes: Sequence[int]) -> Strided:
        """Permute the axes."""
        return replace(self, axes=tuple(self.axes[axis] for axis in axes))

    def selected(self, axis: int, index: int) -> Strided:
        """Select one index of an axis, and drop the axis."""
        axis %= len(self.axes)
        place, offset = index % self.dims[axis], self.offset
        for size, stride in reversed(self.axes[axis]):
            offset += place % size * stride
            place //= size
        return Strided((*self.axes[:axis], *self.axes[axis + 1 :]), offset)

    def sliced(self, axis: int, first: int, size: int, step: int = 1) -> Strided | None:
        """Slice an axis; None if the axis is composed of several."""
        axis %= len(self.axes)
        if len(self.axes[axis]) > 1:
            return None
        stride = self.axes[axis][0][1] if self.axes[axis] else 0
        taken = ((size, stride * step),) if size > 1 else ()
        return Strided((*self.axes[:axis], taken, *self.axes[axis + 1 :]), self.offset + first * stride)

    def expanded(self, dims: Sequence[int]) -> Strided:
        """Broadcast to dims: the same value again and again where there was one."""
        own = ((),) * (len(dims) - len(self.axes)) + self.axes
        axes = [axis or (((size, 0),) if size > 1 else ()) for axis, size in zip(own, dims, strict=True)]
        return replace(self, axes=tuple(axes))

    def reshaped(self, dims: Sequence[int]) -> Strided | None:
        """Reshape the view; None where strides cannot describe the result."""
        if math.prod(dims) != math.prod(self.dims) or 0 in dims:
            return None
        left = [part for axis in self.axes for part in axis]
        axes: list[Axis] = []
        for size in reversed(dims):
            axis: list[tuple[int, int]] = []
            while size > 1:
                inner, stride = left.pop()
                taken = math.gcd(inner, size)
                if taken < min(inner, size):
                    return None
                if taken < inner:
                    left.append((inner // taken, stride * taken))
                axis.insert(0, (taken, stride))
                size //= taken
            axes.insert(0, _merge_parts(axis))
        return replace(self, axes=tuple(axes))


def _merge_parts(parts: Sequence[tuple[int, int]]) -> Axis:
    """Merge contiguous parts of an axis."""
    merged: list[tuple[int, int]] = []
    for size, stride in parts:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    return tuple(merged)


def contiguous(dims: Sequence[int]) -> Strided:
    """The view of a whole row-major tensor."""
    strides = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
    return Strided(tuple(((size, stride),) if size != 1 else () for size, stride in zip(dims, strides, strict=True)))
