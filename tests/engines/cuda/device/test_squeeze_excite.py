"""Squeeze and excitation on the CPU: the numbers of float64 in each way to spread an image, bit for bit the same in each run."""

import numpy as np
import pytest

from pytrtplugins.cuda.backends.host import available
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.layout import Format, channels_last
from pytrtplugins.engines.cuda.device.squeeze_excite import (
    SqueezeExciteForm,
    SqueezeExciteKernel,
    SqueezeExciteProblem,
    choose_form,
)
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import filled

SINGLE, HALF = DType.FLOAT32, DType.FLOAT16
ROOM = {SINGLE: 1e-6, HALF: 1e-3}
NO_BOUNDS = (0.0, 0.0)
needs_compiler = pytest.mark.skipif(not available(), reason="g++ is missing")


def constants(channels, hidden, seed=0):
    """Weights and bias of both products, float32."""
    random = np.random.default_rng(seed)
    arrays = (
        random.standard_normal((hidden, channels, 1, 1)) / channels**0.5,
        random.standard_normal(hidden),
        random.standard_normal((channels, hidden, 1, 1)) / hidden**0.5,
        random.standard_normal(channels),
    )
    return [array.astype(np.float32) for array in arrays]


def problem_of(dims, hidden, kind=HALF, scales=True, pitch=0):
    """Images with Swish and Sigmoid; ``pitch``: values between their pixels."""
    x = Format(dims, kind, pitch) if pitch else channels_last(dims, kind)
    y = channels_last(dims if scales else (*dims[:2], 1, 1), kind)
    return SqueezeExciteProblem(x, y, hidden, ("swish", NO_BOUNDS), ("logistic", NO_BOUNDS), scales)


def case_of(problem):
    """Images, memory for the result, and what is expected there, in float64."""
    kind = problem.x.dtype
    x = filled(problem.x, np.random.default_rng(1).standard_normal(problem.x.dims) + 1, gap=np.nan)
    weights = constants(problem.x.dims[1], problem.hidden)
    first, first_bias, second, second_bias = (
        array.astype(kind.numpy).astype(np.float64) if array.ndim > 1 else array.astype(np.float64) for array in weights
    )
    values = x.view.astype(np.float64)
    sums = values.mean((2, 3)) @ first[:, :, 0, 0].T + first_bias
    gates = 1 / (1 + np.exp(-(sums / (1 + np.exp(-sums)) @ second[:, :, 0, 0].T + second_bias)))[:, :, None, None]
    return x, filled(problem.y, 0, gap=1), weights, values * gates if problem.scales else gates


def spread(problem, groups, shares, threads=64):
    return SqueezeExciteForm(problem, groups, shares, threads)


@needs_compiler
@pytest.mark.parametrize("kind", [SINGLE, HALF])
@pytest.mark.parametrize(
    ("dims", "hidden", "groups", "shares", "threads"),
    [
        ((1, 8, 1, 1), 1, 1, 1, 64),
        ((2, 13, 5, 7), 3, 1, 1, 64),  # padding of channels
        ((2, 13, 5, 7), 3, 2, 2, 64),
        ((1, 40, 9, 9), 10, 4, 2, 32),  # pixels that no register keeps
        ((1, 72, 6, 5), 70, 8, 1, 32),  # blocks with fewer channels, or none; weights that are not asked for ahead
        ((1, 24, 3, 2), 300, 1, 4, 32),  # more pieces of the second matrix than lanes
        ((3, 264, 2, 2), 9, 1, 1, 128),
    ],
)
def test_images_times_their_gates(dims, hidden, groups, shares, threads, kind):
    problem = problem_of(dims, hidden, kind)
    x, y, weights, wanted = case_of(problem)
    launch = SqueezeExciteKernel(HostDevice(), problem, weights, spread(problem, groups, shares, threads)).prepare(
        [x, y]
    )
    launch(None)
    np.testing.assert_allclose(y.view, wanted, rtol=ROOM[kind], atol=ROOM[kind])
    assert not y.flat[: problem.y.elements].reshape(-1, problem.y.pitch)[:, dims[1] :].any()
    again = y.flat.copy()
    y.view[...] = 0
    launch(None)
    np.testing.assert_array_equal(y.flat, again)


@needs_compiler
@pytest.mark.parametrize(("groups", "shares"), [(1, 1), (2, 2), (1, 8)])
def test_only_the_gates(groups, shares):
    problem = problem_of((2, 20, 3, 4), 6, scales=False)
    x, y, weights, wanted = case_of(problem)
    SqueezeExciteKernel(HostDevice(), problem, weights, spread(problem, groups, shares)).prepare([x, y])(None)
    np.testing.assert_allclose(y.view, wanted, rtol=ROOM[HALF], atol=ROOM[HALF])
    assert not y.flat[: problem.y.elements].reshape(2, 24)[:, 20:].any()


@needs_compiler
def test_images_that_are_channels_of_larger_ones():
    problem = problem_of((2, 16, 4, 3), 4, pitch=40)
    x, y, weights, wanted = case_of(problem)
    SqueezeExciteKernel(HostDevice(), problem, weights, spread(problem, 2, 1)).prepare([x, y])(None)
    np.testing.assert_allclose(y.view, wanted, rtol=ROOM[HALF], atol=ROOM[HALF])


@pytest.mark.parametrize(
    ("dims", "hidden", "max_cluster", "wanted"),
    [
        ((1, 1152, 7, 7), 48, 16, (16, 1)),  # many weights: each block reads few of them
        ((1, 32, 112, 112), 8, 16, (1, 16)),  # many pixels
        ((1, 32, 112, 112), 8, 8, (1, 8)),
        ((8, 480, 14, 14), 20, 16, (16, 1)),
        ((9, 480, 14, 14), 20, 16, (8, 1)),  # nine clusters of 16 blocks do not run at once
        ((32, 1152, 7, 7), 48, 16, (2, 1)),  # many images: as many clusters at the same time
        ((1, 1152, 7, 7), 48, 1, None),
    ],
)
def test_the_form_depends_on_weights_pixels_and_images(dims, hidden, max_cluster, wanted):
    problem = problem_of(dims, hidden)
    if wanted is None:
        with pytest.raises(ValueError, match="at most 1024 channels, found 1152"):
            choose_form(problem, 132, max_cluster)
    else:
        form = choose_form(problem, 132, max_cluster)
        assert (form.groups, form.shares) == wanted
