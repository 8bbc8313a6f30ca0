"""Kernels whose source the engine writes are compiled once, side by side, before they are loaded."""

from types import SimpleNamespace

import pytest

from pytrtplugins.engines.cuda.device import generated
from pytrtplugins.engines.cuda.device.device import CudaDevice, HostDevice
from pytrtplugins.engines.cuda.device.generated import GeneratedKernel, compile_all

TEXTS = [f'extern "C" __global__ void f(float* y) {{ y[0] = {value}; }}' for value in (1, 2, 1)]


@pytest.fixture
def compiled(monkeypatch):
    """Sources in the order in which they are compiled to ``b"cubin N"``."""
    codes = []
    monkeypatch.setattr(generated, "newest_architecture", lambda capability: f"sm_{capability}")
    monkeypatch.setattr(
        generated, "compile_unit", lambda unit, _: codes.append(unit.source) or b"cubin %d" % TEXTS.index(unit.source)
    )
    monkeypatch.setattr(generated, "load_cubin", lambda code, name: SimpleNamespace(code=code, name=name))
    return codes


def gpu():
    device = object.__new__(CudaDevice)
    device.capability, device.multiprocessors = 90, 132
    return device


def test_kernels_of_one_source_are_compiled_once_and_not_again_when_they_are_loaded(compiled):
    kernels = [GeneratedKernel(gpu(), text, "f", 1, 32) for text in TEXTS]
    compile_all(kernels)
    assert sorted(compiled) == sorted(set(TEXTS))
    for kernel in kernels:
        kernel.load()
    assert [kernel._loaded.code for kernel in kernels] == [b"cubin 0", b"cubin 1", b"cubin 0"]
    assert len(compiled) == 2
    assert all(kernel._cubin is None for kernel in kernels)  # the code stays on the disk alone


def test_a_kernel_that_was_not_compiled_ahead_is_compiled_when_it_is_loaded(compiled):
    kernel = GeneratedKernel(gpu(), TEXTS[1], "f", 1, 32)
    kernel.load()
    assert (kernel._loaded.code, compiled) == (b"cubin 1", [TEXTS[1]])


def test_nothing_is_compiled_ahead_for_the_host(compiled):
    compile_all([GeneratedKernel(HostDevice(), TEXTS[0], "f", 1, 32)])
    assert not compiled
