from __future__ import annotations

import json
import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.decompose import add_functions, infer_shapes, inline_plugins
from pytrtplugins.errors import CalibrationTableError, ModelError, UsageError
from pytrtplugins.layers import Reorg
from pytrtplugins.passes._base import to_ir
from pytrtplugins.passes.quantize import FLOAT_LAYERS, Quantize, quantize, quantize_weights, quantized_tensors


@ptp.plugin(namespace="quantize_test")
class Swap(ptp.Plugin):
    """Reverses the channels: a permutation, so int8 passes through."""

    int8 = "pass_through"

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x[:, ::-1]


@ptp.plugin(namespace="quantize_test")
class Head(ptp.Plugin):
    """Computes something; stays in float."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * x


class Net:
    """A small model, written layer by layer; every tensor is named by its layer."""

    def __init__(self, channels: int = 3, size: int = 8, seed: int = 0, opset: int = 18):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants, self.channels = [], [], {"data": channels}
        self.opset, self.input = opset, ["N", channels, size, size]

    def add(self, op, inputs, output, channels=None, domain="", **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
        self.channels[output] = channels or self.channels[inputs[0]]
        return output

    def plugin(self, plugin, x, output):
        self.nodes.append(plugin.as_node([x], [output], name=output))
        self.channels[output] = self.channels[x]
        return output

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(self, x, output, channels=4, kernel=3, group=1, leaky=True):
        inputs = self.channels[x] // group
        weights = self.random.normal(size=(channels, inputs, kernel, kernel)) / np.sqrt(inputs * kernel**2)
        w = self.constant(f"{output}_w", weights.astype(np.float32))
        b = self.constant(f"{output}_b", self.random.normal(0, 0.1, channels).astype(np.float32))
        self.add("Conv", [x, w, b], output, channels, group=group, pads=[kernel // 2] * 4)
        return self.add("LeakyRelu", [output], f"{output}_leaky", alpha=0.1) if leaky else output

    def model(self, *outputs):
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("data", TensorProto.FLOAT, self.input)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in sorted({n.domain for n in self.nodes} - {""})]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def run(model, x, outputs=None):
    """Values of the named tensors, or of all float ones, by onnxruntime without optimizations."""
    inferred = onnx.shape_inference.infer_shapes(model)
    floats = {v.name for v in inferred.graph.value_info if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    floats |= {v.name for v in inferred.graph.output}
    names = list(outputs) if outputs else [o for node in model.graph.node for o in node.output if o in floats]
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    del tapped.graph.output[:]
    tapped.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tapped.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(None, {"data": x}), strict=True))


def photo(model, seed=1, batch=2):
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(seed).uniform(size=[batch, *dims[1:]]).astype(np.float32)


def calibrated(model) -> CalibrationTable:
    calibrator = MinMaxCalibrator()
    x = photo(model)
    calibrator.observe("data", x)
    for name, value in run(model, x).items():
        calibrator.observe(name, value)
    return calibrator.compute_table()


def ones(model) -> CalibrationTable:
    """A table with every tensor, for tests that run nothing."""
    names = ["data", *(output for node in model.graph.node for output in node.output)]
    return CalibrationTable(dict.fromkeys(names, 0.01))


def constants(model):
    return {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}


def producers(model):
    return {output: node for node in model.graph.node for output in node.output}


def quantized_names(model):
    """Tensors that a QuantizeLinear reads."""
    return [node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]


def path_up(model, tensor, count):
    """Operators from a tensor upwards, along first inputs."""
    ops, made = [], producers(model)
    while tensor in made and len(ops) < count:
        ops.append(made[tensor].op_type)
        tensor = made[tensor].input[0]
    return ops


def sqnr(expected, actual):
    return 10 * np.log10((expected**2).sum() / ((expected - actual) ** 2).sum())


def tiny_yolo(opset=18):
    """Everything that YOLOv2 has: leaky convolutions, max-pooling, a passthrough by concatenation, a head in float."""
    net = Net(size=16, opset=opset)
    a = net.conv("data", "a", 8)
    pool = net.add("MaxPool", [a], "pool", kernel_shape=[2, 2], strides=[2, 2])
    b = net.conv(pool, "b", 12)
    c = net.conv(b, "c", 8)
    route = net.add("Concat", [c, b], "route", 20, axis=1)
    net.conv(net.conv(route, "d", 16), "e", 10, kernel=1, leaky=False)
    return net.model("e")


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
    values = run(inlined, photo(model), ["a_leaky_dequantized", "shuffle2"])
    again = np.clip(np.rint(values["shuffle2"] / scale), -128, 127).astype(np.float32) * scale
    np.testing.assert_array_equal(again, values["shuffle2"])
    np.testing.assert_array_equal(
        np.sort(values["shuffle2"], axis=None), np.sort(values["a_leaky_dequantized"], axis=None)
    )


def test_plugins_may_be_inlined_before_or_after_or_be_functions():
    net = Net(size=16)
    a = net.conv("data", "a", 8)
    pool = net.add("MaxPool", [a], "pool", kernel_shape=[2, 2], strides=[2, 2])
    reorg = net.plugin(Reorg(stride=2), a, "reorg")
    b = net.conv(pool, "b", 6)
    route = net.add("Concat", [reorg, b], "route", 32 + 6, axis=1)
    net.channels["route"] = 32 + 6
    net.conv(net.conv(route, "c", 8), "d", 5, kernel=1, leaky=False)
    model = infer_shapes(net.model("d"))
    x, table = photo(model), calibrated(inline_plugins(model))
    after = inline_plugins(quantize(model, table))
    before = quantize(inline_plugins(model), table)
    functions = quantize(add_functions(model), table)
    assert len(quantized_names(after)) == len(quantized_names(before)) + 1
    expected = run(inline_plugins(model), x, ["d"])["d"]
    results = [run(form, x, ["d"])["d"] for form in (before, after, functions)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert sqnr(expected, results[0]) > 25


@given(
    steps=arrays.arrays(np.int8, 16),
    scale=st.floats(float(np.finfo(np.float32).tiny) * 2**10, 2.0**100, width=32),
)
def test_quantizing_dequantized_values_with_the_same_scale_is_the_identity(steps, scale):
    scale = np.float32(scale)
    values = steps.astype(np.float32) * scale
    np.testing.assert_array_equal(np.clip(np.rint(values / scale), -128, 127), steps)


def test_a_float_plugin_and_one_that_is_not_registered_end_a_chain():
    net = Net()
    head = net.plugin(Head(), net.conv("data", "a"), "head")
    unknown = net.add(
        "Unknown", [net.conv(head, "b")], "unknown", domain="quantize_test", plugin_namespace="quantize_test"
    )
    net.conv(net.conv(unknown, "c"), "d")
    model = net.model("d_leaky")
    quantized = quantize(model, ones(model))
    assert quantized_names(quantized) == ["data", "head", "unknown", "c_leaky"][: len(quantized_names(quantized))]
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
    x = photo(model)
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


def test_around_activations_their_inputs_are_quantized_too():
    model = tiny_yolo()
    scales = dict.fromkeys(ones(model), 0.01) | {"a": 0.02, "b": 0}
    quantized = quantize(model, CalibrationTable(scales), around_activations=True)
    held, made = constants(quantized), producers(quantized)
    assert path_up(quantized, "a_leaky", 4) == ["LeakyRelu", "DequantizeLinear", "QuantizeLinear", "Conv"]
    assert held[made["a_quantized"].input[1]] == np.float32(0.02)
    assert made["b_leaky"].input[0] == "b"  # 0 throughout calibration: no scale
    assert made["d_leaky"].input[0] == "d"  # read in float
    names = ("data", "a_leaky", "b_leaky", "c_leaky")
    assert quantized_tensors(model, around_activations=True) == (*names, "a", "b", "c")


# --- what stays in float -------------------------------------------------------------------------------------------


def test_the_last_layers_of_all_heads_stay_in_float_by_default():
    net = Net()
    a = net.conv("data", "a")
    net.conv(a, "head1", leaky=False)
    net.conv(net.conv(a, "b"), "head2", leaky=False)
    model = net.model("head1", "head2")
    result = Quantize(ones(model))(to_ir(model))
    assert dict(result.float_layers).keys() == {"head1", "head2"}
    assert result.layers == ("a", "b")
    assert result.modified
    all_quantized = Quantize(ones(model), float_last=False)(to_ir(model))
    assert all_quantized.layers == ("a", "head1", "b", "head2")


def test_the_first_layer_stays_in_float_on_request():
    model = tiny_yolo()
    quantized = quantize(model, ones(model), float_first=True)
    assert quantized_names(quantized) == ["a_leaky", "b_leaky", "c_leaky"]
    assert producers(quantized)["a"].input[0] == "data"


def test_excluded_layers_stay_in_float_and_are_reported(caplog):
    model = tiny_yolo()
    with caplog.at_level(logging.INFO):
        quantized = quantize(model, ones(model), exclude=["c"])
    assert producers(quantized)["c"].input[0] == "b_leaky"
    notes = json.loads({p.key: p.value for p in quantized.metadata_props}[FLOAT_LAYERS])
    assert notes == {"c": "excluded", "e": "last layer before the outputs (float_last)"}
    assert "c stays in float: excluded" in caplog.text


def test_an_excluded_pooling_layer_ends_its_chain():
    model = tiny_yolo()
    assert quantized_names(quantize(model, ones(model), exclude=["pool"]))[:2] == ["data", "pool"]


def test_excluding_an_unknown_node_names_near_ones():
    model = tiny_yolo()
    with pytest.raises(UsageError, match="'rout'") as error:
        quantize(model, ones(model), exclude=["rout"])
    assert error.value.near == ("route",)


def test_a_layer_whose_input_was_always_zero_stays_in_float():
    model = tiny_yolo()
    scales = dict.fromkeys(ones(model), 0.01) | {"a_leaky": 0.0, "b_leaky": 0.0}
    result = Quantize(CalibrationTable(scales))(to_ir(model))
    assert dict(result.float_layers)["b"] == "its input was 0 throughout calibration"
    assert result.layers == ("a", "c", "d")  # b_leaky has the scale of its chain, from c_leaky


def test_layers_that_cannot_be_quantized_say_why():
    net = Net(channels=4)
    w = net.constant("half", np.ones((4, 4, 1, 1), np.float16))
    wide = net.add("Cast", [w], "wide", 4, to=TensorProto.FLOAT)
    net.add("Conv", ["data", wide], "computed")
    bad = net.constant("bad", np.full((4, 4, 1, 1), np.inf, np.float32))
    net.add("Conv", ["computed", bad], "infinite")
    net.conv("infinite", "last")
    model = net.model("last_leaky")
    reasons = dict(Quantize(ones(model))(to_ir(model)).float_layers)
    assert reasons["computed"] == "its weights are computed at run time"
    assert reasons["infinite"] == "its weights are not finite"


# --- errors --------------------------------------------------------------------------------------------------------


def test_a_tensor_missing_from_the_table_is_an_error_with_the_names():
    model = tiny_yolo()
    with pytest.raises(CalibrationTableError, match="another network") as error:
        quantize(model, CalibrationTable({"data": 1, "a_leaky": 1, "stranger": 1}))
    assert {"b_leaky", "c_leaky"} <= set(error.value.only_in_network)
    assert error.value.only_in_table == ("stranger",)


def test_a_table_needs_only_the_tensors_that_are_quantized():
    model = tiny_yolo()
    names = quantized_tensors(model)
    assert names == ("data", "a_leaky", "b_leaky", "c_leaky")
    quantize(model, CalibrationTable(dict.fromkeys(names, 0.1)))


def test_a_model_that_is_quantized_already_is_refused():
    model = tiny_yolo()
    quantized = quantize(model, ones(model))
    with pytest.raises(ModelError, match="quantized already"):
        quantize(quantized, ones(quantized))


def test_an_opset_without_scales_per_channel_is_refused():
    model = Net(opset=12)
    model.conv("data", "a")
    with pytest.raises(ModelError, match="opset 12"):
        quantize(model.model("a_leaky"), CalibrationTable({}))


@pytest.mark.parametrize("levels", [1, 128])
def test_weight_levels_out_of_range_are_refused(levels):
    with pytest.raises(UsageError, match="weight_levels"):
        Quantize(CalibrationTable({}), weight_levels=levels)


# --- numbers -------------------------------------------------------------------------------------------------------


@given(
    weights=arrays.arrays(np.float32, (3, 2, 2), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    axis=st.integers(0, 2),
    levels=st.sampled_from([127, 64]),
)
def test_weights_are_rounded_to_the_nearest_step_of_their_channel(weights, axis, levels):
    steps, scales = quantize_weights(weights, axis, levels)
    assert steps.min() >= -levels
    assert steps.max() <= levels
    shape = [-1 if k == axis else 1 for k in range(3)]
    scale = scales.reshape(shape).astype(np.float64)
    assert (np.abs(weights - steps * scale) <= scale * (0.5 + 1e-4)).all()


def test_a_channel_of_zeros_stays_zero():
    steps, scales = quantize_weights(np.zeros((2, 3), np.float32), 0)
    assert not steps.any()
    assert scales.tolist() == [1, 1]


def test_halves_round_to_even():
    steps, _ = quantize_weights(np.float32([[127, 0.5, 1.5, 2.5, -0.5, -1.5]]), 0)
    assert steps.tolist() == [[127, 0, 2, 2, 0, -2]]


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_quantized_model_is_close_to_the_float_model(seed):
    net = Net(seed=seed, size=8)
    a = net.conv("data", "a", 8)
    pool = net.add("MaxPool", [a], "pool", kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
    b = net.conv(pool, "b", 8)
    net.conv(net.add("Concat", [b, a], "route", 16, axis=1), "c", 6, kernel=1, leaky=False)
    model = net.model("c")
    x = photo(model)
    quantized = quantize(model, calibrated(model))
    expected, actual = run(model, x, ["c"])["c"], run(quantized, x, ["c"])["c"]
    assert sqnr(expected, actual) > 25
    seven_bits = run(quantize(model, calibrated(model), weight_levels=64), x, ["c"])["c"]
    assert sqnr(expected, seven_bits) > 20


def test_onnx_reference_and_onnxruntime_agree_on_the_quantized_model():
    model = tiny_yolo(opset=21)  # the first in which onnx's own evaluator knows DequantizeLinear as it is used here
    quantized = quantize(model, calibrated(model))
    x = photo(model)
    reference = ReferenceEvaluator(quantized).run(None, {"data": x})[0]
    assert sqnr(reference, run(quantized, x, ["e"])["e"]) > 50  # sums in another order may move a value by one step


def test_int8_values_equal_integer_arithmetic():
    net = Net(channels=4)
    net.conv("data", "a", 6, kernel=1, leaky=False)
    model = net.model("a")
    table = calibrated(model)
    quantized = quantize(model, table, float_last=False)
    x, held = photo(model), constants(quantized)
    steps = np.clip(np.rint(x / table["data"]), -128, 127).astype(np.int64)
    sums = np.einsum("nchw,kc->nkhw", steps, held["a_w_int8"][:, :, 0, 0].astype(np.int64))
    scales = (held["a_w_scale"] * table["data"]).astype(np.float64)[:, None, None]
    expected = sums * scales + held["a_b"][:, None, None]
    np.testing.assert_allclose(run(quantized, x, ["a"])["a"], expected, rtol=0, atol=2e-6)


def test_the_model_given_is_not_changed_and_the_result_is_the_same_every_time(tmp_path):
    model = tiny_yolo()
    before, table = model.SerializeToString(), calibrated(model)
    first = quantize(model, table)
    onnx.save(model, tmp_path / "net.onnx")
    assert quantize(model, table).SerializeToString() == first.SerializeToString()
    assert quantize(tmp_path / "net.onnx", table).SerializeToString() == first.SerializeToString()
    assert model.SerializeToString() == before


def test_a_model_without_layers_is_left_alone():
    net = Net()
    net.add("Relu", ["data"], "y")
    model = net.model("y")
    result = Quantize(CalibrationTable({}))(to_ir(model))
    assert (result.modified, result.layers, result.float_layers) == (False, (), ())


def test_names_that_are_taken_are_avoided():
    net = Net()
    net.conv(net.conv("data", "a"), "b")
    net.add("Identity", ["data"], "data_scale")
    model = net.model("b_leaky", "data_scale")
    quantized = quantize(model, calibrated(model))
    onnx.checker.check_model(quantized)
    assert "data_scale_2" in constants(quantized)


def as_uint8(model):
    """The same numbers with uint8 activations around 128, the form that OpenVINO computes rightly (int8 is not)."""
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    del rewritten.graph.value_info[:]
    zero = next(c for c in rewritten.graph.initializer if c.name == "int8_zero")
    zero.CopyFrom(numpy_helper.from_array(np.uint8(128), "int8_zero"))
    return rewritten


def test_with_64_weight_levels_openvino_equals_onnxruntime_on_every_cpu():
    openvino = pytest.importorskip("openvino", reason="compares with OpenVINO's int8 kernels")
    model = tiny_yolo()
    quantized = as_uint8(quantize(model, calibrated(model), weight_levels=64))
    x = photo(model)
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(quantized.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    assert sqnr(run(quantized, x, ["e"])["e"], compiled(x)[0]) > 40
