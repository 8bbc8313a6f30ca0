"""Plugins with one defect of memory, threads or state each: the check that must find it, and what it must be called."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any, ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import CudaKernel
from pytrtplugins.cuda.backends import host as host_backend

NEEDED = [
    pytest.mark.skipif(sys.platform != "linux", reason="checks run in a process of their own on Linux only"),
    pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)"),
]
"""What tests of `check_plugin` on kernels are skipped without."""
ZOO: list[tuple[type[ptp.Plugin], str, str]] = []
"""The class, the entry that fails, and the name of the defect in it."""
SURVIVED: list[tuple[type[ptp.Plugin], str, str]] = []
"""The same, for what would end the process of the check."""


def caught_by(entry: str, name: str, zoo: list[Any] = ZOO) -> Any:
    def decorate(cls: type[ptp.Plugin]) -> type[ptp.Plugin]:
        registered = ptp.plugin(namespace="broken_kernels")(cls)
        zoo.append((registered, entry, name))
        return registered

    return decorate


def kernel(body: str, parameters: str = "const T* x, T* y, int n") -> CudaKernel:
    head = f"template <typename T>\n__global__ void twice({parameters}) {{\n"
    index = "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    return CudaKernel.from_source(f"{head}{index}{body}\n}}\n", "twice")


class Twice(ptp.Plugin):
    """Right; each subclass has another kernel."""

    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) y[i] = x[i] + x[i];")

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, x.size, threads=x.size, block=64, stream=stream)


class Reversed(Twice):
    """Right: rows of at most 64 values backwards, by way of shared memory, a block for each."""

    right: ClassVar[str] = """    __shared__ T tile[64];
    if (threadIdx.x < n) tile[threadIdx.x] = x[blockIdx.x * n + threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) y[blockIdx.x * n + threadIdx.x] = tile[n - 1 - threadIdx.x];"""
    kernel: ClassVar[CudaKernel] = kernel(right)

    def output_dims(self, x):
        if not 8 <= x[-1] <= 64:
            raise ptp.PytrtpluginsError("from 8 to 64")
        return x

    def compute(self, x):
        return x[..., ::-1].copy()

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        n = x.shape[-1]
        self.kernel.launch(x, y, n, threads=x.size // n * 64, block=64, stream=stream)


WITH_WORKSPACE = "const T* x, T* y, T* w, int n"


class Summed(Twice):
    """Right: by way of the workspace."""

    def workspace_size(self, inputs, outputs):
        return int(np.prod(inputs[0].dims)) * inputs[0].dtype.numpy.itemsize

    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) { w[i] = x[i]; y[i] = w[i] + x[i]; }", WITH_WORKSPACE)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        if x.size:  # else there is no workspace
            self.kernel.launch(x, y, workspace.view(x.dtype), x.size, threads=x.size, block=64, stream=stream)


class IndexInLong(Twice):
    """Right above 2^31 elements too."""

    kernel: ClassVar[CudaKernel] = kernel(
        "    const long long j = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;\n"
        "    if (j < n) y[j] = x[j] + x[j];",
        "const T* x, T* y, long long n",
    )


RIGHT = [ptp.plugin(namespace="right_kernels")(cls) for cls in (Twice, Reversed, Summed, IndexInLong)]


@caught_by("empty batch", "out-of-bounds read")
class AlwaysHasAFirst(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i < n || i == 0) y[i] = x[i] + x[i];")

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, x.size, threads=max(1, x.size), block=64, stream=stream)


@caught_by("memory", "out-of-bounds read")
class ReadsFarOutside(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) y[i] = x[i] + x[i < n - 1 ? i : i + 5];")


@caught_by("memory", "out-of-bounds write")
class WritesFarOutside(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) y[i] = x[i] + x[i];\n    if (i == 0) y[-7] = 0;")


@caught_by("memory", "out-of-bounds read, off by one")
class NoBoundsTest(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    y[i] = x[i] + x[i];")


@caught_by("memory", "out-of-bounds write, off by one")
class OneTooMany(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i <= n) y[i] = i < n ? x[i] + x[i] : T(0);")


@caught_by("memory", "out-of-bounds write, off by one")
class OneTooManyInNumPy(Twice):
    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        y[...] = x + x
        ctypes.memset(y.ctypes.data + y.nbytes, 1, y.itemsize)


@caught_by("memory", "uninitialized read")
class ReadsTheWorkspace(Summed):
    kernel: ClassVar[CudaKernel] = kernel(
        "    if (i < n) y[i] = x[i] + x[i] + (w[i] > T(0) ? T(1) : T(0));", WITH_WORKSPACE
    )


@caught_by("memory", "uninitialized read")
class ReadsTheWorkspaceInNumPy(Summed):
    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = 2 * inputs[0] + (workspace[0] == 0xFF)


@caught_by("memory", "uninitialized read")
class ReadsSharedMemory(Reversed):
    kernel: ClassVar[CudaKernel] = kernel(
        Reversed.right.replace("if (threadIdx.x < n) tile", "if (threadIdx.x + 1 < n) tile")
    )


@caught_by("memory", "misaligned access")
class Misaligned(Twice):
    kernel: ClassVar[CudaKernel] = kernel("""    if (i < n) y[i] = x[i] + x[i];
    if (i == 0 && n > 4) {
        const float2 pair = *reinterpret_cast<const float2*>(x + 1);
        y[1] = pair.x + pair.x;
    }""")


@caught_by("memory", "out-of-bounds index")
class SharedTooSmall(Reversed):
    kernel: ClassVar[CudaKernel] = kernel(Reversed.right.replace("tile[64]", "tile[2]"))


@caught_by("memory", "integer overflow")
class Overflows(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) y[i] = x[i] + x[i] + T(((i + 1) * 1500000000) >> 31);")


@caught_by("large tensors", "integer overflow above 2^31 elements")
class CountsInInt(Twice):
    """The product of the dims overflows."""

    kernel: ClassVar[CudaKernel] = kernel(
        "    if (i < n * c * h * w) y[i] = x[i] + x[i];", "const T* x, T* y, int n, int c, int h, int w"
    )

    def output_dims(self, x):
        ptp.tensor.check_rank(x, 4, "CountsInInt")
        return x

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, x.shape, threads=x.size, stream=stream)


@caught_by("large tensors", "integer overflow above 2^31 elements")
class IndexInInt(Twice):
    """The number of elements fits, the index of a thread does not."""

    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) y[i] = x[i] + x[i];", "const T* x, T* y, long long n")


@caught_by("thread order", "missing barrier")
class MissingBarrier(Reversed):
    kernel: ClassVar[CudaKernel] = kernel(Reversed.right.replace("    __syncthreads();\n", ""))


@caught_by("thread order", "race")
class RaceInABlock(Twice):
    kernel: ClassVar[CudaKernel] = kernel(
        "    if (i < n) { y[i] = x[i] + x[i]; if (i > 0) y[i] = y[i - 1] * T(0) + y[i]; }"
    )


@caught_by("thread order", "race")
class LastWriterWins(Twice):
    """Every thread writes element 0: the result is right in one order only."""

    kernel: ClassVar[CudaKernel] = kernel("    const int j = n - 1 - i;\n    if (i < n) y[j] = y[0] = x[j] + x[j];")


@caught_by("input unchanged", "write to an input")
class WritesItsInput(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) { x[i] = x[i] + x[i]; y[i] = x[i]; }", "T* x, T* y, int n")


@caught_by("input unchanged", "write to an input")
class SameArrayForBoth(Twice):
    """Input and output of the kernel are one array."""

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, x, x.size, threads=x.size, block=64, stream=stream)
        y[...] = x


@caught_by("input unchanged", "alias")
class InPlaceOnAView(Twice):
    def compute(self, x):
        y = x.reshape(-1)
        y += y
        return y.reshape(x.shape)


@caught_by("independent results", "alias of input and output")
class ReturnsItsInput(Twice):
    def compute(self, x):
        return x

    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = inputs[0]


@caught_by("layouts", "wrong stride for NHWC")
class WrongStride(Twice):
    """Adds the number of the channel, and finds it as in NCHW."""

    kernel: ClassVar[CudaKernel] = kernel(
        "    if (i < total) y[i] = x[i] + T(i / (h * w) % c);", "const T* x, T* y, int total, int c, int h, int w"
    )

    def output_dims(self, x):
        ptp.tensor.check_rank(x, 4, "WrongStride")
        return x

    def supports_format(self, position, descs):
        return descs[position].layout in ("linear", "nhwc") and descs[position].dtype == ptp.DType.FLOAT32

    def compute(self, x):
        return x + np.arange(x.shape[1], dtype=x.dtype)[:, None, None]

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, x.size, x.shape[1:], threads=x.size, stream=stream)


@caught_by("repeated runs", "state kept between runs")
class CountsRuns(Twice):
    _runs = 0

    def enqueue(self, inputs, outputs, workspace, stream):
        self._runs += 1
        outputs[0][...] = inputs[0] * (2 if self._runs < 3 else 3)


@caught_by("repeated runs", "state kept between runs")
class KeepsTheFirstInput(Twice):
    _first = None

    def enqueue(self, inputs, outputs, workspace, stream):
        if self._first is None:
            self._first = inputs[0].copy()
        outputs[0][...] = self._first + self._first


@caught_by("two threads", "not thread-safe")
class SharedScratch(Twice):
    _scratch: ClassVar[dict[str, Any]] = {}

    def compute(self, x):
        self._scratch["x"] = x
        return self._scratch["x"] + self._scratch["x"]

    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = inputs[0] + inputs[0]


@caught_by("two threads", "not thread-safe")
class SharedScratchInEnqueue(Twice):
    _scratch: ClassVar[dict[str, Any]] = {}

    def enqueue(self, inputs, outputs, workspace, stream):
        self._scratch["x"] = inputs[0]
        outputs[0][...] = 2 * self._scratch["x"]


@caught_by("compute", "crash: the process ends with SIGSEGV", SURVIVED)
class Crashes(Twice):
    def compute(self, x):
        if x.size > 5:
            ctypes.string_at(0)
        return x + x


@caught_by("kept inputs", "keeps an input: enqueue")
class KeepsItsFirstInput(Twice):
    def enqueue(self, inputs, outputs, workspace, stream):
        first = self.__dict__.get("_first")
        self._first = inputs[0] if first is None or first.shape != inputs[0].shape else first
        super().enqueue([self._first], outputs, workspace, stream)


@caught_by("compute", "crash: the process ends itself, with exit code 3", SURVIVED)
class Exits(Twice):
    def compute(self, x):
        os._exit(3)


@caught_by("compute", "hang: still running after 0.2 s", SURVIVED)
class Hangs(Twice):
    limit_s: ClassVar[float] = 0.2  # for it takes all the processor's time meanwhile

    def compute(self, x):
        while x.size:
            pass
        return x


@caught_by("compute", "hang: still running after 0.2 s", SURVIVED)
class Waits(Twice):
    limit_s: ClassVar[float] = 0.2

    def compute(self, x):
        time.sleep(10000)
        return x


@caught_by("compute", "hang: no answer for", SURVIVED)
class HangsOutsideOfPython(Twice):
    limit_s: ClassVar[float] = 0.2

    def compute(self, x):
        python = ctypes.PyDLL(None)  # keeps Python's lock, so that no handler of a signal runs
        lock = ctypes.create_string_buffer(64)
        python.pthread_mutex_lock(lock)
        python.pthread_mutex_lock(lock)  # a deadlock


@caught_by("memory", "crash: the process ends with SIGSEGV", SURVIVED)
class EnqueueCrashes(Twice):
    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        y[...] = x + x
        if x.size > 5:
            ctypes.memset(y.ctypes.data + y.nbytes, 1, 1 << 16)


@caught_by("memory", "crash", SURVIVED)
class KernelReadsAnywhere(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) y[i] = x[i] + x[i + 5000000000000LL];")


@caught_by("memory", "hang", SURVIVED)
class KernelHangs(Twice):
    kernel: ClassVar[CudaKernel] = kernel(
        "    if (i < n) y[i] = x[i] + x[i];\n    while (n > 8 && y[0] == y[0]) y[0] = T(1);"
    )


@caught_by("memory", "division by zero", SURVIVED)
class DividesByZero(Twice):
    kernel: ClassVar[CudaKernel] = kernel("    if (i < n) y[i] = x[i] + x[i] + T(i / (n > 3 ? 0 : 1)) * T(0);")
