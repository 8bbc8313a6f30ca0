"""Kernels that are compiled in the background while others are timed."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytrtplugins.cuda import cache, driver
from pytrtplugins.engines.cuda.conv import handwritten, launcher, stem, stem_kernel
from pytrtplugins.engines.cuda.conv.handwritten import HandwrittenProvider
from pytrtplugins.engines.cuda.conv.problem import Compiles, ConvProblem, DirectProvider
from pytrtplugins.engines.cuda.conv.shape import ConvShape
from pytrtplugins.engines.cuda.conv.stem import StemProvider
from pytrtplugins.engines.cuda.conv.tactics import Tactic
from pytrtplugins.engines.cuda.device import source
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.layout import channels_last, linear
from pytrtplugins.engines.cuda.device.source import kernel_text
from pytrtplugins.tensor import DType
from tests.cuda.fake_driver import FakeDriver
from tests.engines.cuda.conv import shapes

HALF = DType.FLOAT16
GPU = SimpleNamespace(capability=90, multiprocessors=132)


@pytest.fixture
def compiled(monkeypatch):
    """What is compiled, where nothing is compiled nor loaded."""
    found = []
    for module in (handwritten, stem, source):
        monkeypatch.setattr(module, "compile_kernel", lambda *what: found.append(what) or b"")
    monkeypatch.setattr(driver, "driver", lambda: driver.Driver(FakeDriver()))
    return found


@pytest.mark.parametrize(("family", "kind"), [("hopper", HALF), ("halo", HALF), ("mma", HALF), ("simt", DType.FLOAT32)])
def test_a_kernel_that_was_compiled_ahead_is_the_one_that_is_loaded(family, kind, compiled):
    x, y = channels_last((1, 64, 16, 16), kind), channels_last((1, 64, 16, 16), kind)
    problem = ConvProblem(x=x, y=y, kernel=(3, 3), pads=(1, 1, 1, 1), tensor_cores=kind is HALF)
    provider = HandwrittenProvider(GPU, family)
    for tactic in provider.tactics(problem):
        provider.compile(problem, tactic)
        launcher.ConvKernel(ConvShape.of(problem), Tactic.parse(family, tactic), 90)
    assert compiled
    assert compiled[::2] == compiled[1::2]
    assert [kernel_text(*what[:2]) for what in compiled[::2]] == [kernel_text(*what[:2]) for what in compiled[1::2]]


def test_the_stems_kernel_that_was_compiled_ahead_is_the_one_that_is_loaded(compiled):
    x, y = linear((1, 3, 32, 32), DType.FLOAT32), channels_last((1, 32, 16, 16), HALF)
    problem = ConvProblem(x=x, y=y, kernel=(3, 3), pads=(1, 1, 1, 1), pool=True, element=HALF)
    provider = StemProvider(GPU)
    assert list(provider.tactics(problem)) == ["stem"]
    provider.compile(problem, "stem")
    stem_kernel.StemKernel(replace(shapes.stem(HALF), h=32, w=32, x_strides=x.strides), 90)
    assert kernel_text(*compiled[0][:2]) == kernel_text(*compiled[1][:2])
    assert compiled[0][2] == compiled[1][2]


def test_families_with_a_kernel_for_each_tactic_say_so():
    assert isinstance(HandwrittenProvider(GPU, "mma"), Compiles)
    assert isinstance(StemProvider(GPU), Compiles)
    assert not isinstance(DirectProvider(HostDevice()), Compiles)


def test_threads_that_want_the_same_kernel_compile_it_once(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    made, ready = [], threading.Barrier(4)

    def make():
        made.append("kernel")
        time.sleep(0.05)
        return b"kernel"

    def ask(_):
        ready.wait()
        return cache.cached_bytes(["source"], ".cubin", make)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [b"kernel"] * 4
    assert len(made) == 1
