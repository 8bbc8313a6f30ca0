"""Where the rows of a generated kernel lie, and how blocks and threads share them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .index import Index
from .layout import Format, Strides
from .loops import Axis, aligned_strides, collapsed, indices

__all__ = ["THREADS", "RowLoops", "row_loops"]

_MANY_ROWS = 1024
"""With fewer, more threads share a row."""
_COLUMNS = 32
"""Rows of a block where neighbouring rows, not values of a row, are contiguous."""
THREADS = 1024
"""Threads of a block, at most."""
_BLOCKS = 128
"""Blocks of a grid, at most, where blocks share rows."""


@dataclass(frozen=True)
class RowLoops:
    """Where the rows of a reduction are, and how threads share them.

    Attributes:
        outer: Axes along which there are rows, the innermost last.
        inner: Axes of a row.
        lanes: Contiguous values of a row that a thread has.
        threads: Threads of a row, a power of two.
        rows: Rows of a block.
        blocks: Blocks that share a row, a power of two; with more than one, a block has one row at most.
        columns: Whether neighbouring rows, not values of a row, are contiguous in memory.
        packed: Which tensors are accessed ``lanes`` values at a time.
    """

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    lanes: int
    threads: int
    rows: int
    blocks: int
    columns: bool
    packed: tuple[bool, ...]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return math.prod(axis.size for axis in self.outer)

    @property
    def length(self) -> int:
        """The number of values of a row."""
        return math.prod(axis.size for axis in self.inner)

    @property
    def block_threads(self) -> int:
        """Threads of a block."""
        return self.threads * self.rows // self.blocks

    @property
    def turns(self) -> int:
        """How many times a thread takes ``lanes`` values of its row."""
        return -(-self.length // (self.lanes * self.threads))

    def at(self, rank: int, run: int, lane: Index, wide: bool = True) -> list[Index]:
        """Indices along the dims of a value, or with ``wide`` False of a row; other arguments as for `Loops.at`."""
        places = [(axis, Index.counter(f"o{index}", axis.size)) for index, axis in enumerate(self.outer)]
        if wide:
            *others, last = self.inner
            places += [(axis, Index.counter(f"i{index}", axis.size)) for index, axis in enumerate(others)]
            group = Index.counter("group", last.size // self.lanes) * self.lanes
            places.append((last, group + Index.counter("part", self.lanes // run) * run + lane))
        return indices(rank, places)


def row_loops(
    dims: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Format | Strides],
    outputs: Sequence[Format | Strides],
    cluster: int = 1,
    max_threads: int = THREADS,
) -> RowLoops:
    """Choose the loops of a reduction: order of axes, lanes, threads of a row, rows of a block.

    Args:
        dims: Dims that are reduced.
        axes: Axes of a row, over which is reduced.
        inputs: Formats of the inputs, which are broadcast to the dims.
        outputs: Formats of the outputs: of all dims, or with one value for each row, with axes of size 1 or without.
        cluster: Blocks that may share a row.
        max_threads: Threads of a block that shares a row with others.
    """
    tensors = [*inputs, *outputs]
    strides = [
        *(aligned_strides(form, dims) for form in inputs),
        *(_output_strides(form, dims, axes) for form in outputs),
    ]
    all_axes = [Axis(size, tuple(each[index] for each in strides), ((index, size),)) for index, size in enumerate(dims)]
    lead = next((index for index, each in enumerate(strides) if all(each[axis] or dims[axis] == 1 for axis in axes)), 0)
    order = sorted(range(len(dims)), key=lambda index: (-strides[lead][index], index))
    order = [index for index in order if dims[index] > 1]
    outer = collapsed([all_axes[index] for index in order if index not in axes])
    inner = collapsed([all_axes[index] for index in order if index in axes])
    columns = order[-1] not in axes
    last, others = inner[-1], [*outer, *inner[:-1]]

    def packed(tensor: int, lanes: int) -> bool:
        """Whether ``lanes`` values of a tensor are contiguous and aligned."""
        return last.strides[tensor] == 1 and all(axis.strides[tensor] % lanes == 0 for axis in others)

    sizes = [form.dtype.itemsize for form, stride in zip(tensors, last.strides, strict=True) if stride]
    lanes = 1 if columns else min(8, 16 // min(sizes, default=4))
    while lanes > 1 and not (packed(lead, lanes) and last.size % lanes == 0):
        lanes //= 2
    pieces, count = math.prod(axis.size for axis in inner) // lanes, math.prod(axis.size for axis in outer)
    blocks = 1
    if columns:
        threads, rows = min(32, _power_of_two(-(-pieces // 4))), _COLUMNS
    else:
        max_values = 8 if count < _MANY_ROWS else 32
        threads = min(32, _power_of_two(pieces))
        while threads < THREADS and -(-pieces // threads) * lanes > max_values:
            threads *= 2
        rows = max(1, 128 // threads)
        if threads == THREADS:
            while (
                blocks < cluster
                and 2 * blocks * count <= _BLOCKS
                and -(-pieces // (threads * blocks)) * lanes > max_values
            ):
                blocks *= 2
            threads = blocks * (max_threads if blocks > 1 else threads)
    are_packed = tuple(packed(tensor, lanes) for tensor in range(len(tensors)))
    return RowLoops(tuple(outer), tuple(inner), lanes, threads, rows, blocks, columns, are_packed)


def _power_of_two(least: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << (least - 1).bit_length()


def _output_strides(form: Format | Strides, dims: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Strides of an output along the dims; 0 along axes that are reduced."""
    if len(form.dims) < len(dims):
        own = iter(form.strides)
        return tuple(0 if axis in axes else next(own) for axis in range(len(dims)))
    return aligned_strides(form, dims)
