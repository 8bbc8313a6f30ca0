from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.passes import Eliminate, prepare, to_ir, to_proto

DIMS = [2, 3]


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, f"{kind}_{outputs[0]}", **attributes)


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
        ([RELU, node("Concat", ["r"], ["c"], axis=1), node("Abs", ["c"], ["y"])], ("y",), ["Relu", "Abs"]),
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
    ir_model = to_ir(network)
    assert Eliminate()(ir_model).modified == (not training)
    assert [item.op_type for item in ir_model.graph] == left


def test_an_unused_initializer_goes():
    result = prepare(model([node("Relu", ["x"], ["y"])], constants={"unused": np.zeros(3, np.float32)}))
    assert not result.graph.initializer


def test_tensors_between_nodes_keep_their_names():
    nodes = [RELU, node("Identity", ["r"], ["i"]), node("Abs", ["i"], ["a"]), node("Neg", ["a"], ["y"])]
    assert [item.output[0] for item in prepare(model(nodes)).graph.node] == ["r", "a", "y"]


def test_a_network_without_such_nodes_is_not_modified():
    assert not Eliminate()(to_ir(model([node("Relu", ["x"], ["y"])]))).modified


def eliminated(network):
    ir_model = to_ir(network)
    result = Eliminate()(ir_model)
    return to_proto(ir_model), result.modified


def of_another_domain(kind, outputs):
    return helper.make_node(kind, ["x"], outputs, kind, domain="elsewhere")


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([of_another_domain("Identity", ["i"]), node("Relu", ["i"], ["y"])], ("y",)),
        ([of_another_domain("Dropout", ["i"]), node("Relu", ["i"], ["y"])], ("y",)),
        ([node("Dropout", ["x"], ["d", "mask"]), node("Relu", ["d"], ["y"])], ("y", "mask")),
        ([node("Abs", ["x"], ["a"]), node("Zipped", ["a"], ["y"])], ("y",)),
    ],
)
def test_other_nodes_stay_as_they_are(nodes, outputs):
    network = model(nodes, outputs)
    found, modified = eliminated(network)
    assert not modified
    assert found.graph == to_proto(to_ir(network)).graph


@pytest.mark.parametrize("training", [[], [""], ["off"], ["also_off"]])
@pytest.mark.parametrize("ratio", [{}, {"seed": 3}])
def test_an_idle_dropout_of_an_input_becomes_an_identity_without_attributes(training, ratio):
    nodes = [helper.make_node("Dropout", ["x", "ratio", *training], ["y", "unread"], "d", **ratio)]
    constants = {"ratio": np.float32(0.5), "off": np.array(False), "also_off": np.zeros(1, bool)}
    found, modified = eliminated(model(nodes, constants=constants))
    assert modified
    assert list(found.graph.node) == [helper.make_node("Identity", ["x"], ["y"], "d")]
    assert not found.graph.initializer


def test_a_dropout_that_becomes_an_identity_is_a_change_though_nothing_goes():
    found, modified = eliminated(model([node("Dropout", ["x"], ["y"])]))
    assert modified
    assert [item.op_type for item in found.graph.node] == ["Identity"]


def test_dropout_that_is_told_so_at_run_time_stays():
    nodes = [node("Not", ["yes"], ["training"]), node("Dropout", ["x", "ratio", "training"], ["y"])]
    found, modified = eliminated(model(nodes, constants={"ratio": np.float32(0.5), "yes": np.array(True)}))
    assert [item.op_type for item in found.graph.node] == ["Not", "Dropout"]
    assert not modified


def test_a_constant_that_is_an_output_keeps_its_identity():
    network = model(
        [node("Relu", ["x"], ["z"]), node("Identity", ["c"], ["y"])], ("z", "y"), {"c": np.ones(DIMS, np.float32)}
    )
    found, modified = eliminated(network)
    assert not modified
    assert found.graph == to_proto(to_ir(network)).graph


def test_removing_is_told_whichever_case_it_was():
    relu, identity = node("Relu", ["x"], ["y"]), node("Identity", ["x"], ["i"])
    for nodes, left in [
        ([relu, node("Abs", ["x"], ["dead"])], ["Relu"]),
        ([identity, node("Relu", ["i"], ["y"])], ["Relu"]),
        ([identity, node("Relu", ["i"], ["r"]), node("Identity", ["r"], ["y"])], ["Relu"]),
    ]:
        found, modified = eliminated(model(nodes))
        assert ([item.op_type for item in found.graph.node], modified) == (left, True)


@pytest.mark.parametrize(
    ("before", "after", "is_output", "expected"),
    [
        (None, [2, 3], False, [2, 3]),
        ([2, 3], None, False, [2, 3]),
        (["N", 3], [2, 3], False, ["N", 3]),
        (["N", 3], [2, 3], True, [2, 3]),
        (["N", 3], None, True, ["N", 3]),
    ],
)
def test_the_shape_that_is_left_is_that_which_is_known(before, after, is_output, expected):
    """An output's own shape counts; else that of the tensor which stays."""
    nodes = [RELU, node("Identity", ["r"], ["i"]), *([] if is_output else [node("Abs", ["i"], ["y"])])]
    network = model(nodes, ("i",) if is_output else ("y",))
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("r", before), ("i", after))
    ]
    if is_output:
        del network.graph.output[:]
        network.graph.output.append(infos.pop())
    network.graph.value_info.extend(infos)
    ir_model = to_ir(network)
    Eliminate()(ir_model)
    found = ir_model.graph[0].outputs[0]
    assert found.name == ("i" if is_output else "r")
    assert [dim if isinstance(dim, int) else dim.value for dim in found.shape] == expected
    assert str(found.dtype) == "FLOAT"


def test_the_type_that_is_left_is_that_which_is_known():
    network = model([RELU, node("Identity", ["r"], ["i"]), node("Abs", ["i"], ["y"])])
    network.graph.value_info.append(helper.make_tensor_value_info("i", TensorProto.FLOAT, DIMS))
    ir_model = to_ir(network)
    assert ir_model.graph[0].outputs[0].type is None
    Eliminate()(ir_model)
    assert str(ir_model.graph[0].outputs[0].dtype) == "FLOAT"
