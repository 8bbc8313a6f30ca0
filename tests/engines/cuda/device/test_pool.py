"""Which kernel takes the largest or the mean of windows; what it computes is compared in tests/engines/cuda/device/test_reformat.py."""

from types import SimpleNamespace

import pytest

from pytrtplugins.engines.cuda.device import pool as module
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.engines.cuda.device.window import Window
from pytrtplugins.tensor import DType


@pytest.mark.parametrize(
    ("capability", "channels", "window", "own"),
    [
        (80, 16, Window(), True),
        (90, 16, Window(), True),
        (75, 16, Window(), False),
        (None, 16, Window(), False),  # not on a GPU
        (90, 16, Window(mean=True), False),
        (90, 12, Window(), True),  # the padding channels of a pixel are read with it
    ],
)
def test_the_vector_kernel_takes_the_largest_of_whole_units_on_a_gpu_since_ampere(
    monkeypatch, capability, channels, window, own
):
    launches = []

    class Kernel:
        def __init__(self, *given):
            assert given == (x, y, window, capability)

        def launch(self, *addresses):
            launches.append(addresses)

    monkeypatch.setattr(module, "CudaDevice", SimpleNamespace if capability else str)
    monkeypatch.setattr(module, "PoolKernel", Kernel)
    monkeypatch.setattr(module, "_POOL", SimpleNamespace(launch=lambda *given, **more: launches.append("plain")))
    x, y = channels_last((1, channels, 4, 4), DType.FLOAT16), channels_last((1, channels, 2, 2), DType.FLOAT16)
    launch = module.pool(SimpleNamespace(capability=capability), x, y, window)
    memory = [SimpleNamespace(flat=SimpleNamespace(data=SimpleNamespace(ptr=place))) for place in (16, 32)]
    launch(memory[0], memory[1], SimpleNamespace(ptr=7))
    assert launches == [(16, 32, 7) if own else "plain"]


@pytest.mark.parametrize(("x_pitch", "y_pitch", "own"), [(20, 16, False), (16, 20, False), (24, 24, True)])
def test_the_vector_kernel_needs_pixels_that_begin_at_units(monkeypatch, x_pitch, y_pitch, own):
    kernels = []
    monkeypatch.setattr(module, "CudaDevice", SimpleNamespace)
    monkeypatch.setattr(module, "PoolKernel", lambda *given: kernels.append(given))
    x, y = (module.Format((1, 16, side, side), DType.FLOAT16, pitch) for side, pitch in ((4, x_pitch), (2, y_pitch)))
    module.pool(SimpleNamespace(capability=90), x, y, Window())
    assert bool(kernels) is own
