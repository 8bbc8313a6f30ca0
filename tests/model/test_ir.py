"""What passes and engines share to read and change models in onnx-ir's form."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from pytrtplugins.model.ir import (
    add_constant,
    array_of,
    constant,
    depths,
    names_in,
    remove_unused,
    rewrite,
    set_attributes,
    to_ir,
    to_proto,
    unused_name,
)
from pytrtplugins.model.proto import numpy_type, type_text, with_data, without_data
from pytrtplugins.plugin.onnx_node import from_node, is_plugin_node, node_attributes
from pytrtplugins.plugin.policy import plugin_classes
from tests.onnx_parts import parsed


@ptp.plugin(namespace="tests.ir")
class Table(ptp.Plugin):
    """Fields of every kind."""

    size: int
    slope: float
    mode: str
    whole: bool
    steps: tuple[int, ...]
    names: tuple[str, ...]
    values: np.ndarray

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x


def model(text, *nodes):
    """A model of the nodes of a text, and of more nodes."""
    made = parsed(f"(float[N,2] x) => (float[N,2] y) {{ {text} }}")
    made.graph.node.extend(nodes)
    made.opset_import.extend([helper.make_opsetid("tests.ir", 1)] if nodes else [])
    return made


@pytest.mark.parametrize("answer", [None, True, False])
def test_a_model_comes_back_itself_where_nothing_was_changed(answer):
    """What a change returns says whether it changed anything; the model that was given stays."""
    given = model("[node] y = Relu (x)")

    def change(ir_model):
        ir_model.graph[0].name = "renamed"
        return answer

    result = rewrite(given, change)
    assert (result is given) is (answer is False)
    assert result.graph.node[0].name == ("node" if answer is False else "renamed")
    assert given.graph.node[0].name == "node"


def test_depths_count_the_longest_way():
    text = "[short] a = Relu (x) [one] b = Relu (x) [two] c = Neg (b) [both] y = Add (a, c)"
    found = {node.name: depth for node, depth in depths(to_ir(model(text)).graph).items()}
    assert found == {"short": 1, "one": 1, "two": 2, "both": 3}


def test_a_plugin_is_read_from_a_node_in_either_form():
    plugin = Table(3, 0.25, "fast", True, (1, 2), ("a", "ü"), np.arange(6, dtype=np.float32).reshape(2, 3))
    proto = plugin.as_node(["x"], ["y"], "table")
    (node,) = to_ir(model("", proto)).graph
    assert is_plugin_node(proto)
    assert is_plugin_node(node)
    assert from_node(node) == from_node(proto) == plugin
    given, found = node_attributes(proto), node_attributes(node)
    np.testing.assert_array_equal(found.pop("values"), given.pop("values"))
    assert found == given


def test_text_of_a_node_that_is_no_utf8_is_refused_in_either_form():
    proto = helper.make_node("Table", ["x"], ["y"], domain="tests.ir", mode=b"\xff")
    for node in (proto, *to_ir(model("", proto)).graph):
        with pytest.raises(ModelError, match="not UTF-8"):
            node_attributes(node)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_constants_of_types_that_numpy_lacks_keep_their_values(kind):
    made = to_ir(model("y = Relu (x)"))
    array = np.array([[0, 1, 2], [3, 4, 6]]).astype(getattr(ml_dtypes, kind))
    value = add_constant(made.graph, "table", array)
    np.testing.assert_array_equal(array_of(value), array)
    again = to_ir(to_proto(made)).graph.initializers["table"]
    np.testing.assert_array_equal(array_of(again), array)
    assert array_of(again).dtype == array.dtype
    assert array_of(made.graph.outputs[0]) is constant(None) is None


def test_a_name_that_is_taken_gets_a_number():
    graph = to_ir(model("[one] m = Relu (x) y = Relu (m)")).graph
    assert [add_constant(graph, "c", 0.0).name for _ in range(3)] == ["c", "c_2", "c_3"]
    taken = names_in(graph)
    assert taken >= {"x", "m", "y", "one", "c", "c_2", "c_3"}
    assert [unused_name("m", taken), unused_name("m", taken), unused_name("new", taken)] == ["m_2", "m_3", "new"]
    assert add_constant(graph, "m", 0.0, taken).name == "m_4"


def test_a_scalar_stays_one():
    graph = to_ir(model("y = Relu (x)")).graph
    assert array_of(add_constant(graph, "scale", np.float32(2))).shape == ()


def test_the_plugins_of_a_model_are_found_in_either_form():
    plugin = Table(3, 0.25, "fast", True, (1,), ("a",), np.zeros(1, np.float32))
    text = """chosen = Constant <value = bool {1}> () y = If (chosen) <
        then_branch = a () => (float[] u) { u = Neg (x) }, else_branch = b () => (float[] v) { v = Relu (x) }>"""
    made = model(text)
    made.graph.node[1].attribute[0].g.node[0].CopyFrom(plugin.as_node(["x"], ["u"]))
    assert plugin_classes(made) == plugin_classes(to_ir(made)) == {"tests.ir::Table": Table}


def branching(inner=""):
    """A model with these nodes in its branches."""
    bodies = (f"{key}_branch = {key} () => (float[] z) {{ {inner} z = Neg (x) }}" for key in ("then", "else"))
    return model(f"m = ReduceMax <keepdims = 0> (x) when = Cast <to = 9> (m) y = If (when) <{', '.join(bodies)}>")


RELU, UNUSED = "y = Relu (x)", "a = Neg (x) b = Abs (a)"


@pytest.mark.parametrize(
    ("given", "wanted", "removes"),
    [
        (model(RELU), model(RELU), False),
        (model(f"{UNUSED} {RELU}"), model(RELU), True),
        (branching(), branching(), False),
        (branching(UNUSED), branching(), True),
        (model('y = Clip (x, "", "")'), model("y = Clip (x)"), False),
        (model("y, mask = Dropout (x)"), model("y = Dropout (x)"), False),
    ],
    ids=["nothing", "nodes", "nothing-in-branches", "nodes-in-branches", "inputs", "outputs"],
)
def test_what_is_unused_is_removed(given, wanted, removes):
    found = to_ir(given)
    assert remove_unused(found) == removes
    assert to_proto(found).graph == to_proto(to_ir(wanted)).graph
    add_constant(found.graph, "loose", [1.0])
    assert remove_unused(found)
    assert "loose" not in found.graph.initializers
    assert not remove_unused(found)


def test_what_was_given_keeps_its_names():
    given = model("bound = Constant <value = float {0.0}> () clipped = Clip (x, bound) y = Add (clipped, w)")
    given.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0]))
    before = given.SerializeToString(deterministic=True)
    taken = to_ir(given)
    assert constant(taken.graph[1].inputs[1]) is not None  # onnx-ir names the tensor when it is read
    taken.graph[1].inputs[1].name = "least"
    taken.graph.initializers["w"].name = "weights"
    assert given.SerializeToString(deterministic=True) == before
    written = to_proto(taken)
    assert [tensor.name for tensor in written.graph.initializer] == ["weights"]
    assert written.graph.node[2].input[1] == "weights"


@pytest.mark.parametrize(("field", "place"), [("initializer", "tensor 'w'"), ("output", "tensor 'y'")])
def test_what_onnx_ir_does_not_read_is_named(field, place):
    """As a type that the installed ONNX has and the installed onnx-ir has not."""
    made = parsed("() => (float[1] y) { y = Cast <to = 1> (w) }", w=np.float32([0.5]))
    if field == "initializer":
        made.graph.initializer[0].data_type = 77
    else:
        made.graph.output[0].type.tensor_type.elem_type = 77
    with pytest.raises(ModelError, match=rf"{place}: 77 is not a valid DataType\.\nDo: "):
        to_ir(made, checked=True)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "INT"),
        (0.5, "FLOAT"),
        ("a", "STRING"),
        ([1, 2], "INTS"),
        ((0.5, 1.5), "FLOATS"),
        (["a", "b"], "STRINGS"),
    ],
)
def test_attributes_have_the_type_of_their_values(value, kind):
    made = to_ir(model("y = Relu (x)"))
    (node,) = made.graph
    set_attributes(node, {"a": value})
    assert node.attributes["a"].type.name == kind
    assert list(np.ravel(node.attributes["a"].value)) == list(np.ravel(np.array(value)))


def test_a_model_that_was_not_checked_is_checked():
    broken = model("y = Relu (x)")
    broken.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ModelError, match="which no node writes"):
        to_ir(broken)
    to_ir(broken, checked=True)


def test_the_part_that_cannot_be_read_is_named():
    wrong = model("[act] y = Relu (x)")
    wrong.graph.node[0].attribute.add(name="a", type=onnx.AttributeProto.GRAPH).g.initializer.add(
        name="w", data_type=99, dims=[1]
    )
    with pytest.raises(ModelError, match=r"model: not a model that passes can work on: node 'act' \(Relu\): .*\nDo: "):
        to_ir(wrong, checked=True)
    wrong = model("[act] y = Relu (x)")
    wrong.graph.initializer.add(name="w", data_type=99, dims=[1], raw_data=b"0")
    with pytest.raises(ModelError, match=r"tensor 'w': "):
        to_ir(wrong, checked=True)


@pytest.mark.parametrize("size", [64, 65])
def test_large_weights_are_inputs_of_the_copy_without_data_and_come_back(size):
    made = parsed(
        "(float[N] x) => (float[] y) { y = Add (x, w) }", w=np.ones(size, np.float32), other=np.ones(size, np.float32)
    )
    light = without_data(made)
    assert [info.name for info in light.graph.input] == ["x", *(["w", "other"] if size > 64 else [])]
    assert len(light.graph.initializer) == (2 if size <= 64 else 0)
    back = with_data(light, made)
    assert sorted(tensor.name for tensor in back.graph.initializer) == ["other", "w"]
    assert [info.name for info in back.graph.input] == ["x"]


@pytest.mark.parametrize(
    "name", [name for name, _ in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]
)
def test_a_type_is_told_as_numpy_calls_it(name):
    kind = TensorProto.DataType.Value(name)
    info = helper.make_tensor_value_info("x", kind, [2])
    assert type_text(info) == numpy_type(kind).name
