"""What float16 cannot hold stays in float32, and the scales of Q/DQ nodes become values that it holds."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.model.ir import to_ir, to_proto
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.passes.half import to_half
from pytrtplugins.passes.half_ranges import fit_scales, float_nodes
from pytrtplugins.tensor import DType
from tests.engines.networks import conv_net
from tests.onnx_parts import parsed
from tests.passes import nets


def names(model, ranges, dtype=DType.FLOAT16):
    return float_nodes(to_ir(model), dtype, ranges)


def test_nodes_at_a_tensor_beyond_float16_stay():
    model = prepare(nets.tiny_yolo())
    assert names(model, {}) == {}
    assert names(model, {"b": 65504 / 2}) == {}  # a tensor may reach half of what float16 holds
    assert names(model, {"b": 65504 / 2 + 1}).keys() == {"b", "b_leaky"}
    found = names(model, {"b": 33_000})
    assert found == {"b": "tensor 'b' reaches 33000", "b_leaky": "tensor 'b' reaches 33000"}
    assert names(model, {"b": 1e9}, DType.BFLOAT16) == {}


def test_nodes_that_read_a_constant_beyond_float16_stay():
    model = conv_net()
    weights = next(item for item in model.graph.initializer if item.name == "w2")
    weights.CopyFrom(numpy_helper.from_array(np.full((4, 8, 1, 1), 70_000, np.float32), "w2"))
    assert names(prepare(model), {}) == {"conv2": "constant 'w2' holds 70000"}
    weights.CopyFrom(numpy_helper.from_array(np.full((4, 8, 1, 1), 65504, np.float32), "w2"))
    assert names(prepare(model), {}) == {}


def test_the_tensor_behind_a_pair_has_the_range_of_the_one_before_it():
    model = prepare(nets.tiny_yolo())
    table = nets.calibrated(model)
    found = names(quantize(model, table), {"b_leaky": 1e6})
    assert {"b_leaky", "b_leaky_quantized_QuantizeLinear", "b_leaky_dequantized_DequantizeLinear"} <= set(found)
    assert {"c", "route"} & set(found)


def test_nodes_with_subgraphs_stay():
    branches = (f"{key}_branch = {key} () => (float[2] z) {{ z = Identity (x) }}" for key in ("then", "else"))
    model = parsed(f"(float[2] x, bool c) => (float[2] y) {{ [if] y = If (c) <{', '.join(branches)}> }}")
    assert names(model, {}, DType.BFLOAT16) == {"if": "it holds a subgraph"}


def scaled(weights_scale):
    """A quantized network whose first convolution has weights of another size, and its answer."""
    model = nets.tiny_yolo()
    for item in model.graph.initializer:
        if item.name == "b_w":
            array = numpy_helper.to_array(item) * np.float32(weights_scale)
            item.CopyFrom(numpy_helper.from_array(array, item.name))
    prepared = prepare(model)
    return prepared, quantize(prepared, nets.calibrated(prepared))


def test_usual_scales_stay():
    _, quantized = scaled(1)
    model = to_ir(quantized)
    assert not fit_scales(model) or all(
        np.array_equal(array, array.astype(np.float16).astype(np.float32))
        for name, array in nets.constants(to_proto(model)).items()
        if name.endswith("_float16")
    )


@pytest.mark.parametrize("weights_scale", [1e-4, 1e-5, 1e-7])
def test_small_scales_of_weights_are_rounded_up_and_their_codes_again(weights_scale):
    _, quantized = scaled(weights_scale)
    before, model = nets.constants(quantized), to_ir(quantized)
    assert fit_scales(model)
    after = to_proto(model)
    reader = next(node for node in after.graph.node if node.output[0] == "b_w_dequantized")
    values = nets.constants(after)
    scale, codes = values[reader.input[1]], values[reader.input[0]]
    assert np.array_equal(scale, scale.astype(np.float16).astype(np.float32))
    assert scale.min() > 0
    shape = (-1, 1, 1, 1)
    old = before["b_w_int8"] * before["b_w_scale"].reshape(shape)
    new = codes * scale.reshape(shape)
    assert np.abs(new - old).max() <= 0.51 * scale.max()
    assert np.abs(codes).max() <= 127


@pytest.mark.parametrize("weights_first", [True, False])
def test_weights_that_share_a_scale_with_a_tensor_have_it_rounded_up_alone(weights_first):
    """1.3 * 2**-24 is 2**-24 to the nearest, and 2**-23 upwards."""
    lines = ["values = DequantizeLinear (w, s)", "q = QuantizeLinear (x, s)"]
    text = f"(float[3] x) => (int8[3] q, float[3] values) {{ {' '.join(lines if weights_first else lines[::-1])} }}"
    model = to_ir(parsed(text, w=np.int8([-60, 3, 100]), s=np.float32(1.3 * 2**-24)))
    assert fit_scales(model)
    after = to_proto(model)
    values, nodes = nets.constants(after), {node.op_type: node for node in after.graph.node}
    codes, scale = (values[name] for name in nodes["DequantizeLinear"].input[:2])
    assert (codes.tolist(), scale) == ([-39, 2, 65], 2.0**-23)
    assert values[nodes["QuantizeLinear"].input[1]] == 2.0**-24


def test_a_scale_that_float16_rounds_to_zero_does_not_become_zero():
    model = prepare(nets.tiny_yolo())
    table = CalibrationTable({**nets.calibrated(model), "b_leaky": 1e-9})
    written = to_half(quantize(model, table), DType.FLOAT16)
    scales = [values for name, values in nets.constants(written).items() if "scale" in name]
    assert scales
    assert all(np.all(scale.astype(np.float64) > 0) for scale in scales)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_a_quantized_model_in_half_precision_has_the_opset_of_its_scales(dtype):
    model = prepare(nets.tiny_yolo(opset=17))
    quantized = quantize(model, nets.calibrated(model))
    assert [item.version for item in quantized.opset_import] == [17]
    written = to_half(quantized, dtype)
    assert [item.version for item in written.opset_import] == [19]
    if dtype is DType.FLOAT16:
        onnx.checker.check_model(written, full_check=True)
        x = nets.image(model)
        expected, found = nets.run(quantized, x, ["e"])["e"], nets.run(written, x, ["e"])["e"]
        assert np.abs(expected - found).max() < 0.05 * np.abs(expected).max()
