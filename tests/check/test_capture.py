"""What a CUDA graph cannot hold is found without a GPU, by name and line; what it can hold passes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import Constant, CudaKernel
from pytrtplugins.cuda.stand_in import StandInArray, StandInStream
from pytrtplugins.errors import KernelError, PluginError
from tests.broken_kernels import NEEDED, Twice
from tests.small_process import in_small_process

pytestmark = NEEDED
KERNEL = Twice.kernel
SHIFTED = CudaKernel.from_source(
    """template <typename T> __global__ void shifted(const T* x, const float* by, T* y, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] + x[i] + T(by[0]);
    }""",
    "shifted",
)
ZERO = Constant(np.zeros(1, np.float32))


class Besides(Twice):
    """Right; each subclass does something else besides."""

    def enqueue(self, inputs, outputs, workspace, stream):
        super().enqueue(inputs, outputs, workspace, stream)
        if inputs[0].size:
            self.more(inputs[0], outputs[0], workspace, stream)

    def more(self, x, y, workspace, stream):
        return


def with_current(change):
    def more(self, x, y, workspace, stream):
        with stream or StandInStream():
            change(x, y)

    return more


FAULTS = {
    "stream.synchronize()": ("synchronizes", lambda x, y, w, s: s and s.synchronize()),
    "a product": ("allocates", lambda x, y, w, s: x * 2),
    "a product of numbers": ("allocates", lambda x, y, w, s: 2 * x),
    "NumPy's function": ("allocates", lambda x, y, w, s: np.sum(x)),
    "NumPy's ufunc": ("allocates", lambda x, y, w, s: np.exp(x)),
    "a copy": ("allocates", lambda x, y, w, s: x.copy()),
    "another type": ("allocates", lambda x, y, w, s: x.astype(np.float32)),
    "a method's result": ("allocates", lambda x, y, w, s: x.sum()),
    "indices": ("allocates", lambda x, y, w, s: x.reshape(-1)[[0, 0]]),
    "a reshape that copies": ("allocates", lambda x, y, w, s: x.T.reshape(-1, 1) if x.ndim > 1 and min(x.shape) > 1 else x.copy()),
    "a number": ("reads a value on the host", lambda x, y, w, s: float(x.reshape(-1)[0])),
    "a condition": ("reads a value on the host", lambda x, y, w, s: 1 if x.reshape(-1)[:1] else 0),
    "item": ("reads a value on the host", lambda x, y, w, s: x.reshape(-1)[0].item()),
    "a list": ("reads a value on the host", lambda x, y, w, s: x.tolist()),
    "a NumPy array": ("reads a value on the host", lambda x, y, w, s: np.asarray(x)),
    "a kernel without a stream": ("uses the default stream", lambda x, y, w, s: KERNEL.launch(x, y, x.size, threads=x.size)),
    "a kernel on another stream": (
        "uses the default stream",
        lambda x, y, w, s: KERNEL.launch(x, y, x.size, threads=x.size, stream=s and StandInStream(7)),
    ),
    "an assignment": ("uses the default stream", lambda x, y, w, s: y.__setitem__(..., y)),
    "a NumPy array assigned": (
        "copies pageable memory",
        lambda x, y, w, s: isinstance(x, np.ndarray) or y.__setitem__(..., np.ones(y.shape, y.dtype)),
    ),
    "a Constant made in each run": (
        "copies pageable memory",
        lambda x, y, w, s: SHIFTED.launch(x, Constant(np.zeros(1, np.float32)), y, x.size, threads=x.size, stream=s),
    ),
}  # fmt: skip
"""What enqueue does besides, and what the check calls it; on arrays of NumPy's own it does no harm."""


def plugin(name, **members):
    return ptp.plugin(namespace="capture")(type(name, (Besides,), {"__module__": __name__, **members}))


@pytest.mark.parametrize("fault", FAULTS)
@in_small_process
def test_a_fault_is_found_by_name_and_line(fault):
    defect, change = FAULTS[fault]

    def more(self, x, y, workspace, stream):
        change(x, y, workspace, stream)

    cls = plugin(f"Fault{list(FAULTS).index(fault)}", more=more)
    report = ptp.check_plugin(cls, engines=[], shapes=[(2, 3, 4)])
    assert [entry.name for entry in report.failed] == ["graph capture"], str(report)
    detail = report["graph capture"].detail
    assert f": {defect}: " in detail
    assert f"({__file__}:" in detail


RIGHT = {
    "nothing": lambda x, y: None,
    "views": lambda x, y: (
        x.view("int16"),
        x.reshape(-1),
        x.T,
        x[0],
        x[..., 0],
        x.transpose(),
        len(x),
        x.shape,
        x.nbytes,
    ),
    "a sum into its output": lambda x, y: np.add(x, x, out=y),
    "an assignment": lambda x, y: y.__setitem__(..., x) or np.add(y, y, out=y),
    "in place": lambda x, y: y.__imul__(1),
    "a number assigned": lambda x, y: y.__setitem__(..., 0) or np.add(x, x, out=y),
}


@pytest.mark.parametrize("name", RIGHT)
@in_small_process
def test_what_a_graph_holds_passes(name):
    cls = plugin(f"Right{list(RIGHT).index(name)}", more=with_current(RIGHT[name]))
    report = ptp.check_plugin(cls, engines=[], shapes=[(2, 3, 4)])
    assert report.ok, str(report)
    assert not report["graph capture"].skipped


@in_small_process
def test_workspace_constants_events_and_several_launches_pass():
    class Several(Twice):
        kernel: ClassVar[CudaKernel] = SHIFTED

        def workspace_size(self, inputs, outputs):
            return int(np.prod(inputs[0].dims)) * inputs[0].dtype.numpy.itemsize

        def enqueue(self, inputs, outputs, workspace, stream):
            (x,), (y,) = inputs, outputs
            if not x.size:
                return
            scratch = workspace.view(x.dtype).reshape(x.shape)
            SHIFTED.launch(x, ZERO, scratch, x.size, threads=x.size, stream=stream)
            if stream is not None:
                stream.wait_event(stream.record())
            SHIFTED.launch(x, ZERO, y, x.size, threads=x.size, stream=stream)

    report = ptp.check_plugin(ptp.plugin(namespace="capture")(Several), engines=[])
    assert report.ok, str(report)


def test_arrays_of_both_places_in_one_launch_are_refused():
    stream, x = StandInStream(), np.ones(3, np.float32)
    with pytest.raises(KernelError, match="different devices"):
        KERNEL.launch(StandInArray(x, stream), np.ones(3, np.float32), 3, threads=3, stream=stream)


@in_small_process
def test_what_only_a_gpus_array_has_cannot_be_tried():
    def more(self, x, y, workspace, stream):
        return None if isinstance(x, np.ndarray) else x.data.ptr

    entry = ptp.check_plugin(plugin("Address", more=more), engines=[], shapes=[(2, 3)])["graph capture"]
    assert entry.skipped
    assert entry.detail.startswith("enqueue cannot be tried without a GPU: ")


def test_the_error_of_a_stand_in_is_the_packages_own():
    with pytest.raises(PluginError) as caught:
        float(StandInArray(np.ones(1, np.float32), StandInStream()))
    assert caught.value.facts["defect"] == "reads a value on the host"
