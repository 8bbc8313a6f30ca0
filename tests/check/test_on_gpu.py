"""On a GPU: faults of one type or layout alone, what a CUDA graph cannot hold or bakes in, and what two streams share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import Constant, CudaKernel, gpu_reason
from tests.broken_kernels import NEEDED, Twice, kernel

pytestmark = [*NEEDED, pytest.mark.gpu, pytest.mark.skipif(bool(gpu_reason()), reason=gpu_reason() or "a GPU")]
CHECKS = ("enqueue on the GPU", "graph capture on the GPU", "two streams on the GPU")
ADD_BEFORE = kernel("    if (i < n) y[i] = x[i] + before[i];", "const T* x, const T* before, T* y, int n")
ZERO = Constant(np.zeros(1, np.float32))
FIRST = kernel("    if (i < n) y[i] = x[i] + T(by[0]);", "const T* x, const float* by, T* y, int n")


def on_gpu(array):
    return not isinstance(array, np.ndarray)


class OnGpu(Twice):
    """Right; subclasses do something else on a GPU only, so that no check without one can find it."""

    def enqueue(self, inputs, outputs, workspace, stream):
        super().enqueue(inputs, outputs, workspace, stream)
        if on_gpu(inputs[0]) and type(inputs[0]).__module__.startswith("cupy"):
            self.more(inputs[0], outputs[0], stream)

    def more(self, x, y, stream):
        return


class Baked(OnGpu):
    """Counts on the host, which a graph does not repeat."""

    def more(self, x, y, stream):
        self.runs = getattr(self, "runs", 0) + 1
        if self.runs > 1:
            y[...] = np.float32(self.runs)


class SharedScratch(OnGpu):
    """All clones go by way of one array of the class."""

    slow: ClassVar[CudaKernel] = kernel(
        "    if (i < n) { const long long start = clock64(); y[i] = x[i]; while (clock64() - start < 200000) {} }"
    )
    scratch: ClassVar[dict[Any, Any]] = {}

    def more(self, x, y, stream):
        import cupy

        shared = self.scratch.setdefault((x.shape, str(x.dtype)), cupy.zeros_like(x))
        self.slow.launch(x, shared, x.size, threads=x.size, block=64, stream=stream)
        ADD_BEFORE.launch(x, shared, y, x.size, threads=x.size, block=64, stream=stream)


class WrongInHalf(OnGpu):
    """Writes 99 in float16."""

    def more(self, x, y, stream):
        if x.dtype == np.float16:
            y[...] = 99


class Several(OnGpu):
    """Right: two launches, a workspace, a constant and an event between them."""

    def workspace_size(self, inputs, outputs):
        return int(np.prod(inputs[0].dims)) * inputs[0].dtype.numpy.itemsize

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        if not x.size:
            return
        scratch = workspace.view(x.dtype).reshape(x.shape)
        FIRST.launch(x, ZERO, scratch, x.size, threads=x.size, block=64, stream=stream)
        if stream is not None:
            stream.wait_event(stream.record())
        ADD_BEFORE.launch(x, scratch, y, x.size, threads=x.size, block=64, stream=stream)


FAULTS = {
    "waits": ("graph capture on the GPU", "capture: ", lambda self, x, y, stream: stream.synchronize()),
    "reads a number": ("graph capture on the GPU", "capture: ", lambda self, x, y, stream: float(x.reshape(-1)[0])),
    "copies to the host": ("graph capture on the GPU", "capture: ", lambda self, x, y, stream: x.get()),
    "copies from the host": (
        "graph capture on the GPU",
        "",
        lambda self, x, y, stream: y.set(x.get() + x.get()),
    ),
    "counts on the host": ("", "", Baked),
    "shares a scratch": ("two streams on the GPU", "not safe on two streams", SharedScratch),
    "wrong in float16": ("enqueue on the GPU", "on float16[", WrongInHalf),
}


@pytest.mark.parametrize("base", [OnGpu, Several])
def test_what_is_right_passes(base):
    cls = ptp.plugin(namespace="on_gpu")(type(f"Right{base.__name__}", (base,), {"__module__": __name__}))
    report = ptp.check_plugin(cls, engines=[])
    assert report.ok, str(report)
    assert [report[name].state for name in CHECKS] == ["ok"] * 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_only_a_gpu_shows_is_found(fault):
    check, words, how = FAULTS[fault]
    base, members = (how, {}) if isinstance(how, type) else (OnGpu, {"more": how})
    name = f"Fault{list(FAULTS).index(fault)}"
    cls = ptp.plugin(namespace="on_gpu")(type(name, (base,), {"__module__": __name__, **members}))
    report = ptp.check_plugin(cls, engines=[], shapes=[(2, 3, 40)])
    failed = {entry.name: entry.detail for entry in report.failed}
    assert failed, str(report)
    assert failed.keys() <= set(CHECKS)
    if check:
        assert words in failed[check]
