"""Plugins for PyTorch's operators, and networks that use them."""

from __future__ import annotations

from typing import ClassVar

import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import CudaKernel

torch = pytest.importorskip("torch", reason='PyTorch is not installed (pip install "pytrtplugins[torch]")')


@ptp.plugin(namespace="test.torch")
class ManyKinds(ptp.Plugin):
    """x times a number that every field goes into."""

    factor: float
    names: tuple[str, ...] = ("a", "b")
    flags: tuple[bool, ...] = (True,)
    mode: str = 'quo"ted'
    weights: tuple[float, ...] = (0.5, 2.0)
    counts: tuple[int, ...] = ()
    limit: float = float("inf")

    def output_dims(self, x):
        return x

    def compute(self, x):
        number = self.factor * len(self.names) * len(self.mode) * sum(self.weights) * (1 + sum(self.counts))
        return x * x.dtype.type(number * (2 if all(self.flags) else 1) / (1 + min(self.limit, 9)))


@ptp.plugin(namespace="test.torch")
class SumAndHalf(ptp.Plugin):
    """Any number of inputs, two outputs: their sum, and its first half along axis 1 as int32."""

    def output_dims(self, *inputs):
        n, c, *rest = inputs[0]
        return inputs[0], (n, c // 2, *rest)

    def output_dtypes(self, *inputs):
        return inputs[0], ptp.DType.INT32

    def compute(self, *inputs):
        total = sum(inputs[1:], inputs[0] + 0)
        return total, total[:, : total.shape[1] // 2].astype("int32")


@ptp.plugin(namespace="test.torch")
class Same(ptp.Plugin):
    """Gives what it got, which `compute` should not."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x


@ptp.plugin(namespace="test.torch")
class Twice(ptp.Plugin):
    """Gives one array twice."""

    def output_dims(self, x):
        return x, x

    def compute(self, x):
        y = x + x.dtype.type(1)
        return y, y


@ptp.plugin(namespace="test.torch")
class Doubled(ptp.Plugin):
    """x · 2 by a kernel, which needs a workspace."""

    kernel: ClassVar[CudaKernel] = CudaKernel.from_source(
        "template <typename T> __global__ void doubled(const T* x, T* y, T* scratch, int n) {\n"
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) { scratch[i] = x[i]; y[i] = scratch[i] + x[i]; }\n"
        "}\n",
        "doubled",
    )

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * x.dtype.type(2)

    def workspace_size(self, inputs, outputs):
        size = inputs[0].dtype.itemsize
        for dim in inputs[0].dims:
            size *= dim
        return size

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, workspace.view(x.dtype), x.size, threads=x.size, stream=stream)


class PassThrough(torch.nn.Module):  # type: ignore[name-defined]
    """YOLOv2's end in small: convolution, reorg, convolution, region."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(64, 30, 1)

    def forward(self, x):
        y = self.second(torch.ops.darknet.reorg(self.first(x), stride=2))
        return torch.ops.darknet.region(y, anchors=[1.0, 2.0] * 5, num=5, classes=1, softmax=True)
