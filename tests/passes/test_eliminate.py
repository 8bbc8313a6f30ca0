from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.passes import Eliminate, prepare, to_ir

DIMS = [2, 3]


def node(kind, inputs, outputs):
    return helper.make_node(kind, inputs, outputs, f"{kind}_{outputs[0]}")


def model(nodes, outputs=("y",), constants=None):
    kinds = {"mask": TensorProto.BOOL}
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, DIMS)],
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), DIMS) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(network):
    x = np.random.default_rng(0).standard_normal(DIMS).astype(np.float32)
    return ort.InferenceSession(network.SerializeToString()).run(None, {"x": x})


RELU = node("Relu", ["x"], ["r"])


@pytest.mark.parametrize(
    ("nodes", "outputs", "left"),
    [
        ([RELU, node("Identity", ["r"], ["y"])], ("y",), ["Relu"]),
        ([node("Identity", ["x"], ["i"]), node("Relu", ["i"], ["y"])], ("y",), ["Relu"]),
        ([RELU, node("Identity", ["r"], ["i"]), node("Identity", ["i"], ["j"]), node("Abs", ["j"], ["y"])], ("y",), ["Relu", "Abs"]),
        ([node("Identity", ["x"], ["y"])], ("y",), ["Identity"]),
        ([RELU, node("Identity", ["r"], ["y"]), node("Identity", ["r"], ["z"])], ("y", "z"), ["Relu", "Identity"]),
        ([node("Relu", ["x"], ["z"]), node("Identity", ["z"], ["y"])], ("y", "z"), ["Relu", "Identity"]),
        ([node("Dropout", ["x"], ["d"]), node("Relu", ["d"], ["y"])], ("y",), ["Relu"]),
        ([RELU, node("Dropout", ["r"], ["y", "unread"])], ("y",), ["Relu"]),
        ([RELU, node("Dropout", ["r"], ["y", "mask"])], ("y", "mask"), ["Relu", "Dropout"]),
        ([node("Dropout", ["x"], ["d", "m"]), node("Where", ["m", "d", "x"], ["y"])], ("y",), ["Dropout", "Where"]),
        ([RELU, node("Abs", ["r"], ["dead"]), node("Neg", ["r"], ["y"])], ("y",), ["Relu", "Neg"]),
    ],
)  # fmt: skip
def test_what_does_nothing_goes_and_the_numbers_stay(nodes, outputs, left):
    network = model(nodes, outputs)
    result = prepare(network)
    onnx.checker.check_model(result, full_check=True)
    assert [item.op_type for item in result.graph.node] == left
    assert [info.name for info in result.graph.output] == list(outputs)
    for actual, wanted in zip(run(result), run(network), strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize(("training", "left"), [(True, ["Dropout"]), (False, ["Identity"])])
def test_dropout_that_is_told_to_train_stays(training, left):
    network = model(
        [node("Dropout", ["x", "ratio", "training"], ["y"])], constants={"ratio": np.float32(0.5), "training": training}
    )
    assert [item.op_type for item in prepare(network).graph.node] == left


def test_an_unused_initializer_goes():
    result = prepare(model([node("Relu", ["x"], ["y"])], constants={"unused": np.zeros(3, np.float32)}))
    assert not result.graph.initializer


def test_tensors_between_nodes_keep_their_names():
    nodes = [RELU, node("Identity", ["r"], ["i"]), node("Abs", ["i"], ["a"]), node("Neg", ["a"], ["y"])]
    assert [item.output[0] for item in prepare(model(nodes)).graph.node] == ["r", "a", "y"]


def test_a_network_without_such_nodes_is_not_modified():
    assert not Eliminate()(to_ir(model([node("Relu", ["x"], ["y"])]))).modified
