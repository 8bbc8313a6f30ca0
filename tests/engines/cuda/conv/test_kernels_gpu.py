"""The handwritten kernels on a GPU, each against the definition in float64: every family, odd sizes, all that follows the sum."""

import dataclasses

import numpy as np
import pytest

from pytrtplugins.cuda import gpu_reason
from pytrtplugins.engines.cuda.conv.hopper import halo_tactics, hopper_tactics
from pytrtplugins.engines.cuda.conv.launcher import Addresses, ConvKernel
from pytrtplugins.engines.cuda.conv.packing import pack_filters
from pytrtplugins.engines.cuda.conv.stem_kernel import StemKernel
from pytrtplugins.engines.cuda.conv.tactics import FP8_CAPABILITY, mma_tactics
from pytrtplugins.engines.cuda.device.elements import decoded, stored, to_stored
from pytrtplugins.engines.cuda.device.layout import Format
from pytrtplugins.engines.cuda.device.pool_kernel import PoolKernel
from pytrtplugins.engines.cuda.device.window import Window
from pytrtplugins.tensor import DType
from tests.engines.cuda.conv.definition import (
    BOUNDS,
    STEP,
    agrees,
    as_read,
    assert_written,
    biases_of,
    pooled,
    problem,
    stem_problem,
    untouched,
)
from tests.engines.cuda.conv.shapes import (
    FP8,
    HALF,
    INT8,
    ODD,
    SINGLE,
    SINGLES,
    convolution,
    packed_weights,
    square,
    tactics_of,
)

