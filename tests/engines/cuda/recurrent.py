"""Layers of LSTM, GRU and RNN as models, onnxruntime's numbers for them, and networks with such layers."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines.calibrate import calibrate_prepared

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Layer:
    """One node.

    Attributes:
        op: Its operator.
        hidden: Hidden units.
        batch: Sequences.
        steps: Of each.
        width: Values of an input.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
        lengths: Steps of each sequence, or nothing.
        optional: Which of B, initial_h, initial_c and P it has: their first letters, of ``"bhcp"``.
        outputs: Which it gives, of ``"yhc"``.
        layout: ONNX's attribute.
        attributes: More of them.
        computed: Whether the weights are computed in the run.
    """

    op: str = "LSTM"
    hidden: int = 40
    batch: int = 3
    steps: int = 4
    width: int = 5
    direction: str = "forward"
    lengths: tuple[int, ...] = ()
    optional: str = "bhc"
    outputs: str = "yhc"
    layout: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    computed: bool = False

    def __str__(self):
        facts = (self.op, self.hidden, f"{self.batch}x{self.steps}", self.direction, self.optional, self.outputs)
        more = (f"{key}-{value}" for key, value in self.attributes.items())
        return "-".join(map(str, (*facts, *self.lengths, f"layout{self.layout}", *more)))

    @property
    def directions(self):
        """How many."""
        return 2 if self.direction == "bidirectional" else 1

    def arrays(self):
        """Inputs of the run and constants, by name; the run's have the batch where the layout says."""
        rng, d, h, rows = np.random.default_rng(0), self.directions, self.hidden, GATES[self.op] * self.hidden

        def numbers(*dims, spread=1.0):
            return (rng.standard_normal(dims) * spread).astype(np.float32)

        runs = {"X": numbers(self.steps, self.batch, self.width)}
        constants = {
            "W": numbers(d, rows, self.width, spread=self.width**-0.5),
            "R": numbers(d, rows, h, spread=h**-0.5),
            "B": numbers(d, 2 * rows, spread=0.3),
            "P": numbers(d, 3 * h, spread=0.5),
        }
        runs |= {
            "lengths": np.array(self.lengths, np.int32),
            "H": numbers(d, self.batch, h),
            "C": numbers(d, self.batch, h),
        }
        if self.layout:
            runs = {name: np.ascontiguousarray(a.swapaxes(0, 1)) if a.ndim == 3 else a for name, a in runs.items()}
        if self.computed:
            runs["R"] = constants.pop("R")
        return runs, constants

    def model(self):
        """The model and its inputs."""
        runs, constants = self.arrays()
        has = {"X", "W", "R", *(name.upper() for name in self.optional)} | ({"lengths"} if self.lengths else set())
        slots = ["X", "W", "R", "B", "lengths", "H", *(["C", "P"] if self.op == "LSTM" else [])]
        slots = [name if name in has else "" for name in slots]
        while not slots[-1]:
            slots.pop()
        letters = "yhc" if self.op == "LSTM" else "yh"
        outputs = [letter if letter in self.outputs else "" for letter in letters]
        more = {"layout": 1} if self.layout else {}
        node = onnx.helper.make_node(
            self.op, slots, outputs, hidden_size=self.hidden, direction=self.direction, **more, **self.attributes
        )
        infos = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in runs.items()
            if name in slots
        ]
        results = [onnx.helper.make_tensor_value_info(name, 1, None) for name in outputs if name]
        weights = [onnx.numpy_helper.from_array(a, name) for name, a in constants.items() if name in slots]
        graph = onnx.helper.make_graph([node], "g", infos, results, weights)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        return model, {info.name: runs[info.name] for info in infos}

    def wanted(self):
        """Outputs by onnxruntime without optimizations, which has no layout 1: there the axes change places around it."""
        model, inputs = replace(self, layout=0).model()
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(None, inputs), strict=True))
        if self.layout:
            found = {name: a.transpose(2, 0, 1, 3) if name == "y" else a.swapaxes(0, 1) for name, a in found.items()}
        return found


