"""Plugins as users write them, which folders of tests register under namespaces of their own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.tensor import DType, SymbolicDim, check_rank


class Scale(ptp.Plugin):
    """Element-wise, with an attribute."""

    factor: float = 2.0

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * x.dtype.type(self.factor)


class MeanAndRest(ptp.Plugin):
    """Two outputs, the mean of each channel and what differs from it; the sums lie in the workspace."""

    def output_dims(self, x):
        check_rank(x, 4, "MeanAndRest")
        n, c, h, w = x
        return (n, c), (n, c, h * w)

    def compute(self, x):
        flat = x.reshape(*x.shape[:2], -1)
        mean = flat.mean(2, dtype=np.float32).astype(x.dtype)
        return mean, flat - mean[:, :, None]

    def workspace_size(self, inputs, outputs):
        n, c = outputs[0].dims
        return 4 * n * c

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (mean, rest) = inputs, outputs
        sums = workspace.view(np.float32).reshape(mean.shape)
        np.sum(x, (2, 3), np.float32, out=sums)
        np.divide(sums, x.shape[2] * x.shape[3], out=sums)
        mean[...] = sums
        np.subtract(x.reshape(rest.shape), mean[:, :, None], out=rest)


class NonZero(ptp.Plugin):
    """The size of its output depends on the values of its input."""

    def output_dims(self, x):
        return (len(x), SymbolicDim("count"))

    def compute(self, x):
        return np.stack(np.nonzero(x)).astype(np.int64)

    def output_dtypes(self, x):
        return DType.INT64


class Copy(ptp.Plugin):
    """Gives a copy of its input; classes that inherit it say what they do otherwise."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x.copy()


class Visited(Copy):
    """Hands what each of its methods gives to `visit`, which a class overrides to raise, or to give something else."""

    workspace_bytes: ClassVar[int] = 0

    def visit(self, method: str, value: Any) -> Any:
        return value

    def validate(self):
        self.visit("validate", None)

    def output_dims(self, x):
        return self.visit("output_dims", x)

    def output_dtypes(self, x):
        return self.visit("output_dtypes", x)

    def supports_format(self, position, descs):
        return self.visit("supports_format", super().supports_format(position, descs))

    def workspace_size(self, inputs, outputs):
        return self.visit("workspace_size", self.workspace_bytes)

    def configure(self, inputs, outputs):
        self.visit("configure", None)

    def initialize(self):
        self.visit("initialize", None)

    def enqueue(self, inputs, outputs, workspace, stream):
        self.visit("enqueue", None)
        super().enqueue(inputs, outputs, workspace, stream)
