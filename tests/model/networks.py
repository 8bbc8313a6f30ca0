"""Small networks, plugins to put into them, and what onnxruntime says of both."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.model.decompose import inline_plugins
from pytrtplugins.tensor import check_divisible
from tests.randomness import generator

RNG = generator(0)
_DOCUMENTED = """\
import pytrtplugins as ptp

@ptp.plugin(namespace="NAMESPACE")
class ChannelShuffle(ptp.Plugin):
    groups: int = 2

    def output_dims(self, x):
        return x

    def compute(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, self.groups, c // self.groups, h, w).swapaxes(1, 2).reshape(n, c, h, w)

    def decompose(self, op, x):
        _, c, h, w = x.dims
        split = op.Transpose(op.Reshape(x, [0, self.groups, c // self.groups, h, w]), perm=[0, 2, 1, 3, 4])
        return op.Reshape(split, [0, c, h, w])

@ptp.plugin(namespace="NAMESPACE")
class Halve(ptp.Plugin):
    def output_dims(self, x):
        return x[0], x[1] // 2, x[2], x[3]

    def compute(self, x):
        return x[:, ::2]
"""


@ptp.plugin(namespace="tests.graph")
class Shuffle(ptp.Plugin):
    """Interleaves the channels of groups."""

    groups: int = 2

    def output_dims(self, x):
        check_divisible(x[1], self.groups, "channels")
        return x

    def compute(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, self.groups, c // self.groups, h, w).swapaxes(1, 2).reshape(n, c, h, w)

    def decompose(self, op, x):
        _, c, h, w = x.dims
        split = op.Transpose(op.Reshape(x, [0, self.groups, c // self.groups, h, w]), perm=[0, 2, 1, 3, 4])
        return op.Reshape(split, [0, c, h, w])


@ptp.plugin(namespace="tests.graph")
class Codes(ptp.Plugin):
    """Numbers rounded to int32."""

    def output_dims(self, x):
        return x

    def output_dtypes(self, x):
        return ptp.DType.INT32

    def compute(self, x):
        return np.rint(x).astype(np.int32)


@ptp.plugin(namespace="tests.graph")
class Blocks(ptp.Plugin):
    """ONNX's DepthToSpace, for any dims of an image."""

    size: int = 2

    def output_dims(self, x):
        check_divisible(x[1], self.size**2, "channels")
        return x[0], x[1] // self.size**2, x[2] * self.size, x[3] * self.size

    def compute(self, x):
        (n, c, h, w), s = x.shape, self.size
        return x.reshape(n, s, s, -1, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // s**2, h * s, w * s)

    def decompose(self, op, x):
        return op.DepthToSpace(x, blocksize=self.size)


@ptp.plugin(namespace="tests.graph")
class Line(ptp.Plugin):
    """factor · x + offset."""

    factor: float = 1.0
    offset: float = 0.0

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * np.float32(self.factor) + np.float32(self.offset)

    def decompose(self, op, x):
        return op.Add(op.Mul(x, np.float32(self.factor)), np.float32(self.offset))


@ptp.plugin(namespace="tests.graph")
class Join(ptp.Plugin):
    """The sum, and the difference."""

    def output_dims(self, a, b):
        return a, a

    def compute(self, a, b):
        return a + b, a - b

    def decompose(self, op, a, b):
        return op.Add(a, b), op.Sub(a, b)


@ptp.plugin(namespace="tests.graph")
class Corner(ptp.Plugin):
    """Half of the channels, and of the width."""

    def output_dims(self, x):
        return x[0], x[1] // 2, x[2], x[3] // 2

    def compute(self, x):
        return x[:, : x.shape[1] // 2, :, : x.shape[3] // 2]


def node(op_type, inputs, outputs, name="", **attributes):
    return helper.make_node(op_type, inputs.split(), outputs.split(), name=name, **attributes)


def network(nodes, dims=("N", 4, 6, 6), outputs="y", ir_version=10, **constants):
    """A model of these nodes, whose input is x; outputs of unknown dims."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    infos = [helper.make_tensor_value_info("x", 1, dims)]
    results = [helper.make_tensor_value_info(name, 1, None) for name in outputs.split()]
    domains = sorted({""} | {item.domain for item in nodes})
    opsets = [helper.make_opsetid(domain, 1 if domain else 18) for domain in domains]
    graph = helper.make_graph(nodes, "net", infos, results, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def weights(*dims):
    return RNG.standard_normal(dims, np.float32)


def run(model, x):
    """What onnxruntime computes, with all plugins written out."""
    inlined = inline_plugins(getattr(model, "model", model))
    if isinstance(model, ptp.Graph):
        onnx.checker.check_model(model.model, full_check=True)
        onnx.checker.check_model(inlined, full_check=True)
    session = onnxruntime.InferenceSession(inlined.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([item.name for item in session.get_outputs()], session.run(None, {"x": x}), strict=True))


def image(batch=2, channels=4, side=6):
    return RNG.standard_normal((batch, channels, side, side), np.float32)


def shape(graph, name):
    dims = graph.tensors[name]
    return None if dims is None else [str(dim) for dim in dims]


def conv_net(middle):
    """Convolution → the nodes given, from a to b → convolution."""
    nodes = [node("Conv", "x k1", "a", "first"), *middle, node("Conv", "b k2", "y", "last")]
    return nodes, {"k1": weights(8, 4, 3, 3), "k2": weights(3, 8, 1, 1)}


def shuffle_net():
    """A channel shuffle as exporters write it, between convolutions."""
    nodes, constants = conv_net(
        [
            node("Reshape", "a s1", "r", "split"),
            node("Transpose", "r", "t", "swap", perm=[0, 2, 1, 3, 4]),
            node("Reshape", "t s2", "b", "join"),
        ]
    )
    return network(nodes, s1=np.array([0, 2, 4, 4, 4]), s2=np.array([0, 8, 4, 4]), **constants)


def small():
    return ptp.load_onnx(network([node("Relu", "x", "a", "relu"), node("Neg", "a", "y", "negative")]))


def documented_layers(namespace):
    """The source of the module ``mylayers`` that pages of the docs speak of; its plugins are in a namespace."""
    return _DOCUMENTED.replace("NAMESPACE", namespace)
