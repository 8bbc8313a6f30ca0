"""The own convolutions' index arithmetic, retold from the CUDA sources in plain Python and held against the definition."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.conv import stem_kernel
from pytrtplugins.engines.cuda.conv.launcher import Addresses, ConvArgs, conv_arguments
from pytrtplugins.engines.cuda.conv.packing import filter_order, pack_filters, pack_weights, swizzled
from pytrtplugins.engines.cuda.conv.shape import ConvShape
from pytrtplugins.engines.cuda.conv.stem_kernel import StemShape, pack_stem
from pytrtplugins.engines.cuda.conv.tactics import (
    SHARED_BYTES,
    Tactic,
    hopper_tactics,
    mma_tactics,
    simt_tactics,
)
from pytrtplugins.engines.cuda.device import pool_kernel
from pytrtplugins.engines.cuda.device.source import KERNELS, compile_kernel, wgmma_text
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType

HALF, INT8, FP8, SINGLE = DType.FLOAT16, DType.INT8, DType.FLOAT8E4M3FN, DType.FLOAT32
YOLOV2 = [  # side, channels, filters, kernel, pool: what differs among YOLOv2-VOC's convolutions behind the first
    *[(208, 32, 64, 3, True), (104, 64, 128, 3, False), (104, 128, 64, 1, False), (104, 64, 128, 3, True)],
    *[(52, 128, 256, 3, False), (52, 256, 128, 1, False), (52, 128, 256, 3, True), (26, 256, 512, 3, False)],
    *[(26, 512, 256, 1, False), (13, 512, 1024, 3, False), (13, 1024, 512, 1, False), (13, 1024, 1024, 3, False)],
    *[(26, 512, 64, 1, False), (13, 1280, 1024, 3, False), (13, 1024, 125, 1, False)],
]


def between(x, y, kernel, x_type, **more):
    """A convolution from x (N, H, W, C) to y (H, W, K); without gaps unless ``more`` says so."""
    (n, h, w, c), (oh, ow, k) = x, y
    given = {"n": n, "h": h, "w": w, "c": c, "x_pitch": c, "oh": oh, "ow": ow, "k": k, "y_pitch": k, **more}
    return ConvShape(kernel=(kernel, kernel), x_type=x_type, **given)


def square(n, side, c, k, kernel, x_type, **more):
    more = {"pads": (kernel // 2,) * 2, "y_type": x_type, **more}
    return between((n, side, side, c), (side, side, k), kernel, x_type, **more)


ODD = [
    square(2, 5, 16, 40, 3, HALF),
    square(1, 5, 48, 33, 3, INT8),
    square(1, 5, 48, 33, 3, FP8),
    between((2, 7, 9, 40), (4, 5, 24), 3, HALF, strides=(2, 2), pads=(1, 1)),
    between((1, 8, 8, 96), (8, 8, 65), 3, INT8, y_pitch=72, pads=(2, 2), dilations=(2, 2)),
    between((1, 6, 7, 32), (2, 3, 32), 5, HALF, pads=(0, 0)),
]
SINGLES = [
    square(2, 5, 16, 40, 3, SINGLE),
    square(1, 5, 12, 33, 3, SINGLE),
    square(2, 4, 512, 64, 1, SINGLE),
    between((2, 7, 9, 40), (4, 5, 24), 3, SINGLE, x_pitch=44, strides=(2, 2), pads=(1, 1), y_type=SINGLE),
    between((1, 8, 8, 96), (8, 8, 65), 3, SINGLE, y_pitch=72, pads=(2, 2), dilations=(2, 2), y_type=SINGLE),
    between((1, 6, 7, 32), (2, 3, 32), 5, SINGLE, pads=(0, 0), y_type=SINGLE),
]


def tactics_of(family, shape, max_tactics=12, capability=90):
    """A family's tactics."""
    if family == "hopper":
        return hopper_tactics(shape, max_tactics=max_tactics)
    return {"mma": mma_tactics, "simt": simt_tactics}[family](shape, capability, max_tactics=max_tactics)


