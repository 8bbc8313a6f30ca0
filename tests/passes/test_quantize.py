import json
import logging

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.errors import CalibrationTableError, UsageError
from pytrtplugins.layers import Reorg
from pytrtplugins.model.decompose import add_functions, infer_shapes, inline_plugins
from pytrtplugins.passes import to_ir
from pytrtplugins.passes.codes import quantize_weights
from pytrtplugins.passes.quantize import FLOAT_LAYERS, Quantize, quantize, quantized_tensors
from tests.engines.operators import by_openvino
from tests.measures import sqnr
from tests.passes.nets import (
    Net,
    as_uint8,
    calibrated,
    constants,
    image,
    ones,
    producers,
    quantized_names,
    run,
    tiny_yolo,
)

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
    assert {"b_leaky", "c_leaky"} <= set(error.value.only_in_network)  # type: ignore[call-overload]
    assert error.value.only_in_table == ("stranger",)


def test_a_table_needs_only_the_tensors_that_are_quantized():
    model = tiny_yolo()
    names = quantized_tensors(to_ir(model))
    assert names == ("data", "a_leaky", "b_leaky", "c_leaky")
    quantize(model, CalibrationTable(dict.fromkeys(names, 0.1)))


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


def test_halves_round_to_even():
    steps, _ = quantize_weights(np.float32([[127, 0.5, 1.5, 2.5, -0.5, -1.5]]), 0)
    assert steps.tolist() == [[127, 0, 2, 2, 0, -2]]


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_the_quantized_model_is_close_to_the_float_model(seed):
    net = Net(seed=seed, size=8)
    a = net.conv("data", "a", 8)
    pool = net.add("MaxPool", [a], "pool", kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
    b = net.conv(pool, "b", 8)
    net.conv(net.add("Concat", [b, a], "route", 16, axis=1), "c", 6, kernel=1, leaky=False)
    model = net.model("c")
    x = image(model)
    quantized = quantize(model, calibrated(model))
    expected, actual = run(model, x, ["c"])["c"], run(quantized, x, ["c"])["c"]
    assert sqnr(expected, actual) > 25
    seven_bits = run(quantize(model, calibrated(model), weight_levels=64), x, ["c"])["c"]
    assert sqnr(expected, seven_bits) > 20


def test_onnx_reference_and_onnxruntime_agree_on_the_quantized_model():
    model = tiny_yolo(opset=21)  # the first in which onnx's own evaluator knows DequantizeLinear as it is used here
    quantized = quantize(model, calibrated(model))
    x = image(model)
    reference = next(iter(ReferenceEvaluator(quantized).run(None, {"data": x})))
    assert sqnr(reference, run(quantized, x, ["e"])["e"]) > 50  # sums in another order may move a value by one step


def test_int8_values_equal_integer_arithmetic():
    net = Net(channels=4)
    net.conv("data", "a", 6, kernel=1, leaky=False)
    model = net.model("a")
    table = calibrated(model)
    quantized = quantize(model, table, float_last=False)
    x, held = image(model), constants(quantized)
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
    net.add("Identity", ["data"], "data_scale_2")
    model = net.model("b_leaky", "data_scale", "data_scale_2")
    assert "data_scale_3" in constants(quantize(model, ones(model)))


def test_with_64_weight_levels_openvino_equals_onnxruntime_on_every_cpu():
    pytest.importorskip("openvino", reason="compares with OpenVINO's int8 kernels")
    model = tiny_yolo()
    quantized = as_uint8(quantize(model, calibrated(model), weight_levels=64))
    x = image(model)
    assert sqnr(run(quantized, x, ["e"])["e"], by_openvino(quantized, {"data": x})[0]) > 40


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
    x, table = image(model), calibrated(inline_plugins(model))
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
