"""The kernels around convolutions, against NumPy, on NumPy arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.conv.problem import ConvProblem, DirectProvider, Operands, Scratch
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.layout import channels_last
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
