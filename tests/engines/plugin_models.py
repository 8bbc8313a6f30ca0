"""Small models with a plugin in every place where a node may stand, and with every kind of tensor that it may read and give."""

import numpy as np
from onnx import parser

import pytrtplugins as ptp
from tests.engines.model_parts import constant
from tests.user_plugins import Copy

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


@ptp.plugin(namespace="test.places")
class Scaled(ptp.Plugin):
    def output_dims(self, x, w):
        return x

    def compute(self, x, w):
        return x * w + x.dtype.type(1)


@ptp.plugin(namespace="test.places")
class Next(Copy):
    def compute(self, x):
        return x + x.dtype.type(1)


@ptp.plugin(namespace="test.places")
class Pair(ptp.Plugin):
    def output_dims(self, x):
        return x, x

    def compute(self, x):
        return x + x.dtype.type(1), x * x.dtype.type(2)


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
POSITIVE = np.maximum(X, 0)
W = WEIGHTS
CONSTANT = f"w = Constant <value = float[2,3] {{{','.join(map(str, W.flat))}}}> ()"


def model(nodes, outputs="y", inputs="float[2,3] x", weights=WEIGHTS):
    """A model from ONNX text, whose plugins are called "plugin", "plugin1" ...; ``w`` is an initializer where nodes only read it."""
    results = ", ".join(name if " " in name else f"float[2,3] {name}" for name in outputs.split(", "))
    opsets = '["": 18, "test.places": 1]'
    made = parser.parse_model(
        f"<ir_version: 10, opset_import: {opsets}> places ({inputs}) => ({results}) {{ {nodes} }}"
    )
    classes = {key.name: ptp.lookup(*key) for key in ptp.registered() if key.namespace == "test.places"}
    plugins = [node for node in made.graph.node if node.op_type in classes]
    for node in made.graph.node:
        node.name = f"{node.op_type}-{node.output[0]}"
    for index, node in enumerate(plugins):
        node.CopyFrom(classes[node.op_type]().as_node(node.input, node.output, f"plugin{index or ''}"))
    read, written = ({name for node in made.graph.node for name in getattr(node, end)} for end in ("input", "output"))
    if "w" in read - written:
        made.graph.initializer.append(constant("w", weights))
    return made


PLACES = {
    "an initializer": (model("y = Scaled (x, w)"), {"y": X * W + 1}),
    "an initializer as the first input": (model("y = Scaled (w, x)"), {"y": X * W + 1}),
    "an initializer that is an input too": (
        model("y = Scaled (x, w)", inputs="float[2,3] x, float[2,3] w"),
        {"y": X * W + 1},
    ),
    "nothing but an initializer": (model("y = Next (w) z = Relu (x)", "y, z"), {"y": W + 1, "z": POSITIVE}),
    "an initializer between operators": (model("a = Relu (x) b = Scaled (a, w) y = Relu (b)"), {"y": POSITIVE * W + 1}),
    "an initializer that an operator reads too": (
        model("a = Add (x, w) y = Scaled (a, w)"),
        {"y": (X + W) * W + 1},
    ),
    "an initializer of one number": (model("y = Scaled (x, w)", weights=np.array(3, np.float32)), {"y": X * 3 + 1}),
    "an initializer that is an output of the model": (model("y = Scaled (x, w)", "y, w"), {"y": X * W + 1, "w": W}),
    "a Constant node": (model(f"{CONSTANT} y = Scaled (x, w)"), {"y": X * W + 1}),
    "nothing but a Constant node": (
        model(f"{CONSTANT} y = Next (w) z = Relu (x)", "y, z"),
        {"y": W + 1, "z": POSITIVE},
    ),
    "what is computed from constants": (model("v = Add (w, w) y = Scaled (x, v)"), {"y": X * (W + W) + 1}),
    "the same tensor twice": (model("y = Scaled (x, x)"), {"y": X * X + 1}),
    "the model's input": (model("a = Next (x) y = Relu (a)"), {"y": np.maximum(X + 1, 0)}),
    "an operator's output": (model("a = Relu (x) y = Next (a)"), {"y": POSITIVE + 1}),
    "a plugin's output": (model("a = Next (x) y = Next (a)"), {"y": X + 1 + 1}),
    "what an operator reads as well": (model("y = Next (x) z = Relu (x)", "y, z"), {"y": X + 1, "z": POSITIVE}),
    "gives an output that is read too": (
        model("y = Next (x) z = Relu (y)", "y, z"),
        {"y": X + 1, "z": np.maximum(X + 1, 0)},
    ),
    "gives two outputs": (model("y, z = Pair (x)", "y, z"), {"y": X + 1, "z": X * 2}),
    "gives an output that nobody reads": (model("y, u = Pair (x)"), {"y": X + 1}),
    "gives a first output that nobody reads": (model("u, y = Pair (x)"), {"y": X * 2}),
    "gives a first output without a name": (model(", y = Pair (x)"), {"y": X * 2}),
    "gives what nobody reads": (model("u = Next (x) y = Relu (x)"), {"y": POSITIVE}),
}
"""What the plugin reads or gives: the model, and its outputs for `X`, by hand."""

REFUSED = {
    "an input that is left out": (model("y = Scaled ( , x)"), "input 0 is left out"),
    "a last input that is left out": (model('y = Scaled (x, "")'), "input 1 is left out"),
    "too few inputs": (model("y = Scaled (x)"), "expected 2 inputs, found 1"),
    "too few outputs": (model("y = Pair (x)"), "the plugin has 2 outputs, the node 1"),
    "a last output without a name": (model('y, "" = Pair (x)'), "the plugin has 2 outputs, the node"),
    "too many outputs": (model("y, z = Next (x)"), "the plugin has 1 outputs, the node 2"),
}
"""What no plugin node may have: the model, and words of the error, which names the node."""
