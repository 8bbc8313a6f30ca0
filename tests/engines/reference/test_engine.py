"""What the reference engine promises beyond its operators: exact integers, and clear refusals."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import pytrtplugins as ptp
from tests.engines.model_parts import parsed
from tests.engines.networks import run
from tests.engines.operators import IMAGE, ints, literal, model_of


def int8_convolution(codes, weight, scale, scales, bias, pads):
    """y = Conv(DQ(codes), DQ(weight)) + bias, as a model with codes as its input."""
    zeros = np.zeros(len(scales), np.int8)
    text = f"""(int8{list(codes.shape)} x) => (float[] y, int8[] q) {{
        dx = DequantizeLinear (x, s, z)  dw = DequantizeLinear <axis = 0> (w, sw, zw)
        y = Conv <pads = {pads}, kernel_shape = {list(weight.shape[2:])}> (dx, dw, b)  q = QuantizeLinear (y, s, z) }}"""
    return parsed(text, 18, 10, s=np.float32(scale), z=np.int8(0), w=weight, sw=scales, zw=zeros, b=bias)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_bias_may_be_quantized(dtype):
    """As onnxruntime's quantizer writes it."""
    rng, zero = np.random.default_rng(4), 0 if dtype == np.int8 else 120
    constants = {
        "s": np.float32(0.02), "z": dtype(zero), "w": rng.integers(1, 100, (3, 2, 3, 3)).astype(dtype), "sw": np.full(3, 0.01, np.float32),
        "zw": np.full(3, zero, dtype), "b": np.array([300, -200, 50], np.int32), "sb": np.full(3, 2e-4, np.float32),
    }  # fmt: skip
    text = f"""({np.dtype(dtype)}[1,2,5,5] x) => (float[] y) {{
        dx = DequantizeLinear (x, s, z)  dw = DequantizeLinear <axis = 0> (w, sw, zw)
        db = DequantizeLinear <axis = 0> (b, sb)  y = Conv (dx, dw, db) }}"""
    model = parsed(text, 18, 10, **constants)
    codes = rng.integers(0, 100, (1, 2, 5, 5)).astype(dtype)
    wanted = literal(model, {"x": codes})[0]
    np.testing.assert_allclose(computed(model, codes)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_int8_convolutions_add_integers_exactly():
    rng = np.random.default_rng(3)
    codes = rng.integers(-128, 128, (1, 3, 5, 4)).astype(np.int8)
    weight = rng.integers(-127, 128, (2, 3, 3, 3)).astype(np.int8)
    scales, bias = np.array([0.013, 0.07], np.float32), np.array([0.5, -1.25], np.float32)
    padded = np.pad(codes.astype(int), [(0, 0), (0, 0), (1, 1), (1, 1)])
    wanted = np.empty((1, 2, 5, 4), np.float32)
    for m in range(2):
        for i in range(5):
            for j in range(4):
                total = int((padded[0, :, i : i + 3, j : j + 3] * weight[m].astype(int)).sum())
                wanted[0, m, i, j] = np.float32(total * (float(np.float32(0.02)) * float(scales[m])) + float(bias[m]))
    model = int8_convolution(codes, weight, 0.02, scales, bias, [1] * 4)
    outputs = computed(model, codes, "int8")
    np.testing.assert_array_equal(outputs["y"], wanted)
    np.testing.assert_array_equal(outputs["q"], np.clip(np.rint(wanted / np.float32(0.02)), -128, 127).astype(np.int8))


def test_an_absent_optional_input_is_no_tensor():
    text = f"""(float{list(IMAGE.shape)} x) => (float[] y) <float[4] s = {{1, 1, 2, 2}}> {{ y = Resize
        <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , s) }}"""
    np.testing.assert_array_equal(computed(parsed(text, 18, 10), IMAGE)["y"], IMAGE.repeat(2, 2).repeat(2, 3))


def computed(model, x, precision="fp32"):
    engine = ptp.build(model, engine="reference", precision=precision)
    return run(engine, {model.graph.input[0].name: x})


@pytest.mark.parametrize("dims", [(7,), (3, 4, 5)])
def test_int8_convolutions_have_any_number_of_axes(dims):
    """A filter's scale stands for the filter, and for no axis of the image."""
    rng = np.random.default_rng(5)
    codes = rng.integers(-128, 128, (1, 3, *dims)).astype(np.int8)
    weight = rng.integers(-127, 128, (len(dims) * 2 + 1, 3, *[3] * len(dims))).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, len(weight)).astype(np.float32)
    model = int8_convolution(codes, weight, 0.02, scales, scales * 30, [1] * 2 * len(dims))
    wanted = ort.InferenceSession(model.SerializeToString()).run(["y"], {"x": codes})[0]
    np.testing.assert_allclose(computed(model, codes, "int8")["y"], wanted, rtol=1e-5, atol=1e-4)


