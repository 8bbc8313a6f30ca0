"""Kernels on a GPU: the same results as on NumPy arrays, on any library's arrays, without a copy."""

import threading

import numpy as np
import pytest

from pytrtplugins import DType, TensorDesc, check_plugin, errors
from pytrtplugins.cuda import Constant, CudaKernel, as_cupy, device_array
from pytrtplugins.cuda.compiler import find_nvcc
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.plugin.runner import PluginRunner
from pytrtplugins.vision import letterbox, nms
from pytrtplugins.vision.kernels import decode_into, head_priors, letterbox_into, nms_into
from tests.cuda.conftest import AFFINE
from tests.cuda.foreign import Foreign, OnlyDlpack
from tests.cuda.test_layers import run, same_bits, values

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]

CASES = [
    (Reorg(stride=2), (2, 64, 26, 26)),
    (Reorg(stride=2), (1, 16, 64, 64)),
    (Reorg(stride=2), (3, 4, 6, 10)),
    (Reorg(stride=4), (1, 16, 64, 64)),
    (Reorg(stride=3), (2, 18, 27, 9)),
    (Reorg(stride=2, reverse=True), (2, 64, 26, 26)),
    (Reorg(stride=2, reverse=True), (1, 64, 32, 48)),
    (Reorg(stride=2), (1, 32, 10, 12)),
    (Reorg(stride=2, reverse=True), (2, 64, 13, 13)),
    (Reorg(stride=4, reverse=True), (1, 64, 8, 13)),
    (Reorg(stride=5, reverse=True), (1, 25, 3, 7)),
    (Region(classes=20, num=5, softmax=True), (2, 125, 13, 13)),
    (Region(classes=7, num=2, background=True, softmax=True), (1, 24, 5, 3)),
    (Region(classes=6, num=2, tree=(-1, -1, 0, 0, 1, 1)), (2, 22, 4, 4)),
    (Yolo(anchors=(10, 13, 16, 30, 33, 23), mask=(0, 1, 2), classes=80, scale_x_y=1.05), (1, 255, 26, 26)),
    (Yolo(anchors=(10, 13), mask=(0,), classes=3, new_coords=True, scale_x_y=2.0), (2, 8, 7, 9)),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["linear", "nhwc"])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16, DType.INT8])
@pytest.mark.parametrize(("plugin", "dims"), CASES, ids=str)
def test_a_plugin_has_the_bits_of_compute(cupy, plugin, dims, dtype, layout):
    output_dims = plugin.all_output_dims([dims])[0]
    descs = [TensorDesc("x", dims, dtype, layout), TensorDesc("y", output_dims, dtype, layout)]
    if not all(plugin.supports_format(position, descs) for position in (0, 1)):
        pytest.skip(f"{type(plugin).__name__} does not take {dtype}")
    x = values(dims, str(dtype), 7)
    same_bits(run(plugin.clone(), x, layout, cupy), plugin.compute(x))


@pytest.mark.parametrize("plugin", [plugin for plugin, _ in CASES[::3]], ids=repr)
def test_check_plugin_runs_enqueue_on_the_gpu(plugin):
    report = check_plugin(plugin, engines=[])
    report.raise_if_failed()
    assert not {entry.name: entry for entry in report.entries}["enqueue on the GPU"].skipped


