"""Hopper's tactics: halos, blocks that compute several tiles, weights that stay, totals; no GPU is needed to say which there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from pytrtplugins.engines.cuda.conv.hopper import _with_stages, halo_tactics, hopper_tactics
from pytrtplugins.engines.cuda.conv.launcher import Addresses, conv_arguments
from pytrtplugins.engines.cuda.conv.tactics import Tactic
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, SINGLE, square


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": (1, 1), "pads": (0, 0)},
        {"kernel": (2, 2)},
        {"strides": (2, 2), "oh": 8, "ow": 8},
        {"dilations": (2, 2), "pads": (2, 2)},
        {"pads": (0, 0), "oh": 14, "ow": 14},
        {"pads": (2, 2), "oh": 18, "ow": 18},
        {"kernel": (11, 11), "pads": (5, 5)},
        {"w": 300, "ow": 300},
    ],
)
def test_halos_are_for_centred_filters_of_several_taps(change):
    shape = square(1, 16, 64, 64, 3, HALF)
    assert halo_tactics(shape)
    assert halo_tactics(replace(shape, **change)) == []


@pytest.mark.parametrize(("w", "offered"), [(239, True), (240, True), (241, False)])
def test_lines_of_a_halo_have_240_pixels_at_most(w, offered):
    assert bool(halo_tactics(replace(square(1, 16, 64, 64, 3, HALF), w=w, ow=w))) is offered


def test_lines_of_a_halo_share_their_zeros_and_patches_have_their_own():
    shape, tactic = square(1, 13, 64, 64, 3, HALF), Tactic("halo", 192, 64, 128)
    assert tactic.halo(shape) == (16, 14)  # 13 lines, one above, one below and the zero behind the last
    assert tactic.tiles(shape) == (1, 1)
    assert replace(tactic, spatial_tile=True).halo(shape) == (26, 10)
    wide, small = square(1, 104, 64, 64, 3, HALF), Tactic("halo", 64, 64, 128)
    assert small.halo(wide) == (4, 105)  # a tile begins anywhere in a line
    numbers = conv_arguments(shape, tactic, Addresses(16, 32, 48, 64, 80), 1.0, 1.0)
    assert (numbers.halo_lines, numbers.halo_pitch, numbers.patches_h) == (16, 14, 1)
    assert conv_arguments(wide, small, Addresses(16, 32, 48, 64, 80), 1.0, 1.0).patches_h == small.tiles(wide)[0]


def test_a_second_halo_is_in_memory_where_a_block_needs_it():
    shape = square(1, 13, 512, 64, 3, HALF)  # 8 runs of channels of 9 taps
    alone, shared = Tactic("halo", 192, 64, 128, split_k=8), Tactic("halo", 192, 64, 128, split_k=5)
    assert (alone.halos(shape), shared.halos(shape), replace(alone, split_k=1).halos(shape)) == (1, 2, 2)
    assert replace(alone, units=3).halos(shape) == 1
    assert alone.shared_bytes(shape) < replace(alone, split_k=4).shared_bytes(shape)
    assert alone.definitions(shape)["HALOS"] == 1


def test_blocks_share_a_multiprocessor_as_memory_and_registers_allow():
    shape = square(1, 208, 32, 64, 3, HALF, pool=True)
    small, large = Tactic("halo", 64, 64, 64, 3, 3, 1, True), Tactic("hopper", 128, 256, 128, 1, 4)
    assert small.resident_blocks(shape) == 4  # of 48 KiB
    assert replace(small, stages=2).resident_blocks(shape) == 5  # of 160 threads with 72 registers
    assert large.resident_blocks(square(1, 26, 256, 512, 3, HALF)) == 1


def test_a_block_computes_several_tiles_where_there_are_more_than_multiprocessors():
    few, many = square(1, 13, 512, 1024, 3, HALF), square(32, 104, 64, 128, 3, HALF)
    assert not [tactic for tactic in halo_tactics(few, max_tactics=1000) if tactic.persistent]
    loops = [tactic for tactic in halo_tactics(many, max_tactics=1000) if tactic.persistent]
    assert loops
    for tactic in loops:
        rows, columns = tactic.tiles(many)
        blocks = tactic.blocks(many, 132)
        assert blocks % columns == 0
        assert blocks <= max(132 * tactic.resident_blocks(many), columns)
        assert tactic.halos(many) == 2
        assert replace(tactic, persistent=False).blocks(many, 132) == rows * columns
    assert loops[0].blocks(many, 1) == loops[0].tiles(many)[1]  # each tile of filters has a block


def test_weights_stay_where_the_ring_has_room_for_all_of_them():
    shape = square(32, 208, 32, 64, 3, HALF, pool=True)
    tactic = Tactic("halo", 128, 64, 64, 3, 3, 1, True, True)
    assert tactic.name == "m128n64k64u3s3x1pl"
    assert tactic.keeps_weights(shape)
    assert not replace(tactic, persistent=False).keeps_weights(shape)
    assert not replace(tactic, stages=2).keeps_weights(shape)
    assert [tactic.definitions(shape)[name] for name in ("HALOS", "LOOP", "KEEP")] == [2, 1, 1]


@pytest.mark.parametrize("side", [3, 5, 9, 13, 26])
def test_what_taps_read_behind_a_small_image_is_shared_memory_too(side):
    for tactic in halo_tactics(square(2, side, 64, 64, 3, HALF), max_tactics=1000):
        shape = square(2, side, 64, 64, 3, HALF)
        (lines, pitch), rows = tactic.halo(shape), tactic.tile_m
        starts = [0] if tactic.spatial_tile else [first % pitch for first in range(0, side * pitch, rows)]
        reach = rows // 8 * pitch - pitch + 7 if tactic.spatial_tile else max(starts) + rows - 1
        last_halo = (tactic.halos(shape) - 1) * -(-lines * pitch * tactic.depth // 1024) * 1024
        assert last_halo + (reach + 2 * pitch + 3) * tactic.depth <= tactic.shared_bytes(shape) - 1024


@pytest.mark.parametrize(
    ("y_type", "channels", "split", "every"),
    [
        (FP8, 1024, 1, 2048),
        (FP8, 256, 1, 0),
        (FP8, 1024, 4, 0),
        (HALF, 256, 1, 512),
        (HALF, 256, 5, 0),
        (SINGLE, 64, 1, 512),
    ],
)
def test_long_sums_of_fp8_have_totals(y_type, channels, split, every):
    shape = replace(square(8, 13, channels, 64, 3, FP8), y_type=y_type)
    tactic = Tactic("hopper", 64, 64, 128, 1, 4, split)
    assert tactic.total_every(shape) == tactic.definitions(shape)["TOTALS"] == every
    without = replace(shape, x_type=INT8)
    assert tactic.total_every(without) == 0
    assert tactic.resident_blocks(shape) <= tactic.resident_blocks(without)


@pytest.mark.parametrize(("more", "stages"), [(0, [2, 3, 4, 6]), (1, [2, 3, 4])])
def test_rings_are_as_deep_as_four_three_two_or_one_block_of_a_multiprocessor_let_them(more, stages):
    """Of the 227 KiB that blocks have on a Hopper, each takes 1 KiB of the system's besides."""

    @dataclass(frozen=True)
    class Ring:
        stages: int
        tile_n: int = 8

        def shared_bytes(self, shape):
            limits = {2: 56, 3: 75, 4: 113, 6: 227}
            return 1024 * limits.get(self.stages, 228) - 16 * self.stages - 8 * shape.filter_bytes - 32 + more

    found = _with_stages(Ring(1), 8, SimpleNamespace(filter_bytes=4))
    assert [ring.stages for ring in found] == stages


@pytest.mark.parametrize("offered", [halo_tactics, hopper_tactics])
def test_sums_are_split_only_where_multiprocessors_have_no_block(offered):
    shape = square(1, 13, 512, 1024, 3, HALF)
    tiles = {rows * columns for tactic in offered(shape, max_tactics=1000) for rows, columns in [tactic.tiles(shape)]}
    for count in tiles:
        split = [tactic for tactic in offered(shape, count, max_tactics=1000) if tactic.split_k > 1]
        assert all(rows * columns < count for tactic in split for rows, columns in [tactic.tiles(shape)])
    assert len(tiles) > 1