def test_int8_weights_with_scales_along_the_channels_are_taken_literally():
    rng = np.random.default_rng(4)
    codes, weight = (rng.integers(-127, 128, shape).astype(np.int8) for shape in ((1, 4, 5, 5), (4, 4, 3, 3)))
    model = int8_convolution(
        codes, weight, 0.02, np.array([0.01, 0.1, 1, 5], np.float32), np.zeros(4, np.float32), [1] * 4
    )
    del model.graph.node[1].attribute[:]
    model.graph.node[1].attribute.append(helper.make_attribute("axis", 1))
    wanted = ort.InferenceSession(model.SerializeToString()).run(["y"], {"x": codes})[0]
    np.testing.assert_allclose(computed(model, codes, "int8")["y"], wanted, rtol=1e-5, atol=1e-3)


def test_a_local_function_that_is_no_plugin_is_written_out():
    text = f"""(float{list(IMAGE.shape)} x) => (float[] y) {{ y = own.Twice (x) }}
        <domain: "own", opset_import: ["": 18]> Twice (a) => (b) {{ b = Add (a, a) }}"""
    np.testing.assert_array_equal(computed(parsed(text, 18, 10, ["own"]), IMAGE)["y"], IMAGE * 2)


def test_infinities_are_results_like_others():
    model = model_of("Div", [np.ones(2, np.float32), np.zeros(2, np.float32)], {})
    assert np.isposinf(computed(model, np.ones(2, np.float32))["y0"]).all()


def test_sums_of_integers_are_exact_beyond_what_float64_holds():
    big = ints(2**53 + 1, -(2**53) - 3, 7)
    assert computed(model_of("ReduceSum", [big], {"keepdims": 0}), big)["y0"] == 5


@pytest.mark.parametrize(
    ("dims", "axis", "block"), [((3,), 0, 0), ((2,), 3, 0), ((2, 1), 1, 2), ((1, 3), 0, 2), ((0,), 0, 0)]
)
def test_scales_that_do_not_fit_their_codes_are_an_error_of_their_own_node(dims, axis, block):
    """DequantizeLinear is computed by what reads it."""
    blocks = f", block_size = {block}" if block else ""
    scales = ",".join("abc"[: len(dims)])
    text = f"""(int8[2,4] x, float[{scales}] s) => (float[] y)
        {{ h = DequantizeLinear <axis = {axis}{blocks}> (x, s)  y = Neg (h) }}"""
    engine = ptp.build(parsed(text, 21, 10), engine="reference")
    words = r"node 'DequantizeLinear_h': DequantizeLinear cannot be computed of int8\[2, 4\], float32"
    with pytest.raises(ptp.errors.EngineError, match=words):
        run(engine, {"x": np.ones((2, 4), np.int8), "s": np.ones(dims, np.float32)})


@pytest.mark.parametrize("broadcast", [0, 1])
def test_gemm_of_opset_6_with_free_dims(broadcast):
    """ONNX's converter does not take free dims, and onnx.reference leaves beta out."""
    text = f"""(double[a,b] x, double[c,d] w, double[e,f] b) => (double[g,h] y)
        {{ y = Gemm <alpha = 0.5, beta = 2.0, broadcast = {broadcast}> (x, w, b) }}"""
    rows = 1 if broadcast else 2
    x, w, b = (np.arange(n * m, dtype=np.float64).reshape(n, m) for n, m in ((2, 3), (3, 4), (rows, 4)))
    found = run(ptp.build(parsed(text, 6), engine="reference"), {"x": x, "w": w, "b": b})["y"]
    np.testing.assert_allclose(found, 0.5 * x @ w + 2 * b)
