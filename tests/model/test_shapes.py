"""Shapes behind a plugin that was put into a network: inferred again, or refused."""

import numpy as np
import pytest
from onnx import helper

import pytrtplugins as ptp
from pytrtplugins.errors import DimsError, ModelError
from pytrtplugins.layers import Reorg
from tests.model.networks import Codes, Corner, Line, Shuffle, network, node, shape, weights


@pytest.mark.parametrize(
    ("follower", "constants"),
    [
        (node("Conv", "a c", "y", "next"), {"c": weights(5, 4, 1, 1)}),
        (node("ConvTranspose", "a c", "y", "next"), {"c": weights(4, 5, 1, 1)}),
        (node("Conv", "a c", "y", "next", group=2), {"c": weights(4, 2, 1, 1)}),
        (node("Reshape", "a c", "y", "next"), {"c": np.array([0, 144])}),
        (node("Add", "a c", "y", "next"), {"c": weights(4, 6, 6)}),
        (node("MatMul", "a c", "y", "next"), {"c": weights(6, 5)}),
        (node("Concat", "a x", "y", "next", axis=1), {}),
    ],
    ids=lambda value: value.op_type if hasattr(value, "op_type") else "",
)
def test_a_shape_that_a_reader_cannot_take_is_refused_and_both_are_named(follower, constants):
    graph = ptp.load_onnx(network([node("Relu", "x", "a", "relu"), follower], **constants))
    before = graph.model.SerializeToString()
    refused = (
        r"'relu' \(Corner\(\)\) gives 'a' \(N, 2, 6, 3\) in place of \(N, 4, 6, 6\); node 'next' \(.*\) cannot take "
    )
    with pytest.raises(ModelError, match=refused) as caught:
        graph.replace("relu", Corner())
    assert caught.value.node == "next"
    assert graph.model.SerializeToString() == before
    graph.replace("relu", Line())


def test_a_plugin_behind_that_refuses_the_new_dims_is_named_with_the_change():
    nodes = [node("Relu", "x", "a", "relu"), Reorg(2).as_node(["a"], ["y"], "deep")]
    graph = ptp.load_onnx(network(nodes, dims=(1, 4, 6, 6)))
    with pytest.raises(
        DimsError, match=r"'relu' .*gives 'a'.* in place of \(1, 4, 6, 6\); behind it, node 'deep'.*found 3"
    ):
        graph.replace("relu", Reorg(2))


def test_dims_behind_operators_that_nobody_knows_are_kept_if_nothing_changes_and_dropped_if_it_does():
    model = network([node("Relu", "x", "a", "relu"), node("Odd", "a", "b", domain="odd"), node("Neg", "b", "y")])
    model.graph.value_info.append(helper.make_tensor_value_info("b", 1, ["N", 7]))
    graph = ptp.load_onnx(model)
    assert shape(graph, "y") == ["N", "7"]
    graph.replace("relu", Line())
    assert (shape(graph, "b"), shape(graph, "y")) == (["N", "7"], ["N", "7"])
    graph.insert_after("a", Reorg(2))
    assert (shape(graph, "b"), shape(graph, "y")) == (None, None)
    assert graph.model.graph.output[0].type.tensor_type.elem_type == 1


def test_another_element_type_is_a_change_too():
    model = network([node("Relu", "x", "a", "relu"), node("Odd", "a", "b", domain="odd"), node("Neg", "b", "y")])
    model.graph.value_info.append(helper.make_tensor_value_info("b", 1, ["N", 7]))
    graph = ptp.load_onnx(model)
    graph.replace("relu", Codes())
    assert {info.name: info.type.tensor_type.elem_type for info in graph.model.graph.value_info} == {"a": 6}


def test_a_plugin_that_nobody_registered_may_stand_in_the_graph():
    stranger = node("Stranger", "a", "b", domain="unheard", plugin_namespace="unheard", plugin_version="1")
    graph = ptp.load_onnx(network([node("Relu", "x", "a", "relu"), stranger, node("Neg", "b", "y")]))
    graph.replace("relu", Line(2))
    assert shape(graph, "b") is None
    assert graph.model.graph.node[1] == stranger
    graph.replace("b", Shuffle(2))
    assert shape(graph, "y") == ["N", "4", "6", "6"]