pytestmark = pytest.mark.gpu
SHAPES = [
    *ODD,
    square(2, 13, 64, 96, 3, HALF),
    *(square(2, 13, 64, 96, 1, HALF, gate=gate, bounds=BOUNDS.get(gate, (0.0, 0.0))) for gate in (*range(1, 8), 9)),
    *(square(1, 14, 64, 96, 3, INT8, gate=gate, bounds=BOUNDS.get(gate, (0.0, 0.0))) for gate in range(1, 8)),
    square(1, 20, 64, 64, 1, HALF, gate=3, residual_type=HALF, residual_pitch=64),
    square(1, 16, 32, 64, 3, INT8, pool=True, slope=0.1),
    square(2, 24, 64, 64, 3, HALF, pool=True, slope=0.1),
    square(3, 14, 48, 40, 3, HALF, reorg=2, y_pitch=176),
    *(square(2, 13, 64, 128, 1, kind, blocks=2, slope=0.1, y_pitch=48) for kind in (HALF, INT8, FP8)),
    square(1, 12, 48, 144, 3, HALF, blocks=3, y_pitch=20),
    *(square(2, 13, 64, 128, 1, kind, blocks=2, cut=(1, 1, 1, 2), y_pitch=48) for kind in (HALF, INT8)),
    square(2, 14, 128, 128, 3, INT8, slope=0.0, residual_type=INT8, residual_pitch=160),
    square(1, 20, 64, 64, 3, HALF, slope=0.0, residual_type=HALF, residual_pitch=64),
    square(1, 13, 1024, 128, 3, HALF, gate=9, residual_type=HALF, residual_pitch=128, residual_gate=9),
    square(2, 12, 96, 33, 1, INT8, y_type=DType.FLOAT32),
    square(1, 13, 256, 96, 3, FP8, slope=0.1),
    *(square(1, 14, 64, 96, 1, FP8, gate=gate) for gate in (1, 2, 3, 4)),
    square(1, 16, 32, 64, 3, FP8, pool=True, slope=0.1),
    square(3, 14, 48, 40, 3, FP8, reorg=2, y_pitch=176),
    square(2, 14, 128, 128, 3, FP8, slope=0.0, residual_type=FP8, residual_pitch=160),
    square(2, 12, 96, 33, 1, FP8, y_type=HALF),
    square(2, 13, 96, 33, 1, FP8, linear=True, y_type=DType.FLOAT32),
    square(2, 13, 96, 33, 1, HALF, linear=True, y_type=DType.FLOAT32),
    *(square(2, 14, 96, 72, 3, kind, linear=True, y_type=HALF, slope=0.1) for kind in (HALF, INT8, FP8)),
    square(2, 16, 64, 40, 3, INT8, linear=True, pool=True, slope=0.1, y_type=DType.FLOAT32),
    *(square(2, 13, 64, 33, 3, kind, gate=8) for kind in (HALF, INT8, FP8)),
    *(square(1, 13, 1024, 128, 3, kind, gate=8) for kind in (HALF, INT8)),  # K is split over a cluster
    *(square(2, 16, 64, 72, 3, kind, gate=8, pool=True) for kind in (HALF, INT8, FP8)),
    *(
        square(2, 14, 64, 40, 3, kind, **gates, residual_type=kind, residual_pitch=48)
        for kind in (HALF, INT8, FP8)
        for gates in ({"gate": 8, "residual_slope": 0.1}, {"residual_gate": 8})
    ),
    square(1, 13, 1024, 128, 3, HALF, residual_type=HALF, residual_pitch=128, residual_gate=8),
    square(2, 13, 64, 128, 1, HALF, blocks=2, gate=8, y_pitch=48),
    square(3, 14, 48, 40, 3, INT8, reorg=2, gate=8, y_pitch=176),
    square(2, 13, 96, 33, 1, HALF, linear=True, gate=8, y_type=DType.FLOAT32),
    square(2, 24, 16, 24, 3, HALF, pool=True, slope=0.1, y_type=FP8, y_pitch=32),
    square(2, 13, 32, 40, 3, HALF, y_type=FP8, y_pitch=48),
]
LONG_SUMS = square(8, 13, 1024, 96, 3, FP8, slope=0.1)
LONG_SUMS_OF_HALVES = square(8, 13, 1024, 96, 3, FP8, slope=0.1, y_type=HALF)
"""So long that sums of FP8 need totals in float32; the layer before a network's head is of the second kind."""
MANY_TILES = [
    square(3, 104, 32, 64, 3, HALF, slope=0.1),
    square(2, 104, 32, 64, 3, INT8, pool=True, slope=0.1),
    square(9, 26, 256, 200, 3, FP8, residual_type=FP8, residual_pitch=208),
    square(2, 104, 128, 64, 1, INT8, slope=0.1),
    LONG_SUMS,
    LONG_SUMS_OF_HALVES,
    square(2, 100, 80, 33, 3, HALF, gate=8),
]
"""More than a GPU has multiprocessors, so that a block computes several."""
EVERY_FORM = [
    square(2, 24, 64, 64, 3, HALF, pool=True, slope=0.1),
    square(1, 13, 1024, 128, 3, INT8, gate=8),
    square(9, 26, 256, 200, 3, FP8, residual_type=FP8, residual_pitch=208),
    square(3, 14, 48, 40, 3, HALF, reorg=2, y_pitch=176),
]
"""All tactics of these: patches and lines, split sums, blocks that compute several tiles, weights that stay."""
SHAPES_OF_SINGLES = [
    *SINGLES,
    square(2, 13, 64, 96, 3, SINGLE, slope=0.1),
    square(1, 13, 1024, 128, 3, SINGLE, slope=0.1),
    square(1, 26, 32, 64, 3, SINGLE, pool=True, slope=0.1),
    square(2, 24, 256, 128, 3, SINGLE, pool=True, slope=0.1),
    square(3, 14, 48, 40, 3, SINGLE, reorg=2, y_pitch=176),
    square(2, 13, 48, 64, 1, SINGLE, blocks=2, slope=0.1, y_pitch=20),
    square(2, 13, 48, 64, 1, SINGLE, blocks=2, cut=(1, 0, 0, 1), y_pitch=16),
    square(1, 20, 64, 64, 3, SINGLE, slope=0.0, residual_type=SINGLE, residual_pitch=64),
    square(2, 13, 96, 33, 1, SINGLE, linear=True),
    square(1, 13, 96, 40, 1, SINGLE, gate=2),
    square(1, 13, 96, 40, 1, SINGLE, gate=3, residual_type=SINGLE, residual_pitch=40),
    square(2, 16, 64, 40, 3, SINGLE, linear=True, pool=True, slope=0.1),
    square(2, 13, 64, 33, 3, SINGLE, gate=8),
    square(1, 13, 1024, 128, 3, SINGLE, gate=8),
    square(2, 16, 64, 72, 3, SINGLE, gate=8, pool=True),
    square(2, 14, 64, 40, 3, SINGLE, gate=8, residual_type=SINGLE, residual_pitch=48, residual_slope=0.1),
    square(1, 13, 1024, 128, 3, SINGLE, residual_type=SINGLE, residual_pitch=128, residual_gate=8),
]


