"""Forms of operators that engine cuda computed otherwise than ONNX says; right results by onnxruntime or onnx.reference, or as written."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytrtplugins.errors import DimsError, PytrtpluginsError
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import F, info, model
from tests.engines.operators import literal


def one_node(op, inputs, constants, opset, output=TensorProto.UNDEFINED, domain="", **attributes):
    node = helper.make_node(op, [*inputs, *constants], ["y"], name="the_node", domain=domain, **attributes)
    results = [info("y", output, None) if output else onnx.ValueInfoProto(name="y")]
    made = model([node], described(inputs), results, constants, opset, 10)
    made.opset_import[0].domain = domain
    return made


def described(inputs):
    return [info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in inputs.items()]


def check(network, inputs, wanted=None, rtol=1e-5):
    wanted = literal(network, inputs)[0] if wanted is None else wanted
    got = run_on_host(prepare(network), inputs)[0]["y"]
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=rtol)


def test_slopes_of_an_old_prelu_lie_along_the_channels_where_they_are_computed():
    x = np.array([[[1, -2, 3], [-4, 5, -6], [-1, -1, 2]]], np.float32)
    slopes = np.array([2, 10, 100], np.float32)
    wanted = np.where(x < 0, x * slopes[:, None], x)
    check(one_node("PRelu", {"x": x, "s": slopes}, {}, 6), {"x": x, "s": slopes}, wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_batch_normalization_that_is_not_spatial_has_numbers_for_each_place(dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4)).astype(dtype)
    names = ("scale", "bias", "mean", "var")
    constants = {name: (rng.random((3, 4)) + 0.5).astype(dtype) for name in names}
    scale, bias, mean, var = (constants[name].astype(np.float64) for name in names)
    wanted = ((x.astype(np.float64) - mean) / np.sqrt(var + 1e-5) * scale + bias).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    network = one_node("BatchNormalization", {"x": x}, constants, 7, kind, spatial=0)
    check(network, {"x": x}, wanted, 1e-2 if dtype is np.float16 else 1e-4)


def test_a_batch_normalization_of_float64():
    x = np.arange(6, dtype=np.float64).reshape(1, 3, 2)
    constants = {name: np.array([1, 2, 3], np.float64) for name in ("scale", "bias", "mean", "var")}
    check(one_node("BatchNormalization", {"x": x}, constants, 15, TensorProto.DOUBLE), {"x": x})


@pytest.mark.parametrize("zero", [np.int8(-6), np.int8(5)])
def test_a_zero_point_that_is_computed_counts(zero):
    codes = np.array([-128, -1, 0, 7], np.int8)
    inputs = {"x": codes, "z": zero.reshape(1)}
    node, scale = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"]), {"s": np.array([0.5], np.float32)}
    check(model([node], described(inputs), [info("y", F, [4])], scale, opset=13), inputs)


def test_bits_of_small_floats_are_kept():
    codes = np.array([-3, 5, 120, -128], np.int8)
    node = helper.make_node("BitCast", ["x"], ["b"], to=TensorProto.FLOAT8E4M3FNUZ)
    cast = helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT)
    network = model([node, cast], described({"x": codes}), [info("y", F, [4])], opset=26, ir=13)
    check(network, {"x": codes}, codes.view(ml_dtypes.float8_e4m3fnuz).astype(np.float32))


@pytest.mark.parametrize("computed", [False, True])
def test_results_in_powers_of_two_are_rounded_and_have_no_sign(computed):
    """What a DequantizeLinear gives has the type of its scale."""
    codes = np.array([1, 3, 5, 7, -2, 0], np.int8)
    scale = np.array(0.25, ml_dtypes.float8_e8m0fnu)
    wanted = (codes * np.float32(0.25)).astype(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    inputs, constants = ({"x": codes}, {}) if computed else ({}, {"x": codes})
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s"], ["d"]),
        helper.make_node("Cast", ["d"], ["y"], to=TensorProto.FLOAT),
    ]
    network = model(nodes, described(inputs), [info("y", F, [6])], {"s": scale, **constants}, opset=24, ir=12)
    check(network, inputs, wanted)


def test_the_opset_of_domain_ai_onnx_counts():
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 7)).astype(np.float32)
    constants = {"rois": np.array([[0.5, 1, 5, 4.5]], np.float32), "batch": np.array([0])}
    plain, other = (
        one_node("RoiAlign", {"x": x}, constants, 17, F, domain, output_width=3) for domain in ("", "ai.onnx")
    )
    check(other, {"x": x}, literal(plain, {"x": x})[0])


def test_a_weight_scale_that_is_computed():
    rng = np.random.default_rng(0)
    scale = np.array([0.1, 0.2], np.float32)
    constants = {
        "x": rng.integers(0, 9, (1, 3, 4, 4)).astype(np.uint8), "xs": np.float32(0.1), "xz": np.uint8(2),
        "w": rng.integers(0, 9, (2, 3, 1, 1)).astype(np.uint8), "wz": np.zeros(2, np.uint8), "ys": np.float32(0.3), "yz": np.uint8(3),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "s", "wz", "ys", "yz"], ["y"])
    result = info("y", TensorProto.UINT8, [1, 2, 4, 4])
    network = model([node], described({"s": scale}), [result], constants, opset=13)
    got, wanted = run_on_host(prepare(network), {"s": scale})[0]["y"], literal(network, {"s": scale})[0]
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize("exclusive", [0, 1])
def test_sums_along_an_axis_without_values(exclusive):
    x = np.zeros((0,), np.float64)
    network = one_node("CumSum", {"x": x}, {"axis": np.array([0])}, 14, TensorProto.DOUBLE, exclusive=exclusive)
    check(network, {"x": x}, x)


def test_an_error_in_lowering_names_the_node():
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(ml_dtypes.float6_e2m3fn))
    network = one_node("DequantizeLinear", {"s": np.float32([1])}, {}, 28)
    network.graph.node[0].input[:] = ["x", "s"]
    network.graph.initializer.append(onnx.TensorProto(name="x", data_type=kind, dims=[4], raw_data=bytes(3)))
    with pytest.raises(PytrtpluginsError, match=r"'the_node' \(DequantizeLinear\)"):
        run_on_host(prepare(network), {"s": np.float32([1])})


def test_bits_of_another_number_are_refused():
    codes = np.array([1, 2], np.int8)
    with pytest.raises(DimsError, match=r"'the_node' \(BitCast\).*8 bits cannot be read as 4 bits"):
        run_on_host(prepare(one_node("BitCast", {"x": codes}, {}, 26, to=TensorProto.FLOAT4E2M1)), {"x": codes})


@pytest.mark.parametrize("declared", [None, [1, 4, 6, 2]])
def test_an_stft_gives_half_of_the_frequencies_unless_told_otherwise(declared):
    x = np.random.default_rng(0).standard_normal((1, 12, 1)).astype(np.float32)
    constants = {"step": np.array(2), "window": np.hanning(6).astype(np.float32)}
    network = one_node("STFT", {"x": x}, constants, 17, F)
    wanted = literal(network, {"x": x})[0]
    if declared:
        network.graph.output[0].CopyFrom(info("y", F, declared))
    got = run_on_host(prepare(network), {"x": x})[0]["y"]
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("opset", [6, 13])
def test_a_clip_without_bounds_keeps_numbers_finite(opset):
    x = np.array([np.inf, -np.inf, 2.0, np.nan], np.float32)
    check(one_node("Clip", {"x": x}, {}, opset), {"x": x})
