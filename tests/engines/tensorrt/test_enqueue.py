"""What happens before an enqueue, so that little is left to happen in it."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from benchmarks.tensorrt_enqueue import main as benchmark
from pytrtplugins.cuda import CudaKernel
from pytrtplugins.engines.tensorrt.memory import DeviceMemory, use_memory
from pytrtplugins.errors import PluginError
from pytrtplugins.tensor import DType, TensorDesc
from tests.host_memory import HostMemory
from tests.user_plugins import Copy

from .user_plugins import Counting, Scale

X = np.ones((1, 4), np.float32)
SOURCE = """
template <typename T> __global__ void twice(const T* x, T* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i];
}
"""


class Asked(CudaKernel):
    """A kernel that tells for what it was to be compiled."""

    elements: ClassVar[list[str | None]] = []

    def prepare_element(self, element, *constants):
        self.elements.append(element)


@ptp.plugin(namespace="test.tensorrt")
class Launching(Copy):
    """Launches a kernel; ``extra`` makes it do what cannot be recorded."""

    kernel = Asked.from_source(SOURCE, "twice")
    extra: bool = False

    def compute(self, x):
        return x + x

    def initialize(self):
        self.launches = 0

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.launches += 1
        if self.extra:
            np.add(x, x, out=y)
        if not isinstance(x, np.ndarray):
            self.kernel.launch(x, y, x.size, threads=x.size, stream=stream)


@pytest.fixture
def asked(monkeypatch):
    elements: list[str | None] = []
    monkeypatch.setattr(Asked, "elements", elements)
    return elements


@pytest.mark.parametrize(("dtype", "element"), [(np.float32, "float"), (np.float16, "__half")])
def test_kernels_are_compiled_when_the_dims_are_known_and_for_each_context_once(driver, asked, dtype, element):
    attached = driver.attach(driver.create(Launching()))
    for n in (1, 1, 3):
        x = np.ones((n, 4), dtype)
        driver.enqueue(attached, [x], [x + 0], 0)
    assert asked == [element]
    assert attached.host.plugin.launches == 3


def test_a_plugin_that_does_more_than_to_launch_kernels_runs_all_the_same(driver, asked):
    out = X + 0
    driver.enqueue(driver.attach(driver.create(Launching(extra=True))), [X], [out], 0)
    assert out.tolist() == (X + X).tolist()
    assert asked == []


def test_on_a_gpu_a_plugin_without_an_enqueue_computes_once_with_zeros(driver, monkeypatch):
    seen = []

    @ptp.plugin(namespace="test.tensorrt")
    class Computing(Copy):
        def compute(self, x):
            seen.append(x.tolist())
            if not x.any():
                raise ValueError("zeros")
            return x + x

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(zeros=np.zeros))
    made = driver.attach(driver.create(Computing()))
    desc = driver.desc(X.shape, DType.FLOAT32)
    with use_memory(DeviceMemory()):
        for _ in range(2):
            if driver.interface == "v2":
                made.configure_plugin([driver.dynamic(desc)], [driver.dynamic(desc)])
            else:
                made.on_shape_change([desc], [desc])
    assert seen == [[[0.0] * 4]]
    HostMemory().rehearse(Computing(), [TensorDesc("x", (1, 4), DType.FLOAT32)])
    assert len(seen) == 1


class Stream(nullcontext):
    ptr, capturing = 7, False

    def is_capturing(self):
        return self.capturing


class Streaming(HostMemory):
    def __init__(self):
        self.queue, self.views = Stream(), 0

    def view(self, address, dims, dtype):
        self.views += 1
        return super().view(address, dims, dtype)

    def stream(self, handle):
        return self.queue


def test_a_plugin_without_an_enqueue_refuses_to_be_captured_in_a_cuda_graph(driver):
    with use_memory(Streaming()) as memory:
        attached = driver.attach(driver.create(Scale()))
        driver.enqueue(attached, [X], [X + 0], 0)
        memory.queue.capturing = True
        with pytest.raises(PluginError, match=r"while a CUDA graph is captured[\s\S]*Do: write an enqueue"):
            driver.enqueue(attached, [X], [X + 0], 0, changed=False)
        own = driver.attach(driver.create(Counting()))
        driver.enqueue(own, [X], [X + 0], 0)


def test_cupy_takes_tensorrts_stream():
    pytest.importorskip("cupy")
    stream = DeviceMemory().stream(7)
    assert stream.ptr == 7
    assert callable(stream.is_capturing)


def test_arrays_over_the_same_addresses_are_made_once(driver):
    with use_memory(Streaming()) as memory:
        attached = driver.attach(driver.create(Counting()))
        out, other = X + 0, X + 0
        for y in (out, out, other, out):
            driver.enqueue(attached, [X], [y], 0, changed=y is out and memory.views == 0)
        assert memory.views == 4
        driver.enqueue(attached, [X], [out], 0)  # the dims are told anew
        assert memory.views == 6


def test_new_dims_are_seen_without_a_call_that_tells_them(api):
    if not api.has_v2:
        pytest.skip("only IPluginV2 has it")
    from .driver import Driver

    with use_memory(HostMemory()):
        driver = Driver(api, "v2")
        attached = driver.attach(driver.create(Scale(factor=3)))
        for n in (1, 2, 1):
            x = np.full((n, 4), n, np.float32)
            out = x + 0
            driver.enqueue(attached, [x], [out], 0, changed=False)
            np.testing.assert_array_equal(out, 3 * x)


def test_the_benchmark_of_enqueue_compares_and_times(api, capsys, tmp_path):
    assert benchmark(["--calls", "20", "--fail-above", "100000", "--json", str(tmp_path / "times.json")]) == 0
    results = json.loads((tmp_path / "times.json").read_text())["rows"]
    assert [found["plugin"] for found in results[:3]] == ["Nothing()", "Twice()", "Twins()"]
    assert {found["interface"] for found in results[:3]} == {"v3"}
    assert {found["interface"] for found in results} == {"v3", *(["v2"] if api.has_v2 else [])}
    assert "Twins()" in capsys.readouterr().out
    assert benchmark(["--calls", "20", "--fail-above", "0.000001"]) == 1
