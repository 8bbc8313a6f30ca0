"""Means of images' channels, on the CPU: the numbers of float64, bit for bit the same in each run."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.expression import Expression
from pytrtplugins.engines.cuda.device.layout import Format, channels_last, linear
from pytrtplugins.engines.cuda.device.means import means_kernel
from pytrtplugins.tensor import DType
from tests.engines.cuda.device.test_pointwise import filled

SINGLE, HALF = DType.FLOAT32, DType.FLOAT16


def mean_of(area):
    return Expression.parse(1, ["ReduceSum float32 0", f"Mul float32 1 float32:{1 / area!r}"], [2])


@pytest.mark.parametrize("kind", [SINGLE, HALF])
@pytest.mark.parametrize(
    ("dims", "pitch"),
    [
        ((1, 32, 24, 30), 32),
        ((1, 32, 61, 67), 32),
        ((2, 13, 90, 91), 16),
        ((1, 960, 7, 7), 960),
        ((3, 72, 14, 14), 72),
        ((2, 13, 20, 20), 16),
        ((2, 24, 1, 2), 40),
        ((300, 8, 3, 3), 8),
    ],
)
def test_the_mean_of_each_channel(dims, pitch, kind):
    n, c, h, w = dims
    x = filled(Format(dims, kind, pitch), np.random.default_rng(0).standard_normal(dims) + 1)
    for form in (channels_last((n, c, 1, 1), kind), linear((n, c), SINGLE)):
        kernel = means_kernel(HostDevice(), mean_of(h * w), (2, 3), [x.format], [form])
        y = filled(form, 0)
        launch = kernel.prepare([x, y])
        launch(None)
        wanted = x.view.astype(np.float64).mean((2, 3)).reshape(form.dims)
        np.testing.assert_allclose(y.view, wanted, rtol=1e-3 if form.dtype is HALF else 1e-5, atol=1e-6)
        again = y.flat.copy()
        y.view[...] = 0
        launch(None)  # whose blocks are counted from 0 again
        np.testing.assert_array_equal(y.flat, again)
        if form.nhwc:
            assert (y.flat[c : form.pitch].view(np.uint8) == 0x5A).all()


@pytest.mark.parametrize(
    ("dims", "shared"), [((1, 32, 112, 112), True), ((2, 13, 90, 91), True), ((1, 120, 28, 28), False)]
)
def test_blocks_share_an_image_where_one_would_read_long(dims, shared):
    form, mean = channels_last(dims, HALF), channels_last((*dims[:2], 1, 1), HALF)
    kernel = means_kernel(HostDevice(), mean_of(dims[2] * dims[3]), (2, 3), [form], [mean])
    assert (kernel._words > 0) is shared


def test_many_images_need_no_sharing():
    many = channels_last((64, 256, 14, 14), HALF), channels_last((64, 256, 1, 1), HALF)
    assert means_kernel(HostDevice(), mean_of(196), (2, 3), [many[0]], [many[1]])._words == 0


@pytest.mark.parametrize(
    ("lines", "axes", "form"),
    [
        (["ReduceMax float32 0", "Mul float32 1 float32:0.25"], (2, 3), channels_last((1, 8, 2, 2), HALF)),
        (["ReduceSum float32 0", "Add float32 1 float32:0.25"], (2, 3), channels_last((1, 8, 2, 2), HALF)),
        (["ReduceSum float32 0", "Mul float32 1 1"], (2, 3), channels_last((1, 8, 2, 2), HALF)),
        (["ReduceSum float32 0", "Mul float32 1 float32:0.25"], (3,), channels_last((1, 8, 2, 2), HALF)),
        (["ReduceSum float32 0", "Mul float32 1 float32:0.25"], (2, 3), linear((1, 8, 2, 2), HALF)),
        (["ReduceSum float32 0", "Mul float32 1 float32:0.25"], (2, 3), Format((1, 6, 2, 2), HALF, 12)),
    ],
)
def test_other_rows_are_left_to_generated_kernels(lines, axes, form):
    result = channels_last((1, form.dims[1], 1, 1), HALF)
    assert means_kernel(HostDevice(), Expression.parse(1, lines, [2]), axes, [form], [result]) is None
