"""Plugins as users write them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import pytrtplugins as ptp
from pytrtplugins.tensor import check_equal
from tests import user_plugins


@ptp.plugin(namespace="test.tensorrt")
class Scale(user_plugins.Scale):
    """Element-wise, with an attribute."""


@ptp.plugin(namespace="test.tensorrt")
class MeanAndRest(user_plugins.MeanAndRest):
    """Two outputs, and an enqueue of its own that needs workspace."""


@ptp.plugin(namespace="test.tensorrt")
class NonZero(user_plugins.NonZero):
    """The size of its output depends on the values of its input."""


@ptp.plugin(namespace="test.tensorrt")
class Everything(user_plugins.Copy):
    required: int
    flag: bool = True
    number: int = 3
    ratio: float = 0.1
    text: str = "edge"
    flags: tuple[bool, ...] = (True, False)
    numbers: tuple[int, ...] = (1, -2)
    ratios: tuple[float, ...] = (0.5,)
    texts: tuple[str, ...] = ("a", "b")
    table: np.ndarray = np.zeros((2, 2), np.float32)

    def compute(self, x):
        return x + x.dtype.type(self.required)


@ptp.plugin(namespace="test.tensorrt")
class Weighted(ptp.Plugin):
    """Adds two tensors of one shape; INT8 with scales of its own."""

    int8: ClassVar[str] = "requantize"

    def output_dims(self, x, y):
        if x != y:
            raise ptp.tensor.DimsError(f"expected equal dims, found {x} and {y}")
        return x

    def compute(self, x, y):
        return x + y

    def configure(self, inputs, outputs):
        self.scales = [desc.scale for desc in (*inputs, *outputs)]

    def enqueue(self, inputs, outputs, workspace, stream):
        x, y = inputs
        a, b, c = self.scales
        if outputs[0].dtype == np.int8:
            outputs[0][...] = np.clip(np.rint((x * np.float32(a) + y * np.float32(b)) / np.float32(c)), -128, 127)
        else:
            np.add(x, y, out=outputs[0])


@ptp.plugin(namespace="test.tensorrt")
class Offsets(user_plugins.Copy):
    by: npt.NDArray[np.float32]

    def compute(self, x):
        return x + self.by.reshape(-1, 1, 1).astype(x.dtype)


@ptp.plugin(namespace="test.tensorrt")
class TwoWays(user_plugins.Copy):
    """Two tactics, which tell what was used."""

    tactics: ClassVar[tuple[str, ...]] = ("slow", "fast")
    tactic: ClassVar[str] = "slow"
    used: ClassVar[list[str]] = []

    def enqueue(self, inputs, outputs, workspace, stream):
        TwoWays.used.append(self.tactic)
        outputs[0][...] = inputs[0]


@ptp.plugin(namespace="test.tensorrt")
class Counting(user_plugins.Copy):
    """State of its own in each context."""

    log: ClassVar[list[Any]] = []

    def configure(self, inputs, outputs):
        Counting.log.append(("configure", inputs[0].dims))

    def initialize(self):
        self.runs = 0
        Counting.log.append("initialize")

    def terminate(self):
        Counting.log.append(("terminate", self.runs))

    def enqueue(self, inputs, outputs, workspace, stream):
        self.runs += 1
        outputs[0][...] = self.runs


@ptp.plugin(namespace="test.tensorrt")
class ThirdOfChannels(ptp.Plugin):
    """A rule on a dim that TensorRT knows, and arithmetic of every kind on one that it does not."""

    def output_dims(self, x):
        n, c = x
        check_equal(c % 3, 0, "channels modulo 3")
        return (n * 2 + 1 - n % 4, (n + c) // 2, c // 3)

    def compute(self, x):
        return np.zeros(self.output_dims(x.shape), x.dtype)
