"""The kernels around convolutions, against NumPy, on NumPy arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.conv.problem import ConvProblem, DirectProvider, Operands, Scratch
from pytrtplugins.engines.cuda.device.device import HostDevice, tensor_at
from pytrtplugins.engines.cuda.device.layout import Format, channels_last, linear
from pytrtplugins.engines.cuda.device.nhwc import reformat
from pytrtplugins.tensor import DType
from tests.engines.cuda import host
from tests.engines.cuda.host import convolve

DEVICE = HostDevice()
SIDE = st.integers(1, 5)
FLOATS = st.sampled_from([DType.FLOAT32, DType.FLOAT16])


def filled(form, seed=0):
    """A tensor of random numbers, zeros in the padding."""
    rng, codes = np.random.default_rng(seed), form.dtype is DType.INT8
    return host.filled(form, rng.integers(-128, 128, form.dims) if codes else rng.standard_normal(form.dims))


ACTIVATIONS = {"linear": (0.0, 0.0), "leaky": (0.1, 0.0), "clip": (0.0, 6.0), "logistic": (0.0, 0.0)}


@st.composite
def problems(draw):
    n, h, w, groups = draw(st.integers(1, 2)), draw(SIDE) + 2, draw(SIDE) + 2, draw(st.sampled_from([1, 1, 2, 3]))
    c, k = groups * draw(st.integers(1, 5)), groups * draw(st.integers(1, 5))
    kernel = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    strides, dilations = (draw(st.integers(1, 2)), draw(st.integers(1, 2))), (draw(st.integers(1, 2)), 1)
    pads = tuple(draw(st.integers(0, 1)) for _ in range(4))
    spans = [dilation * (side - 1) + 1 for side, dilation in zip(kernel, dilations, strict=True)]
    oh, ow = (
        (side + pads[axis] + pads[axis + 2] - spans[axis]) // strides[axis] + 1 for axis, side in enumerate((h, w))
    )
    kind = draw(st.sampled_from([DType.FLOAT32, DType.FLOAT16, DType.INT8]))
    to = draw(st.sampled_from([DType.INT8, DType.FLOAT32])) if kind is DType.INT8 else kind
    added = draw(st.sampled_from([None, to, DType.FLOAT32]))
    residual = None if added is None else channels_last((n, k, oh, ow), added)
    activation, bounds = draw(st.sampled_from(sorted(ACTIVATIONS.items())))
    x, y, residual_activation = (n, c, h, w), (n, k, oh, ow), draw(st.sampled_from(["linear", "leaky"]))
    return ConvProblem(
        x=channels_last(x, kind), y=channels_last(y, to), kernel=kernel, strides=strides, pads=pads, dilations=dilations,
        groups=groups, activation=activation, bounds=bounds, residual=residual, residual_activation=residual_activation,
        residual_bounds=(0.2, 0.0),
    )  # fmt: skip


@given(problems(), st.integers(0, 99))
def test_the_direct_kernel_equals_sums_in_float64(problem, seed):
    if min(problem.y.dims) < 1:
        return
    rng, codes = np.random.default_rng(seed), problem.x.dtype is DType.INT8
    (k, c), (r, s) = (problem.y.dims[1], problem.x.dims[1] // problem.groups), problem.kernel
    weights = rng.integers(-127, 128, (k, c, r, s)) if codes else rng.standard_normal((k, c, r, s)) * 0.3
    scale = rng.uniform(1e-4, 1e-3, k).astype(np.float32) if codes else None
    operands = Operands(
        load=lambda: weights.astype(np.int8 if codes else np.float32),
        bias=rng.standard_normal(k).astype(np.float32),
        scale=scale,
        y_scale=0.05 if codes else 1.0,
        residual_scale=0.02 if codes else 1.0,
    )
    x, y, wanted = filled(problem.x, seed), filled(problem.y, 1), filled(problem.y, 2)
    residual = None if problem.residual is None else filled(problem.residual, 3)
    DirectProvider(DEVICE).prepare(problem, "direct", operands, Scratch())(x, y, residual, None)
    convolve(problem, operands, x, wanted, residual)
    found, expected = y.flat.astype(np.float32), wanted.flat.astype(np.float32)
    if problem.y.dtype is DType.INT8:
        assert np.abs(found - expected).max() <= 1
        assert (found != expected).mean() <= 0.01
    else:
        room = 2e-3 if problem.y.dtype is DType.FLOAT16 else 2e-5
        np.testing.assert_allclose(found, expected, rtol=room, atol=room)


@given(st.tuples(st.integers(1, 3), st.integers(1, 9), SIDE, SIDE), FLOATS, FLOATS, st.booleans(), st.booleans())
def test_a_reformat_moves_every_value_and_zeroes_the_padding(dims, kind, to, was_nhwc, is_nhwc):
    x = filled((channels_last if was_nhwc else linear)(dims, kind))
    y = filled((channels_last if is_nhwc else linear)(dims, to), 1)
    y.flat.fill(np.nan)
    reformat(x, y)(None)
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
    reformat(x, y, y_scale=0.5)(None)
    np.testing.assert_array_equal(y.view, np.clip(np.rint(x.view / np.float32(0.5)), -128, 127).astype(np.int8))
    back = filled(linear(dims, DType.FLOAT32))
    reformat(y, back, x_scale=0.5)(None)
    np.testing.assert_array_equal(back.view, y.view.astype(np.float32) * np.float32(0.5))


@pytest.mark.parametrize(("begin", "count", "alone"), [(8, 8, {}), (3, 5, {"alone": False}), (8, 5, {"alone": False})])
def test_a_run_of_channels_of_a_larger_tensor_is_written_without_its_neighbours(begin, count, alone):
    whole, here = filled(channels_last((2, 24, 3, 3), DType.FLOAT16)), slice(begin, begin + count)
    before, dims = whole.view.copy(), (2, count, 3, 3)
    part = tensor_at(np, whole.flat.view(np.uint8), begin * 2, Format(dims, DType.FLOAT16, 24))
    x, back = (filled(linear(dims, DType.FLOAT32), seed) for seed in (5, 6))
    reformat(x, part, **alone)(None)
    np.testing.assert_array_equal(whole.view[:, here], x.view.astype(np.float16))
    np.testing.assert_array_equal(np.delete(whole.view, here, 1), np.delete(before, here, 1))
    reformat(part, back)(None)
    np.testing.assert_array_equal(back.view, part.view.astype(np.float32))


def test_unsigned_codes_saturate_at_their_own_limits():
    x = filled(linear((1, 3, 2, 2), DType.FLOAT32))
    x.view[...] = [[[[-1.0, 0.5]] * 2, [[127.6, 200.0]] * 2, [[255.4, 300.0]] * 2]]
    for form in (linear, channels_last):
        y = filled(form((1, 3, 2, 2), DType.UINT8))
        reformat(x, y)(None)
        np.testing.assert_array_equal(y.view[0, :, 0], [[0, 0], [128, 200], [255, 255]])
