"""Packed weights, retold from the CUDA sources in plain Python: what kernels read gives the convolution."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.conv import handwritten
from pytrtplugins.engines.cuda.conv.handwritten import HandwrittenProvider
from pytrtplugins.engines.cuda.conv.hopper import halo_tactics
from pytrtplugins.engines.cuda.conv.packing import filter_order, pack_filters, swizzled
from pytrtplugins.engines.cuda.conv.problem import ConvProblem, Operands, Scratch
from pytrtplugins.engines.cuda.conv.tactics import Tactic, simt_tactics
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.engines.cuda.operators import OPS
from pytrtplugins.layers import Reorg
from tests.engines.cuda.conv.shapes import (
    GROUPED,
    HALF,
    INT8,
    ODD,
    SINGLES,
    between,
    convolution,
    grouped,
    packed_weights,
    random_problem,
    square,
    tactics_of,
)


def swizzle(offset, depth):
    """common.cu's, in whole numbers: pieces of 16 bytes change places by the number of their 128 bytes."""
    block, piece = offset // 128, offset // 16
    other = piece - piece % (depth // 16) + (piece % (depth // 16) ^ block % (depth // 16))
    return 16 * other + offset % 16


def as_the_kernels_do(shape, tactic, x, packed):
    """Sums (pixels, filters) from packed weights: unit by unit, thread by thread, as conv_mma.cu and conv_hopper.cu."""
    kind, columns = np.dtype(shape.x_type.numpy), tactic.columns
    tiles, chunks, values = tactic.tiles(shape)[1], tactic.chunks(shape), tactic.depth // kind.itemsize
    places = [swizzle(offset, tactic.depth) for offset in range(tactic.tile_n * tactic.depth)]
    blocks = packed.reshape(tiles, shape.taps * chunks, -1)[:, :, places]
    blocks = np.ascontiguousarray(blocks).view(kind).reshape(tiles, shape.taps * chunks, tactic.tile_n, values)
    channels = np.zeros((shape.n, shape.h, shape.w, shape.c + chunks * values))  # behind x's copies bring zeros
    channels[..., : shape.c] = x
    group = shape.group_filters
    firsts = [  # first_byte of common.cu
        (tile * tactic.tile_n // group * shape.group_channels * kind.itemsize & ~15) // kind.itemsize if group else 0
        for tile in range(tiles)
    ]
    pixel = np.arange(shape.pixels)
    image, row, column = pixel // (shape.oh * shape.ow), pixel // shape.ow % shape.oh, pixel % shape.ow
    sums = np.zeros((shape.pixels, tiles * tactic.tile_n))
    r = s = chunk = 0
    for unit in range(shape.taps * chunks):
        y = row * shape.strides[0] - shape.pads[0] + r * shape.dilations[0]
        z = column * shape.strides[1] - shape.pads[1] + s * shape.dilations[1]
        inside = (y >= 0) & (y < shape.h) & (z >= 0) & (z < shape.w)
        pixels = channels[image, y.clip(0, shape.h - 1), z.clip(0, shape.w - 1)] * inside[:, None]
        for tile, first in enumerate(firsts):
            piece = pixels[:, first + chunk * values : first + (chunk + 1) * values]
            sums[:, tile * tactic.tile_n : (tile + 1) * tactic.tile_n] += piece @ blocks[tile, unit].T.astype(
                np.float64
            )
        chunk += 1
        if chunk == chunks:
            chunk, s = 0, s + 1
            if s == shape.kernel[1]:
                s, r = 0, r + 1
    written = np.full((shape.pixels, shape.k), np.nan)
    run = min(columns // 4, 16 // kind.itemsize)
    for begin in range(0, tiles * tactic.tile_n, columns):
        for first in range(0, columns // 4, run):
            for quarter in range(4):
                for i in range(run):
                    block, odd, at = (first + i) // 2, i & 1, first * 4 + quarter * run
                    if begin + at + i < shape.k:
                        written[:, begin + at + i] = sums[:, begin + 8 * block + 2 * quarter + odd]
    return written


@pytest.mark.parametrize("family", ["hopper", "mma"])
@pytest.mark.parametrize("shape", ODD + GROUPED, ids=lambda shape: f"{shape.x_type}-{shape.kernel}-{shape.c}-{shape.k}")
def test_packed_weights_give_the_convolution(shape, family):
    found = tactics_of(family, shape, 40, 89)
    x, weights = random_problem(shape)
    expected = convolution(shape, x, weights)
    forms = {(tactic.tile_n, tactic.depth, tactic.columns): tactic for tactic in found}
    assert forms
    for tactic in forms.values():
        packed = packed_weights(shape, tactic, weights)
        np.testing.assert_array_equal(as_the_kernels_do(shape, tactic, x, packed), expected, tactic.name)


def as_conv_halo_does(shape, tactic, x, packed):
    """Sums (pixels, filters) from packed weights, tile by tile: each tap takes rows of the tile's halo."""
    kind, columns = np.dtype(shape.x_type.numpy), tactic.columns
    (tiles_m, tiles_n), chunks, values = tactic.tiles(shape), tactic.chunks(shape), tactic.depth // kind.itemsize
    (lines, pitch), width, (above, before) = tactic.halo(shape), shape.kernel[1], shape.pads
    places = [swizzle(offset, tactic.depth) for offset in range(tactic.tile_n * tactic.depth)]
    blocks = np.ascontiguousarray(packed.reshape(tiles_n * chunks * shape.taps, -1)[:, places]).view(kind)
    blocks = blocks.reshape(tiles_n, chunks, shape.taps, tactic.tile_n, values).astype(np.float64)
    around = np.zeros((shape.n, shape.h + 600, shape.w + 600, shape.c + chunks * values))
    around[:, above : above + shape.h, before : before + shape.w, : shape.c] = x
    written = np.full((shape.pixels, shape.k), np.nan)
    row, each = np.arange(tactic.tile_m), tiles_m // shape.n
    for tile in range(tiles_m):  # Tile of common.cu
        image, first = tile // each, tile % each * tactic.tile_m
        top, left = divmod(first, pitch)
        line, column = divmod(first + row, pitch)
        if tactic.spatial_tile:
            top, left = tile % each // -(-shape.ow // 8) * (tactic.tile_m // 8), tile % each % -(-shape.ow // 8) * 8
            line, column = top + row // 8, left + row % 8
        begin = row // 8 * pitch + row % 8 if tactic.spatial_tile else left + row
        from_column = left if tactic.spatial_tile else 0
        halo = around[image, top : top + lines, from_column : from_column + pitch].reshape(lines * pitch, -1)
        inside = (line < shape.oh) & (column < shape.ow)
        pixel = ((image * shape.oh + line) * shape.ow + column)[inside]
        for tile_n in range(tiles_n):
            group = shape.group_filters
            byte = tile_n * tactic.tile_n // group * shape.group_channels * kind.itemsize & ~15 if group else 0
            sums = np.zeros((len(pixel), tactic.tile_n))
            for chunk, tap in itertools.product(range(chunks), range(shape.taps)):
                rows = begin[inside] + tap // width * pitch + tap % width
                channel = byte // kind.itemsize + chunk * values
                sums += halo[rows][:, channel : channel + values] @ blocks[tile_n, chunk, tap].T
            order = filter_order(columns, kind.itemsize, tactic.tile_n)
            filters = tile_n * tactic.tile_n + order
            written[np.ix_(pixel, filters[filters < shape.k])] = sums[:, filters < shape.k]
    return written


def as_conv_simt_does(shape, tactic, x, packed):
    """Sums (pixels, filters): pieces of 4 channels, of whichever tap; slices and blocks one after the other."""
    columns, pieces = tactic.tiles(shape)[1], tactic.steps(shape) * tactic.depth // 16
    weights = packed.view(np.float32).reshape(columns, pieces, 4, tactic.tile_n).astype(np.float64)
    pixel = np.arange(shape.pixels)
    image, row, column = pixel // (shape.oh * shape.ow), pixel // shape.ow % shape.oh, pixel % shape.ow
    sums = np.zeros((columns, shape.pixels, tactic.tile_n))
    for piece in range(pieces):
        tap, channel = divmod(piece * 16, shape.channel_bytes)
        y = row * shape.strides[0] - shape.pads[0] + tap // shape.kernel[1] * shape.dilations[0]
        z = column * shape.strides[1] - shape.pads[1] + tap % shape.kernel[1] * shape.dilations[1]
        inside = (tap < shape.taps) & (y >= 0) & (y < shape.h) & (z >= 0) & (z < shape.w)
        four = x[image, y.clip(0, shape.h - 1), z.clip(0, shape.w - 1), channel // 4 : channel // 4 + 4]
        sums += (four * inside[:, None]) @ weights[:, piece]
    return sums.transpose(1, 0, 2).reshape(shape.pixels, -1)[:, : shape.k]


HALOS = [
    *(
        square(n, side, 48, 40, kernel, kind)
        for n, side, kernel, kind in [(1, 13, 3, HALF), (2, 26, 3, INT8), (1, 9, 5, HALF)]
    ),
    between((2, 24, 40, 16), (24, 40, 33), 3, HALF, pads=(1, 1)),
    square(1, 16, 160, 24, 3, INT8),
    grouped(1, 17, 6, 24, HALF),
]


@pytest.mark.parametrize(
    "shape", HALOS, ids=lambda shape: f"{shape.x_type}-{shape.h}-{shape.w}-{shape.kernel}-{shape.c}"
)
def test_halos_and_packed_weights_give_the_convolution(shape):
    x, weights = random_problem(shape)
    expected = convolution(shape, x, weights)
    found = halo_tactics(shape, max_tactics=1000)
    forms = {(tactic.tile_m, tactic.tile_n, tactic.depth, tactic.spatial_tile): tactic for tactic in found}
    assert {tactic.spatial_tile for tactic in forms.values()} == ({False, True} if shape.w % 8 == 0 else {False})
    for tactic in forms.values():
        packed = packed_weights(shape, tactic, weights)
        np.testing.assert_array_equal(as_conv_halo_does(shape, tactic, x, packed), expected, tactic.name)


@pytest.mark.parametrize("shape", SINGLES, ids=lambda shape: f"{shape.kernel}-{shape.c}-{shape.k}")
def test_packed_float32_weights_give_the_convolution(shape):
    x, weights = random_problem(shape)
    expected = convolution(shape, x, weights)
    forms = {(tactic.tile_n, tactic.depth): tactic for tactic in simt_tactics(shape, max_tactics=100)}
    assert forms
    for tactic in forms.values():
        packed = packed_weights(shape, tactic, weights)
        assert len(packed) == tactic.tiles(shape)[1] * tactic.tile_n * tactic.steps(shape) * tactic.depth
        np.testing.assert_array_equal(as_conv_simt_does(shape, tactic, x, packed), expected, tactic.name)


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("thread_m", [4, 8])
def test_rows_of_a_float32_tile_are_each_pixel_once_and_a_threads_are_windows(thread_m, pool):
    warp_m = 8 * thread_m
    row = np.arange(2 * warp_m)  # pixel_of of conv_simt.cu
    held = row % warp_m
    pixel = row - held + (held // 32 * 8 + held % 8) * 4 + held // 8 % 4 if pool else row
    np.testing.assert_array_equal(np.sort(pixel), row)
    for thread in range(8):
        windows = pixel[warp_m + thread :: 8].reshape(-1, 4)
        if pool:
            np.testing.assert_array_equal(windows, windows[:, :1] + np.arange(4))
            assert not (windows[:, 0] % 4).any()


@given(st.sampled_from([32, 64, 128, 256]), st.sampled_from([1, 2]), st.integers(1, 3))
def test_filters_are_permuted_within_their_columns(columns, itemsize, tiles):
    order = filter_order(columns, itemsize, tiles * columns)
    np.testing.assert_array_equal(np.sort(order.reshape(tiles, columns)), np.arange(tiles * columns).reshape(tiles, -1))


@given(st.sampled_from([32, 64, 128]), st.sampled_from([8, 16, 64]))
def test_eight_rows_of_a_piece_lie_in_different_banks(depth, rows):
    places = swizzled(depth, rows)
    np.testing.assert_array_equal(places, [swizzle(offset, depth) for offset in range(rows * depth)])
    np.testing.assert_array_equal(np.sort(places), np.arange(rows * depth))
    for piece in range(depth // 16):
        starts = places[np.arange(8) * depth + piece * 16]
        assert len(np.unique(starts % 128)) == 8, "eight pieces of 16 bytes fill the 32 banks"


@pytest.mark.parametrize(("s", "oh", "ow", "k"), [(2, 6, 10, 8), (2, 26, 26, 8), (3, 6, 9, 18), (4, 8, 4, 16)])
def test_reorg_on_the_way_to_memory_is_darknets(s, oh, ow, k):
    images = 2
    y = np.random.default_rng(0).standard_normal((images, k, oh, ow)).astype(np.float32)
    written = np.zeros((images * oh * ow // s**2, k * s**2), np.float32)
    for pixel in range(images * oh * ow):
        for f in range(k):  # reorg_place of common.cu
            plane = oh * ow
            image, rest = pixel // plane, pixel % plane
            row_in, x = rest // ow, rest % ow
            along = row_in % s * ow + x
            j, column = along % s, along // s
            line, small = f % (s * s) * (oh // s) + row_in // s, plane // (s * s)
            i, row = line % s, line // s
            place, quarter = row * ow + column, sum(row * ow + column >= part * small for part in range(1, s * s))
            target = ((i * s + j) * (k // (s * s)) + f // (s * s)) * s * s + quarter
            written[image * small + place - quarter * small, target] = y[image, f, row_in, x]
    expected = Reorg(stride=s).compute(y).transpose(0, 2, 3, 1).reshape(written.shape)
    np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize(("s", "oh", "ow", "k"), [(2, 5, 6, 64), (3, 2, 3, 144)])
@pytest.mark.parametrize("cut", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 1, 0)])
def test_blocks_on_the_way_to_memory_are_those_of_depth_to_space(s, oh, ow, k, cut):
    y, channels = np.random.default_rng(0).standard_normal((2, k, oh, ow)).astype(np.float32), k // s**2
    top, left, bottom, right = cut
    rows, columns = oh * s - top - bottom, ow * s - left - right
    written = np.zeros((2 * rows * columns, channels), np.float32)
    for pixel, f in np.ndindex(2 * oh * ow, k):  # block_place of common.cu
        phase, row, column = f // channels, pixel // ow, pixel % ow
        image, to_y, to_x = row // oh, row * s + phase // s, column * s + phase % s - left
        to_y -= image * oh * s + top
        if 0 <= to_y < rows and 0 <= to_x < columns:
            written[(to_y + image * rows) * columns + to_x, f % channels] = y[image, f, row % oh, column]
    expected = OPS["DepthToSpace"](np, {"blocksize": s}, [(2, channels, oh * s, ow * s)], y)
    expected = expected[:, :, top : top + rows, left : left + columns]
    np.testing.assert_array_equal(written, expected.transpose(0, 2, 3, 1).reshape(written.shape))


def test_numbers_of_filters_are_padded_to_tiles():
    shape = square(1, 8, 16, 40, 3, HALF)
    tactic = Tactic("mma", 64, 32, 32)
    padded = pack_filters(np.arange(40, dtype=np.float32), tactic, shape, 1.0)
    np.testing.assert_array_equal(padded, [*range(40), *[0] * 24])
    np.testing.assert_array_equal(pack_filters(None, tactic, shape, 0.5), [0.5] * 64)


def test_slopes_stand_behind_the_biases_of_all_tiles():
    bias, slopes, weights = (np.arange(40, dtype=np.float32) + 100 * index for index in (1, 2, 3))
    ones = np.ones((40, 32, 1, 1), np.float32) * weights[:, None, None, None]
    x, y = channels_last((1, 32, 8, 8), HALF), channels_last((1, 40, 8, 8), INT8)
    problem = ConvProblem(x=x, y=y, kernel=(1, 1), activation="prelu")
    operands = Operands(load=lambda: ones, bias=bias, slopes=slopes, y_scale=0.5)
    provider = HandwrittenProvider(
        SimpleNamespace(capability=90, multiprocessors=132, upload=lambda array: array), "mma"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handwritten, "ConvKernel", lambda *_: None)
        tactic = next(name for name in provider.tactics(problem) if "n32" in name)
        provider.prepare(problem, tactic, operands, Scratch())
    room = [0] * 24
    np.testing.assert_array_equal(operands.packed["bias / y_scale 64"], [*(bias * 2), *room, *slopes, *room])


@pytest.mark.parametrize("slopes", [None, np.zeros(39, np.float32)])
def test_slopes_that_a_file_lacks_are_an_error(slopes):
    x, y = channels_last((1, 32, 8, 8), HALF), channels_last((1, 40, 8, 8), HALF)
    operands = Operands(load=lambda: np.zeros(0), bias=np.zeros(40, np.float32), slopes=slopes)
    with pytest.raises(ValueError, match="slope for each filter"):
        operands.slopes_of(ConvProblem(x=x, y=y, kernel=(1, 1), activation="prelu"))
    assert operands.slopes_of(ConvProblem(x=x, y=y, kernel=(1, 1))) == []
