"""On a GPU: C++ layers on CuPy's arrays, and Python plugins called from C++ with addresses of the GPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins import native
from pytrtplugins.cuda import gpu_reason
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.tensor import TensorDesc
from tests.user_plugins import Copy

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cupy(built):
    if reason := gpu_reason():
        pytest.skip(reason.partition("\n")[0])
    import cupy

    return cupy


@pytest.fixture(scope="module")
def gpu_layers(cupy, layers):
    if not layers.Reorg().handle.runs_on_gpu():
        pytest.skip("the C++ layers were built without CUDA. Do: install CUDA's nvcc, then make native")
    return layers


@pytest.mark.parametrize("plugin", [
    Reorg(stride=2), Reorg(stride=3, reverse=True), Region(classes=3, num=2, softmax=True),
    Region(classes=6, tree=(-1, -1, 0, 0, 0, 1)), Region(classes=2, softmax=True, background=True)], ids=repr)  # fmt: skip
def test_the_layers_have_the_bits_of_compute(gpu_layers, plugin):
    twin = getattr(gpu_layers, type(plugin).__name__)(**plugin.fields())
    ptp.check_plugin(twin).raise_if_failed()


@pytest.mark.parametrize("layout", ["linear", "nhwc"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_enqueue_on_a_stream_can_be_captured(cupy, gpu_layers, layout, dtype):
    for plugin in (Reorg(stride=2), Region(classes=3, num=2, softmax=True)):
        x = np.random.default_rng(0).standard_normal((2, 16, 4, 6)).astype(dtype)
        twin = getattr(gpu_layers, type(plugin).__name__)(**plugin.fields())
        given = x.transpose(0, 2, 3, 1).copy().reshape(x.shape) if layout == "nhwc" else x
        on_gpu, (dims,) = cupy.asarray(given), plugin.all_output_dims([x.shape])
        y = cupy.zeros(dims, dtype)
        twin.configure(
            [TensorDesc("x", x.shape, ptp.DType(dtype), layout)], [TensorDesc("y", dims, ptp.DType(dtype), layout)]
        )
        twin.initialize()
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            twin.enqueue([on_gpu], [y], None, stream)
            graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        twin.terminate()
        n, c, h, w = dims
        found = cupy.asnumpy(y).reshape(n, h, w, c).transpose(0, 3, 1, 2) if layout == "nhwc" else cupy.asnumpy(y)
        np.testing.assert_array_max_ulp(found, plugin.compute(x), 1)


@ptp.plugin(namespace="native.tests")
class Shift(Copy):
    """Add a number, on the caller's stream, through a workspace."""

    by: float = 1.0

    def compute(self, x):
        return x + x.dtype.type(self.by)

    def workspace_size(self, inputs, outputs):
        return 16

    def enqueue(self, inputs, outputs, workspace, stream):
        import cupy

        assert workspace.nbytes == 16
        assert cupy.cuda.get_current_stream().ptr == stream.ptr
        workspace[...] = 1
        outputs[0][...] = self.compute(inputs[0]) * workspace[0]


def test_cpp_runs_a_python_plugin_on_the_gpu(cupy, acme_path):
    call = ctypes.CDLL(str(acme_path)).call_on_gpu
    x, y, scratch = cupy.arange(6, dtype=np.float32), cupy.zeros(6, np.float32), cupy.zeros(16, np.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    handle = native.as_native(Shift(by=3))
    pointers = [ctypes.c_void_p(value) for value in (x.data.ptr, y.data.ptr, scratch.data.ptr, stream.ptr)]
    call(ctypes.c_void_p(handle.address), ctypes.c_int64(6), *pointers)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(y), np.arange(6, dtype=np.float32) + 3)
