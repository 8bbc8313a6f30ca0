"""Pack weights for the kernels: tiles in the order of use, each in its shared memory layout.

A tile of weights is ``tile_n`` rows (filters) of ``depth`` bytes: one tap's run of channels. Its 16-byte pieces change
places within 8 rows (`swizzled`), so that neither copies nor matrix instructions meet bank conflicts. Filters are permuted
(`filter_order`), because a matrix instruction leaves columns 2q, 2q + 1 of each 8 in thread q of four: with the
permutation, a thread holds filters that lie side by side in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....utils.matrices import fill_parts
from .shape import ConvShape
from .tactics import Tactic

__all__ = ["filter_order", "pack_biases", "pack_filters", "pack_weights", "swizzled"]


def filter_order(columns: int, itemsize: int, count: int) -> npt.NDArray[np.int64]:
    """The filter that each row of packed weights holds.

    Args:
        columns: Filters that four threads share.
        itemsize: Bytes of an input value: a thread's run of filters has 16 bytes of them at most.
        count: Rows, a multiple of ``columns``.
    """
    run = min(columns // 4, 16 // itemsize)  # as run_of in common.cu
    row = np.arange(count)
    column = row % columns
    quarter, held = column % 8 // 2, column // 8 * 2 + column % 2  # thread of four; its how-manieth value
    order: npt.NDArray[np.int64] = row - column + held // run * run * 4 + quarter * run + held % run
    return order


def swizzled(depth: int, rows: int) -> npt.NDArray[np.int64]:
    """The swizzled offset in shared memory of each byte of rows of ``depth`` bytes."""
    offset = np.arange(rows * depth)
    permutation: npt.NDArray[np.int64] = offset ^ (((offset >> 7) & (depth // 16 - 1)) << 4)
    return permutation


def pack_weights(shape: ConvShape, tactic: Tactic, weights: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Weights (K, R * S, C / groups) → bytes: [tile of filters][tap][chunk of channels][filter][byte], padded with zeros.

    For ``"halo"`` taps and chunks change places. For ``"simt"`` they are [tile of filters][tap and channel, without gaps][filter].
    With groups a tile has the channels of its filters' groups, and zeros where a filter meets another group than its own.

    Args:
        shape: The problem.
        tactic: The sizes.
        weights: Values of x's type.
    """
    kind, (tiles, chunks) = shape.x_type.numpy, (tactic.tiles(shape)[1], tactic.chunks(shape))
    per_chunk, merged, taps = tactic.depth // kind.itemsize, tactic.merged(shape), shape.taps // tactic.merged(shape)
    k, _, c = weights.shape
    rows, channels = tiles * tactic.tile_n, chunks * per_chunk
    if merged == 1 and not shape.group_filters and weights.shape == (rows, taps, channels):
        padded = weights
    else:
        padded = np.zeros((rows, taps, channels), kind)
        if shape.group_filters:
            row = np.arange(k)
            begins = [shape.first_channel(tile * tactic.tile_n) for tile in range(tiles)]
            first = row // shape.group_filters * c - np.array(begins)[row // tactic.tile_n]
            padded[row[:, None], :, first[:, None] + np.arange(c)] = weights.transpose(0, 2, 1)
        else:
            filled = padded[:, :, : merged * shape.c].reshape(-1, taps, merged, shape.c)
            filled[:k, :, :, :c] = weights.reshape(k, taps, merged, c)
    if tactic.family == "simt":
        lines = padded.reshape(tiles, tactic.tile_n, -1).transpose(0, 2, 1)
        return np.ascontiguousarray(lines).view(np.uint8).reshape(-1)
    places = _places(tactic.tile_n, tactic.columns, kind.itemsize, tactic.depth, taps, chunks, tactic.family == "halo")
    pieces = padded.reshape(tiles, -1).view("V16")  # 16 bytes at a time: fast
    packed = np.empty(pieces.shape, pieces.dtype)
    fill_parts(packed, lambda part: np.take(pieces[part], places, axis=1, out=packed[part], mode="clip"))
    return packed.view(np.uint8).reshape(-1)


@functools.lru_cache(16)
def _places(
    tile_n: int, columns: int, itemsize: int, depth: int, taps: int, chunks: int, is_halo: bool
) -> npt.NDArray[np.intp]:
    """Where each 16-byte piece of a packed tile lies in the tile's filters, taps and channels before it is packed."""
    pieces = depth // 16
    swizzle = (swizzled(depth, tile_n)[::16] // 16 % pieces).reshape(tile_n, pieces)  # within a filter; its own inverse
    filters = filter_order(columns, itemsize, tile_n)[:, None] * (taps * chunks * pieces)
    tap, chunk = np.arange(taps)[:, None] * (chunks * pieces), np.arange(chunks) * pieces
    block = (tap + chunk).T if is_halo else tap + chunk
    return np.ascontiguousarray(block[:, :, None, None] + (filters + swizzle)).reshape(-1)


def pack_filters(
    values: npt.NDArray[np.float32] | None, tactic: Tactic, shape: ConvShape, fill: float
) -> npt.NDArray[np.float32]:
    """One number for each filter, padded to whole tiles; None: all are ``fill``."""
    padded = np.full(tactic.tiles(shape)[1] * tactic.tile_n, 0.0 if values is not None else fill, np.float32)
    if values is not None:
        padded[: len(values)] = values
    return padded


def pack_biases(rows: Sequence[npt.NDArray[np.float32]], tactic: Tactic, shape: ConvShape) -> npt.NDArray[np.float32]:
    """Biases, and slopes behind those of all tiles where there are any: each row padded to whole tiles."""
    return np.concatenate([pack_filters(row, tactic, shape, 0.0) for row in rows])
