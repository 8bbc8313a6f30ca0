"""What the reference engine promises beyond its operators: exact integers, and clear refusals."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from tests.engines.operators import IMAGE, ints, literal, model_of


def int8_convolution(codes, weight, scale, scales, bias, pads):
    """y = Conv(DQ(codes), DQ(weight)) + bias, as a model with codes as its input."""
    constants = {
        "s": np.float32(scale),
        "z": np.int8(0),
        "w": weight,
        "sw": scales,
        "zw": np.zeros(len(scales), np.int8),
        "b": bias,
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["dx"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=0),
        helper.make_node("Conv", ["dx", "dw", "b"], ["y"], pads=pads, kernel_shape=list(weight.shape[2:])),
        helper.make_node("QuantizeLinear", ["y", "s", "z"], ["q"]),
    ]
    graph = helper.make_graph(
        nodes, "int8", [helper.make_tensor_value_info("x", TensorProto.INT8, codes.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None), helper.make_tensor_value_info("q", TensorProto.INT8, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_bias_may_be_quantized(dtype):
    """As onnxruntime's quantizer writes it."""
    rng, zero = np.random.default_rng(4), 0 if dtype == np.int8 else 120
    constants = {
        "s": np.float32(0.02), "z": dtype(zero), "w": rng.integers(1, 100, (3, 2, 3, 3)).astype(dtype), "sw": np.full(3, 0.01, np.float32),
        "zw": np.full(3, zero, dtype), "b": np.array([300, -200, 50], np.int32), "sb": np.full(3, 2e-4, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["dx"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "sb"], ["db"], axis=0),
        helper.make_node("Conv", ["dx", "dw", "db"], ["y"]),
    ]
    codes = rng.integers(0, 100, (1, 2, 5, 5)).astype(dtype)
    graph = helper.make_graph(
        nodes, "bias", [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(codes.dtype), codes.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    with ptp.build(model, engine="reference").create_context() as context:
        np.testing.assert_allclose(
            context.run({"x": codes})["y"], literal(model, {"x": codes})[0], rtol=1e-5, atol=1e-5
        )


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
    with ptp.build(model, engine="reference", precision="int8").create_context() as context:
        outputs = context.run({"x": codes})
    np.testing.assert_array_equal(outputs["y"], wanted)
    np.testing.assert_array_equal(outputs["q"], np.clip(np.rint(wanted / np.float32(0.02)), -128, 127).astype(np.int8))


def test_an_absent_optional_input_is_no_tensor():
    node = helper.make_node(
        "Resize",
        ["x", "", "s"],
        ["y"],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    graph = helper.make_graph(
        [node], "resize", [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    with ptp.build(model, engine="reference").create_context() as context:
        np.testing.assert_array_equal(context.run({"x": IMAGE})["y"], IMAGE.repeat(2, 2).repeat(2, 3))


def computed(model, x, precision="fp32"):
    with ptp.build(model, engine="reference", precision=precision).create_context() as context:
        return context.run({model.graph.input[0].name: x})


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
    body = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    model = model_of("Identity", [IMAGE], {})
    model.graph.node[0].op_type, model.graph.node[0].domain = "Twice", "own"
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_array_equal(computed(model, IMAGE)["y0"], IMAGE * 2)


def test_infinities_are_results_like_others():
    model = model_of("Div", [np.ones(2, np.float32), np.zeros(2, np.float32)], {})
    assert np.isposinf(computed(model, np.ones(2, np.float32))["y0"]).all()


def test_sums_of_integers_are_exact_beyond_what_float64_holds():
    big = ints(2**53 + 1, -(2**53) - 3, 7)
    with ptp.build(model_of("ReduceSum", [big], {"keepdims": 0}), engine="reference").create_context() as context:
        assert context.run({"x0": big})["y0"] == 5


@pytest.mark.parametrize(
    ("dims", "axis", "block"), [((3,), 0, 0), ((2,), 3, 0), ((2, 1), 1, 2), ((1, 3), 0, 2), ((0,), 0, 0)]
)
def test_scales_that_do_not_fit_their_codes_are_an_error_of_their_own_node(dims, axis, block):
    """DequantizeLinear is computed by what reads it."""
    attributes = {"axis": axis, **({"block_size": block} if block else {})}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s"], ["h"], "codes", **attributes),
        helper.make_node("Neg", ["h"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.INT8, [2, 4]),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, [None] * len(dims)),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "g", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with (
        ptp.build(model, engine="reference").create_context() as context,
        pytest.raises(
            ptp.errors.EngineError, match=r"node 'codes': DequantizeLinear cannot be computed of int8\[2, 4\], float32"
        ),
    ):
        context.run({"x": np.ones((2, 4), np.int8), "s": np.ones(dims, np.float32)})


@pytest.mark.parametrize("broadcast", [0, 1])
def test_gemm_of_opset_6_with_free_dims(broadcast):
    """ONNX's converter does not take free dims, and onnx.reference leaves beta out."""
    names, kinds = ("x", "w", "b"), np.float64
    node = helper.make_node("Gemm", names, ["y"], alpha=0.5, beta=2.0, broadcast=broadcast)
    infos = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, [f"{name}0", f"{name}1"]) for name in (*names, "y")
    ]
    graph = helper.make_graph([node], "gemm", infos[:3], infos[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=8)
    x, w, b = (np.arange(n * m, dtype=kinds).reshape(n, m) for n, m in ((2, 3), (3, 4), (1 if broadcast else 2, 4)))
    with ptp.build(model, engine="reference").create_context() as context:
        found = context.run({"x": x, "w": w, "b": b})["y"]
    np.testing.assert_allclose(found, 0.5 * x @ w + 2 * b)
