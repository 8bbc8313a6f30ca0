"""Squeeze and excitation on a GPU: float64's numbers in clusters of each size, bit for bit the same in each run."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.device import CudaDevice
from pytrtplugins.engines.cuda.device.generated import largest_cluster
from pytrtplugins.engines.cuda.device.squeeze_excite import SqueezeExciteKernel
from pytrtplugins.tensor import DType
from tests.engines.cuda.device.test_squeeze_excite import ROOM, case_of, problem_of, spread
from tests.engines.cuda.host import copied

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
SHAPES = [
    ((1, 32, 112, 112), 8),
    ((2, 96, 56, 56), 4),
    ((1, 13, 9, 7), 3),
    ((3, 240, 28, 28), 10),
    ((1, 672, 14, 14), 168),
    ((40, 1152, 7, 7), 48),
    ((1, 960, 7, 7), 240),
    ((1, 3840, 7, 7), 130),
    ((1, 104, 150, 150), 26),  # pixels that no register keeps
]
HALF, SINGLE = DType.FLOAT16, DType.FLOAT32
SPREADS = [(HALF, True, spread) for spread in (None, (1, 1), (2, 1), (1, 4), (4, 2), (8, 1), (2, 8), (16, 1))]
SPREADS += [(HALF, False, None), (SINGLE, True, None), (SINGLE, False, None)]
"""Element type, whether images are scaled, and groups of channels and shares of pixels, or None where they are chosen."""


def on_gpu(problem, form):
    """The result of two runs, and what is expected."""
    device = CudaDevice()
    x, y, weights, wanted = case_of(problem)
    given, results = copied(device, x), [copied(device, y) for _ in range(2)]
    kernel = SqueezeExciteKernel(device, problem, weights, form)
    if not all(each.runs_clusters() for each in kernel.kernels):
        pytest.skip("the GPU runs no cluster of this size")
    stream = device.xp.cuda.Stream()
    for result in results:
        kernel.prepare([given, result])(stream)
    stream.synchronize()
    for result in results:
        y.flat[...] = device.download(result.flat)
        yield (
            y.view.copy(),
            y.flat[: problem.y.elements].reshape(-1, problem.y.pitch)[:, problem.y.dims[1] :].any(),
            wanted,
        )


@pytest.mark.parametrize(("kind", "scales", "spread_of"), SPREADS, ids=str)
@pytest.mark.parametrize(("dims", "hidden"), SHAPES, ids=str)
def test_float64s_numbers(dims, hidden, kind, scales, spread_of):
    problem = problem_of(dims, hidden, kind, scales)
    form = None if spread_of is None else spread(problem, *spread_of, threads=512)
    if spread_of is not None and (not form.fits or (form.blocks > 1 and largest_cluster(CudaDevice()) == 1)):
        pytest.skip("there is no such form")
    first, second = on_gpu(problem, form)
    for found, has_padding, wanted in (first, second):
        np.testing.assert_allclose(found, wanted, rtol=2 * ROOM[kind], atol=2 * ROOM[kind])
        assert not has_padding
    np.testing.assert_array_equal(first[0], second[0])