BOTH = "bidirectional"
OTHERS = {
    "activations": ["HardSigmoid", "Softsign", "Relu", "Sigmoid", "Elu", "Affine"],
    "activation_alpha": [0.3, 0.7, 1.5],
    "activation_beta": [0.4, 0.25],
}
MORE = {
    "activations": ["ScaledTanh", "LeakyRelu", "Softplus", "ThresholdedRelu", "Tanh", "Tanh"],
    "activation_alpha": [0.9, 0.2, 0.4],
    "activation_beta": [0.8],
}
LAYERS = [
    Layer(),
    Layer(direction="reverse", optional="b", outputs="y"),
    Layer(direction=BOTH, lengths=(4, 2, 1)),
    Layer(hidden=7, direction=BOTH, layout=1, optional="", outputs="h"),
    Layer(hidden=1, batch=1, steps=1, optional="bhcp"),
    Layer(hidden=100, batch=5, direction=BOTH, lengths=(1, 4, 3, 2, 4), optional="bhcp", layout=1),
    Layer(attributes={"clip": 0.5, "input_forget": 1}, optional="bcp", outputs="yc"),
    Layer(direction=BOTH, attributes=OTHERS),
    Layer(direction=BOTH, attributes=MORE),
    Layer("GRU", optional="bh", direction=BOTH, lengths=(2, 4, 1)),
    Layer("GRU", optional="bh", layout=1, attributes={"linear_before_reset": 1, "clip": 0.7}),
    Layer("GRU", hidden=7, optional="b", outputs="h", direction=BOTH, attributes={"linear_before_reset": 1}),
    Layer("RNN", optional="b", direction=BOTH, attributes={"activations": ["Relu", "Tanh"]}),
    Layer("RNN", hidden=33, batch=9, optional="", outputs="h"),
]
"""Forms of the node, each with something that the others have not."""


def _network(nodes, inputs, constants):
    """A model that computes ``out``; each node is an operator, its inputs, its outputs and its attributes."""
    made = [
        onnx.helper.make_node(op, reads.split(), [name if name != "-" else "" for name in gives.split()], gives, **at)
        for op, reads, gives, at in nodes
    ]
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in inputs.items()
    ]
    graph = onnx.helper.make_graph(
        made,
        "g",
        infos,
        [onnx.helper.make_tensor_value_info("out", 1, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), inputs


def text_recognizer(hidden=24, channels=16, width=12, batch=2):
    """A CRNN and its input: a convolution, two bidirectional LSTMs with a product between them, and a product at the end."""
    rng = np.random.default_rng(3)

    def weights(*dims):
        return (rng.standard_normal(dims) * dims[-1] ** -0.5).astype(np.float32)

    h, embedded = hidden, 2 * channels
    nodes = [
        ("Conv", "image filters bias", "features", {"pads": [1, 1, 1, 1]}),
        ("Relu", "features", "rectified", {}),
        ("MaxPool", "rectified", "line", {"kernel_shape": [8, 1], "strides": [8, 1]}),
        ("Squeeze", "line two", "columns", {}),
        ("Transpose", "columns", "steps", {"perm": [2, 0, 1]}),
        ("LSTM", "steps W R B", "first", {"hidden_size": h, "direction": BOTH}),
        ("Transpose", "first", "first_steps", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "first_steps flat", "first_rows", {}),
        ("MatMul", "first_rows embedding", "embedded", {}),
        ("LSTM", "embedded W2 R2 B2", "second", {"hidden_size": h, "direction": BOTH}),
        ("Transpose", "second", "second_steps", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "second_steps flat", "second_rows", {}),
        ("MatMul", "second_rows letters", "out", {}),
    ]
    constants = {
        "filters": weights(channels, 1, 3, 3), "bias": weights(channels), "two": np.int64([2]),
        "flat": np.int64([0, 0, 2 * h]), "embedding": weights(2 * h, embedded), "letters": weights(2 * h, 10),
    }  # fmt: skip
    for number, inputs in (("", channels), ("2", embedded)):
        constants |= {f"W{number}": weights(2, 4 * h, inputs), f"R{number}": weights(2, 4 * h, h)}
        constants[f"B{number}"] = weights(2, 8 * h)
    image = rng.standard_normal((batch, 1, 8, width)).astype(np.float32)
    return _network(nodes, {"image": image}, constants)


def language_model(hidden=32, vocabulary=50, steps=9, batch=2):
    """A GRU that reads words, whose last state a second GRU reads as its only step, and the scores of all words."""
    rng = np.random.default_rng(4)

    def weights(*dims):
        return (rng.standard_normal(dims) * dims[-1] ** -0.5).astype(np.float32)

    h = hidden
    gru = {"hidden_size": h, "linear_before_reset": 1}
    nodes = [
        ("Gather", "vectors words", "sequence", {}),
        ("GRU", "sequence W R B", "- state", gru),
        ("GRU", "state W2 R2 B2", "again", gru),
        ("Reshape", "again flat", "rows", {}),
        ("Gemm", "rows scores", "out", {"transB": 1}),
    ]
    constants = {"vectors": weights(vocabulary, 16), "scores": weights(vocabulary, h), "flat": np.int64([-1, h])}
    for number, inputs in (("", 16), ("2", h)):
        constants |= {f"W{number}": weights(1, 3 * h, inputs), f"R{number}": weights(1, 3 * h, h)}
        constants[f"B{number}"] = weights(1, 6 * h)
    return _network(nodes, {"words": rng.integers(0, vocabulary, (steps, batch))}, constants)


def scales(model, inputs):
    """The calibration table of a prepared model for its own inputs, by onnxruntime."""
    return calibrate_prepared(model, MinMaxCalibrator([inputs]), engine="onnxruntime", progress=False)
