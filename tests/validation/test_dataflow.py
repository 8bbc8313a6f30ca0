"""What reads what in a graph: order of nodes, tensors that follow from others, nodes that nothing needs."""

from onnx import helper

from pytrtplugins.validation.dataflow import (
    computed_from,
    constants,
    downstream,
    outer_scope_reads,
    remove_dead_nodes,
    rename_reads,
    sort_nodes,
)
from tests.onnx_parts import body, info, node
from tests.onnx_parts import model as model_of

CHAIN = [node("Abs", "x w", "a"), node("Neg", "a", "b"), node("Neg", "c", "d")]


def test_dataflow_follows_inputs_and_what_bodies_read():
    inner = helper.make_node(
        "If", ["c"], ["e"], then_branch=body(node("Neg", "b", "t"), output="t"), else_branch=body(output="a")
    )
    assert downstream([*CHAIN, inner], ["a"]) == {"a", "b", "e"}
    assert computed_from(["x", "w"], [*CHAIN, inner]) == {"x", "w", "a", "b"}
    assert computed_from(["x", "w", "c"], [*CHAIN, inner]) == {"x", "w", "c", "a", "b", "d", "e"}
    network = model_of(
        node("Constant", "", "k", value_float=1.0),
        node("Add", "k w", "y"),
        weights=[helper.make_tensor("w", 1, [1], [1])],
    )
    assert constants(network.graph) == {"w", "k", "y"}
    reading = body(
        node("Add", "x w", "b"), node("Add", "b i", "c"), weights=[helper.make_tensor("w", 1, [1], [1])], output="c"
    )
    reading.input.append(info("i"))
    assert outer_scope_reads(reading) == {"x"}
    rename_reads(inner, "a", "z")
    rename_reads(inner, "b", "q")
    rename_reads(inner, "c", "p")
    assert [*inner.input] == ["p"]
    assert {outer for item in inner.attribute for outer in outer_scope_reads(item.g)} == {"q", "z"}


def test_nodes_are_sorted_by_what_they_read_and_otherwise_stay():
    nodes = [node("Neg", "b", "c"), node("Abs", "x", "a"), node("Neg", "a", "b"), node("Abs", "x", "z")]
    assert [item.output[0] for item in sort_nodes(nodes)[0]] == ["a", "b", "c", "z"]
    order, waiting = sort_nodes([*nodes, node("Add", "v z", "u"), node("Neg", "u", "v")])
    assert ([item.output[0] for item in order], [item.output[0] for item in waiting]) == (
        ["a", "b", "c", "z"],
        ["u", "v"],
    )


def test_nodes_that_nothing_needs_go_with_those_before_them():
    nodes = [node("Abs", "x", "a"), node("Neg", "a", "b"), node("Neg", "x", "c"), node("Neg", "x", "d")]
    for loose, outputs, live in (
        (["b"], ["c"], "cd"),
        (["b"], ["a"], "acd"),
        (["b"], ["b"], "abcd"),
        ([], [], "abcd"),
        (["a"], [], "abcd"),
    ):
        assert "".join(item.output[0] for item in remove_dead_nodes(nodes, loose, outputs)) == live, (loose, outputs)
