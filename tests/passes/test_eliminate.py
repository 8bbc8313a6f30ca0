import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytrtplugins.passes import Eliminate, prepare, to_ir, to_proto
from tests.engines.operators import literal
from tests.onnx_parts import parsed


def model(text, outputs=("y",), **constants):
    kinds = {"mask": "bool"}
    results = ", ".join(f"{kinds.get(name, 'float')}[2,3] {name}" for name in outputs)
    return parsed(f"(float[2,3] x) => ({results}) {{ {text} }}", **constants)


def run(network):
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    return literal(network, {"x": x})


@pytest.mark.parametrize(
    ("text", "outputs", "left"),
    [
        ("r = Relu (x) y = Identity (r)", ("y",), ["Relu"]),
        ("i = Identity (x) y = Relu (i)", ("y",), ["Relu"]),
        ("r = Relu (x) i = Identity (r) j = Identity (i) y = Abs (j)", ("y",), ["Relu", "Abs"]),
        ("y = Identity (x)", ("y",), ["Identity"]),
        ("r = Relu (x) c = Concat <axis = 1> (r) y = Abs (c)", ("y",), ["Relu", "Abs"]),
        ("r = Relu (x) y = Identity (r) z = Identity (r)", ("y", "z"), ["Relu", "Identity"]),
        ("z = Relu (x) y = Identity (z)", ("y", "z"), ["Relu", "Identity"]),
        ("c = Cast <to = 1> (x) y = Relu (c)", ("y",), ["Relu"]),
        ("h = Cast <to = 10> (x) y = Cast <to = 1> (h)", ("y",), ["Cast", "Cast"]),
        ("y = Cast <to = 1> (x)", ("y",), ["Identity"]),
        ("d = Dropout (x) y = Relu (d)", ("y",), ["Relu"]),
        ("r = Relu (x) y, unread = Dropout (r)", ("y",), ["Relu"]),
        ("r = Relu (x) y, mask = Dropout (r)", ("y", "mask"), ["Relu", "Dropout"]),
        ("d, m = Dropout (x) y = Where (m, d, x)", ("y",), ["Dropout", "Where"]),
        ("r = Relu (x) dead = Abs (r) y = Neg (r)", ("y",), ["Relu", "Neg"]),
    ],
)
def test_what_does_nothing_goes_and_the_numbers_stay(text, outputs, left):
    network = model(text, outputs)
    result = prepare(network)
    onnx.checker.check_model(result, full_check=True)
    assert [item.op_type for item in result.graph.node] == left
    assert [info.name for info in result.graph.output] == list(outputs)
    for actual, wanted in zip(run(result), run(network), strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize(("training", "left"), [(True, ["Dropout"]), (False, ["Identity"])])
def test_dropout_that_is_told_to_train_stays(training, left):
    network = model("y = Dropout (x, ratio, training)", ratio=np.float32(0.5), training=training)
    assert [item.op_type for item in prepare(network).graph.node] == left
    ir_model = to_ir(network)
    assert Eliminate()(ir_model).modified == (not training)
    assert [item.op_type for item in ir_model.graph] == left


def test_an_unused_initializer_goes():
    result = prepare(model("y = Relu (x)", unused=np.zeros(3, np.float32)))
    assert not result.graph.initializer


def test_tensors_between_nodes_keep_their_names():
    text = "r = Relu (x) i = Identity (r) a = Abs (i) y = Neg (a)"
    assert [item.output[0] for item in prepare(model(text)).graph.node] == ["r", "a", "y"]


def test_a_network_without_such_nodes_is_not_modified():
    assert not Eliminate()(to_ir(model("y = Relu (x)"))).modified


def eliminated(network):
    ir_model = to_ir(network)
    result = Eliminate()(ir_model)
    return to_proto(ir_model), result.modified


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("i = elsewhere.Identity (x) y = Relu (i)", ("y",)),
        ("i = elsewhere.Dropout (x) y = Relu (i)", ("y",)),
        ("d, mask = Dropout (x) y = Relu (d)", ("y", "mask")),
        ("a = Abs (x) y = Zipped (a)", ("y",)),
    ],
)
def test_other_nodes_stay_as_they_are(text, outputs):
    network = model(text, outputs)
    assert eliminated(network) == (to_proto(to_ir(network)), False)


@pytest.mark.parametrize("training", ["", ', ""', ", off", ", also_off"])
@pytest.mark.parametrize("attributes", ["", "<seed = 3>"])
def test_an_idle_dropout_of_an_input_becomes_an_identity_without_attributes(training, attributes):
    constants = {"ratio": np.float32(0.5), "off": np.array(False), "also_off": np.zeros(1, bool)}
    found, modified = eliminated(model(f"[d] y, unread = Dropout {attributes} (x, ratio{training})", **constants))
    assert modified
    assert list(found.graph.node) == [helper.make_node("Identity", ["x"], ["y"], "d")]
    assert not found.graph.initializer


def test_a_dropout_that_becomes_an_identity_is_a_change_though_nothing_goes():
    found, modified = eliminated(model("y = Dropout (x)"))
    assert modified
    assert [item.op_type for item in found.graph.node] == ["Identity"]


def test_dropout_that_is_told_so_at_run_time_stays():
    text = "training = Not (yes) y = Dropout (x, ratio, training)"
    found, modified = eliminated(model(text, ratio=np.float32(0.5), yes=np.array(True)))
    assert [item.op_type for item in found.graph.node] == ["Not", "Dropout"]
    assert not modified


def test_a_constant_that_is_an_output_keeps_its_identity():
    network = model("z = Relu (x) y = Identity (c)", ("z", "y"), c=np.ones((2, 3), np.float32))
    assert eliminated(network) == (to_proto(to_ir(network)), False)


def test_removing_is_told_whichever_case_it_was():
    for text, left in [
        ("y = Relu (x) dead = Abs (x)", ["Relu"]),
        ("i = Identity (x) y = Relu (i)", ["Relu"]),
        ("i = Identity (x) r = Relu (i) y = Identity (r)", ["Relu"]),
    ]:
        found, modified = eliminated(model(text))
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
    text = "r = Relu (x) i = Identity (r)"
    network = model(text, ("i",)) if is_output else model(f"{text} y = Abs (i)")
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
    network = model("r = Relu (x) i = Identity (r) y = Abs (i)")
    network.graph.value_info.append(helper.make_tensor_value_info("i", TensorProto.FLOAT, [2, 3]))
    ir_model = to_ir(network)
    assert ir_model.graph[0].outputs[0].type is None
    Eliminate()(ir_model)
    assert str(ir_model.graph[0].outputs[0].dtype) == "FLOAT"
