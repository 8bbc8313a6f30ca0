import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.repeated_pairs import DropRepeatedPairs
from pytrtplugins.passes import to_ir, to_proto
from tests.passes.nets import Net, image, passed, path_up, quantized_names, run

ZERO = np.int8(0)


def pairs_net(between="Transpose", scales=(0.02, 0.02), zeros=(ZERO, ZERO), outputs=("y",)):
    """data → Q/DQ → something → Q/DQ → y."""
    net = Net()
    x = "data"
    for number, (scale, zero) in enumerate(zip(scales, zeros, strict=True)):
        codes = [net.constant(f"s{number}", np.float32(scale)), net.constant(f"z{number}", zero)]
        net.add("QuantizeLinear", [x, *codes], f"q{number}")
        net.add("DequantizeLinear", [f"q{number}", *codes], f"d{number}")
        x = f"d{number}"
        if number == 0 and between:
            x = net.add(between, [x], "between")
    net.add("Relu", [x], "y")
    return net.model(*outputs)


def dropped(model):
    return passed(model, DropRepeatedPairs())


@pytest.mark.parametrize("between", [None, "Transpose", "Identity", "Flatten"])
def test_the_second_pair_goes_and_no_value_changes(between):
    model = pairs_net(between)
    changed, modified = dropped(model)
    onnx.checker.check_model(changed)
    assert modified
    assert quantized_names(changed) == ["data"]
    assert (
        path_up(changed, "y", 3)[1:]
        == ([between] if between else []) + ["DequantizeLinear", "QuantizeLinear"][: 1 + (not between)]
    )
    x = image(model) * 6 - 3
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


def test_codes_that_are_quantized_again_are_read_as_they_were():
    model = pairs_net(None)
    turned = onnx.helper.make_node("Transpose", ["q1"], ["codes"])
    index = next(i for i, node in enumerate(model.graph.node) if node.output[0] == "d1")
    model.graph.node.insert(index, turned)
    model.graph.node[index + 1].input[0] = "codes"
    changed, modified = dropped(model)
    assert modified
    assert quantized_names(changed) == ["data"]
    x = image(model) * 6 - 3
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"scales": (0.02, 0.03)},
        {"zeros": (ZERO, np.int8(1))},
        {"zeros": (ZERO, np.uint8(0))},
        {"between": "Relu"},
        {"outputs": ("y", "d1")},
    ],
)
def test_another_scale_or_a_computation_between_keeps_both_pairs(arguments):
    model = pairs_net(**arguments)
    changed, modified = dropped(model)
    assert not modified
    assert len(quantized_names(changed)) == 2


def test_two_pairs_with_scales_of_their_own_for_each_channel_stay():
    model = pairs_net(scales=([0.02] * 8,) * 2, zeros=(np.zeros(8, np.int8),) * 2)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("axis", 3))
    assert dropped(model) == (to_proto(to_ir(model)), False)


@pytest.mark.parametrize("number", range(1, 5))
def test_an_operator_of_another_domain_keeps_the_pairs(number):
    """In place of the first DequantizeLinear, of what moves its values, and of either node of the second pair."""
    model = pairs_net()
    model.graph.node[number].domain = "elsewhere"
    assert dropped(model) == (to_proto(to_ir(model)), False)


def test_a_pair_without_a_zero_point_and_values_from_the_input_stay():
    net = Net()
    scale = net.constant("s", np.float32(0.02))
    x = net.add("DequantizeLinear", [net.add("QuantizeLinear", ["data", scale], "q"), scale], "d")
    x = net.add("DequantizeLinear", [net.add("QuantizeLinear", [x, scale], "q2"), scale], "d2")
    model = net.model(net.add("Relu", [x], "y"))
    assert not dropped(model)[1]
    assert not dropped(pairs_net(scales=(0.02,), zeros=(ZERO,)))[1]


def test_a_computed_scale_keeps_the_pairs():
    net = Net()
    net.channels[net.constant("e", np.float32(-4))] = 1
    codes = [net.add("Exp", ["e"], "s"), net.constant("z", ZERO)]
    x = "data"
    for number in range(2):
        x = net.add("QuantizeLinear", [x, *codes], f"q{number}")
        x = net.add("DequantizeLinear", [x, *codes], f"d{number}")
    model = net.model(net.add("Relu", [x], "y"))
    assert dropped(model) == (to_proto(to_ir(model)), False)


def chained(*readers):
    """One pair, then a QuantizeLinear with several readers."""
    net = Net()
    codes = [net.constant("s", np.float32(0.02)), net.constant("z", ZERO)]
    wider = [net.constant("s2", np.float32(0.04)), "z"]
    x = net.add("DequantizeLinear", [net.add("QuantizeLinear", ["data", *codes], "q"), *codes], "d")
    q = net.add("QuantizeLinear", [x, *codes], "q2")
    for reader in readers:
        if reader == "Transpose":
            net.add(reader, [q], reader)
        else:
            net.add(
                "Relu",
                [net.add("DequantizeLinear", [q, *(codes if reader == "same" else wider)], f"{reader}_d")],
                reader,
            )
    model = net.model(*readers)
    for output in model.graph.output:
        if output.name == "Transpose":
            output.type.tensor_type.elem_type = onnx.TensorProto.INT8
    return model


def test_only_readers_with_the_same_scale_read_past_the_second_pair():
    changed, modified = dropped(chained("other", "Transpose", "same"))
    made = {output: node for node in changed.graph.node for output in node.output}
    assert modified
    assert made["same"].input[0] == "d"
    assert made["other"].input[0] == "other_d"
    assert made["other_d"].input[0] == "q"
    assert made["Transpose"].input[0] == "q"


def test_a_pair_that_stays_does_not_keep_the_next_one():
    """data → Q/DQ of one scale → Q/DQ of another → Q/DQ of that one again."""
    model = pairs_net(None, scales=(0.02, 0.03, 0.03), zeros=(ZERO,) * 3)
    changed, modified = dropped(model)
    assert modified
    assert quantized_names(changed) == ["data", "d0"]
    x = image(model) * 6 - 3
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


def test_a_pair_behind_constant_codes_goes():
    net = Net()
    scale, zero = net.constant("s", np.float32(0.02)), net.constant("z", ZERO)
    net.constant("codes", np.arange(-96, 96, dtype=np.int8).reshape(1, 3, 8, 8))
    net.channels["codes"] = 3
    net.add("DequantizeLinear", ["codes", scale, zero], "d")
    net.add("Transpose", ["d"], "between", perm=[0, 1, 3, 2])
    net.add("QuantizeLinear", ["between", scale, zero], "q")
    net.add("Add", ["data", net.add("DequantizeLinear", ["q", scale, zero], "e")], "y")
    model = net.model("y")
    changed, modified = dropped(model)
    assert modified
    assert quantized_names(changed) == []
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])