@pytest.fixture(scope="module")
def gpu():
    """CuPy and the compute capability."""
    if reason := gpu_reason():
        pytest.skip(reason.partition("\n")[0])
    cupy = pytest.importorskip("cupy")
    capability = int(cupy.cuda.Device().compute_capability)
    if capability < 80:
        pytest.skip(f"compute capability {capability}: the kernels need 80")
    return cupy, capability


FAMILIES = [(family, shape) for family in ("hopper", "mma") for shape in SHAPES]
FAMILIES += [("hopper", shape) for shape in (LONG_SUMS, LONG_SUMS_OF_HALVES)]
FAMILIES += [("halo", shape) for shape in SHAPES + MANY_TILES if halo_tactics(shape)]
FAMILIES += [("simt", shape) for shape in SHAPES_OF_SINGLES]


@pytest.mark.parametrize(
    ("family", "shape"),
    FAMILIES,
    ids=lambda value: value if isinstance(value, str) else f"{value.x_type}-{value.c}-{value.k}-{value.kernel}",
)
def test_a_convolution_is_the_definitions_and_nothing_else_is_written(gpu, shape, family):
    _compare(gpu, shape, family, {"hopper": 6, "halo": 40, "mma": 2, "simt": 6}[family])


@pytest.mark.parametrize("shape", EVERY_FORM, ids=lambda shape: f"{shape.x_type}-{shape.c}")
def test_halos_of_every_form_are_right(gpu, shape):
    _compare(gpu, shape, "halo", 1000)


@pytest.mark.parametrize(
    "shape", [*EVERY_FORM, LONG_SUMS, LONG_SUMS_OF_HALVES], ids=lambda shape: f"{shape.x_type}-{shape.c}"
)
def test_a_halo_of_each_form_is_right(gpu, shape):
    """One tactic of each form: few enough for compute-sanitizer."""
    _compare(gpu, shape, "halo", 1000, one_each=True)


def form_of(tactic, shape):
    """What changes the kernel's course, rather than its sizes."""
    several = tactic.stages > 2, tactic.split_k > 1, tactic.halos(shape) > 1
    return (
        tactic.spatial_tile,
        tactic.persistent,
        tactic.units,
        tactic.keeps_weights(shape),
        tactic.total_every(shape),
        *several,
    )


def _compare(gpu, shape, family, count, one_each=False):
    """Run a family's first tactics, each of which has to give the definition's numbers, and to write nothing else."""
    cupy, capability = gpu
    if family in ("hopper", "halo") and capability != 90:
        pytest.skip(f"compute capability {capability}: wgmma is Hopper's")
    if shape.x_type is FP8 and capability < FP8_CAPABILITY:
        pytest.skip(f"compute capability {capability}: FP8 begins with {FP8_CAPABILITY}")
    x, weights, scale, bias, residual, expected = problem(shape)
    image, *added = (cupy.asarray(to_stored(array)) for array in (as_read(shape, x), residual) if array is not None)
    stream = cupy.cuda.Stream(non_blocking=True)
    tactics = tactics_of(family, shape, count, capability)
    assert tactics
    if one_each:
        tactics = list({form_of(tactic, shape): tactic for tactic in tactics}.values())
    for tactic in tactics:
        packed = cupy.asarray(packed_weights(shape, tactic, weights))
        numbers = pack_filters(scale, tactic, shape, 1.0), biases_of(shape, tactic, bias)
        factors, offsets = map(cupy.asarray, numbers)
        y = cupy.asarray(untouched(shape, expected))
        cupy.cuda.get_current_stream().synchronize()
        at = Addresses(*(array.data.ptr for array in (image, packed, factors, offsets, y, *added)))
        kernel = ConvKernel(shape, tactic, capability, STEP)
        kernel.launch(at, stream.ptr, 0.37)
        stream.synchronize()
        assert_written(shape, y.get(), expected, tactic.name)


def operands(cupy, shape, tactic, weights, scale, bias):
    """As a kernel without slopes reads them."""
    filters = [pack_filters(values, tactic, shape, 1.0) for values in (scale, bias)]
    return [cupy.asarray(array) for array in (packed_weights(shape, tactic, weights), *filters)]


