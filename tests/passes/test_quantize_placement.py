import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.passes.quantize import quantize
from tests.measures import sqnr
from tests.passes.nets import (
    Head,
    Net,
    Swap,
    calibrated,
    constants,
    image,
    ones,
    path_up,
    producers,
    quantized_names,
    run,
    tiny_yolo,
)

# --- where Q/DQ stands ---------------------------------------------------------------------------------------------


def test_activations_are_quantized_once_behind_the_activation_function():
    model = tiny_yolo()
    quantized = quantize(model, ones(model))
    onnx.checker.check_model(quantized)
    assert quantized_names(quantized) == ["data", "a_leaky", "b_leaky", "c_leaky"]
    made = producers(quantized)
    assert path_up(quantized, made["c"].input[0], 4) == ["DequantizeLinear", "QuantizeLinear", "LeakyRelu", "Conv"]
    assert made["d"].input[0] == "route"
    assert [made[x].op_type for x in made["route"].input] == ["DequantizeLinear"] * 2
    assert path_up(quantized, made["b"].input[0], 2) == ["MaxPool", "DequantizeLinear"]


def test_weights_are_int8_constants_with_a_scale_per_channel_and_biases_stay_float():
    model = tiny_yolo()
    quantized = quantize(model, ones(model))
    held, made = constants(quantized), producers(quantized)
    for name in "abcd":
        dequantize = made[made[name].input[1]]
        assert (dequantize.op_type, helper.get_node_attr_value(dequantize, "axis")) == ("DequantizeLinear", 0)
        steps, scales, zeros = (held[x] for x in dequantize.input)
        assert (steps.dtype, zeros.dtype, scales.dtype) == (np.int8, np.int8, np.float32)
        assert scales.shape == zeros.shape == (steps.shape[0],)
        assert np.abs(steps).max(axis=(1, 2, 3)).tolist() == [127] * steps.shape[0]
        assert held[made[name].input[2]].dtype == np.float32
        assert f"{name}_w" not in held
    assert held["e_w"].dtype == np.float32


def test_scales_come_from_the_table_and_zero_points_are_zero():
    model = tiny_yolo()
    table = calibrated(model)
    quantized = quantize(model, table)
    held = constants(quantized)
    for node in quantized.graph.node:
        if node.op_type == "QuantizeLinear":
            scale, zero = held[node.input[1]], held[node.input[2]]
            assert (scale.shape, scale.dtype, zero.dtype, zero) == ((), np.float32, np.int8, 0)
    assert held[producers(quantized)["data_quantized"].input[1]] == table["data"]


def test_members_of_a_chain_share_the_largest_scale_of_those_that_are_computed():
    model = tiny_yolo()
    scales = dict.fromkeys(ones(model), 0.01) | {
        "b_leaky": 0.02,
        "c_leaky": 0.05,
        "route": 9.0,
        "a_leaky": 0.3,
        "pool": 9,
    }
    quantized = quantize(model, CalibrationTable(scales))
    held, made = constants(quantized), producers(quantized)
    got = {name: held[made[f"{name}_quantized"].input[1]] for name in ("a_leaky", "b_leaky", "c_leaky")}
    assert got == {"a_leaky": np.float32(0.3), "b_leaky": np.float32(0.05), "c_leaky": np.float32(0.05)}


def test_a_pass_through_plugin_stands_between_two_pairs_with_one_scale():
    net = Net()
    swapped = net.plugin(Swap(), net.conv("data", "a"), "swapped")
    net.conv(net.add("Concat", [swapped, net.conv("data", "b")], "route", 8, axis=1), "c")
    net.conv("c_leaky", "d")
    model = net.model("d_leaky")
    scales = dict.fromkeys(ones(model), 0.01) | {"a_leaky": 0.02, "b_leaky": 0.03, "swapped": 7}
    quantized = quantize(model, CalibrationTable(scales))
    held, made = constants(quantized), producers(quantized)
    assert made["swapped"].input[0] == "a_leaky_dequantized"
    assert list(made["route"].input) == ["swapped_dequantized", "b_leaky_dequantized"]
    assert {float(held[made[f"{x}_quantized"].input[1]]) for x in ("a_leaky", "b_leaky", "swapped")} == {
        np.float32(0.03)
    }


