"""Changes of type, layout and scale, against NumPy, on NumPy arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.device.device import HostDevice, tensor_at
from pytrtplugins.engines.cuda.device.layout import FP8, Format, channels_last, linear
from pytrtplugins.engines.cuda.device.reformat import reformat
from pytrtplugins.tensor import DType
from tests.engines.cuda import host

DEVICE = HostDevice()
SIDE = st.integers(1, 5)
FLOATS = st.sampled_from([DType.FLOAT32, DType.FLOAT16])


def filled(form, seed=0):
    """A tensor of random numbers, zeros in the padding."""
    rng, codes = np.random.default_rng(seed), form.dtype.itemsize == 1
    low = 0 if form.dtype is DType.UINT8 else -128
    return host.filled(form, rng.integers(low, low + 256, form.dims) if codes else rng.standard_normal(form.dims))


def convert(x, y, **options):
    reformat(DEVICE, x.format, y.format, **options)(x, y, None)


@given(st.tuples(st.integers(1, 3), st.integers(1, 9), SIDE, SIDE), FLOATS, FLOATS, st.booleans(), st.booleans())
def test_a_reformat_moves_every_value_and_zeroes_the_padding(dims, kind, to, was_nhwc, is_nhwc):
    x = filled((channels_last if was_nhwc else linear)(dims, kind))
    y = filled((channels_last if is_nhwc else linear)(dims, to), 1)
    y.flat.fill(np.nan)
    convert(x, y)
    np.testing.assert_array_equal(y.view, x.view.astype(to.numpy))
    if is_nhwc:
        n, c, h, w = dims
        assert not y.flat.reshape(n, h, w, -1)[..., c:].any()


@pytest.mark.parametrize("dims", [(2, 3, 5, 7), (1, 16, 3, 3), (1, 20, 2, 2)])
@pytest.mark.parametrize("make", [linear, channels_last])
def test_quantizing_rounds_half_to_even_and_saturates(dims, make):
    x = filled(linear(dims, DType.FLOAT32))
    x.view[...] *= 40
    x.flat[:6] = [0.25, 0.75, -0.25, 1e9, -1e9, 1.25]
    y = filled(make(dims, DType.INT8))
    convert(x, y, y_scale=0.5)
    np.testing.assert_array_equal(y.view, np.clip(np.rint(x.view / np.float32(0.5)), -128, 127).astype(np.int8))
    back = filled(linear(dims, DType.FLOAT32))
    convert(y, back, x_scale=0.5)
    np.testing.assert_array_equal(back.view, y.view.astype(np.float32) * np.float32(0.5))


@pytest.mark.parametrize(("begin", "count", "alone"), [(8, 8, {}), (3, 5, {"alone": False}), (8, 5, {"alone": False})])
def test_a_run_of_channels_of_a_larger_tensor_is_written_without_its_neighbours(begin, count, alone):
    whole, here = filled(channels_last((2, 24, 3, 3), DType.FLOAT16)), slice(begin, begin + count)
    before, dims = whole.view.copy(), (2, count, 3, 3)
    part = tensor_at(np, whole.flat.view(np.uint8), begin * 2, Format(dims, DType.FLOAT16, 24))
    x, back = (filled(linear(dims, DType.FLOAT32), seed) for seed in (5, 6))
    convert(x, part, **alone)
    np.testing.assert_array_equal(whole.view[:, here], x.view.astype(np.float16))
    np.testing.assert_array_equal(np.delete(whole.view, here, 1), np.delete(before, here, 1))
    convert(part, back)
    np.testing.assert_array_equal(back.view, part.view.astype(np.float32))


def test_unsigned_codes_saturate_at_their_own_limits():
    x = filled(linear((1, 3, 2, 2), DType.FLOAT32))
    x.view[...] = [[[[-1.0, 0.5]] * 2, [[127.6, 200.0]] * 2, [[255.4, 300.0]] * 2]]
    for form in (linear, channels_last):
        y = filled(form((1, 3, 2, 2), DType.UINT8))
        convert(x, y)
        np.testing.assert_array_equal(y.view[0, :, 0], [[0, 0], [128, 200], [255, 255]])


DIMS = {
    "one tile": (2, 64, 8, 8),
    "several tiles": (2, 200, 9, 30),
    "rows of 8 bytes": (1, 72, 14, 14),
    "odd rows": (2, 130, 7, 7),
    "padded channels": (1, 33, 12, 16),
    "few channels": (2, 3, 17, 20),
    "one channel": (1, 1, 30, 11),
}
KINDS = [DType.FLOAT32, DType.FLOAT16, DType.INT8, DType.UINT8]


@pytest.mark.parametrize("dims", DIMS.values(), ids=DIMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("makes", [(linear, channels_last), (channels_last, linear)], ids=["to pixels", "to planes"])
def test_planes_become_pixels_and_pixels_planes(dims, kind, makes):
    x, y = filled(makes[0](dims, kind)), filled(makes[1](dims, kind), 1)
    y.flat.view(np.uint8).fill(0x7F)
    convert(x, y)
    np.testing.assert_array_equal(y.view, x.view)
    if y.format.nhwc:
        assert not y.flat.reshape(dims[0], -1, y.format.pitch)[..., dims[1] :].any()


@pytest.mark.parametrize("dims", [(1, 40, 6, 10), (1, 3, 6, 10)])
@pytest.mark.parametrize("to", [DType.FLOAT32, DType.FLOAT16, DType.INT8, FP8])
@pytest.mark.parametrize("kind", [DType.FLOAT32, DType.FLOAT16, DType.INT8, DType.UINT8])
@pytest.mark.parametrize("makes", [(linear, channels_last), (channels_last, linear)], ids=["to pixels", "to planes"])
def test_types_and_scales_change_on_the_way(dims, kind, to, makes):
    x, y, plain = filled(makes[0](dims, kind)), filled(makes[1](dims, to), 1), filled(makes[0](dims, to), 2)
    convert(x, y, x_scale=0.5, y_scale=0.25)
    convert(x, plain, x_scale=0.5, y_scale=0.25)  # the kernel that keeps the layout
    np.testing.assert_array_equal(*(np.ascontiguousarray(each.view).view(np.uint8) for each in (y, plain)))
    if to is DType.INT8 and kind is not DType.INT8:
        wanted = np.clip(np.rint(x.view.astype(np.float32) * np.float32(2)), -128, 127)
        np.testing.assert_array_equal(y.view, wanted.astype(np.int8))


@pytest.mark.parametrize("kind", [DType.FLOAT16, DType.INT8])
@pytest.mark.parametrize("begin", [1, 2, 4, 8])
def test_tensors_may_begin_anywhere(kind, begin):
    dims, size = (2, 24, 6, 8), kind.itemsize
    x, back = filled(linear(dims, kind)), filled(linear(dims, kind), 1)
    whole = filled(channels_last((2, 48, 6, 8), kind), 2)
    part = tensor_at(np, whole.flat.view(np.uint8), begin * size, Format(dims, kind, whole.format.pitch))
    before, here = whole.view.copy(), slice(begin, begin + 24)
    moved = tensor_at(np, np.zeros(x.flat.nbytes + 64, np.uint8), begin * size, x.format)
    moved.view[...] = x.view
    convert(moved, part, alone=False)
    np.testing.assert_array_equal(whole.view[:, here], x.view)
    np.testing.assert_array_equal(np.delete(whole.view, here, 1), np.delete(before, here, 1))
    convert(part, back)
    np.testing.assert_array_equal(back.view, x.view)


@pytest.mark.parametrize(
    ("kind", "to"), [(DType.FLOAT32, DType.FLOAT16), (DType.FLOAT16, DType.INT8), (DType.INT8, DType.FLOAT32)]
)
@pytest.mark.parametrize("pitches", [(24, 32), (48, 24), (21, 23)])
@pytest.mark.parametrize("begin", [0, 1, 16])
def test_types_and_pitches_change_within_a_layout(kind, to, pitches, begin):
    dims = (2, 21, 5, 4)
    x, memory = filled(Format(dims, kind, pitches[0])), np.full(20 * 2 * 48 * 4, 0x3F, np.uint8)
    wanted = filled(Format(dims, to, pitches[1]))
    y = tensor_at(np, memory, begin * to.itemsize, wanted.format)
    convert(x, y, alone=False, x_scale=0.5, y_scale=0.25)
    values = x.view.astype(np.float32) * np.float32(0.5)
    values = np.clip(np.rint(values / np.float32(0.25)), -128, 127) if to is DType.INT8 else values
    np.testing.assert_array_equal(y.view, values.astype(to.numpy))
    y.view[...] = 0
    assert ((memory == 0x3F) | (memory == 0)).all()
    assert (memory == 0x3F).sum() == memory.size - wanted.view.size * to.itemsize
    convert(x, y)
    assert not y.flat.reshape(-1, pitches[1])[
        ..., 21 : min(pitches[1], -(-21 // y.format.vector) * y.format.vector)
    ].any()


def test_nothing_is_launched_for_a_tensor_without_values():
    x, y = filled(linear((0, 3), DType.FLOAT32)), filled(linear((0, 3), DType.FLOAT16))
    convert(x, y)
    assert not y.flat.size
