"""Tactics: the tile sizes for which a convolution kernel can be compiled; timing chooses one."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace

from ....tensor import DType
from ..device.layout import FP8, KIND
from .shape import ConvShape

__all__ = [
    "FP8_CAPABILITY",
    "SHARED_BYTES",
    "Tactic",
    "forms",
    "im2col_corners",
    "mma_tactics",
    "simt_tactics",
    "unit_depth",
]

SHARED_BYTES = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
"""KiB of shared memory that a block may have, by compute capability; 99 where not listed."""
FP8_CAPABILITY = 89
"""Compute capability with which arithmetic in FP8 begins: Ada's."""
_NAME = re.compile(r"m(\d+)n(\d+)k(\d+)u(\d+)s(\d+)x(\d+)(p?)(l?)")


@dataclass(frozen=True)
class Tactic:
    """The tile sizes of a convolution kernel.

    Attributes:
        family: ``"hopper"``, ``"halo"``, ``"mma"`` or ``"simt"``.
        tile_m: Pixels of a tile.
        tile_n: Filters of a tile.
        depth: Bytes of channels in a unit: 32, 64 or 128.
        units: Units in a stage, for ``"halo"`` taps; for ``"simt"`` the groups of warps that share out a unit's pieces.
        stages: Stages of the ring.
        split_k: Blocks that share a tile's sum, each a part of K.
        spatial_tile: Whether a tile's pixels are a patch of 8 columns rather than successive ones.
        persistent: Whether a block computes one tile after the other; ``"halo"`` only.
    """

    family: str
    tile_m: int
    tile_n: int
    depth: int
    units: int = 1
    stages: int = 4
    split_k: int = 1
    spatial_tile: bool = False
    persistent: bool = False

    @property
    def name(self) -> str:
        """The name of the tactic: ``"m128n64k128u1s4x1p"``."""
        sizes = f"m{self.tile_m}n{self.tile_n}k{self.depth}u{self.units}s{self.stages}x{self.split_k}"
        return sizes + "p" * self.spatial_tile + "l" * self.persistent

    @classmethod
    def parse(cls, family: str, name: str) -> Tactic:
        """The tactic of a name.

        Raises:
            ValueError: it is none.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is not a tactic of {family!r}")
        m, n, depth, units, stages, split = (int(group) for group in match.groups()[:6])
        return cls(family, m, n, depth, units, stages, split, bool(match[7]), bool(match[8]))

    @property
    def warps(self) -> tuple[int, int]:
        """How many warps divide the tile's pixels and its filters among them; ``"mma"`` only."""
        return (self.tile_m // 32, 2) if self.tile_n >= 64 else (self.tile_m // 32, 1)

    @property
    def columns(self) -> int:
        """Filters that one warp, or one group of four, computes: weights are permuted within them, but for ``"simt"``."""
        return self.tile_n // self.warps[1] if self.family == "mma" else self.tile_n

    @property
    def thread_m(self) -> int:
        """Pixels that a thread multiplies; ``"simt"`` only."""
        return self.tile_m // 8 if self.tile_m < 128 else 8

    @property
    def threads(self) -> int:
        """Threads of a block."""
        if self.family == "simt":
            return self.tile_m // self.thread_m * self.tile_n // _THREAD_N * self.units
        return self.warps[0] * self.warps[1] * 32 if self.family == "mma" else self.tile_m * 2 + 32

    def blocks(self, shape: ConvShape, multiprocessors: int) -> int:
        """Blocks of a launch; where each computes several tiles, as many as are there at a time, for each tile of filters."""
        rows, columns = self.tiles(shape)
        if self.persistent:
            rows = min(rows, max(1, multiprocessors * self.resident_blocks(shape) // columns))
        return rows * columns * self.split_k

    def halo(self, shape: ConvShape) -> tuple[int, int]:
        """Lines and pixels of a line that are fetched for a tile; ``"halo"`` only.

        Without a patch a line has zeros on one side only: those of the other side are the next line's.
        """
        height, width = shape.kernel
        if self.spatial_tile:
            return self.tile_m // 8 + height - 1, 8 + width - 1
        pitch = shape.w + width // 2
        return min(-(-self._pixels_of_halo(shape) // pitch), shape.oh + height), pitch

    def _pixels_of_halo(self, shape: ConvShape) -> int:
        """Pixels of lines that a tile's taps read, where it is no patch: behind the image they are anything, for no pixel of y."""
        (height, width), pitch = shape.kernel, shape.w + shape.kernel[1] // 2
        alone = self._lines_of_pixels(shape) <= self.tile_m
        begin = 0 if alone else pitch - math.gcd(pitch, self.tile_m)  # the last column that a tile may begin in
        return begin + self.tile_m + (height - 1) * pitch + width - 1

    def halos(self, shape: ConvShape) -> int:
        """Halos in memory: one where no block needs a second; ``"halo"`` only."""
        if self.persistent:
            return 2
        steps, taps = self.steps(shape) // self.units, shape.taps // self.units
        ends = [steps * part // self.split_k for part in range(self.split_k + 1)]
        return 1 if all((end - 1) // taps == begin // taps for begin, end in itertools.pairwise(ends)) else 2

    def _lines_of_pixels(self, shape: ConvShape) -> int:
        """Pixels of an image whose lines have zeros on one side, up to its last one."""
        return (shape.oh - 1) * (shape.w + shape.kernel[1] // 2) + shape.ow

    def shared_bytes(self, shape: ConvShape) -> int:
        """Dynamic shared memory: the ring, and what is exchanged between blocks that share a sum; 1 KiB to align it."""
        if self.family == "simt":
            step = self.threads * 16 // self.depth  # rows that are copied at a time
            ring = self.stages * (-(-self.tile_m // step) * step + self.tile_n) * self.depth
            return max(ring, self.tile_m * self.tile_n * 4 * self.units if self.split_k * self.units > 1 else 0)
        ring = self.stages * self.units * (self.tile_m + self.tile_n) * self.depth
        if self.family == "halo":
            lines, pitch = self.halo(shape)
            before = (self.halos(shape) - 1) * _rounded(lines * pitch * self.depth)
            read = 0 if self.spatial_tile else self._pixels_of_halo(shape) * self.depth
            ring = self.stages * self.units * self.tile_n * self.depth
            ring = before + max(read, ring + _rounded(lines * pitch * self.depth))
        items = self.tile_m * self.tile_n // 8
        exchange = self.split_k * -(-items // self.split_k) * 32 if self.split_k > 1 else 0
        return ring + exchange + 1024

    def tiles(self, shape: ConvShape) -> tuple[int, int]:
        """How many tiles cover the pixels and the filters."""
        rows = -(-shape.pixels // self.tile_m)
        if self.spatial_tile:
            rows = shape.n * -(-shape.oh // (self.tile_m // 8)) * -(-shape.ow // 8)
        elif self.family == "halo":
            rows = shape.n * -(-self._lines_of_pixels(shape) // self.tile_m)
        return rows, -(-shape.k // self.tile_n)

    def chunks(self, shape: ConvShape) -> int:
        """The number of units of a tap; ``"simt"`` counts all taps as one."""
        return -(-shape.window_bytes(self.tile_n) * self.merged(shape) // self.depth)

    def merged(self, shape: ConvShape) -> int:
        """Taps whose channels follow each other without gaps."""
        return shape.taps if self.family == "simt" else 1

    def steps(self, shape: ConvShape) -> int:
        """The number of units (K steps) of the whole sum."""
        return shape.taps // self.merged(shape) * self.chunks(shape)

    def definitions(self, shape: ConvShape) -> dict[str, int]:
        """What the kernel is compiled with."""
        common = {
            "ELEMENT": KIND[shape.x_type],
            "OUT": KIND[shape.y_type],
            "RESIDUAL": -1 if shape.residual_type is None else KIND[shape.residual_type],
            "PATCH": int(self.spatial_tile),
            "POOL": int(shape.pool),
            "REORG": shape.reorg,
            "BLOCKS": shape.blocks,
            "CUT": int(any(shape.cut)),
            "LINEAR": int(shape.linear),
            "GATE": shape.gate,
            "RESIDUAL_GATE": shape.residual_gate,
            "GROUPED": int(shape.group_filters > 0),
            "HALO": int(self.family == "halo"),
            "TILE_M": self.tile_m,
            "TILE_N": self.tile_n,
            "DEPTH": self.depth,
            "STAGES": self.stages,
        }
        if self.family == "mma":
            return {**common, "WARPS_M": self.warps[0], "WARPS_N": self.warps[1]}
        if self.family == "simt":
            sizes = {"THREAD_M": self.thread_m, "THREAD_N": _THREAD_N, "SLICES": self.units, "SPLIT": self.split_k}
            return {**common, **sizes, "MIN_BLOCKS": self.resident, "PLANES": shape.planes}
        return {
            **common,
            **(self._of_halos(shape) if self.family == "halo" else {}),
            "WARPGROUPS": self.tile_m // 64,
            "UNITS": self.units,
            "TOTALS": self.total_every(shape),
            "SPLIT": self.split_k,
            "MIN_BLOCKS": self.resident_blocks(shape),
        }

    def _of_halos(self, shape: ConvShape) -> dict[str, int]:
        return {"HALOS": self.halos(shape), "LOOP": int(self.persistent), "KEEP": int(self.keeps_weights(shape))}

    def keeps_weights(self, shape: ConvShape) -> bool:
        """Whether a block's weights come once for all of its tiles."""
        return self.persistent and self.steps(shape) <= self.stages * self.units

    def resident_blocks(self, shape: ConvShape) -> int:
        """Blocks that share a multiprocessor, as shared memory and registers allow: a thread has TILE_N / 2 sums, or totals too."""
        room = 227 * 1024 // (self.shared_bytes(shape) + shape.filter_bytes * self.tile_n + 1024 + 16 * self.stages)
        sums = self.tile_n if self.total_every(shape) else self.tile_n // 2
        return max(1, min(room, _REGISTERS // (self.threads * (sums + _BESIDE_SUMS))))

    def total_every(self, shape: ConvShape) -> int:
        """After how many products of FP8 a block adds its sums to totals in float32; 0: never. For Hopper's families."""
        longest, every = _LONG_SUM if shape.y_type is FP8 else _LONG_SUM_OF_FLOATS
        is_long = shape.x_type is FP8 and self.steps(shape) * self.depth > longest * self.split_k
        return every if is_long else 0

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor's registers are meant for: more of them than needed make better code; ``"simt"`` only."""
        return {4: 512, 8: 384, 11: 256}[self.thread_m] // self.threads


_REGISTERS, _BESIDE_SUMS = 65536, 40
"""Registers of a multiprocessor, and those of a thread beside its sums."""
_LONG_SUM, _LONG_SUM_OF_FLOATS = (2304, 2048), (512, 512)
"""Products of FP8 whose sum the matrix units keep well enough, and after how many a longer one is added to totals: of results in
FP8, and of those in wider types, which show what is lost sooner."""


def _rounded(count: int) -> int:
    return -(-count // 1024) * 1024


def unit_depth(shape: ConvShape, tile_n: int) -> int:
    """Bytes of channels in a unit that waste least, as many as that leaves."""
    window = shape.window_bytes(tile_n)
    return next((depth for depth in (128, 64, 32) if window % depth == 0), 64 if window > 32 else 32)


def im2col_corners(shape: ConvShape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where a filter's first tap goes: from which column and row, and to which, counted from x's last pixel."""
    lower = -shape.pads[1], -shape.pads[0]
    upper = (
        (shape.ow - 1) * shape.strides[1] + lower[0] - (shape.w - 1),
        (shape.oh - 1) * shape.strides[0] + lower[1] - (shape.h - 1),
    )
    return lower, upper


def forms(shape: ConvShape) -> list[bool]:
    """Whether the copy engine is to try successive pixels, patches, both or neither.

    Successive pixels come by an im2col tensor map, whose strides go up to 8 and whose corners and taps have 8 bits each.
    """
    if shape.pool:
        return [True]
    reach = max((side - 1) * step for side, step in zip(shape.kernel, shape.dilations, strict=True))
    corners = [place for corner in im2col_corners(shape) for place in corner]
    pixels = max(shape.strides) <= 8 and reach < 256 and min(corners) >= -128 and max(corners) < 128
    patches = shape.strides == (1, 1) and shape.oh % 8 == 0 and shape.ow % 8 == 0
    return [False] * pixels + [True] * patches


def mma_tactics(shape: ConvShape, capability: int = 80, max_tactics: int = 12) -> list[Tactic]:
    """Tactics of ``conv_mma.cu`` for a problem, the most promising first.

    Args:
        shape: The problem.
        capability: Compute capability, 86 for 8.6.
        max_tactics: How many at most.
    """
    unfit = (
        shape.unsupported()
        or capability < (FP8_CAPABILITY if FP8 in (shape.x_type, shape.y_type) else 80)
        or (shape.pool and shape.strides != (1, 1))
    )
    if unfit or shape.x_type is DType.FLOAT32:
        return []
    room = SHARED_BYTES.get(capability, 99) * 1024
    found = []
    for patch, (tile_m, tile_n), stages in itertools.product(forms(shape)[-1:] or [False], _MMA_TILES, (2, 3, 4)):
        widest = unit_depth(shape, tile_n)
        for depth in {widest, min(64, widest)}:
            tactic = Tactic("mma", tile_m, tile_n, depth, 1, stages, 1, patch)
            fits = tactic.shared_bytes(shape) + shape.filter_bytes * tile_n <= room and (
                tile_n <= 32 or tile_n < 2 * shape.k
            )
            even = tile_m % (tactic.threads * 16 // depth) == 0 and tile_n * depth // 16 % tactic.threads == 0
            if fits and even:
                found.append(tactic)
    found.sort(key=lambda tactic: (_mma_cost(tactic, shape), tactic.name))
    return found[:max_tactics]


_MMA_TILES = [(64, 32), (64, 64), (128, 32), (128, 64), (128, 128), (256, 64)]


def _mma_cost(tactic: Tactic, shape: ConvShape) -> float:
    tiles_m, tiles_n = tactic.tiles(shape)
    waves = -(-tiles_m * tiles_n // 160)
    work = (tactic.tile_m * tactic.tile_n / 60.0 + tactic.tile_m + tactic.tile_n) * tactic.steps(shape) * tactic.depth
    return waves * work * (1.0 + 0.4 / tactic.stages) * (1.0 if tactic.depth == 128 else 1.1)


def simt_tactics(
    shape: ConvShape, capability: int = 90, multiprocessors: int = 132, max_tactics: int = 12
) -> list[Tactic]:
    """Tactics of ``conv_simt.cu`` for a problem, the most promising first.

    Args:
        shape: The problem.
        capability: Compute capability, 86 for 8.6; clusters, which split K, begin with 90.
        multiprocessors: Of the GPU.
        max_tactics: How many at most.
    """
    large = max(shape.kernel) > _MAX_TAPS or shape.n * shape.h * shape.w * max(shape.x_pitch, shape.planes) >= 2**30
    if shape.unsupported() or shape.x_type is not DType.FLOAT32 or capability < 80 or large:
        return []
    room = SHARED_BYTES.get(capability, 99) * 1024
    found = []
    depth = 64 if shape.taps * shape.channel_bytes >= 512 else 32
    for (tile_m, tile_n, slices), split in itertools.product(
        _SIMT_TILES, (1, 2, 3, 4, 6, 8) if capability >= 90 else (1,)
    ):
        sizes = Tactic("simt", tile_m, tile_n, depth, slices, 2, split)
        steps = sizes.steps(shape)
        uneven = slices * 16 > depth or (shape.pool and sizes.thread_m % 4)
        if uneven or (tile_n > 32 and tile_n >= 2 * shape.k) or (split > 1 and steps < 8 * split):
            continue
        rings = [replace(sizes, stages=stages) for stages in (2, 3, 4) if stages <= max(2, steps)]
        found += [ring for ring in rings if ring.shared_bytes(shape) + shape.filter_bytes * tile_n + 1024 <= room][-1:]
    found.sort(key=lambda tactic: _simt_cost(tactic, shape, multiprocessors))
    return found[:max_tactics]


_THREAD_N, _MAX_TAPS = 8, 12
"""Filters that a thread multiplies; the largest side of filters whose taps' bits ``conv_simt.cu`` has room for."""
_SIMT_TILES = [
    *[
        (128, 64, 1),
        (64, 128, 1),
        (64, 64, 2),
        (64, 32, 4),
        (128, 32, 2),
        (256, 32, 1),
        (88, 128, 1),
        (88, 64, 2),
        (88, 32, 4),
    ],
    *[(32, 128, 1), (32, 64, 2), (32, 32, 4)],
]
"""Pixels, filters, and groups of warps that share K."""


def _simt_cost(tactic: Tactic, shape: ConvShape, multiprocessors: int) -> float:
    """A rough model of the time: a multiprocessor's multiply-adds and how many warps hide their waits, or what is fetched."""
    rows, columns = tactic.tiles(shape)
    blocks, units = rows * columns * tactic.split_k, -(-tactic.steps(shape) // tactic.split_k)
    each = -(-blocks // multiprocessors)
    warps = min(each, tactic.resident) * tactic.threads // 32
    share = {4: 0.7, 8: 0.8, 11: 0.85}[tactic.thread_m] * warps / (warps + 3.0)
    work = units * tactic.depth / 4 * tactic.tile_m * tactic.tile_n / 128 / share
    finish = tactic.tile_m * tactic.tile_n * (1.0 if tactic.split_k * tactic.units > 1 else 0.3)
    fetched = blocks * units * (tactic.tile_m + tactic.tile_n) * tactic.depth / 2048.0
    return max(each * (work + finish), fetched) + 2000.0 * -(-each // tactic.resident)
