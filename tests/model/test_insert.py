"""A plugin behind a tensor of an existing network, against onnxruntime."""

import numpy as np
import pytest
from onnx import helper

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from pytrtplugins.layers import Reorg
from tests.model.networks import Line, image, network, node, run, shape, weights
from tests.onnx_parts import parsed


def test_all_readers_of_an_inner_tensor_read_the_plugin():
    nodes = [node("Relu", "x", "a"), node("Neg", "a", "b"), node("Add", "a b", "c"), node("Mul", "c a", "y")]
    graph = ptp.load_onnx(network(nodes))
    assert graph.insert_after("a", Line(2, 1)) == "a/Line"
    x = image()
    a = 2 * np.maximum(x, 0) + 1
    np.testing.assert_allclose(run(graph, x)["y"], (a - a) * a, atol=1e-6)
    assert graph.nodes[1].inputs == ("a",)


def test_behind_an_input():
    graph = ptp.load_onnx(network([node("Neg", "x", "y")]))
    graph.insert_after("x", Line(3))
    assert [info.type for info in graph.nodes] == ["tests.graph::Line", "Neg"]
    x = image()
    np.testing.assert_allclose(run(graph, x)["y"], -3 * x)


def test_behind_a_constant():
    c = weights(4, 1, 1)
    graph = ptp.load_onnx(network([node("Mul", "x c", "y")], c=c))
    graph.insert_after("c", Line(3))
    x = image()
    np.testing.assert_allclose(run(graph, x)["y"], 3 * x * c, rtol=1e-6)


@pytest.mark.parametrize("outputs", ["y", "y z"])
def test_an_output_keeps_its_name_and_its_other_readers_read_the_plugin(outputs):
    graph = ptp.load_onnx(network([node("Neg", "x", "y", "neg"), node("Abs", "y", "z")], outputs=outputs))
    assert graph.insert_after("y", Line(2, 1)) == "y"
    assert [item.name for item in graph.model.graph.output] == outputs.split()
    x = image()
    expected = {"y": 1 - 2 * x, "z": np.abs(1 - 2 * x)}
    for name, value in run(graph, x).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_an_output_may_get_other_dims():
    model = network([node("Neg", "x", "y")])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["N", 4, 6, 6]))
    graph = ptp.load_onnx(model)
    graph.insert_after("y", Reorg(2))
    assert shape(graph, "y") == ["N", "16", "3", "3"]
    x = image()
    np.testing.assert_array_equal(run(graph, x)["y"], Reorg(2).compute(-x))


def test_a_name_that_is_taken_is_not_given_again():
    graph = ptp.load_onnx(network([node("Neg", "x", "x/Line", "Line"), node("Neg", "x/Line", "y")]))
    assert [graph.insert_after("x", Line(2)) for _ in range(2)] == ["x/Line_1", "x/Line_2"]
    assert len({info.name for info in graph.nodes}) == len(graph.nodes)


def test_readers_inside_a_branch_read_the_plugin_too():
    then = "then () => (float[] p) { [inner_p] p = Neg (a) }"
    other = "else () => (float[] q) { [inner_q] q = Abs (a) }"
    text = f"a = Relu (x) [choose] y = If (yes) <then_branch = {then}, else_branch = {other}>"
    graph = ptp.load_onnx(parsed(f"(float[N,4,6,6] x) => (float[] y) {{ {text} }}", yes=np.array(True)))
    graph.insert_after("a", Line(2))
    x = image()
    np.testing.assert_array_equal(run(graph, x)["y"], -2 * np.maximum(x, 0))
    with pytest.raises(ModelError, match="'inner_p' is within 'choose'"):
        graph.replace("inner_p", Line())
