"""Small models with a plugin in every place where a node may stand, and with every kind of tensor that it may read and give."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


@ptp.plugin(namespace="test.places")
class Scaled(ptp.Plugin):
    """x · w + 1, of two inputs."""

    def output_dims(self, x, w):
        return x

    def compute(self, x, w):
        return x * w + x.dtype.type(1)


@ptp.plugin(namespace="test.places")
class Next(ptp.Plugin):
    """x + 1."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x.dtype.type(1)


@ptp.plugin(namespace="test.places")
class Pair(ptp.Plugin):
    """x + 1 and 2 · x."""

    def output_dims(self, x):
        return x, x

    def compute(self, x):
        return x + x.dtype.type(1), x * x.dtype.type(2)


def one_plugin(plugin, inputs, outputs):
    return plugin.as_node(inputs, outputs, "plugin")


def relu(x, y):
    return helper.make_node("Relu", [x], [y], f"relu-{y}")


def constant(name):
    return helper.make_node("Constant", [], [name], f"constant-{name}", value=numpy_helper.from_array(WEIGHTS, name))


def model(*nodes, inputs=("x",), outputs=("y",), weights=WEIGHTS):
    def infos(names):
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in names]

    read = {name for node in nodes for name in node.input}
    made = {name for node in nodes for name in node.output}
    initializers = [numpy_helper.from_array(weights, "w")] if "w" in read - made else []
    graph = helper.make_graph(list(nodes), "places", infos(inputs), infos(outputs), initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("test.places", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
POSITIVE = np.maximum(X, 0)
W = WEIGHTS

PLACES = {
    "an initializer": (model(one_plugin(Scaled(), ["x", "w"], ["y"])), {"y": X * W + 1}),
    "an initializer as the first input": (model(one_plugin(Scaled(), ["w", "x"], ["y"])), {"y": X * W + 1}),
    "an initializer that is an input too": (
        model(one_plugin(Scaled(), ["x", "w"], ["y"]), inputs=("x", "w")),
        {"y": X * W + 1},
    ),
    "nothing but an initializer": (
        model(one_plugin(Next(), ["w"], ["y"]), relu("x", "z"), outputs=("y", "z")),
        {"y": W + 1, "z": POSITIVE},
    ),
    "an initializer between operators": (
        model(relu("x", "a"), one_plugin(Scaled(), ["a", "w"], ["b"]), relu("b", "y")),
        {"y": POSITIVE * W + 1},
    ),
    "an initializer that an operator reads too": (
        model(helper.make_node("Add", ["x", "w"], ["a"], "add"), one_plugin(Scaled(), ["a", "w"], ["y"])),
        {"y": (X + W) * W + 1},
    ),
    "an initializer of one number": (
        model(one_plugin(Scaled(), ["x", "w"], ["y"]), weights=np.array(3, np.float32)),
        {"y": X * 3 + 1},
    ),
    "an initializer that is an output of the model": (
        model(one_plugin(Scaled(), ["x", "w"], ["y"]), outputs=("y", "w")),
        {"y": X * W + 1, "w": W},
    ),
    "a Constant node": (model(constant("w"), one_plugin(Scaled(), ["x", "w"], ["y"])), {"y": X * W + 1}),
    "nothing but a Constant node": (
        model(constant("w"), one_plugin(Next(), ["w"], ["y"]), relu("x", "z"), outputs=("y", "z")),
        {"y": W + 1, "z": POSITIVE},
    ),
    "what is computed from constants": (
        model(helper.make_node("Add", ["w", "w"], ["v"], "add"), one_plugin(Scaled(), ["x", "v"], ["y"])),
        {"y": X * (W + W) + 1},
    ),
    "the same tensor twice": (model(one_plugin(Scaled(), ["x", "x"], ["y"])), {"y": X * X + 1}),
    "the model's input": (model(one_plugin(Next(), ["x"], ["a"]), relu("a", "y")), {"y": np.maximum(X + 1, 0)}),
    "an operator's output": (model(relu("x", "a"), one_plugin(Next(), ["a"], ["y"])), {"y": POSITIVE + 1}),
    "a plugin's output": (
        model(Next().as_node(["x"], ["a"], "first"), Next().as_node(["a"], ["y"], "second")),
        {"y": X + 1 + 1},
    ),
    "what an operator reads as well": (
        model(one_plugin(Next(), ["x"], ["y"]), relu("x", "z"), outputs=("y", "z")),
        {"y": X + 1, "z": POSITIVE},
    ),
    "gives an output that is read too": (
        model(one_plugin(Next(), ["x"], ["y"]), relu("y", "z"), outputs=("y", "z")),
        {"y": X + 1, "z": np.maximum(X + 1, 0)},
    ),
    "gives two outputs": (model(one_plugin(Pair(), ["x"], ["y", "z"]), outputs=("y", "z")), {"y": X + 1, "z": X * 2}),
    "gives an output that nobody reads": (model(one_plugin(Pair(), ["x"], ["y", "u"])), {"y": X + 1}),
    "gives a first output that nobody reads": (model(one_plugin(Pair(), ["x"], ["u", "y"])), {"y": X * 2}),
    "gives a first output without a name": (model(one_plugin(Pair(), ["x"], ["", "y"])), {"y": X * 2}),
    "gives what nobody reads": (model(one_plugin(Next(), ["x"], ["u"]), relu("x", "y")), {"y": POSITIVE}),
}
"""What the plugin reads or gives: the model, and its outputs for `X`, by hand."""

REFUSED = {
    "an input that is left out": (model(one_plugin(Scaled(), ["", "x"], ["y"])), "input 0 is left out"),
    "a last input that is left out": (model(one_plugin(Scaled(), ["x", ""], ["y"])), "input 1 is left out"),
    "too few inputs": (model(one_plugin(Scaled(), ["x"], ["y"])), "expected 2 inputs, found 1"),
    "too few outputs": (model(one_plugin(Pair(), ["x"], ["y"])), "the plugin has 2 outputs, the node 1"),
    "a last output without a name": (model(one_plugin(Pair(), ["x"], ["y", ""])), "the plugin has 2 outputs, the node"),
    "too many outputs": (model(one_plugin(Next(), ["x"], ["y", "z"])), "the plugin has 1 outputs, the node 2"),
}
"""What no plugin node may have: the model, and words of the error, which names the node."""
