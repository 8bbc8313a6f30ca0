"""What the GPU can do at best, measured: operations, bytes and launches; and which GPU it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytrtplugins.cuda.driver import driver
from pytrtplugins.engines.cuda.conv.cudnn_frontend import cudnn_versions
from pytrtplugins.engines.cuda.device.device import CudaDevice

from ..pages.machine import processor_name, versions
from .clock import Clock

_SIDE = 8192
_COPIED = 1 << 30
_CHAIN = 32
_QUERY = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit")
_INT32 = 10  # CUDA_R_32I, which CuPy does not name
_PACKAGES = ("cupy-cuda13x", "torch", "onnxruntime-gpu", "numpy")


def machine(cupy: Any, clock: Clock) -> dict[str, Any]:
    """GPU, driver, clocks while it works, versions; and the ceilings."""
    device = CudaDevice()
    found: dict[str, Any] = {"gpu": device.model, "capability": device.capability, **cudnn_versions()}
    found["cuda"] = f"{device.driver // 1000}.{device.driver % 1000 // 10}"
    found["versions"] = versions(_PACKAGES)
    random = np.random.default_rng(0)
    matrices = [cupy.asarray(random.integers(-8, 8, (_SIDE, _SIDE), dtype=np.int8)) for _ in range(2)]
    found["ceilings"] = {
        **{f"{name} TOP/s": _matmul(cupy, clock, matrices, *kind) for name, kind in _kinds(cupy).items()},
        "copy GB/s": _copy(cupy, clock),
        "launch µs": _launch(cupy, clock),
    }
    return {**found, "processor": processor_name(), **_clocks(cupy, clock)}


def kernels(graph: int) -> int:
    """How many kernels a captured graph launches."""
    cuda = driver()
    *_, count = cuda.api.cuGraphGetNodes(graph)
    kinds = [cuda.call("cuGraphNodeGetType", node) for node in cuda.call("cuGraphGetNodes", graph, count)]
    return kinds.count(cuda.api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL)


def _kinds(cupy: Any) -> dict[str, tuple[Any, int, Any, int, int]]:
    """Precision → element type and cuBLAS's word for it, the same for the result, and how it computes."""
    cublas, runtime = cupy.cuda.cublas, cupy.cuda.runtime
    return {
        "FP32": (cupy.float32, runtime.CUDA_R_32F, cupy.float32, runtime.CUDA_R_32F, cublas.CUBLAS_COMPUTE_32F),
        "TF32": (cupy.float32, runtime.CUDA_R_32F, cupy.float32, runtime.CUDA_R_32F, cublas.CUBLAS_COMPUTE_32F_FAST_TF32),
        "FP16": (cupy.float16, runtime.CUDA_R_16F, cupy.float16, runtime.CUDA_R_16F, cublas.CUBLAS_COMPUTE_32F),
        "INT8": (cupy.int8, runtime.CUDA_R_8I, cupy.int32, _INT32, cublas.CUBLAS_COMPUTE_32I),
    }  # fmt: skip


def _matmul(
    cupy: Any, clock: Clock, matrices: Sequence[Any], kind: Any, word: int, result: Any, result_word: int, compute: int
) -> float:
    """Tera-operations a second of a large product of random matrices."""
    cublas, side = cupy.cuda.cublas, _SIDE
    a, b = (each.astype(kind) for each in matrices)
    c = cupy.empty((side, side), result)
    one, zero = (np.array([value], np.int32 if result is cupy.int32 else np.float32) for value in (1, 0))
    handle = cupy.cuda.get_cublas_handle()
    cupy.cuda.get_current_stream().synchronize()

    def queue() -> None:
        cublas.setStream(handle, clock.stream.ptr)
        cublas.gemmEx(
            handle, cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, side, side, side, one.ctypes.data, a.data.ptr, word, side,
            b.data.ptr, word, side, zero.ctypes.data, c.data.ptr, result_word, side, compute, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    return 2 * side**3 / clock.gpu(queue).median / 1e6


def _copy(cupy: Any, clock: Clock) -> float:
    """Gigabytes a second that a large copy reads and writes."""
    a, b = cupy.zeros(_COPIED, cupy.uint8), cupy.empty(_COPIED, cupy.uint8)
    runtime = cupy.cuda.runtime

    def queue() -> None:
        runtime.memcpyAsync(b.data.ptr, a.data.ptr, a.nbytes, runtime.memcpyDeviceToDevice, clock.stream.ptr)

    return 2 * a.nbytes / clock.gpu(queue).median / 1e3


def _launch(cupy: Any, clock: Clock) -> float:
    """Microseconds from one kernel of a graph to the next, if both do nothing."""
    kernel = cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    with clock.stream:
        kernel((1,), (32,), ())
        clock.stream.synchronize()
        clock.stream.begin_capture()
        for _ in range(_CHAIN):
            kernel((1,), (32,), ())
        graph = clock.stream.end_capture()
    return clock.gpu(lambda: graph.launch(clock.stream)).median / _CHAIN


def _clocks(cupy: Any, clock: Clock) -> dict[str, str]:
    """What the driver says of the clocks while the GPU works."""
    a = cupy.ones((_SIDE, _SIDE), cupy.float16)
    index = int(os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or 0)
    with clock.stream:
        for _ in range(400):
            a @ a
        command = ["nvidia-smi", f"--id={index}", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"]
        try:
            text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        except (OSError, subprocess.SubprocessError) as error:
            return dict.fromkeys(_QUERY, f"unknown ({error})")
        finally:
            clock.stream.synchronize()
    return dict(zip(_QUERY, (part.strip() for part in text.split(",")), strict=False))
