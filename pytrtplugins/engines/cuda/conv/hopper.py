"""Hopper's tactics: of ``conv_hopper.cu``, which fetches the pixels of each tap, and of ``conv_halo.cu``, which fetches them once."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from ....tensor import DType
from .shape import ConvShape
from .tactics import Tactic, forms, unit_depth

__all__ = ["halo_tactics", "hopper_tactics"]

_SPLITS = (1, 2, 3, 4, 5, 6, 8)
"""Blocks that share a tile's sum."""
_STAGES = (2, 3, 4, 6, 8, 12, 18)


def hopper_tactics(shape: ConvShape, multiprocessors: int = 132, max_tactics: int = 24) -> list[Tactic]:
    """Tactics of ``conv_hopper.cu`` for a problem, the most promising first.

    Args:
        shape: The problem.
        multiprocessors: Of the GPU.
        max_tactics: How many at most.
    """
    unfit = shape.unsupported() or (shape.pool and shape.strides != (1, 1)) or max(*shape.pads, *shape.dilations) > 64
    if unfit or shape.x_type is DType.FLOAT32:
        return []
    found = []
    for patch, tile_m, tile_n in itertools.product(forms(shape), (64, 128, 192, 256), (32, 64, 128, 256)):
        if (tile_n > 32 and tile_n >= 2 * max(shape.k, 32)) or tile_m * tile_n > 128 * 256:
            continue
        depth = unit_depth(shape, tile_n)
        for units, split in itertools.product((1, 2, 3), _SPLITS):
            sizes = Tactic("hopper", tile_m, tile_n, depth, units, 1, split, patch)
            steps, left = divmod(sizes.steps(shape), units)
            if left or (units == 3 and depth == 128):
                continue
            rows, columns = sizes.tiles(shape)
            if split > 1 and (shape.pool or steps < 2 * split or rows * columns >= multiprocessors):
                continue
            found += _with_stages(sizes, steps // split, shape)
    found.sort(key=lambda tactic: _cost(tactic, shape, multiprocessors))
    return found[:max_tactics]


def halo_tactics(shape: ConvShape, multiprocessors: int = 132, max_tactics: int = 24) -> list[Tactic]:
    """Tactics of ``conv_halo.cu`` for a problem, the most promising first; none where filters have steps or gaps.

    Args:
        shape: The problem.
        multiprocessors: Of the GPU.
        max_tactics: How many at most.
    """
    centred = (
        shape.pads == (shape.kernel[0] // 2, shape.kernel[1] // 2) and shape.kernel[0] % 2 == shape.kernel[1] % 2 == 1
    )
    whole = centred and (shape.oh, shape.ow) == (shape.h, shape.w)
    if shape.unsupported() or shape.x_type is DType.FLOAT32 or not whole:
        return []
    if shape.strides != (1, 1) or shape.dilations != (1, 1) or max(shape.kernel) > 9 or shape.w > 240:
        return []
    found = []
    for tile_m, tile_n, patch in itertools.product((64, 128, 192, 256), (32, 64, 128, 256), (False, True)):
        if (
            (tile_n > 32 and tile_n >= 2 * max(shape.k, 32))
            or tile_m * tile_n > 128 * 256
            or (shape.pool and not patch)
        ):
            continue
        ways = [*((split, False) for split in _SPLITS if shape.taps > 1), (1, True)]
        for units, (split, loop) in itertools.product({1, shape.kernel[1]}, ways):
            sizes = Tactic("halo", tile_m, tile_n, unit_depth(shape, tile_n), units, 1, split, patch, loop)
            (rows, columns), steps = sizes.tiles(shape), sizes.steps(shape) // units
            if loop and rows * columns <= multiprocessors:
                continue
            if split > 1 and (shape.pool or steps < 2 * split or rows * columns >= multiprocessors):
                continue
            if patch and not shape.pool and rows * tile_m > 1.3 * shape.pixels:
                continue
            if not patch and rows == shape.n and (shape.oh * (shape.w + shape.kernel[1] // 2)) <= tile_m - 64:
                continue  # a smaller tile has the whole image
            if max(sizes.halo(shape)) <= 256:
                found += _with_stages(sizes, steps // split, shape)
    found.sort(key=lambda tactic: (_cost(tactic, shape, multiprocessors), tactic.name))
    return found[:max_tactics]


def _with_stages(tactic: Tactic, steps: int, shape: ConvShape) -> list[Tactic]:
    """The deepest rings that let four, three or two blocks share a multiprocessor, and the deepest that fits at all."""
    found, beside = list[Tactic](), shape.filter_bytes * tactic.tile_n + 32
    rings = [replace(tactic, stages=stages) for stages in _STAGES if stages <= max(2, steps)]
    sizes = [ring.shared_bytes(shape) + 16 * ring.stages + beside for ring in rings]
    for room in (56 * 1024, 75 * 1024, 113 * 1024, 227 * 1024):
        fitting = [ring for ring, size in zip(rings, sizes, strict=True) if size <= room]
        found += [ring for ring in fitting[-1:] if ring not in found]
    return found


def _cost(tactic: Tactic, shape: ConvShape, multiprocessors: int) -> float:
    """A rough model of the time, fitted to an H200: the best of its first 12 takes 1 % more than the best of all there."""
    tiles_m, tiles_n = tactic.tiles(shape)
    blocks = tiles_m * tiles_n * tactic.split_k
    resident = tactic.resident_blocks(shape)
    waves, sharing = -(-blocks // (multiprocessors * resident)), min(resident, -(-blocks // multiprocessors))
    kept = tactic.keeps_weights(shape)
    units, groups = tactic.steps(shape) / tactic.split_k, tactic.tile_m / 64
    pixels = units * tactic.tile_m
    if tactic.family == "halo":
        pixels = math.prod(tactic.halo(shape)) * math.ceil(tactic.chunks(shape) / tactic.split_k)
    fetched = (pixels + (0 if kept else units * tactic.tile_n)) * tactic.depth
    multiplied = tactic.depth / 32 * max(tactic.tile_n / 2, 16 + tactic.tile_n / 4)  # a unit by a group of warps
    stages = units / tactic.units * _STAGE + units * multiplied
    fetching = fetched / _FETCH * (1.0 + 1.0 / tactic.stages)
    work = max(stages, units * multiplied * groups * sharing, fetching * sharing)
    finish = tactic.tile_m * tactic.tile_n * _FINISH * sharing * (_SPLIT if tactic.split_k > 1 else 1.0)
    start = _START * (1 + (waves - 1) * _LATER if tactic.persistent else waves)
    return max(waves * (work + finish) + start, blocks * fetched / _SHARED_FETCH)


_FETCH, _SHARED_FETCH, _STAGE, _FINISH, _SPLIT, _START, _LATER = 49.0, 5750.0, 590.0, 0.29, 4.9, 37400.0, 0.16
"""Bytes a cycle of a multiprocessor and of all, cycles beside the products of a stage and for a result, how many times those where
a sum is split, cycles for a wave of blocks, and which part of them for each further tile of a block."""
