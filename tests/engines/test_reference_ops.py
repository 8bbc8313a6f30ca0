"""Each operator of the reference engine against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.engines.reference.ops import OPS
from pytrtplugins.errors import BuildError

RNG = np.random.default_rng(0)


def f(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


IMAGE = f(2, 4, 6, 8)
CASES = [
    ("Abs", [IMAGE], {}), ("Neg", [IMAGE], {}), ("Exp", [IMAGE], {}), ("Log", [f(3, 4, low=0.1)], {}), ("Sqrt", [f(3, 4, low=0.1)], {}),
    ("Sigmoid", [IMAGE * 50], {}), ("Tanh", [IMAGE], {}), ("Softplus", [IMAGE], {}), ("Relu", [IMAGE], {}), ("Identity", [IMAGE], {}),
    ("LeakyRelu", [IMAGE], {"alpha": 0.1}), ("Elu", [IMAGE], {"alpha": 0.7}), ("Selu", [IMAGE], {}), ("PRelu", [IMAGE, f(4, 1, 1)], {}),
    ("Add", [IMAGE, f(4, 1, 1)], {}), ("Sub", [IMAGE, IMAGE[:1]], {}), ("Mul", [IMAGE, f(1)], {}), ("Div", [IMAGE, f(1, low=1)], {}),
    ("Pow", [f(3, low=0.1), f(3)], {}), ("Max", [f(3), f(3), f(3)], {}), ("Min", [f(3), f(3)], {}),
    ("Clip", [IMAGE, np.float32(-0.5), np.float32(0.7)], {}), ("Equal", [ints(1, 2), ints(1, 3)], {}),
    ("Softmax", [IMAGE], {"axis": 1}), ("Softmax", [IMAGE], {}), ("Concat", [IMAGE, IMAGE], {"axis": 1}),
    ("BatchNormalization", [IMAGE, f(4), f(4), f(4), f(4, low=0.1)], {"epsilon": 1e-3}),
    ("Gemm", [f(3, 4), f(5, 4), f(5)], {"transB": 1, "alpha": 0.5, "beta": 2.0}), ("MatMul", [f(2, 3, 4), f(4, 5)], {}),
    ("Reshape", [IMAGE, ints(0, -1, 8)], {}), ("Transpose", [IMAGE], {"perm": [0, 2, 3, 1]}), ("Transpose", [IMAGE], {}),
    ("Flatten", [IMAGE], {"axis": 2}), ("Squeeze", [f(1, 3, 1), ints(0)], {}), ("Unsqueeze", [f(3), ints(0, 2)], {}),
    ("Slice", [IMAGE, ints(1, -3), ints(4, 100), ints(1, 3), ints(2, 1)], {}),
    ("Slice", [IMAGE, ints(-1), ints(-100), ints(3), ints(-2)], {}),
    ("Gather", [IMAGE, ints(2, 0)], {"axis": 1}), ("Shape", [IMAGE], {"start": 1}), ("Expand", [f(3, 1), ints(2, 3, 4)], {}),
    ("Where", [np.array([True, False]), f(2), f(2)], {}), ("SpaceToDepth", [IMAGE], {"blocksize": 2}),
    ("Cast", [IMAGE], {"to": TensorProto.INT64}),
    ("Pad", [IMAGE, ints(0, 0, 1, 2, 0, 0, 3, 0), np.float32(1.5)], {}), ("ConstantOfShape", [ints(2, 3)], {}),
    ("ReduceMean", [IMAGE, ints(2, 3)], {"keepdims": 0}), ("ReduceSum", [IMAGE, ints(1)], {}), ("Dropout", [IMAGE], {}),
    ("GlobalAveragePool", [IMAGE], {}), ("GlobalMaxPool", [IMAGE], {}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("Resize", [IMAGE, f(0), np.array([1, 1, 2, 3], np.float32)],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    *(
        ("Resize", [IMAGE, f(0), np.array([1, 1, factor, factor], np.float32)],
         {"mode": "nearest", "coordinate_transformation_mode": place, "nearest_mode": rounding})
        for factor in (0.5, 1.5, 2, 3) for place in ("asymmetric", "half_pixel", "align_corners")
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    ("Resize", [IMAGE, f(0), np.array([2, 2], np.float32)],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "axes": [2, 3]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "count_include_pad": 1}),
    ("DepthToSpace", [IMAGE], {"blocksize": 2}), ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "CRD"}),
    ("HardSigmoid", [IMAGE], {"alpha": 0.3}), ("Mish", [IMAGE * 20], {}), ("ReduceMean", [IMAGE], {"noop_with_empty_axes": 1}),
    ("QuantizeLinear", [IMAGE * 90, np.float32(0.7), np.int8(0)], {}), ("QuantizeLinear", [IMAGE, np.float32(0.01), np.uint8(128)], {}),
    ("DequantizeLinear", [np.arange(-8, 8, dtype=np.int8).reshape(4, 4), f(4, low=0.1), np.zeros(4, np.int8)], {"axis": 0}),
]  # fmt: skip


def model_of(op, inputs, attributes, outputs=1):
    names = [f"x{i}" for i in range(len(inputs))]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, op, **attributes)
    data = [helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)]
    constants = [
        numpy_helper.from_array(np.asarray(value), name) for name, value in zip(names[1:], inputs[1:], strict=True)
    ]
    results = [onnx.ValueInfoProto(name=name) for name in made]
    graph = helper.make_graph([node], "one", data, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def both(op, inputs, attributes, outputs=1):
    model = model_of(op, inputs, attributes, outputs)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x0": inputs[0]})
    found = OPS[op](attributes, *inputs)
    return (found if isinstance(found, list) else [found]), wanted


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_an_operator_equals_onnxruntimes(op, inputs, attributes):
    if "noop_with_empty_axes" in attributes and ort.__version__.startswith("1.23."):
        pytest.skip("onnxruntime 1.23 fails at ReduceMean with noop_with_empty_axes")
    (found, *_), (wanted, *_) = both(op, inputs, attributes)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


def test_every_operator_of_the_table_is_compared_somewhere():
    elsewhere = {"Conv", "Split"}
    assert set(OPS) == {case[0] for case in CASES} | elsewhere


@pytest.mark.parametrize(
    "arguments", [([IMAGE, ints(1, 3)], {"axis": 1}, 2), ([IMAGE], {"axis": 3, "num_outputs": 3}, 3)]
)
def test_split_equals_onnxruntimes(arguments):
    for found, wanted in zip(*both("Split", *arguments), strict=True):
        np.testing.assert_array_equal(found, wanted)


WINDOWS = st.fixed_dictionaries(
    {
        "kernel": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "strides": st.lists(st.integers(1, 3), min_size=2, max_size=2),
        "pads": st.lists(st.integers(0, 2), min_size=4, max_size=4),
        "dilations": st.lists(st.integers(1, 2), min_size=2, max_size=2),
        "groups": st.sampled_from([1, 2, 4]),
    }
)


@given(WINDOWS)
def test_convolutions_equal_onnxruntimes(case):
    weight = f(8, 4 // case["groups"], *case["kernel"])
    attributes = {
        "strides": case["strides"],
        "pads": case["pads"],
        "dilations": case["dilations"],
        "group": case["groups"],
    }
    (found,), (wanted,) = both("Conv", [f(2, 4, 7, 6), weight, f(8)], attributes)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@given(WINDOWS)
def test_max_pools_equal_onnxruntimes(case):
    kernel = list(case["kernel"])
    pads = [min(pad, size - 1) for pad, size in zip(case["pads"], kernel * 2, strict=True)]  # as onnxruntime requires
    attributes = {"kernel_shape": kernel, "strides": case["strides"], "pads": pads, "dilations": case["dilations"]}
    (found,), (wanted,) = both("MaxPool", [f(2, 3, 9, 8)], attributes)
    np.testing.assert_array_equal(found, wanted)


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


def test_an_unknown_operator_is_named_with_near_ones():
    with pytest.raises(BuildError, match=r"Celu is not known; near: Selu"):
        ptp.build(model_of("Celu", [IMAGE], {}), engine="reference")


def test_a_kind_of_resize_that_is_not_computed_is_refused():
    model = model_of("Resize", [IMAGE, f(0), np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"})
    with pytest.raises(BuildError, match="Resize with mode='linear'"):
        ptp.build(model, engine="reference")


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


def test_an_old_opset_is_refused():
    model = model_of("Softmax", [IMAGE], {})
    model.opset_import[0].version = 11
    with pytest.raises(BuildError, match="needs opset 13 or newer, the model has 11"):
        ptp.build(model, engine="reference")


def test_the_indices_of_a_max_pool_are_refused():
    with pytest.raises(BuildError, match="indices"):
        ptp.build(model_of("MaxPool", [IMAGE], {"kernel_shape": [2, 2]}, outputs=2), engine="reference")


def test_infinities_are_results_like_others():
    model = model_of("Div", [np.ones(2, np.float32), np.zeros(2, np.float32)], {})
    assert np.isposinf(computed(model, np.ones(2, np.float32))["y0"]).all()