def convolution(shape, x, weights):
    """Sums by the definition, in float64: (pixels, filters)."""
    (r, s), (dy, dx) = shape.kernel, shape.dilations
    padded = np.zeros((shape.n, shape.h + 512, shape.w + 512, shape.c))
    top, left = shape.pads
    padded[:, top : top + shape.h, left : left + shape.w] = x
    y = np.zeros((shape.n, shape.oh, shape.ow, shape.k))
    for i in range(r):
        for j in range(s):
            rows = np.arange(shape.oh) * shape.strides[0] + i * dy
            columns = np.arange(shape.ow) * shape.strides[1] + j * dx
            y += padded[:, rows][:, :, columns] @ weights[:, :, i, j].T.astype(np.float64)
    return y.reshape(-1, shape.k)


def random_problem(shape, seed=0):
    random = np.random.default_rng(seed)
    dims = (shape.n, shape.h, shape.w, shape.c), (shape.k, shape.c, *shape.kernel)
    x, weights = (random.integers(-8, 8, size).astype(np.float64) for size in dims)
    return x, weights.astype(shape.x_type.numpy)


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
    channels = np.zeros((shape.n, shape.h, shape.w, chunks * values))
    channels[..., : shape.c] = x
    pixel = np.arange(shape.pixels)
    image, row, column = pixel // (shape.oh * shape.ow), pixel // shape.ow % shape.oh, pixel % shape.ow
    sums = np.zeros((shape.pixels, tiles * tactic.tile_n))
    r = s = chunk = 0
    for unit in range(shape.taps * chunks):
        y = row * shape.strides[0] - shape.pads[0] + r * shape.dilations[0]
        z = column * shape.strides[1] - shape.pads[1] + s * shape.dilations[1]
        inside = (y >= 0) & (y < shape.h) & (z >= 0) & (z < shape.w)
        piece = channels[image, y.clip(0, shape.h - 1), z.clip(0, shape.w - 1), chunk * values : (chunk + 1) * values]
        sums += (piece * inside[:, None]) @ blocks[:, unit].reshape(-1, values).T.astype(np.float64)
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
@pytest.mark.parametrize("shape", ODD, ids=lambda shape: f"{shape.x_type}-{shape.kernel}-{shape.c}-{shape.k}")
def test_packed_weights_give_the_convolution(shape, family):
    found = tactics_of(family, shape, 40, 89)
    x, weights = random_problem(shape)
    expected = convolution(shape, x, weights)
    forms = {(tactic.tile_n, tactic.depth, tactic.columns): tactic for tactic in found}
    assert forms
    for tactic in forms.values():
        packed = pack_weights(shape, tactic, weights)
        np.testing.assert_array_equal(as_the_kernels_do(shape, tactic, x, packed), expected, tactic.name)


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


@pytest.mark.parametrize("shape", SINGLES, ids=lambda shape: f"{shape.kernel}-{shape.c}-{shape.k}")
def test_packed_float32_weights_give_the_convolution(shape):
    x, weights = random_problem(shape)
    expected = convolution(shape, x, weights)
    forms = {(tactic.tile_n, tactic.depth): tactic for tactic in simt_tactics(shape, max_tactics=100)}
    assert forms
    for tactic in forms.values():
        packed = pack_weights(shape, tactic, weights)
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


