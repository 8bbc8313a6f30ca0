"""A part of a network computes what the network computes there, and what cannot be cut out says why."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from tests.model.networks import network, node, weights
from tests.onnx_parts import parsed


def run(graph, **given):
    with ptp.build(graph, engine="reference").create_context() as context:
        return context.run(given)


def branches():
    """x → a → b and c → y, beside a second input that only y needs."""
    text = "[relu] a = Relu (x) [mul] b = Mul (a, k) [neg] c = Neg (a) [sum] y = Sum (b, c, z)"
    weights = {"k": np.float32([1, 2, 3, 4]), "unread": np.float32([9])}
    return ptp.load_onnx(parsed(f"(float[N,4] x, float[N,4] z) => (float[N,4] y) {{ {text} }}", 18, 9, **weights))


X = np.float32([[1, -2, 3, -4], [5, 6, -7, 8]])


def test_two_parts_compute_what_the_whole_does():
    graph, z = branches(), np.ones_like(X)
    first, second = graph.extract(outputs=["a"]), graph.extract(["a", "z"])
    whole = run(graph, x=X, z=z)["y"]
    np.testing.assert_array_equal(run(second, a=run(first, x=X)["a"], z=z)["y"], whole)
    assert [item.name for item in first.nodes] == ["relu"]
    assert [item.name for item in second.nodes] == ["mul", "neg", "sum"]
    assert len(graph.nodes) == 4


def test_a_part_has_the_constants_that_it_reads_and_dims_with_their_names():
    part = branches().extract(["a"], ["b", "c"])
    assert {name: None if dims is None else [str(dim) for dim in dims] for name, dims in part.tensors.items()} == {
        "a": ["N", "4"], "k": ["4"], "b": ["N", "4"], "c": ["N", "4"],
    }  # fmt: skip
    assert [info.name for info in part.model.graph.output] == ["b", "c"]
    np.testing.assert_array_equal(run(part, a=X)["b"], X * [1, 2, 3, 4])


def test_a_part_describes_its_own_tensors_alone_and_each_once():
    graph = branches()
    for name in "abc":
        graph.model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]))
    part = ptp.load_onnx(graph.model).extract(["x"], ["b"])
    assert [info.name for info in part.model.graph.value_info] == ["a"]
    assert [info.name for info in part.model.graph.input] == ["x"]
    assert [tensor.name for tensor in part.model.graph.initializer] == ["k"]


def test_a_constant_can_become_an_input():
    part = branches().extract(["a", "k"], ["b"])
    np.testing.assert_array_equal(run(part, a=X, k=np.float32([2, 2, 2, 2]))["b"], X * 2)


def test_what_the_outputs_need_beside_the_inputs_is_named():
    with pytest.raises(
        ModelError, match=r"'y' cannot be computed from 'a' alone: 'z', an input of the network"
    ) as caught:
        branches().extract(["a"], ["y"])
    assert caught.value.missing == ["z"]
    with pytest.raises(
        ModelError, match=r"from 'b' alone: 'x', 'z', inputs of the network, must be known too.\nDo: name them"
    ):
        branches().extract(["b"])


@pytest.mark.parametrize(
    ("inputs", "outputs", "unused"), [(["b"], ["a"], "'x'"), (["x", "z"], ["a"], "'z'"), (["a"], ["a"], "'a'")]
)
def test_inputs_that_do_not_lead_to_the_outputs_are_refused(inputs, outputs, unused):
    with pytest.raises(ModelError, match=f"{unused}"):
        branches().extract(inputs, outputs)


@pytest.mark.parametrize(("inputs", "outputs"), [(["aa"], ["y"]), (["a"], ["aa"])])
def test_a_tensor_that_is_not_there_is_answered_with_near_ones(inputs, outputs):
    with pytest.raises(ModelError, match=r"tensors has the name 'aa'.\nNear: 'a'.\nDo: .*pytrt inspect MODEL --nodes"):
        branches().extract(inputs, outputs)


def test_a_node_that_writes_an_input_and_what_is_needed_is_refused():
    graph = ptp.load_onnx(
        parsed(
            "(float[N,4,6,6] x) => (float[] y) { [split] p, q = Split <axis = 1, num_outputs = 2> (x) [y] y = Add (p, q) }"
        )
    )
    with pytest.raises(
        ModelError, match=r"'split' \(Split\) writes 'p', .*\nDo: name all that it writes as inputs, 'p', 'q'"
    ):
        graph.extract(["p", "x"], ["y"])
    assert [item.name for item in graph.extract(["p", "q"], ["y"]).nodes] == ["y"]


def test_a_tensor_of_unknown_type_is_refused_until_its_operator_is_known():
    model = parsed("(float[N,4,6,6] x) => (float[] y) { a = Relu (x) [later] b = tests.extract.Later (a) y = Neg (b) }")
    with pytest.raises(
        ModelError, match=r"the element type of tensor 'b' is not known, .*\nDo: write that operator as a plugin"
    ):
        ptp.load_onnx(model).extract(outputs=["b"])

    @ptp.plugin(namespace="tests.extract")
    class Later(ptp.Plugin):
        """Twice."""

        def output_dims(self, x):
            return x

        def compute(self, x):
            return 2 * x

    part = ptp.load_onnx(model).extract(outputs=["b"])
    assert [item.type for item in part.nodes] == ["Relu", "tests.extract::Later"]


def test_what_a_branch_reads_from_around_it_comes_along():
    text = """(float[2] x, bool c) => (float[2] y) { [relu] a = Relu (x) [branch] y = If (c) <
        then_branch = t () => (float[] u) { u = Add (a, k) }, else_branch = e () => (float[] v) { v = Sub (a, k) }> }"""
    whole = ptp.load_onnx(parsed(text, 18, 9, k=np.float32([1, 5])))
    part = whole.extract(["a", "c"])
    np.testing.assert_array_equal(run(part, a=np.float32([1, 2]), c=np.array(False))["y"], [0, -3])
    with pytest.raises(ModelError, match="from 'c' alone: 'x', an input"):
        whole.extract(["c"])


def test_weights_that_lay_beside_the_network_lie_beside_its_parts(tmp_path):
    model = network([node("Add", "x k", "a"), node("Relu", "a", "y")], dims=(1, 4, 32, 32), k=weights(1, 4, 32, 32))
    onnx.save(model, tmp_path / "whole.onnx", save_as_external_data=True, location="whole.data", size_threshold=0)
    part = ptp.load_onnx(tmp_path / "whole.onnx").extract(outputs=["a"])
    assert len(part.save(tmp_path / "part.onnx")) == 2
    assert [item.type for item in ptp.load_onnx(tmp_path / "part.onnx").nodes] == ["Add"]
