"""Depthwise convolutions: a filter for each channel, which matrix instructions cannot help with."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....tensor import DType
from ....utils.override import override
from ..device.device import Device
from ..device.elements import to_stored
from ..device.generated import GeneratedKernel
from .problem import ConvLaunch, ConvProblem, Operands, Scratch
from .specialized import SpecializedProvider, fixed_kernel, fixed_launch, has_kinds

__all__ = ["DepthwiseProvider", "DepthwiseTile", "depthwise_tiles"]

_MAX_LANES = 8
_MAX_TAPS = 49
_MAX_TACTICS = 12
_SHAPES = ((1, 1), (1, 2), (2, 2), (1, 4), (2, 4), (4, 4), (1, 7), (1, 8))
"""Rows and columns of a tile."""
_WARM = 512
"""Threads of a multiprocessor that hide each other's waits."""
_NAME = re.compile(r"h(\d+)w(\d+)t(\d+)(?:s(\d+))?")


@dataclass(frozen=True)
class DepthwiseTile:
    """What a thread computes.

    Attributes:
        h: Rows of y, as far apart as the taps.
        w: Columns of y, likewise.
        threads: Of a block.
        slices: Threads that share the rows of a filter.
    """

    h: int
    w: int
    threads: int
    slices: int = 1

    @property
    def name(self) -> str:
        """The name of the tile: ``"h1w4t128"``."""
        return f"h{self.h}w{self.w}t{self.threads}" + (f"s{self.slices}" if self.slices > 1 else "")

    @classmethod
    def parse(cls, name: str) -> DepthwiseTile:
        """The tile of a name.

        Raises:
            ValueError: it is none.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is not a tactic of 'depthwise'")
        return cls(*(int(number or 1) for number in match.groups()))

    def items(self, problem: ConvProblem) -> int:
        """The number of threads with work."""
        (n, _, *sides), dilations = problem.y.dims, problem.dilations
        down, across = map(_tiles, sides, (self.h, self.w), dilations)
        return n * down * across * _pieces(problem) * self.slices


class DepthwiseProvider(SpecializedProvider):
    """A thread for 16 bytes of channels of some pixels, on every GPU; a tactic is the name of a tile.

    Args:
        device: Where arrays live.
        multiprocessors: Of the GPU.
    """

    name = "depthwise"

    def __init__(self, device: Device, multiprocessors: int = 132) -> None:
        super().__init__(device)
        self.multiprocessors = multiprocessors

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """Tiles for convolutions whose groups have one channel and one filter; none for filters of more than 49 taps."""
        if not _fits(problem):
            return []
        return [tile.name for tile in depthwise_tiles(problem, self.multiprocessors)[:_MAX_TACTICS]]

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Weights as [tap][channel] or as words of four taps, padded with zeros to what a thread reads at once.

        Raises:
            ValueError: there is no such tactic.
        """
        kernel, (k, kind) = self._kernel(problem, tactic), (problem.y.dims[1], problem.x.dtype.numpy)
        padded, (rows, columns) = _pieces(problem) * _lanes(problem), problem.kernel
        if _is_packed(problem):
            columns, form = 4 * _words(problem), "row word c tap"
        else:
            form = "tap c"

        def packed() -> npt.NDArray[Any]:
            room = [(0, padded - k), (0, 0), (0, columns - problem.kernel[1])]
            taps = np.pad(operands.weights.reshape(k, *problem.kernel), room).astype(kind)
            if _is_packed(problem):
                return np.ascontiguousarray(taps.reshape(padded, rows, -1, 4).transpose(1, 2, 0, 3))
            return to_stored(np.ascontiguousarray(taps.reshape(padded, -1).T))

        size = rows * columns * padded * kind.itemsize
        weights = operands.on_device(self.device, (form, padded, kind), size, packed)
        return fixed_launch(self.device, kernel, problem, weights, operands)

    @override
    def _kernel(self, problem: ConvProblem, tactic: str) -> GeneratedKernel:
        tile = DepthwiseTile.parse(tactic)
        if not _fits(problem) or tile not in depthwise_tiles(problem, self.multiprocessors):
            raise ValueError(f"kernels of {self.name!r} do not have the tactic {tactic!r}")
        blocks = -(-tile.items(problem) // tile.threads)
        return fixed_kernel(self.device, "depthwise", problem, _numbers(problem, tile), blocks, tile.threads)


def depthwise_tiles(problem: ConvProblem, multiprocessors: int) -> list[DepthwiseTile]:
    """Tiles for a problem, the most promising first.

    Args:
        problem: A depthwise convolution.
        multiprocessors: Of the GPU.
    """
    (_, _, *sides), dilations, rows = problem.y.dims, problem.dilations, problem.kernel[0]
    down, across = (-(-side // apart) for side, apart in zip(sides, dilations, strict=True))  # that a tile can have
    found = [
        DepthwiseTile(h, w, threads)
        for h, w in _SHAPES
        if h < 2 * down and w < 2 * across
        for threads in (64, 128, 256)
    ]
    if 1 < rows <= 7:
        sliced = [(w, share) for w in (1, 2) for share in (32, 64) if w < 2 * across]
        found += [DepthwiseTile(1, w, share * rows, rows) for w, share in sliced]

    def cost(tile: DepthwiseTile) -> tuple[float, int]:
        """A rough model: what the busiest multiprocessor does, or as long as one thread needs; then how blocks spread."""
        items, wanted = tile.items(problem), multiprocessors * _WARM
        filled = 64 if items < wanted else 128
        return _work(problem, tile) * max(items, wanted), abs(tile.threads - filled)

    return sorted(found, key=cost)


def _work(problem: ConvProblem, tile: DepthwiseTile) -> float:
    """Instructions of a thread, about."""
    (r, s), (down, across) = problem.kernel, problem.strides
    loads = ((tile.h - 1) * down + r) * ((tile.w - 1) * across + s) + r * s * tile.h
    pixels, lanes, products = tile.h * tile.w, _lanes(problem), r * s
    if _is_packed(problem):
        products = 2 * r * _words(problem)
    shared = lanes * (products * pixels + loads) + 4 * loads
    return shared / tile.slices + lanes * 8 * pixels + 60 + (40 if tile.slices > 1 else 0)


def _tiles(side: int, tile: int, apart: int) -> int:
    """Tiles along an axis of y, whose pixels are so far apart."""
    return -(-side // (tile * apart)) * apart


def _is_packed(problem: ConvProblem) -> bool:
    """Whether four taps of a filter's row are one word, which an instruction multiplies with four columns."""
    return problem.x.dtype is DType.INT8


def _words(problem: ConvProblem) -> int:
    """The number of 32-bit words of a filter's row of packed taps."""
    return -(-problem.kernel[1] // 4)


def _lanes(problem: ConvProblem) -> int:
    """Channels of a thread."""
    return min(_MAX_LANES, problem.x.vector)


def _pieces(problem: ConvProblem) -> int:
    """Threads that share a pixel of y, its padding included."""
    return -(-problem.filters // _lanes(problem))


def _fits(problem: ConvProblem) -> bool:
    depthwise = problem.groups == problem.x.dims[1] == problem.y.dims[1] and math.prod(problem.kernel) <= _MAX_TAPS
    return depthwise and has_kinds(problem) and not problem.fused and problem.x.pitch % problem.x.vector == 0


def _numbers(problem: ConvProblem, tile: DepthwiseTile) -> dict[str, int]:
    """The constants of depthwise.cu."""
    (n, _, h, w), (_, _, oh, ow) = problem.x.dims, problem.y.dims
    return {
        "N": n, "H": h, "W": w, "OH": oh, "OW": ow, "LANES": _lanes(problem),
        "KERNEL_H": problem.kernel[0], "KERNEL_W": problem.kernel[1], "PAD_H": problem.pads[0], "PAD_W": problem.pads[1],
        "STRIDE_H": problem.strides[0], "STRIDE_W": problem.strides[1], "DILATION_H": problem.dilations[0],
        "DILATION_W": problem.dilations[1], "TILE_H": tile.h, "TILE_W": tile.w, "THREADS": tile.threads, "SLICES": tile.slices,
        "PACKED": int(_is_packed(problem)),
    }  # fmt: skip
