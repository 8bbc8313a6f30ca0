"""HardSwish and means over height and width, written with operators that have int8 kernels."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytrtplugins.passes import Int8Forms, to_ir, to_proto
from tests.passes.nets import Net, image, producers, run


def rewritten(model):
    ir_model = to_ir(model)
    result = Int8Forms()(ir_model)
    return to_proto(ir_model), result.modified


def operators(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("output", ["swish", "y"])
def test_hard_swish_is_x_times_its_gate(output):
    net = Net()
    net.add("HardSwish", [net.add("Neg", ["data"], "x")], "swish")
    net.add("Relu", ["swish"], "y")
    model = net.model(output)
    changed, modified = rewritten(model)
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    assert operators(changed)[:3] == ["Neg", "HardSigmoid", "Mul"]
    made = producers(changed)
    assert list(made["swish"].input) == ["x", "swish_gate"]
    assert [made[name].name for name in ("swish_gate", "swish")] == ["swish_gate", "swish"]
    infos = {info.name: info for info in (*changed.graph.value_info, *changed.graph.output)}
    for name in ("swish_gate", "swish"):
        tensor = infos[name].type.tensor_type
        assert tensor.elem_type == TensorProto.FLOAT
        assert [dim.dim_param or dim.dim_value for dim in tensor.shape.dim] == ["N", 3, 8, 8]
    x = image(model) * 16 - 8
    np.testing.assert_allclose(run(changed, x, [output])[output], run(model, x, [output])[output], rtol=1e-6, atol=1e-6)


def test_a_gate_is_named_by_its_node_else_by_its_tensor():
    net = Net()
    net.add("HardSwish", ["data"], "swish")
    for name, gate in (("act", "act_gate"), ("", "swish_gate")):
        net.nodes[0].name = name
        changed, _ = rewritten(net.model("swish"))
        assert [node.name for node in changed.graph.node] == [gate, name]


@pytest.mark.parametrize("axes", [[2, 3], [3, 2], [-1, -2], [2, -1]])
@pytest.mark.parametrize("keepdims", [{}, {"keepdims": 1}])
@pytest.mark.parametrize("opset", [13, 18])
def test_a_mean_over_height_and_width_is_a_global_average(axes, keepdims, opset):
    net = Net(opset=opset)
    given = [net.constant("axes", np.int64(axes))] if opset == 18 else []
    attributes = keepdims if given else {**keepdims, "axes": axes}
    net.add("Relu", [net.add("ReduceMean", ["data", *given], "mean", **attributes)], "y")
    model = net.model("y")
    changed, modified = rewritten(model)
    assert modified
    assert operators(changed) == ["GlobalAveragePool", "Relu"]
    assert (changed.graph.node[0].name, list(changed.graph.node[0].input)) == ("mean", ["data"])
    x = image(model)
    np.testing.assert_allclose(run(changed, x, ["mean"])["mean"], x.mean(axis=(2, 3), keepdims=True), rtol=1e-6)


def mean(axes=(2, 3), dims=4, op="ReduceMean", domain="", **attributes):
    """A network that is one mean."""
    net = Net()
    net.input = ["N", *[3, 8, 8, 8][: dims - 1]]
    given = [] if axes is None else [net.constant("axes", np.int64(axes))]
    net.add(op, ["data", *given], "y", domain=domain, **attributes)
    return net.model("y")


def mean_over_computed_axes():
    net = Net()
    net.constant("two", np.int64([2, 3]))
    net.add("ReduceMean", ["data", net.add("Identity", ["two"], "axes", 1)], "y")
    return net.model("y")


def mean_of_an_unknown_shape():
    model = mean()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


def other_operators():
    """Names before and behind HardSwish in the alphabet."""
    net = Net()
    net.nodes.append(helper.make_node("Constant", [], ["one"], value_float=1.0))
    net.channels["one"] = 3
    x = net.add("Tanh", [net.add("HardSigmoid", [net.add("Abs", ["data"], "a")], "b")], "c")
    net.add("Add", [x, "one"], "y")
    return net.model("y")


@pytest.mark.parametrize(
    "model",
    [
        mean(keepdims=0),
        mean(axes=[2]),
        mean(axes=[3]),
        mean(axes=[1, 2]),
        mean(axes=[1, 3]),
        mean(axes=[1, 2, 3]),
        mean(axes=None),
        mean(dims=3, axes=[1, 2]),
        mean(dims=3, axes=[-2, -1]),
        mean(dims=5, axes=[2, 3]),
        mean(op="ReduceMax"),
        mean(op="ReduceSum"),
        mean(domain="other"),
        mean_over_computed_axes(),
        mean_of_an_unknown_shape(),
        other_operators(),
    ],
)
def test_everything_else_stays(model):
    changed, modified = rewritten(model)
    assert not modified
    assert changed.graph == to_proto(to_ir(model)).graph


def test_the_operator_of_another_domain_stays():
    net = Net()
    net.add("HardSwish", ["data"], "y", domain="other")
    changed, modified = rewritten(net.model("y"))
    assert (operators(changed), modified) == (["HardSwish"], False)
