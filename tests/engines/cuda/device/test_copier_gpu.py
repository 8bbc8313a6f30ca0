"""Copies of several arrays by one kernel, on a GPU."""

import numpy as np
import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.fixture
def device():
    from pytrtplugins.engines.cuda.device.device import CudaDevice

    return CudaDevice()


@pytest.mark.parametrize(
    "sizes", [[16], [1], [0], [3, 0, 5], [519_168, 86_528], [1000 + 7 * part for part in range(19)], [1 << 26]]
)
@pytest.mark.parametrize("begin", [(0, 0), (4, 8), (4, 2), (1, 0)])
def test_each_array_is_copied_and_nothing_else_is_written(device, sizes, begin):
    cupy = device.xp
    rng, (to, start) = np.random.default_rng(0), begin
    sources = [cupy.asarray(rng.integers(1, 256, size + 32).astype(np.uint8)) for size in sizes]
    targets = [cupy.zeros(size + 32, np.uint8) for size in sizes]
    places = ([array.data.ptr + begin for array in arrays] for arrays, begin in ((targets, to), (sources, start)))
    device.copier(sizes).queue(*places, cupy.cuda.get_current_stream().ptr)
    for size, source, target in zip(sizes, sources, targets, strict=True):
        expected = np.zeros(size + 32, np.uint8)
        expected[to : to + size] = source.get()[start : start + size]
        np.testing.assert_array_equal(target.get(), expected)
