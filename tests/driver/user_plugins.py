"""Plugins as users write them; user_plugins.cpp has the same in C++."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.cuda import CudaKernel
from tests import user_plugins

BIAS = "template <typename T> __global__ void bias(const T* x, T* y, float by, int n) {" \
       " const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = T(float(x[i]) + by); }"  # fmt: skip


@ptp.plugin(namespace="test.driver")
class Scale(user_plugins.Scale):
    """Element-wise, with an attribute."""


@ptp.plugin(namespace="test.driver")
class MeanAndRest(user_plugins.MeanAndRest):
    """Two outputs, and an enqueue of its own that needs workspace."""


@ptp.plugin(namespace="test.driver")
class NonZero(user_plugins.NonZero):
    """The size of its output depends on the values of its input."""


@ptp.plugin(namespace="test.driver")
class Everything(Scale):
    flag: bool = True
    number: int = 3
    text: str = "edge"
    flags: tuple[bool, ...] = (True, False)
    numbers: tuple[int, ...] = (1, -2)
    ratios: tuple[float, ...] = (0.5,)
    texts: tuple[str, ...] = ("a", "b")
    table: np.ndarray = np.zeros(0, np.float32)


@ptp.plugin(namespace="test.driver")
class Rescale(user_plugins.Copy):
    int8: ClassVar[str] = "requantize"


@ptp.plugin(namespace="test.driver")
class Faulty(user_plugins.Visited):
    where: str = ""

    def visit(self, method, value):
        if method == self.where:
            raise IndexError(f"wrong in {method}")
        return value


@ptp.plugin(namespace="test.driver")
class Bias(ptp.Plugin):
    by: float = 1.0
    kernel = CudaKernel.from_source(BIAS, "bias")

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x.dtype.type(self.by)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, self.by, x.size, threads=x.size, stream=stream)
