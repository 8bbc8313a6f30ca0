"""A plugin in the place of nodes of an existing network, against onnxruntime before and after."""

import numpy as np
import pytest
from onnx import helper

import pytrtplugins as ptp
from pytrtplugins.errors import DimsError
from pytrtplugins.model import NodeInfo
from tests.model.networks import (
    Blocks,
    Join,
    Line,
    Shuffle,
    conv_net,
    image,
    network,
    node,
    run,
    shape,
    shuffle_net,
    weights,
)


def test_a_plugin_in_the_place_of_a_standard_node_computes_the_same():
    model = network([node("Relu", "x", "a"), node("DepthToSpace", "a", "b", "up", blocksize=2), node("Neg", "b", "y")])
    graph = ptp.load_onnx(model)
    graph.replace("up", Blocks(2))
    assert [info.type for info in graph.nodes] == ["Relu", "tests.graph::Blocks", "Neg"]
    assert graph.nodes[1] == NodeInfo("up", "tests.graph::Blocks", ("a",), ("b",))
    for batch in (1, 3):
        x = image(batch)
        np.testing.assert_array_equal(run(graph, x)["y"], run(model, x)["y"])


def test_several_nodes_are_replaced_by_naming_the_last_and_the_inputs_of_the_first():
    model = shuffle_net()
    graph = ptp.load_onnx(model)
    graph.replace("join", Shuffle(2), inputs=["a"])
    assert [info.name for info in graph.nodes] == ["first", "join", "last"]
    assert {tensor.name for tensor in graph.model.graph.initializer} == {"k1", "k2"}
    x = image()
    np.testing.assert_array_equal(run(graph, x)["y"], run(model, x)["y"])


def test_an_unsupported_node_is_replaced_and_the_shapes_behind_it_become_known():
    nodes, constants = conv_net([node("Odd", "a table", "b", "Unsupported_12", domain="odd")])
    graph = ptp.load_onnx(network(nodes, table=weights(9), **constants))
    assert (shape(graph, "b"), shape(graph, "y")) == (None, None)
    graph.replace("Unsupported_12", Shuffle(groups=4))
    assert (shape(graph, "b"), shape(graph, "y")) == (["N", "8", "4", "4"], ["N", "3", "4", "4"])
    assert {item.domain for item in graph.model.opset_import} == {"", "tests.graph"}
    assert "table" not in graph.tensors
    assert run(graph, image())["y"].shape == (2, 3, 4, 4)


def test_a_constant_that_others_read_stays():
    nodes = [node("Add", "x c", "a", "add"), node("Mul", "a c", "y", "mul")]
    graph = ptp.load_onnx(network(nodes, c=weights(4, 1, 1)))
    graph.replace("add", Shuffle(2))
    assert "c" in graph.tensors
    graph.replace("mul", Shuffle(2))
    assert "c" not in graph.tensors


def test_constants_are_passed_where_the_inputs_name_them():
    c = weights(1, 4, 6, 6)
    graph = ptp.load_onnx(network([node("Add", "x c", "y", "add")], dims=(1, 4, 6, 6), c=c))
    with pytest.raises(
        DimsError,
        match=r"'add' \(Add\): Join\(\) takes 2 inputs, and there are 1, constants aside: 'x'.\nDo: "
        r"graph.replace\(..., inputs=\['x', 'c'\]\) to read constants too \(in a shell: --inputs x,c\)$",
    ):
        graph.replace("add", Join())
    graph.replace("add", Join(), inputs=["x", "c"], outputs=["y", "difference"])
    x = image(1)
    np.testing.assert_array_equal(run(graph, x)["y"], x + c)
    assert shape(graph, "difference") == ["1", "4", "6", "6"]


def test_what_is_computed_from_constants_alone_is_a_constant():
    nodes = [node("Constant", "", "two", value_float=2.0), node("Mul", "c two", "c2"), node("Add", "x c2", "y", "add")]
    graph = ptp.load_onnx(network(nodes, c=weights(4, 1, 1)))
    graph.replace("add", Shuffle(2))
    assert [info.type for info in graph.nodes] == ["tests.graph::Shuffle"]
    assert graph.tensors.keys() == {"x", "y"}


def test_an_output_that_nothing_reads_need_not_be_written():
    model = network([node("Dropout", "x", "y mask", "drop")])
    graph = ptp.load_onnx(model)
    graph.replace("drop", Shuffle(2))
    assert graph.nodes[0].outputs == ("y",)
    assert "mask" not in graph.tensors


def test_inputs_that_are_computed_later_bring_the_plugin_behind_them():
    nodes = [node("Relu", "x", "a", "early"), node("Neg", "x", "b"), node("Add", "a b", "y")]
    graph = ptp.load_onnx(network(nodes))
    graph.replace("early", Line(2), inputs=["b"])
    assert [info.type for info in graph.nodes] == ["Neg", "tests.graph::Line", "Add"]
    x = image()
    np.testing.assert_allclose(run(graph, x)["y"], -3 * x, rtol=1e-6)


def test_a_constant_that_is_also_an_input_goes_with_its_reader():
    model = network([node("Add", "x c", "y", "add")], ir_version=3, c=weights(4, 1, 1))
    model.graph.input.append(helper.make_tensor_value_info("c", 1, [4, 1, 1]))
    graph = ptp.load_onnx(model)
    graph.replace("add", Shuffle(2))
    assert [info.name for info in graph.model.graph.input] == ["x"]


def test_a_local_function_of_the_plugins_domain_and_another_name_stays():
    model = network(
        [
            node("Relu", "x", "a"),
            node("DepthToSpace", "a", "b", "up", blocksize=2),
            node("Twice", "b", "y", domain="tests.graph"),
        ]
    )
    doubled = helper.make_node("Add", ["a", "a"], ["b"])
    for name in ("Twice", "Blocks"):
        model.functions.append(
            helper.make_function("tests.graph", name, ["a"], ["b"], [doubled], [helper.make_opsetid("", 17)])
        )
    model.opset_import.append(helper.make_opsetid("tests.graph", 1))
    graph = ptp.load_onnx(model)
    graph.replace("up", Blocks(2))
    assert "Twice" in [function.name for function in graph.model.functions]