def test_the_second_pair_of_a_plugin_changes_no_value():
    net = Net()
    x = net.conv("data", "a")
    for step, (op, extra) in enumerate([("Reshape", [0, 2, 2, 8, 8]), ("Transpose", None), ("Reshape", [0, 4, 8, 8])]):
        output = f"shuffle{step}"
        if op == "Reshape":
            x = net.add(op, [x, net.constant(f"{output}_dims", np.array(extra, np.int64))], output, 4)
        else:
            x = net.add(op, [x], output, 4, perm=[0, 2, 1, 3, 4])
    net.conv(net.conv(x, "b"), "c")
    model = net.model("c_leaky")
    table = calibrated(model)
    inlined = quantize(model, table)
    assert quantized_names(inlined) == ["data", "a_leaky"]
    held, made = constants(inlined), producers(inlined)
    scale = held[made["a_leaky_quantized"].input[1]]
    values = run(inlined, image(model), ["a_leaky_dequantized", "shuffle2"])
    again = np.clip(np.rint(values["shuffle2"] / scale), -128, 127).astype(np.float32) * scale
    np.testing.assert_array_equal(again, values["shuffle2"])
    np.testing.assert_array_equal(
        np.sort(values["shuffle2"], axis=None), np.sort(values["a_leaky_dequantized"], axis=None)
    )


def test_a_float_plugin_and_one_that_is_not_registered_end_a_chain():
    net = Net()
    head = net.plugin(Head(), net.conv("data", "a"), "head")
    unknown = net.add(
        "Unknown", [net.conv(head, "b")], "unknown", domain="quantize_test", plugin_namespace="quantize_test"
    )
    net.conv(net.conv(unknown, "c"), "d")
    model = net.model("d_leaky")
    quantized = quantize(model, ones(model))
    assert quantized_names(quantized) == ["data", "head", "unknown"]  # d is the last layer, and stays in float
    assert producers(quantized)["head"].input[0] == "a_leaky"
    assert producers(quantized)["unknown"].input[0] == "b_leaky"


@pytest.mark.parametrize(("mode", "shared"), [("nearest", True), ("linear", False)])
def test_only_nearest_resizing_hands_its_scale_on(mode, shared):
    net = Net()
    a = net.conv("data", "a")
    scales = net.constant("factors", np.float32([1, 1, 2, 2]))
    up = net.add("Resize", [a, "", scales], "up", mode=mode)
    net.conv(net.conv(up, "b"), "c")
    model = net.model("c_leaky")
    names = quantized_names(quantize(model, ones(model)))
    assert names == (["data", "a_leaky"] if shared else ["data", "up"])


def test_a_residual_addition_reads_int8_and_adds_inside_a_convolution():
    net = Net(channels=4)
    a = net.conv("data", "a")
    b = net.conv(net.conv(a, "b"), "c", leaky=False)
    added = net.add("Add", [b, a], "sum")
    d = net.conv(added, "d")
    both = net.add("Add", [d, added], "sum2")
    net.conv(net.conv(both, "e"), "f")
    model = net.model("f_leaky")
    made = producers(quantize(model, ones(model)))
    assert list(made["sum"].input) == ["c", "a_leaky_dequantized"]
    assert made["b"].input[0] == "a_leaky_dequantized"
    assert list(made["sum2"].input) == ["d_leaky_dequantized", "sum_dequantized"]


@pytest.mark.parametrize("projection_first", [False, True])
def test_of_two_convolutions_the_one_with_more_before_it_adds(projection_first):
    net = Net(channels=4)
    a = net.conv("data", "a")
    projection = net.conv(a, "projection", leaky=False)
    deep = net.conv(net.conv(a, "b"), "c", leaky=False)
    sides = [projection, deep] if projection_first else [deep, projection]
    net.conv(net.conv(net.add("Add", sides, "sum"), "d"), "e")
    model = net.model("e_leaky")
    made = producers(quantize(model, ones(model)))
    assert sorted(made["sum"].input) == ["c", "projection_dequantized"]


def test_an_addition_that_nobody_wants_in_int8_stays_in_float():
    net = Net(channels=4)
    a = net.conv("data", "a")
    b = net.conv(a, "b")
    net.add("Add", [a, b], "sum")
    model = net.model("sum")
    made = producers(quantize(model, ones(model), float_last=False))
    assert list(made["sum"].input) == ["a_leaky", "b_leaky"]


