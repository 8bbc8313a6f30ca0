"""Plugins as users write them, with kernels, which an export must take."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

import pytrtplugins as ptp
from pytrtplugins.cuda import Constant
from pytrtplugins.errors import DimsError, FieldError
from pytrtplugins.tensor import DType, check_divisible, check_rank

TABLE = np.array([1, -2, 0.5], np.float32)


@ptp.plugin(namespace="test.export")
class Scale(ptp.Plugin):
    """Element-wise on any number of axes, with attributes."""

    factor: float = 0.3
    inverse: bool = False
    note: tuple[int, ...] = (1, 2)
    title: str = 'größe "x"?'

    kernel = ptp.CudaKernel.from_file("layers.cu", "scale")

    def validate(self):
        if self.factor <= 0:
            raise FieldError(f"Scale.factor: expected more than 0, found {self.factor}", name="factor")

    def output_dims(self, x):
        return x

    def compute(self, x):
        wide = x.astype(np.float32)
        factor = np.float32(self.factor)
        return (wide / factor if self.inverse else wide * factor).astype(x.dtype)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, x.size, self.factor, self.inverse, threads=x.size, block=128, stream=stream)


@ptp.plugin(namespace="test.export", version="2")
class MeanAndRest(ptp.Plugin):
    """Two outputs, the mean of each channel and what differs from it; the sums lie behind 16 bytes of the workspace."""

    sums = ptp.CudaKernel.from_file("layers.cu", "channel_sums")
    rest = ptp.CudaKernel.from_file("layers.cu", "mean_and_rest")

    def output_dims(self, x):
        check_rank(x, 4, "MeanAndRest")
        n, c, h, w = x
        return (n, c), (n, c, h * w)

    def compute(self, x):
        flat = x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
        total = np.zeros(flat.shape[:2], np.float32)
        for place in range(flat.shape[2]):
            total = total + flat[:, :, place].astype(np.float32)
        mean = (total / np.float32(flat.shape[2])).astype(x.dtype)
        return mean, (flat.astype(np.float32) - mean[:, :, None].astype(np.float32)).astype(x.dtype)

    def workspace_size(self, inputs, outputs):
        n, c = outputs[0].dims
        return 16 + 4 * n * c

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (mean, rest) = inputs, outputs
        n, c, h, w = x.shape
        sums = workspace[16:].view(np.float32)
        self.sums.launch(x, sums, n * c, h * w, threads=n * c, stream=stream)
        self.rest.launch(x, sums, mean, rest, x.size, h * w, threads=x.size, stream=stream)


@ptp.plugin(namespace="test.export")
class Join(ptp.Plugin):
    """Two inputs; branches on a text, on dims and on what configure found, a table of numbers, a float16 that it refuses."""

    kind: str = "sum"
    step: int = 1

    num_outputs: ClassVar[int] = 1  # TensorRT's adapter for Python cannot tell it from dims that must be equal
    kernel = ptp.CudaKernel.from_file("layers.cu", "join")
    _even = False

    def validate(self):
        if self.kind not in ("sum", "product", "table"):
            raise FieldError(f"Join.kind: unknown: {self.kind}", name="kind")

    def output_dims(self, a, b):
        if a != b:
            raise DimsError(f"Join: the inputs differ: {a[0]} and {b[0]}")
        check_divisible(a[-1], self.step, "Join: width")
        return a

    def compute(self, a, b):
        if self.kind == "table":
            return (a.ravel() + b.ravel() * np.resize(TABLE, b.size)).reshape(a.shape)
        return a + b if self.kind == "sum" else a * b

    def supports_format(self, position, descs):
        return descs[position].dtype is DType.FLOAT32 and descs[position].layout == "linear"

    def configure(self, inputs, outputs):
        self._even = inputs[0].dims[-1] % 2 == 0

    def enqueue(self, inputs, outputs, workspace, stream):
        (a, b), (y,) = inputs, outputs
        kind = {"sum": 0, "product": 1}.get("sum") if self.kind == "sum" else 1 if self.kind == "product" else 2
        pairs = bool(self._even)
        threads = (y.size + 1) // 2 if pairs else y.size
        table = Constant(TABLE) if kind == 2 else None
        self.kernel.launch(a, b, y, table, y.size, pairs * 1, kind, threads=threads, stream=stream)


@ptp.plugin(namespace="test.export")
class BlockSums(ptp.Plugin):
    """Threads of a block wait for each other."""

    kernel = ptp.CudaKernel.from_file("layers.cu", "block_sums")

    def output_dims(self, x):
        check_rank(x, 1, "BlockSums")
        check_divisible(x[0], 64, "BlockSums: length")
        return (x[0] // 64,)

    def compute(self, x):
        parts = x.reshape(-1, 64)
        while parts.shape[1] > 1:
            half = parts.shape[1] // 2
            parts = parts[:, :half] + parts[:, half:]
        return parts[:, 0]

    def supports_format(self, position, descs):
        return descs[position].dtype is DType.FLOAT32 and descs[position].layout == "linear"

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, threads=x.size, block=64, stream=stream)


@ptp.plugin(namespace="test.export")
class PRelu(ptp.Plugin):
    """A slope for each channel."""

    slope: npt.NDArray[np.float32]

    num_outputs: ClassVar[int] = 1
    kernel = ptp.CudaKernel.from_file("layers.cu", "prelu")
    _slope: object = None

    def validate(self):
        if self.slope.ndim != 1:
            raise FieldError(f"PRelu.slope: expected one axis, found {self.slope.ndim}", name="slope")

    def output_dims(self, x):
        if len(x) < 2 or x[1] != self.slope.ravel().shape[0]:
            raise DimsError(f"PRelu: expected {self.slope.size} channels, found dims {x} in {self!r}")
        return x

    def compute(self, x):
        wide = x.astype(np.float32)
        return np.where(wide > 0, wide, wide * self.slope.reshape(-1, *[1] * (x.ndim - 2))).astype(x.dtype)

    def initialize(self):
        self._slope = Constant(self.slope)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        n, c, *_ = x.shape
        self.kernel.launch(x, y, self._slope, x.size, c, x.size // (n * c), threads=x.size, stream=stream)


@ptp.plugin(namespace="test.export")
class Mix(ptp.Plugin):
    """Arrays with two axes, of other types than the kernel takes, with defaults, and elements of them."""

    matrix: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.float16] = np.array([0.5], np.float16)
    shifts: npt.NDArray[np.int64] = np.array([1, -2], np.int64)
    twice: npt.NDArray[np.bool_] = np.array([True])

    num_outputs: ClassVar[int] = 1
    kernel = ptp.CudaKernel.from_file("layers.cu", "mix")

    def validate(self):
        rows, _ = self.matrix.shape
        if self.offsets.shape != (rows,):
            raise FieldError(f"Mix.offsets: expected {rows} elements, found {self.offsets.size}", name="offsets")
        if self.shifts.item(0) > 100:
            raise FieldError(f"Mix.shifts: expected 100 at most, found {self.shifts[0]}", name="shifts")

    def output_dims(self, x):
        check_rank(x, 3, "Mix")
        rows, channels = self.matrix.shape
        if x[1] != channels:
            raise DimsError(f"Mix: expected {channels} channels, found {x[1]}")
        return x[0], rows, x[2]

    def compute(self, x):
        total = np.zeros(self.output_dims(*[x.shape]), np.float32)
        total += self.offsets.astype(np.float32)[:, None] + np.float32(self.shifts[-1])
        for channel in range(x.shape[1]):
            total = total + self.matrix[:, channel, None] * x[:, channel, None]
        return total * np.float32(2 if self.twice[0] else self.matrix[0, 1])

    def supports_format(self, position, descs):
        return descs[position].dtype is DType.FLOAT32 and descs[position].layout == "linear"

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        tables = Constant(self.matrix.reshape(-1)), Constant(self.offsets.astype(np.float32))
        gain = 2.0 if self.twice.item(0) else self.matrix[0, 1]
        sizes = y.size, *self.matrix.shape, x.shape[2]
        self.kernel.launch(x, y, *tables, *sizes, self.shifts[-1], gain, threads=y.size, stream=stream)


@ptp.plugin(namespace="test.export")
class Normalize(ptp.Plugin):
    """What is made of arrays once, element by element, and what is asked of them."""

    mean: npt.NDArray[np.float32]
    variance: npt.NDArray[np.float32]
    groups: npt.NDArray[np.uint8] = np.array([1], np.uint8)
    epsilon: float = 1e-5
    sign: bool = False

    num_outputs: ClassVar[int] = 1
    kernel = ptp.CudaKernel.from_file("layers.cu", "affine")
    _tables: object = None

    def validate(self):
        if self.mean.shape != self.variance.shape or self.mean.ndim != 1:
            raise FieldError(f"Normalize: {self.mean.size} means, {self.variance.size} variances")
        if (self.variance < 0).any() or not np.isfinite(self.mean).all():
            raise FieldError(
                f"Normalize.variance: expected at least 0, found {self.variance.min()!s}, {self.mean.max()!s}"
            )
        if self.groups.max() > 4 or np.any((self.groups == 0) | (self.groups == 3)):
            raise FieldError("Normalize.groups: expected 1, 2 or 4")

    def scale_and_shift(self):
        """Float32 and float64."""
        scale = 1 / np.sqrt(self.variance + self.epsilon)
        scale = np.minimum(-scale if self.sign else abs(scale), 100)
        wide = (self.mean * scale).astype(np.float64)
        return scale, np.maximum(wide * -0.3, self.variance.astype(np.float64) ** 2 - 1.5)

    def output_dims(self, x):
        if len(x) < 2 or x[1] != self.mean.size:
            raise DimsError(f"Normalize: expected {self.mean.size} channels, found dims {x}")
        return x

    def compute(self, x):
        scale, shift = (one.reshape(-1, *[1] * (x.ndim - 2)) for one in self.scale_and_shift())
        return ((x * scale).astype(np.float64) + shift).astype(np.float32)

    def supports_format(self, position, descs):
        return descs[position].dtype is DType.FLOAT32 and descs[position].layout == "linear"

    def initialize(self):
        self._tables = [Constant(one) for one in self.scale_and_shift()]

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        sizes = x.size, self.mean.size, math.prod(x.shape[2:])
        self.kernel.launch(x, y, self._tables, *sizes, threads=x.size, stream=stream)


@ptp.plugin(namespace="test.export")
class Repeat(ptp.Plugin):
    """A loop whose count is a field: it must be given in the export."""

    times: int = 2

    kernel = Scale.kernel

    def output_dims(self, x):
        return x

    def compute(self, x):
        y = x
        for _ in range(self.times):
            y = y * x.dtype.type(2)
        return y

    def supports_format(self, position, descs):
        return descs[position].dtype is DType.FLOAT32 and descs[position].layout == "linear"

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        for _ in range(self.times):  # the loop
            self.kernel.launch(x, y, x.size, 2.0, False, threads=x.size, stream=stream)
            x = y


@ptp.plugin(namespace="test.export")
class Rectified(ptp.Plugin):
    """Relu, on int8 codes with scales of their own."""

    int8 = "requantize"
    kernel = ptp.CudaKernel.from_file("layers.cu", "rectified")

    def output_dims(self, x):
        return x

    def compute(self, x):
        return np.maximum(x, 0)

    def configure(self, inputs, outputs):
        self._steps = (1.0, 1.0)
        if inputs[0].dtype is DType.INT8:
            self._steps = inputs[0].scale, outputs[0].scale

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, x.size, *self._steps, threads=x.size, stream=stream)
