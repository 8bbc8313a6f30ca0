"""int8 codes become uint8 codes of the same values, where DequantizeLinear alone reads them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from pytrtplugins.engines.host.unsigned import UnsignedActivations
from pytrtplugins.passes import to_ir, to_proto
from tests.passes.nets import Net, constants, image, passed, producers, run


def pair(net, x, number, zero, *, domain="", axis=None):
    """Q/DQ behind x; ``zero`` None: without a zero point, a text: a tensor of the net."""
    scale = net.constant(f"s{number}", np.full(np.shape(zero) if axis is not None else (), 0.02, np.float32))
    given = [] if zero is None else [zero if isinstance(zero, str) else net.constant(f"z{number}", zero)]
    attributes = {} if axis is None else {"axis": axis}
    net.add("QuantizeLinear", [x, scale, *given], f"q{number}", domain=domain, **attributes)
    return net.add("DequantizeLinear", [f"q{number}", scale, *given], f"d{number}", **attributes)


def shifted(model):
    return passed(model, UnsignedActivations())


def same_values(model, changed, outputs=("y",)):
    x = image(model) * 8 - 4
    expected, found = run(model, x, outputs), run(changed, x, outputs)
    for name in outputs:
        np.testing.assert_array_equal(found[name], expected[name])


def test_codes_and_zero_points_move_by_128_and_values_stay():
    net = Net()
    first = pair(net, "data", 0, np.int8(-3))
    second = pair(net, net.add("Neg", [first], "negative"), 1, np.int8(-3))
    third = pair(net, net.add("Abs", [second], "positive"), 2, np.int8([-128, 0, 127]), axis=1)
    net.add("Relu", [third], "y")
    model = net.model("y")
    changed, modified = shifted(model)
    onnx.checker.check_model(changed, full_check=True)
    held, made = constants(changed), producers(changed)
    assert modified
    assert "z0" not in held  # nobody reads it any more
    assert made["q0"].input[2] == made["d0"].input[2] == made["q1"].input[2] == made["d1"].input[2]
    assert (held[made["q0"].input[2]], held[made["q0"].input[2]].dtype) == (125, np.uint8)
    assert held[made["q2"].input[2]].tolist() == [0, 128, 255]
    kinds = {info.name: info.type.tensor_type.elem_type for info in changed.graph.value_info}
    assert {kinds[name] for name in ("q0", "q1", "q2")} == {TensorProto.UINT8}
    same_values(model, changed)


def test_zero_points_of_other_dims_are_other_constants():
    net = Net()
    first = pair(net, "data", 0, np.int8(5))
    mean = net.add("ReduceMean", [first, net.constant("axes", np.array([1]))], "mean")  # one channel
    net.add("Relu", [pair(net, mean, 1, np.int8([5]), axis=1)], "y")
    model = net.model("y")
    changed, _ = shifted(model)
    held, made = constants(changed), producers(changed)
    assert [held[made[name].input[2]].shape for name in ("q0", "q1")] == [(), (1,)]
    same_values(model, changed)


def test_every_reader_of_the_codes_gets_the_new_zero_point():
    net = Net()
    pair(net, "data", 0, np.int8(5))
    net.add("DequantizeLinear", ["q0", "s0", "z0"], "again")
    net.add("Add", ["d0", "again"], "y")
    model = net.model("y")
    changed, _ = shifted(model)
    made = producers(changed)
    assert made["q0"].input[2] == made["d0"].input[2] == made["again"].input[2] != "z0"
    same_values(model, changed)


def test_names_that_are_taken_are_avoided():
    net = Net()
    for name in ("uint8_zero_0", "uint8_zero_0_2"):
        net.constant(name, np.float32(1))
    net.add("Mul", [net.add("Mul", [pair(net, "data", 0, np.int8(0)), "uint8_zero_0"], "m"), "uint8_zero_0_2"], "y")
    model = net.model("y")
    changed, modified = shifted(model)
    assert modified
    assert constants(changed)["uint8_zero_0"] == constants(changed)["uint8_zero_0_2"] == 1
    assert constants(changed)["uint8_zero_0_3"] == 128
    same_values(model, changed)


def no_zero_point(net):
    return pair(net, "data", 0, None)


def unsigned_already(net):
    return pair(net, "data", 0, np.uint8(3))


def computed_zero_point(net):
    net.constant("z", np.int8([0]))
    return pair(net, "data", 0, net.add("Squeeze", ["z"], "computed", 1))


def codes_read_by_another(net, x="data", number=0):
    x = pair(net, x, number, np.int8(0))
    net.add("Transpose", [f"q{number}"], "turned")
    return x


def operator_of_another_domain(net):
    return pair(net, "data", 0, np.int8(0), domain="com.microsoft")


def another_operator(net):
    codes = [net.constant("s", np.float32(0.1)), net.constant("z", np.int8(3))]
    net.constant("steps", np.ones((1, 3, 8, 8), np.int8))
    net.add("Where", [net.add("Greater", ["data", "s"], "more"), "steps", "z"], "chosen")
    return net.add("DequantizeLinear", ["chosen", *codes], "d", 3)


def weights(net):
    net.constant("steps", np.ones((1, 3, 8, 8), np.int8))
    codes = [net.constant("s", np.float32(0.1)), net.constant("z", np.int8(0))]
    return net.add("Mul", ["data", net.add("DequantizeLinear", ["steps", *codes], "w", 3)], "product")


@pytest.mark.parametrize(
    "build",
    [
        no_zero_point,
        unsigned_already,
        computed_zero_point,
        codes_read_by_another,
        operator_of_another_domain,
        another_operator,
        weights,
    ],
)
def test_what_is_not_an_int8_activation_stays(build):
    net = Net()
    x = build(net)
    net.add("Relu", [x], "y")
    net.constant("unread", np.float32(1))
    model = net.model("y", *(["turned"] if build is codes_read_by_another else []))
    changed, modified = shifted(model)
    assert not modified
    assert changed.graph == to_proto(to_ir(model)).graph


def test_codes_that_leave_the_model_stay():
    net = Net()
    pair(net, "data", 0, np.int8(0))
    model = net.model("q0", "d0")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT8
    changed, modified = shifted(model)
    assert not modified
    assert constants(changed)["z0"].dtype == np.int8


def test_the_others_of_a_network_are_still_shifted():
    net = Net()
    x = pair(net, pair(net, "data", 0, None), 1, np.uint8(7))
    x = codes_read_by_another(net, pair(net, x, 3, np.int8(0)), 4)
    net.add("Relu", [pair(net, x, 2, np.int8(1))], "y")
    changed, modified = shifted(net.model("y", "turned"))
    held, made = constants(changed), producers(changed)
    assert modified
    assert len(made["q0"].input) == 2
    assert (held[made["q1"].input[2]], held[made["q2"].input[2]]) == (7, 129)