def test_groups_and_depthwise_convolutions_are_quantized():
    net = Net(channels=4)
    x = net.conv(net.conv("data", "a", 4, group=4), "b", 6, group=2)
    net.conv(x, "c", 5, kernel=1)
    model = net.model("c_leaky")
    quantized = quantize(model, calibrated(model))
    assert constants(quantized)["a_w_int8"].shape == (4, 1, 3, 3)
    assert constants(quantized)["b_w_scale"].shape == (6,)


@pytest.mark.parametrize(
    ("op", "weights", "attributes", "axis"),
    [
        ("ConvTranspose", (4, 5, 2, 2), {"strides": [2, 2]}, 1),
        ("MatMul", (8, 5), {}, 1),
        ("Gemm", (5, 256), {"transB": 1}, 0),
        ("Gemm", (256, 5), {}, 1),
    ],
)
def test_other_layers_with_weights_are_quantized_along_their_output_channels(op, weights, attributes, axis):
    net = Net()
    x = net.conv("data", "a")
    if op == "Gemm":
        x = net.add("Flatten", [x], "flat")
    w = net.constant("w", np.random.default_rng(0).normal(size=weights).astype(np.float32))
    net.add(op, [x, w], "y", 5, **attributes)
    model = net.model("y")
    quantized = quantize(model, calibrated(model), float_last=False)
    dequantize = producers(quantized)["w_dequantized"]
    assert helper.get_node_attr_value(dequantize, "axis") == axis
    assert constants(quantized)["w_scale"].shape == (5,)
    x = image(model)
    assert sqnr(run(model, x, ["y"])["y"], run(quantized, x, ["y"])["y"]) > 25


def test_weights_that_two_layers_share_are_quantized_once():
    net = Net(channels=4)
    a = net.conv("data", "a", 4)
    net.add("Conv", [a, "a_w"], "b", pads=[1] * 4)
    net.add("Conv", ["b", "a_w"], "c", pads=[1] * 4)
    model = net.model("c")
    quantized = quantize(model, ones(model))
    made = producers(quantized)
    assert made["a"].input[1] == made["b"].input[1] == "a_w_dequantized"
    assert made["c"].input[1] == "a_w"  # the last layer stays in float, and so do its weights
    assert [name for name in constants(quantized) if name.endswith("_int8")] == ["a_w_int8"]


def test_weights_in_constant_nodes_are_quantized_too():
    net = Net()
    weights = numpy_helper.from_array(np.ones((4, 3, 1, 1), np.float32))
    net.nodes.append(helper.make_node("Constant", [], ["w"], name="w", value=weights))
    net.channels["w"] = 4
    net.add("Conv", ["data", "w"], "a", 4)
    model = net.model("a")
    quantized = quantize(model, ones(model), float_last=False)
    assert "Constant" not in {node.op_type for node in quantized.graph.node}
    assert constants(quantized)["w_int8"].shape == (4, 3, 1, 1)


def test_outputs_and_float_readers_keep_the_float_tensor():
    net = Net()
    a = net.conv("data", "a")
    net.add("Sigmoid", [a], "gate")
    net.conv(net.conv(a, "b"), "c")
    model = net.model("a_leaky", "gate", "c_leaky")
    quantized = quantize(model, ones(model))
    made = producers(quantized)
    assert made["gate"].input[0] == "a_leaky"
    assert made["b"].input[0] == "a_leaky_dequantized"
    assert [output.name for output in quantized.graph.output] == ["a_leaky", "gate", "c_leaky"]


def test_an_output_of_the_model_is_never_copied_from_rounded_values():
    net = Net()
    small = net.add("Softmax", [net.conv("data", "a", 6)], "small", axis=1)
    turned = net.add("Transpose", [small], "turned", perm=[0, 1, 3, 2])
    net.conv(net.conv(net.add("Concat", ["a_leaky", turned], "cat", 12, axis=1), "b"), "c")
    model = net.model("turned", "c_leaky")
    quantized = quantize(model, ones(model))
    assert producers(quantized)["turned"].input[0] == "small"
    assert list(producers(quantized)["cat"].input) == ["a_leaky_dequantized", "turned_dequantized"]