@pytest.mark.parametrize("element", [HALF, INT8, FP8])
def test_the_stems_weights_lie_as_its_threads_read_them(element):
    random = np.random.default_rng(0)
    weights = random.integers(-8, 8, (32, 3, 3, 3)).astype(element.numpy)
    shape = StemShape(
        n=1,
        c=3,
        h=4,
        w=4,
        k=32,
        x_strides=(48, 16, 4, 1),
        x_type=DType.FLOAT32,
        element=element,
        y_pitch=32,
        y_type=element,
    )
    packed = pack_stem(shape, weights)
    for filter_ in range(
        32
    ):  # thread (group, quarter), block: w[block][t] is row 8 * block + group; sums 2 * quarter + i
        quarter, held = filter_ // 8, filter_ % 8
        row = packed[held // 2 * 8 + 2 * quarter + held % 2]
        for tap in range(12):
            expected = [*weights[filter_, :, tap // 3, tap % 3], 0] if tap < 9 else [0] * 4
            np.testing.assert_array_equal(row[tap], expected)


@pytest.mark.parametrize("capability", [80, 86, 90, 120])
@pytest.mark.parametrize("n", [1, 8])
def test_yolov2s_convolutions_have_float32_tactics_that_fit(n, capability):
    for side, c, k, kernel, pool in [(416, 4, 32, 3, True), *YOLOV2]:
        shape = square(n, side, c, k, kernel, SINGLE, pool=pool)
        found = simt_tactics(shape, capability)
        assert found
        for tactic in found:
            assert tactic.shared_bytes + 8 * tactic.tile_n <= SHARED_BYTES[capability] * 1024
            assert tactic.threads == 128
            assert tactic.split == 1 or capability >= 90
            assert not shape.pool or tactic.thread_m % 4 == 0
            assert Tactic.parse("simt", tactic.name) == tactic


@pytest.mark.parametrize("x_type", [HALF, INT8, FP8])
@pytest.mark.parametrize("n", [1, 8, 32])
def test_yolov2s_convolutions_have_tactics_that_fit(x_type, n):
    for side, c, k, kernel, pool in YOLOV2:
        shape = square(n, side, c, k, kernel, x_type, pool=pool)
        hopper, mma = hopper_tactics(shape), mma_tactics(shape, 89)
        assert hopper
        assert mma
        for tactic in hopper + mma:
            assert tactic.shared_bytes <= (227 if tactic.family == "hopper" else 99) * 1024
            assert shape.taps * tactic.chunks(shape) % tactic.units == 0
            assert not (shape.pool and (tactic.split > 1 or not tactic.patch))
            assert Tactic.parse(tactic.family, tactic.name) == tactic
            assert Tactic(**json.loads(json.dumps(dataclasses.asdict(tactic)))) == tactic


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x_type": DType.UINT8}, "uint8"),
        ({"planes": 3}, "3 planes of float16"),
        ({"x_type": SINGLE, "planes": 3}, "3 planes of float32"),
        ({"c": 12}, "16 bytes"),
        ({"slope": 1.5}, "slopes"),
        ({"pool": True, "oh": 5}, "odd size"),
        ({"reorg": 3}, "reorg"),
        ({"reorg": 2, "linear": True}, "linear"),
        ({"residual_type": HALF, "residual_pitch": 16, "pool": True}, "residual"),
    ],
)
def test_what_the_kernels_cannot_compute_has_no_tactics(change, reason):
    shape = dataclasses.replace(square(1, 8, 16, 16, 3, HALF), **change)
    assert reason in shape.unsupported()
    assert hopper_tactics(shape) == mma_tactics(shape, 90) == simt_tactics(shape) == []
    assert mma_tactics(square(1, 8, 16, 16, 3, HALF), 75) == []


def test_fp8_begins_with_ada():
    for shape in (square(1, 8, 16, 16, 3, FP8), square(1, 8, 16, 16, 3, HALF, y_type=FP8)):
        assert mma_tactics(shape, 86) == []
        assert mma_tactics(shape, 89)


def test_float32_and_the_others_are_different_families():
    single, half = square(1, 8, 16, 16, 3, SINGLE), square(1, 8, 16, 16, 3, HALF)
    assert hopper_tactics(single) == mma_tactics(single, 90) == simt_tactics(half) == simt_tactics(single, 75) == []
    assert simt_tactics(square(1, 16, 16, 16, 13, SINGLE)) == []


def test_a_stem_says_what_it_cannot_do():
    first = StemShape(
        n=1, c=3, h=4, w=4, k=32, x_strides=(48, 16, 4, 1), x_type=DType.FLOAT32, element=HALF, y_pitch=32, y_type=HALF
    )
    assert first.unsupported() == ""
    assert "5 channels" in dataclasses.replace(first, c=5).unsupported()
    assert "odd" in dataclasses.replace(first, h=5).unsupported()


def test_a_tactics_name_is_checked():
    with pytest.raises(ValueError, match="no tactic of 'mma'"):
        Tactic.parse("mma", "m64")


def test_numbers_of_filters_are_padded_to_tiles():
    shape = square(1, 8, 16, 40, 3, HALF)
    tactic = Tactic("mma", 64, 32, 32)
    padded = pack_filters(np.arange(40, dtype=np.float32), tactic, shape, 1.0)
    np.testing.assert_array_equal(padded, [*range(40), *[0] * 24])
    np.testing.assert_array_equal(pack_filters(None, tactic, shape, 0.5), [0.5] * 64)


@pytest.mark.parametrize(
    ("file", "struct", "found"),
    [
        ("common", "ConvArgs", ConvArgs),
        ("stem", "StemArgs", stem_kernel._Args),
        ("pool", "PoolArgs", pool_kernel._Args),
    ],
)
def test_arguments_are_the_sources_struct(file, struct, found):
    source = (KERNELS / f"{file}.cu").read_text()
    body = source[source.index(f"struct {struct} {{") : source.index("};", source.index(f"struct {struct} {{"))]
    lines = [line.partition("//")[0].strip() for line in body.splitlines()[1:]]
    words = " ".join(lines).replace("const ", "").replace("*", "").replace(",", " ").replace(";", " ").split()
    types = ("char", "uint2", "long", "int", "float")
    assert [word for word in words if word not in types] == [name for name, *_ in found._fields_]


def test_arguments_are_worked_out():
    shape = square(2, 8, 16, 40, 3, HALF)
    numbers = conv_arguments(shape, Tactic("mma", 64, 32, 32), Addresses(16, 32, 48, 64, 80))
    assert (numbers.units, numbers.chunks, numbers.tiles_n, numbers.pixels, numbers.vector) == (9, 1, 2, 128, 1)
    assert conv_arguments(shape, Tactic("mma", 64, 32, 32), Addresses(16, 32, 48, 64, 82)).vector == 0


def test_the_matrix_instruction_names_each_register_once():
    text = wgmma_text(64, INT8)
    assert "m64n64k32.s32.s8.s8" in text
    assert all(text.count(f'"+r"(d[{index}])') == 1 for index in range(32))
    assert '"+f"(d[31])' in wgmma_text(64, HALF)
    assert "m64n64k32.f32.e4m3.e4m3" in wgmma_text(64, FP8)
    assert "%32, %33, 1, 1, 1;" in wgmma_text(64, FP8)


@pytest.mark.parametrize("compiler", ["NVRTC", "nvcc"])
@pytest.mark.parametrize(
    ("family", "x_type"),
    [("hopper", HALF), ("hopper", INT8), ("hopper", FP8), ("mma", HALF), ("mma", INT8), ("mma", FP8), ("simt", SINGLE)],
)
def test_kernels_compile(family, x_type, compiler, compile_with):
    compile_with(compiler)
    shape, capability = square(1, 16, 64, 64, 3, x_type, pool=True), 89 if x_type is FP8 else 80
    tactic = tactics_of(family, shape, capability=capability)[0]
    cubin = compile_kernel(f"conv_{family}.cu", tactic.definitions(shape), capability)
    assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("y_type", [HALF, FP8])
def test_the_stem_of_fp8_compiles(y_type, compile_with):
    compile_with("NVRTC")
    shape = StemShape(
        n=1, c=3, h=4, w=4, k=32, x_strides=(48, 16, 4, 1), x_type=SINGLE, element=FP8, y_pitch=32, y_type=y_type
    )
    assert shape.unsupported() == ""
    assert compile_kernel("stem.cu", shape.definitions(), 89).startswith(b"\x7fELF")


@pytest.mark.parametrize("family", ["hopper", "mma"])
def test_kernels_of_fp8_compile_with_a_residual_and_write_halves(family, compile_with):
    compile_with("NVRTC")
    for more in ({"residual_type": FP8, "residual_pitch": 64}, {"y_type": HALF, "gate": 2}):
        shape = square(1, 13, 64, 64, 1, FP8, **more)
        tactic = tactics_of(family, shape, capability=90)[0]
        assert compile_kernel(f"conv_{family}.cu", tactic.definitions(shape), 90).startswith(b"\x7fELF")


@pytest.mark.parametrize("gate", range(1, 8))
@pytest.mark.parametrize(("family", "x_type"), [("hopper", HALF), ("mma", INT8), ("simt", SINGLE)])
def test_kernels_of_each_activation_compile(family, x_type, gate, compile_with):
    compile_with("NVRTC")
    shape = square(1, 16, 64, 64, 1, x_type, gate=gate)
    tactic = tactics_of(family, shape, capability=90)[0]
    cubin = compile_kernel(f"conv_{family}.cu", tactic.definitions(shape), 90)
    assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("compiler", ["NVRTC", "nvcc"])
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("element", [0, 1, 2, 4])
def test_pools_compile(capability, element, compiler, compile_with):
    compile_with(compiler)
    window = {"ELEMENT": element, "R": 3, "S": 2, "STRIDE_H": 2, "STRIDE_W": 1, "PADDED": 1}
    cubin = compile_kernel("pool.cu", window, capability)
    assert cubin.startswith(b"\x7fELF")