@pytest.mark.parametrize("backend", ["cupy", "nvcc"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
def test_both_compilers_give_the_same(cupy, backend, dtype):
    if backend == "nvcc" and not find_nvcc()[0]:
        pytest.skip("nvcc is not installed")
    x, y = cupy.arange(100).astype(dtype), cupy.empty(100, dtype)
    CudaKernel.from_source(AFFINE, "affine", backend=backend).launch(x, y, 100, 1, True, threads=100)
    np.testing.assert_array_equal(cupy.asnumpy(y), -np.arange(100).astype(dtype))


def test_a_compile_error_of_nvrtc_shows_the_line(cupy):
    kernel = CudaKernel.from_source("__global__ void f(float* x) {\n    x[0] = foo;\n}\n", "f")
    with pytest.raises(errors.KernelError, match=r"NVRTC.*\nf.cu:2: .*\"foo\" is undefined\n +2 \|     x\[0\] = foo;"):
        kernel.launch(cupy.zeros(1, np.float32), threads=1)


def test_cudas_own_half_dynamic_shared_memory_and_shuffles_work_on_a_gpu(cupy):
    source = """#include <cuda_fp16.h>
    __global__ void f(const __half* x, __half* y, int n) {
        extern __shared__ float tile[];
        tile[threadIdx.x] = __half2float(__hadd(x[threadIdx.x], x[threadIdx.x]));
        __syncthreads();
        float value = __shfl_sync(0xffffffffu, tile[n - 1 - threadIdx.x], threadIdx.x ^ 1);
        y[threadIdx.x] = __float2half(value);
    }"""
    x, y = cupy.arange(32, dtype=np.float16), cupy.empty(32, np.float16)
    CudaKernel.from_source(source, "f").launch(x, y, 32, threads=32, block=32, shared_bytes=128)
    np.testing.assert_array_equal(cupy.asnumpy(y), (2 * np.arange(32)[::-1]).reshape(16, 2)[:, ::-1].ravel())


def test_a_launch_is_queued_on_the_stream_given_and_captured_in_a_graph(cupy):
    kernel = CudaKernel.from_source(AFFINE, "affine")
    x, y = cupy.ones(1000, np.float32), cupy.zeros(1000, np.float32)
    kernel.prepare("float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    kernel.launch(x, y, 1000, 2, False, threads=1000, stream=stream)
    stream.synchronize()
    y.fill(0)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        kernel.launch(x, y, 1000, 3, False, threads=1000, stream=stream)
        graph = stream.end_capture()
        assert float(y.sum()) == 0
        graph.launch(stream)
        stream.synchronize()
    assert (cupy.asnumpy(y) == 3).all()
    kernel.launch(x, y, 1000, 4, False, threads=1000, stream=stream.ptr)  # the number of a stream
    stream.synchronize()
    assert (cupy.asnumpy(y) == 4).all()


def test_kernels_get_more_than_48_kib_of_shared_memory_in_any_order(cupy):
    source = """__global__ void f(float* y, int last) {
        extern __shared__ float tile[];
        tile[last] = last;
        y[0] = tile[last];
    }"""
    kernel, y = CudaKernel.from_source(source, "f"), cupy.zeros(1, np.float32)
    for size in (100, 90_000, 60_000, 90_000):
        kernel.launch(y, size // 4 - 1, threads=1, block=1, shared_bytes=size)
        assert cupy.asnumpy(y)[0] == size // 4 - 1
    with pytest.raises(errors.KernelError, match="CUDA: cuFuncSetAttribute gives"):
        kernel.launch(y, 0, threads=1, block=1, shared_bytes=1 << 20)


def test_a_new_thread_launches(cupy):
    kernel, x, y = CudaKernel.from_source(AFFINE, "affine"), cupy.ones(9, np.float32), cupy.zeros(9, np.float32)
    kernel.prepare("float32")
    cupy.cuda.Device().synchronize()
    thread = threading.Thread(target=kernel.launch, args=(x, y, 9, 2, False), kwargs={"threads": 9})
    thread.start()
    thread.join()
    cupy.cuda.Device().synchronize()
    assert (cupy.asnumpy(y) == 2).all()


def test_what_was_prepared_is_not_compiled_again(cupy, monkeypatch):
    plugin, desc = Region(classes=3), TensorDesc("x", (1, 8, 4, 4), DType.FLOAT16)
    runner = PluginRunner(plugin)
    runner.prepare([desc], [desc])
    assert runner.compile() == 1

    def fail(*arguments):
        raise AssertionError("compiled or copied in enqueue")

    monkeypatch.setattr("pytrtplugins.cuda.backends.gpu.CupyLibrary.load", fail)
    x = cupy.zeros((1, 8, 4, 4), np.float16)
    monkeypatch.setattr(cupy, "asarray", fail)
    plugin.enqueue([x], [cupy.empty_like(x)], None, None)


def test_a_constant_is_copied_once(cupy):
    kernel = CudaKernel.from_source("__global__ void f(const int* t, int* y) { y[threadIdx.x] = t[threadIdx.x]; }", "f")
    table, y = Constant(np.array([3, 1, 4], np.int32)), cupy.zeros(3, np.int32)
    for _ in range(2):
        kernel.launch(table, y, threads=3, block=3)
    assert cupy.asnumpy(y).tolist() == [3, 1, 4]
    assert len(table.copies) == 1


def test_arrays_in_two_places_are_refused(cupy):
    kernel = CudaKernel.from_source(AFFINE, "affine")
    with pytest.raises(errors.KernelError, match=r"different devices \(y: device, x: host\)"):
        kernel.launch(np.zeros(4, np.float32), cupy.zeros(4, np.float32), 4, 1, False, threads=4)
    x = cupy.zeros(4, np.float32)
    with pytest.raises(errors.KernelError, match="backend 'host' takes NumPy arrays"):
        CudaKernel(AFFINE, "affine", backend="host").launch(x, x, 4, 1, False, threads=4)
    with pytest.raises(errors.KernelError, match=r"`T\* y`: the array is not contiguous"):
        kernel.launch(cupy.zeros(4, np.float32), cupy.zeros(8, np.float32)[::2], 4, 1, False, threads=4)


@pytest.mark.parametrize("wrap", [Foreign, OnlyDlpack])
def test_any_array_on_the_gpu_is_taken_as_it_is(cupy, wrap):
    x, y = cupy.arange(6, dtype=np.float32).reshape(2, 3), cupy.zeros((2, 3), np.float32)
    CudaKernel.from_source(AFFINE, "affine").launch(wrap(x), wrap(y), 6, 2, False, threads=6)
    np.testing.assert_array_equal(cupy.asnumpy(y).ravel(), 2 * np.arange(6))
    same = as_cupy(wrap(x), (2, 3), "float32")
    assert (same.data.ptr, same.shape, device_array(wrap(x)).address) == (x.data.ptr, (2, 3), x.data.ptr)
    with pytest.raises(errors.BindingError, match=r"expected float32\[3, 2\], found float32\[2, 3\]"):
        as_cupy(wrap(x), (3, 2))
    with pytest.raises(errors.BindingError, match="not contiguous"):
        as_cupy(wrap(cupy.zeros((3, 2), np.float32).T))


def test_tensors_of_pytorch_are_taken_as_they_are(cupy):
    torch = pytest.importorskip("torch")
    x, y = torch.arange(8, dtype=torch.float16, device="cuda"), torch.zeros(8, dtype=torch.float16, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    CudaKernel.from_source(AFFINE, "affine").launch(x, y, 8, 2, False, threads=8, stream=stream)
    stream.synchronize()
    assert y.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert as_cupy(x).data.ptr == x.data_ptr()


def test_detection_on_the_gpu_is_that_of_the_cpu(cupy):
    rng = np.random.default_rng(0)
    image, data = rng.integers(0, 256, (333, 500, 3)).astype(np.uint8), cupy.empty((3, 416, 416), np.float32)
    letterbox_into(cupy.asarray(image), data)
    np.testing.assert_array_equal(cupy.asnumpy(data), letterbox(image, (416, 416)).data)
    output = Region(classes=4, num=5, softmax=True).compute(rng.standard_normal((2, 45, 7, 7)).astype(np.float32))
    priors = head_priors((1.3, 1.7, 3.2, 4, 5, 2, 3, 5, 2, 1), (7, 7))
    results = []
    for xp in (np, cupy):
        boxes, scores = xp.full((2, 245, 4), np.nan, np.float32), xp.full((2, 4, 245), np.nan, np.float32)
        decode_into(xp.asarray(output), boxes, scores, priors, score_threshold=0.1)
        before = [array.copy() if xp is np else cupy.asnumpy(array) for array in (boxes, scores)]
        nms_into(boxes, scores)
        results.append([*before, scores if xp is np else cupy.asnumpy(scores)])
    for found, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_array_equal(found, expected)
    expected = nms(results[1][0][0], results[1][1][0].T.copy()).T
    np.testing.assert_array_equal(np.maximum(results[1][2][0], 0), expected)