@pytest.mark.parametrize("family", ["hopper", "halo", "mma"])
@pytest.mark.parametrize(("side", "c", "kernel"), [(13, 1024, 3), (26, 512, 1), (10, 80, 3)])
def test_sums_of_codes_are_the_integers(gpu, family, side, c, kernel):
    cupy, capability = gpu
    if family in ("hopper", "halo") and capability != 90:
        pytest.skip(f"compute capability {capability}: wgmma is Hopper's")
    if family == "halo" and kernel == 1:
        pytest.skip("a filter of one tap has no halo")
    shape = square(1, side, c, 64, kernel, INT8, y_type=DType.FLOAT32)  # holds integers up to 2^24
    random = np.random.default_rng(7)
    x = random.integers(-127, 128, (1, side, side, c)).astype(np.int8)
    weights = (random.integers(-127, 128, (64, c, kernel, kernel)) // (8 if kernel == 3 else 1)).astype(np.int8)
    expected = convolution(shape, x.astype(np.float64), weights).astype(np.int64)
    assert abs(expected).max() < 2**24
    one, zero, on_gpu = np.ones(64, np.float32), np.zeros(64, np.float32), cupy.asarray(x)
    tactics = tactics_of(family, shape, {"hopper": 12, "halo": 60, "mma": 3}[family], capability)
    assert tactics
    for tactic in tactics:
        given = operands(cupy, shape, tactic, weights, one, zero)
        y = cupy.full((shape.pixels, 64), np.nan, np.float32)
        stream = cupy.cuda.get_current_stream()
        at = Addresses(*(array.data.ptr for array in (on_gpu, *given, y)))
        kernel = ConvKernel(shape, tactic, capability)
        kernel.launch(at, stream.ptr)
        np.testing.assert_array_equal(y.get().astype(np.int64), expected, tactic.name)


@pytest.mark.parametrize("pool", [True, False])
def test_a_float32_convolution_takes_the_image_as_it_is(gpu, pool):
    cupy, capability = gpu
    shape = dataclasses.replace(square(2, 22, 4, 32, 3, SINGLE, pool=pool, slope=0.1, planes=3), x_pitch=1)
    x, weights, scale, bias, _, _ = problem(dataclasses.replace(shape, pool=False))
    x[..., 3], weights = 0, np.ascontiguousarray(weights[:, :3])
    y = convolution(dataclasses.replace(shape, c=3), x[..., :3].astype(np.float64), weights)
    y = (y * scale + bias).reshape(2, 22, 22, 32)
    expected = np.maximum(y, y * 0.1)
    expected = pooled(expected) if pool else expected
    image = cupy.asarray(np.ascontiguousarray(x[..., :3].transpose(0, 3, 1, 2)))
    for tactic in tactics_of("simt", shape, 6, capability):
        given = operands(cupy, shape, tactic, weights, scale, bias)
        found = cupy.full(expected.shape, 77, np.float32)
        stream = cupy.cuda.get_current_stream()
        at = Addresses(*(array.data.ptr for array in (image, *given, found)))
        kernel = ConvKernel(shape, tactic, capability)
        kernel.launch(at, stream.ptr)
        assert agrees(found.get(), expected, SINGLE), tactic.name


def test_float32_sums_are_the_same_every_time(gpu):
    cupy, capability = gpu
    shape = square(1, 13, 512, 64, 3, SINGLE)
    x, weights, scale, bias, _, _ = problem(shape)
    for tactic in tactics_of("simt", shape, 4, capability):
        given, found = [cupy.asarray(x), *operands(cupy, shape, tactic, weights, scale, bias)], []
        for _ in range(3):
            y = cupy.empty((13 * 13, 64), np.float32)
            at = Addresses(*(array.data.ptr for array in (*given, y)))
            kernel = ConvKernel(shape, tactic, capability)
            kernel.launch(at, cupy.cuda.get_current_stream().ptr)
            found.append(y.get())
        np.testing.assert_array_equal(found[1], found[0])
        np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("prelu", [False, True])
@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize(("element", "y_type"), [(HALF, HALF), (HALF, FP8), (INT8, INT8), (FP8, FP8)])
def test_the_stem_takes_the_image_as_it_is(gpu, element, y_type, pool, prelu):
    cupy, capability = gpu
    if y_type is FP8 and capability < FP8_CAPABILITY:
        pytest.skip(f"compute capability {capability}: FP8 begins with {FP8_CAPABILITY}")
    shape, arrays, expected = stem_problem(element, pool, prelu, y_type)
    given = [cupy.asarray(array) for array in arrays]
    found = cupy.full(expected.shape, 77, stored(y_type))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    x_at, weights_at, scale_at, bias_at = (array.data.ptr for array in given)
    kernel = StemKernel(shape, capability)
    kernel.launch(x_at, weights_at, scale_at, bias_at, found.data.ptr, stream.ptr)
    stream.synchronize()
    assert agrees(found.get(), expected, y_type)


@pytest.mark.parametrize("dtype", [SINGLE, HALF, INT8, FP8])
@pytest.mark.parametrize(
    "window",
    [
        Window(),
        Window(kernel=(3, 3), pads=(1, 1, 1, 1)),
        Window(kernel=(3, 2), strides=(1, 1), pads=(0, 1, 2, 0)),
        Window(kernel=(5, 5), strides=(1, 1), pads=(2, 2, 2, 2)),
        Window(kernel=(2, 2), strides=(1, 1), pads=(0, 0, 1, 1)),
        Window(kernel=(3, 3), pads=(1, 1, 1, 1), frames=(5, 3), depth=(3, 2), depth_pads=(1, 1)),
        Window(kernel=(2, 2), frames=(4, 2), depth=(2, 2)),
        Window(kernel=(3, 1), strides=(1, 1), frames=(5, 2), depth=(1, 3)),
        Window(kernel=(1, 1), strides=(1, 1), frames=(4, 5), depth=(4, 1), depth_pads=(2, 2)),
    ],
    ids=str,
)
def test_a_pool_takes_the_largest_of_each_window(gpu, dtype, window):
    cupy, capability = gpu
    (d, od), h, w, c, pitch = window.frames, 7, 11, 48, 64
    x = np.random.default_rng(6).integers(-127, 128, (2, d, h, w, c)).astype(dtype.numpy)
    lowest = np.iinfo(np.int8).min if dtype is INT8 else -np.inf
    plain = x.astype(np.float32) if dtype is FP8 else x
    room = ((0, 0), window.depth_pads, window.pads[::2], window.pads[1::2], (0, 0))
    padded = np.pad(plain, room, constant_values=lowest)
    views = np.lib.stride_tricks.sliding_window_view(padded, (window.depth[0], *window.kernel), (1, 2, 3))
    expected = views[:, :: window.depth[1], :: window.strides[0], :: window.strides[1]].max((-3, -2, -1))
    assert expected.shape[1] == od
    expected = expected.reshape(-1, *expected.shape[2:])
    n, oh, ow, _ = expected.shape
    given, found = cupy.asarray(to_stored(x)), cupy.full((n, oh, ow, pitch), 77, stored(dtype))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    formats = Format((2 * d, c, h, w), dtype, c), Format((n, c, oh, ow), dtype, pitch)
    kernel = PoolKernel(*formats, window, capability)
    kernel.launch(given.data.ptr, found.data.ptr, stream.ptr)
    stream.synchronize()
    np.testing.assert_array_equal(decoded(np, found.get()[..., :c], dtype), expected)
    assert (found.get()[..., c:] == 77).all()


@pytest.mark.parametrize("dtype", [SINGLE, HALF, FP8])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_pool_keeps_nan(gpu, dtype, sign):
    cupy, capability = gpu
    x = np.zeros((1, 2, 2, 16), dtype.numpy)
    x[0, 1, 0, 5] = np.copysign(np.float32(np.nan), sign)
    given, found = cupy.asarray(to_stored(x)), cupy.zeros((1, 1, 1, 16), stored(dtype))
    formats = Format((1, 16, 2, 2), dtype, 16), Format((1, 16, 1, 1), dtype, 16)
    kernel = PoolKernel(*formats, Window(), capability)
    kernel.launch(given.data.ptr, found.data.ptr, 0)
    cupy.cuda.runtime.deviceSynchronize()
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(decoded(np, found.get(), dtype))), [5])


def test_a_captured_convolution_gives_the_same_again(gpu):
    cupy, capability = gpu
    shape = square(1, 13, 64, 64, 3, INT8, slope=0.1)
    x, weights, scale, bias, _, expected = problem(shape)
    tactic = (hopper_tactics(shape) if capability == 90 else mma_tactics(shape, capability))[0]
    given = [cupy.asarray(x), *operands(cupy, shape, tactic, weights, scale, bias)]
    y = cupy.zeros(expected.shape, np.int8)
    stream, kernel = cupy.cuda.Stream(non_blocking=True), ConvKernel(shape, tactic, capability)
    cupy.cuda.get_current_stream().synchronize()
    at = Addresses(*(array.data.ptr for array in (*given, y)))
    with stream:
        stream.begin_capture()
        kernel.launch(at, stream.ptr)
        kernel.launch(at, stream.ptr)
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    first = y.get()
    assert agrees(first, expected, INT8)
    y.fill(0)
    cupy.cuda.get_current_stream().synchronize()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(y.get(), first)
