"""Small networks for the engines' tests."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import onnx
from onnx import helper

import pytrtplugins as ptp
from pytrtplugins.cuda import CudaKernel
from tests.engines.model_parts import F, info
from tests.engines.model_parts import model as model_of
from tests.user_plugins import Copy


@ptp.plugin(namespace="test.engines")
class Affine(Copy):
    """x · factor + 1: a plugin without a decomposition."""

    factor: float = 2.0

    def compute(self, x):
        return x * x.dtype.type(self.factor) + x.dtype.type(1)


class Witness(Copy):
    """x · 3 + 1 in every form; `calls` counts the methods that ran."""

    calls: ClassVar[Counter[str]] = Counter()

    def compute(self, x):
        self.calls["compute"] += 1
        return x * x.dtype.type(3) + x.dtype.type(1)

    def enqueue(self, inputs, outputs, workspace, stream):
        self.calls["enqueue"] += 1
        outputs[0][...] = inputs[0] * inputs[0].dtype.type(3) + inputs[0].dtype.type(1)

    def decompose(self, op, x):
        self.calls["decomposition"] += 1
        return op.Add(op.Mul(x, np.float32(3)), np.float32(1))


@ptp.plugin(namespace="test.engines")
class Complete(Witness):
    """Has all forms; its `enqueue` launches no kernel."""


@ptp.plugin(namespace="test.engines")
class Launching(Witness):
    """Has all forms; its `enqueue` launches a kernel."""

    kernel: ClassVar[CudaKernel] = CudaKernel.from_source(
        "template <typename T> __global__ void affine(const T* x, T* y, int n) {\n"
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = x[i] * T(3) + T(1);\n"
        "}\n",
        "affine",
    )

    def enqueue(self, inputs, outputs, workspace, stream):
        self.calls["enqueue"] += 1
        self.kernel.launch(inputs[0], outputs[0], inputs[0].size, threads=inputs[0].size, stream=stream)


@ptp.plugin(namespace="test.engines")
class NeedsDims(Witness):
    """Has all forms; its decomposition needs all dims."""

    def decompose(self, op, x):
        return op.Reshape(super().decompose(op, x), list(x.dims))


class OutOfPaperError(Exception):
    """What a user's own code may raise."""


@ptp.plugin(namespace="test.engines")
class Failing(Copy):
    def compute(self, x):
        if (x < 0).any():
            raise OutOfPaperError("negative")
        return x


@ptp.plugin(namespace="test.engines")
class Sparing(Copy):
    limit: float = 1.0

    def compute(self, x):
        if x.max() > self.limit:
            raise OutOfPaperError("too large")
        return super().compute(x)


@ptp.plugin(namespace="test.engines")
class Telling(Copy):
    """Raises what tells which input it saw: the sum of its own first image's values, rounded."""

    def compute(self, x):
        raise OutOfPaperError(f"{x[0].sum():.0f}")


@ptp.plugin(namespace="test.engines")
class Calling(Copy):
    """Calls something in the middle of a run, once: `hook` of the class."""

    def compute(self, x):
        hook, Calling.hook = Calling.hook, None
        if hook is not None:
            hook()
        return super().compute(x)


Calling.hook = None


@ptp.plugin(namespace="test.engines")
class Halves(ptp.Plugin):
    def output_dims(self, x):
        n, c, h, w = x
        return (n, c // 2, h, w), (n, c - c // 2, h, w)

    def compute(self, x):
        half = x.shape[1] // 2
        return x[:, :half] + 0, x[:, half:] + 0


def conv_net(*middle: ptp.Plugin, batch: int | str = 1, seed: int = 0, channels: int = 4) -> onnx.ModelProto:
    """data (N, 3, 8, 8) → Conv → LeakyRelu → the plugins → Conv → y, of some channels."""
    rng = np.random.default_rng(seed)
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3)) * 0.3,
        "b1": rng.standard_normal(8) * 0.1,
        "w2": rng.standard_normal((channels, 8, 1, 1)) * 0.3,
    }
    nodes = [
        helper.make_node("Conv", ["data", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4, kernel_shape=[3, 3]),
        helper.make_node("LeakyRelu", ["c1"], ["a1"], "leaky1", alpha=0.1),
    ]
    last = "a1"
    for index, plugin in enumerate(middle):
        nodes.append(plugin.as_node([last], [f"p{index}"], f"plugin{index}"))
        last = f"p{index}"
    nodes.append(helper.make_node("Conv", [last, "w2"], ["y"], "conv2", kernel_shape=[1, 1]))
    return model_of(
        nodes,
        [info("data", F, [batch, 3, 8, 8])],
        [info("y", F, None)],
        {name: array.astype(np.float32) for name, array in weights.items()},
        *(18, 10),
        domains=sorted({plugin.plugin_key().namespace for plugin in middle}),
    )


def image(batch: int = 1, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((batch, 3, 8, 8), dtype=np.float32)


def run(engine, feeds=None):
    """The outputs of one run in a context of its own, of an image if nothing else is given."""
    with engine.create_context() as context:
        return context.run({"data": image()} if feeds is None else feeds)
