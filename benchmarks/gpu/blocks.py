"""Small networks that have what YOLOv2 lacks: branches of 1x1 convolutions, a residual addition, layers that do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.model.decompose import infer_shapes
from pytrtplugins.passes import quantize

from .subject import cpu_engine


class _Net:
    def __init__(self, channels: int, side: int) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []
        self.channels = {"x": channels}
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", channels, side, side])

    def conv(self, x: str, filters: int, size: int = 1, activation: str = "Relu", **attributes: float) -> str:
        """A convolution that keeps the size, with an activation or none; its weights keep the values' size too."""
        inputs = self.channels[x] * size**2
        weights = self.random.standard_normal((filters, self.channels[x], size, size)) * (2 / inputs) ** 0.5
        name = f"conv{len(self.nodes)}"
        self.arrays += [
            numpy_helper.from_array(weights.astype(np.float32), f"{name}.w"),
            numpy_helper.from_array(self.random.standard_normal(filters).astype(np.float32) / 10, f"{name}.b"),
        ]
        y = self.node("Conv", [x, f"{name}.w", f"{name}.b"], filters, kernel_shape=[size] * 2, pads=[size // 2] * 4)
        return self.node(activation, [y], filters, **attributes) if activation else y

    def node(self, kind: str, inputs: list[str], channels: int, **attributes: Any) -> str:
        """Any node; gives its output's name."""
        output = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        self.channels[output] = channels
        return output

    def model(self, output: str) -> onnx.ModelProto:
        """The whole, with all shapes."""
        found = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "block", [self.input], [found], self.arrays)
        return infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def inception() -> onnx.ModelProto:
    """GoogLeNet's first inception block, 192 x 28 x 28."""
    net = _Net(192, 28)
    pooled = net.node("MaxPool", ["x"], 192, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    parts = [
        net.conv("x", 64),
        net.conv(net.conv("x", 96), 128, 3),
        net.conv(net.conv("x", 16), 32, 5),
        net.conv(pooled, 32),
    ]
    return net.model(net.node("Concat", parts, 256, axis=1))


def bottleneck() -> onnx.ModelProto:
    """ResNet-50's second bottleneck block, 256 x 56 x 56."""
    net = _Net(256, 56)
    narrow = net.conv(net.conv(net.conv("x", 64), 64, 3), 256, activation="")
    return net.model(net.node("Relu", [net.node("Add", [narrow, "x"], 256)], 256))


def idle() -> onnx.ModelProto:
    """The same with identities behind its convolutions, as training leaves them."""
    net = _Net(256, 56)
    x = net.node("Identity", [net.conv("x", 64)], 64)
    x = net.node("Identity", [net.conv(x, 64, 3)], 64)
    narrow = net.node("Identity", [net.conv(x, 256, activation="")], 256)
    return net.model(net.node("Relu", [net.node("Add", [narrow, "x"], 256)], 256))


def attention() -> onnx.ModelProto:
    """Attention of ViT-B, 12 heads of 64 values, over 14 x 14 pixels: q, k and v are channels of one convolution."""
    net = _Net(768, 14)
    shapes = {"parts": [0, 3, 12, 64, 196], "image": [0, 768, 14, 14]}
    net.arrays += [numpy_helper.from_array(np.array(dims), name) for name, dims in shapes.items()]
    net.arrays.append(numpy_helper.from_array(np.array(0.125, np.float32), "scale"))
    net.arrays += [numpy_helper.from_array(np.array(index), f"part{index}") for index in range(3)]
    whole = net.node("Reshape", [net.conv("x", 2304, activation=""), "parts"], 2304)
    q, k, v = (net.node("Gather", [whole, f"part{index}"], 768, axis=1) for index in range(3))
    q, v = (net.node("Transpose", [x], 768, perm=[0, 1, 3, 2]) for x in (q, v))
    scores = net.node("Mul", [net.node("MatMul", [q, k], 196), "scale"], 196)
    y = net.node("MatMul", [net.node("Softmax", [scores], 196, axis=-1), v], 768)
    y = net.node("Reshape", [net.node("Transpose", [y], 768, perm=[0, 1, 3, 2]), "image"], 768)
    return net.model(net.conv(y, 768))


def trunk() -> onnx.ModelProto:
    """YOLOv2's layers 8 to 11, 128 x 52 x 52."""
    net = _Net(128, 52)
    leaky: dict[str, Any] = {"activation": "LeakyRelu", "alpha": 0.1}
    x = net.conv(net.conv("x", 256, 3, **leaky), 128, 1, **leaky)
    return net.model(net.node("MaxPool", [net.conv(x, 256, 3, **leaky)], 256, kernel_shape=[2, 2], strides=[2, 2]))


def squeeze_excite() -> onnx.ModelProto:
    """EfficientNet-B0's squeeze-and-excitation of 480 x 14 x 14, between convolutions."""
    net = _Net(80, 14)
    x = net.conv("x", 480)
    mean = net.node("GlobalAveragePool", [x], 480)
    gates = net.conv(net.conv(mean, 20, activation="HardSwish"), 480, activation="Sigmoid")
    return net.model(net.conv(net.node("Mul", [x, gates], 480), 80, activation=""))


@dataclass(frozen=True)
class Block:
    """A network.

    Attributes:
        model: Makes it.
        dims: Of its input.
    """

    model: Callable[[], onnx.ModelProto]
    dims: tuple[int, ...]

    @property
    def input(self) -> np.ndarray:
        """One image."""
        return np.random.default_rng(0).random(self.dims, dtype=np.float32)

    def quantized(self) -> onnx.ModelProto:
        """The network with Q/DQ, for INT8."""
        model = self.model()
        table = calibrate(model, MinMaxCalibrator([{"x": self.input}]), engine=cpu_engine(), progress=False)
        return quantize(model, table)


BLOCKS = {
    "inception block": Block(inception, (1, 192, 28, 28)),
    "inception block, batch 8": Block(inception, (8, 192, 28, 28)),
    "layers 8 to 11": Block(trunk, (1, 128, 52, 52)),
    "attention": Block(attention, (1, 768, 14, 14)),
    "bottleneck": Block(bottleneck, (1, 256, 56, 56)),
    "bottleneck with identities": Block(idle, (1, 256, 56, 56)),
    "squeeze-excite block": Block(squeeze_excite, (1, 80, 14, 14)),
}
