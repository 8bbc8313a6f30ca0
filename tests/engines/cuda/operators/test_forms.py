"""Forms of operators that ONNX's own tests leave out, planned and run on NumPy arrays, against onnxruntime on the file as it is."""

import warnings

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pytrtplugins.errors import ExecutionError
from pytrtplugins.passes import prepare
from tests.engines import model_parts
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import I64, F, info
from tests.engines.operators import IMAGE, f, ints, literal, model_of

CODES = np.arange(32, dtype=np.uint8).reshape(4, 8)
BOXES = np.array([[0, 0, 9, 9], [1, 1, 15, 15], [3, 3, 3, 3], [-2, -2, 4, 5]], np.float32)
ZEROS = np.arange(8, dtype=np.uint8)
EDGES = np.array([np.inf, -np.inf, 1], np.float32)
BOX_SET = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.95]]], np.float32)
CASES = [
    *(("RoiAlign", [f(1, 2, 16, 16), BOXES, np.zeros(4, np.int64)], {"output_height": 2, "output_width": 3, **options}, 1, opset)
      for opset, options in ((16, {}), (16, {"mode": "max"}), (16, {"sampling_ratio": 3, "spatial_scale": 0.5}), (10, {}),
                             (16, {"coordinate_transformation_mode": "output_half_pixel"}))),
    *(("MatMulInteger", [CODES, CODES.T.copy()[:, :columns], np.uint8(3), ZEROS[:columns]], {}, 1, 10) for columns in (4, 3)),
    ("MatMulInteger", [np.stack([CODES, CODES]), np.stack([CODES.T, CODES.T]), np.uint8(3), ZEROS.reshape(2, 1, 4)], {}, 1, 10),
    *(("DequantizeLinear", [CODES, f(*dims, low=0.1), np.full(dims, 5, np.uint8)], {"axis": axis, "block_size": block}, 1, 21)
      for axis, block, dims in ((0, 2, (2, 8)), (-1, 3, (4, 3)))),
    *(("DynamicQuantizeLinear", [x], {}, 3, 11) for x in (np.zeros(3, np.float32), IMAGE)),
    *(("Resize", [IMAGE, np.zeros(0, np.float32), np.array([1, 1, 1.5, 2], np.float32)],
       {"mode": mode, "nearest_mode": nearest, "coordinate_transformation_mode": "tf_half_pixel_for_nn"}, 1, 11)
      for mode, nearest in (("nearest", "floor"), ("nearest", "ceil"), ("linear", "floor"))),
    ("Resize", [f(1, 2, 4, 5), None, np.array([1, 1, 0.6, 1.7], np.float32)],
     {"coordinate_transformation_mode": "pytorch_half_pixel", "nearest_mode": "floor"}, 1, 18),
    *((op, [np.zeros((2, 0), np.float32)], {}, 1, 13) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    *(("Clip", [EDGES.astype(kind), *bounds], {}, 1, 13)
      for kind in (np.float32, np.float16) for bounds in ([kind(0)], [None, kind(0)])),
    ("MaxPool", [np.round(IMAGE)], {"kernel_shape": [2, 2]}, 2, 12),
    ("MaxPool", [f(1, 2, 4, 4).astype(np.float64)], {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}, 1, 12),
    *((op, [np.array([[2**24 + 1, 1], [-5, -2]], np.int32), ints(1)], {}, 1, 18) for op in ("ReduceL2", "ReduceMean")),
    ("DFT", [f(2, 4, 6, 1)], {}, 1, 17),
    *(("NonMaxSuppression", [BOX_SET, SCORES, *rest], {}, 1, 11) for rest in ([], [ints(2)], [ints(2), None, np.array([0.8], np.float32)])),
    *(("GroupNormalization", [f(2, 6, 4), f(count), f(count)], {"num_groups": 2}, 1, opset) for opset, count in ((18, 2), (21, 6))),
]  # fmt: skip


def computed(model, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that tests choose
        return list(run_on_host(prepare(model), inputs)[0].values())


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "outputs", "opset"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_a_form_equals_onnxruntimes(op, inputs, attributes, outputs, opset):
    model = model_of(op, inputs, attributes, outputs, opset)
    feeds = {"x0": inputs[0]}
    for found, expected in zip(computed(model, feeds), literal(model, feeds), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_convolutions_of_other_floats_than_kernels_take(op, dtype):
    """In float64 no digit is lost; bfloat16 is computed in float32 and rounded once."""
    kind = np.dtype(dtype) if dtype == "float64" else helper.tensor_dtype_to_np_dtype(16)
    x, weights = f(1, 3, 6, 6).astype(np.float64) * (1 + 1e-9), f(3, 3, 3, 3).astype(np.float64)
    x, weights = x.astype(kind), weights.astype(kind)
    found = computed(model_of(op, [x, weights], {}, opset=22), {"x0": x})[0]
    wide = model_of(op, [x.astype(np.float32), weights.astype(np.float32)], {})
    single = literal(wide, {"x0": x.astype(np.float32)})[0]
    assert found.dtype == kind
    np.testing.assert_allclose(found.astype(np.float64), single, rtol=1e-2 if dtype == "bfloat16" else 1e-4, atol=1e-2)
    if op == "Conv" and dtype == "float64":
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
        np.testing.assert_allclose(found, np.einsum("nchwij,kcij->nkhw", windows, weights), rtol=1e-13)


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Conv"])
@pytest.mark.parametrize("block", [4, 8])
def test_weights_of_a_layer_may_have_scales_for_blocks(op, block):
    """As MatMulNBits' codes are written in ONNX's words: their values become constants."""
    rng = np.random.default_rng(1)
    shape = (8, 8, 1, 1) if op == "Conv" else (8, 8)
    weights = rng.integers(-100, 100, shape).astype(np.int8)
    scales = rng.uniform(0.1, 1, (8 // block, *shape[1:])).astype(np.float32)
    x = f(1, 8, 3, 3) if op == "Conv" else f(2, 8)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["floats"], axis=0, block_size=block),
        helper.make_node(op, ["x", "floats"], ["product"], "product"),
        helper.make_node("Relu", ["product"], ["y"], "relu"),
    ]
    constants = {"w": weights, "s": scales, "z": np.zeros(scales.shape, np.int8)}
    model = model_parts.model(nodes, [info("x", F, x.shape)], [info("y", F, x.shape)], constants, opset=21, ir=10)
    np.testing.assert_allclose(computed(model, {"x": x})[0], literal(model, {"x": x})[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_the_size_of_a_state_may_be_left_out(op, gates):
    inputs = [f(5, 2, 3), f(1, 4 * gates, 3), f(1, 4 * gates, 4), f(1, 8 * gates)]
    wanted = literal(model_of(op, inputs, {"hidden_size": 4}), {"x0": inputs[0]})[0]
    np.testing.assert_allclose(computed(model_of(op, inputs, {}), {"x0": inputs[0]})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_clip_bounds_what_gates_read_and_not_the_state(direction):
    count = 2 if direction == "bidirectional" else 1
    inputs = [f(3, 2, 3), f(count, 16, 3), f(count, 16, 4), f(count, 32), None]
    inputs += [2 * f(count, 2, 4), 2 * f(count, 2, 4)]
    given = [np.zeros(2, np.int32) + 3 if each is None else each for each in inputs]
    model = model_of("LSTM", given, {"hidden_size": 4, "clip": 0.3, "direction": direction})
    found, wanted = computed(model, {"x0": given[0]})[0], literal(model, {"x0": given[0]})[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_zero_point_of_each_row():
    """onnxruntime refuses it."""
    zeros = np.array([1, 2, 3, 4], np.uint8)
    found = computed(model_of("MatMulInteger", [CODES, CODES.T.copy(), zeros], {}), {"x0": CODES})[0]
    np.testing.assert_array_equal(found, (CODES.astype(int) - zeros[:, None].astype(int)) @ CODES.T.astype(int))


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [("value_float", 0.5, "f4"), ("value_floats", [0.5, 2], "f4"), ("value_ints", [1, 2], "i8")],
)
def test_a_constant_that_is_an_output_has_the_type_that_onnx_says(name, value, dtype):
    nodes = [helper.make_node("Constant", [], ["y"], "c", **{name: value}), helper.make_node("Identity", ["x"], ["z"])]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_parts.model(nodes, [info("x", F, [1])], [info("y", kind, None), info("z", F, [1])], opset=13)
    found = computed(model, {"x": np.zeros(1, np.float32)})[0]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.asarray(value, dtype))


def constants_only(op, inputs, attributes, opset):
    """A model whose operator reads constants, beside an input that it does not read."""
    model = model_of(op, inputs, attributes, 1, opset)
    model.graph.initializer.append(numpy_helper.from_array(inputs[0], "x0"))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [1]))
    model.graph.node.append(helper.make_node("Identity", ["x"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", 1, [1]))
    return model


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "opset"),
    [
        ("LRN", [IMAGE], {"size": 3, "alpha": 0.5}, 13),
        ("DequantizeLinear", [CODES, np.float32(0.5), np.uint8(3)], {}, 13),
        ("BatchNormalization", [IMAGE, f(4), f(4), f(4), f(4, low=0.5)], {}, 9),
        ("MaxPool", [f(1, 1, 2)], {"kernel_shape": [2], "strides": [3], "auto_pad": "SAME_LOWER"}, 12),
        ("CumSum", [IMAGE, np.array([1])], {"exclusive": 1}, 14),
        ("Clip", [IMAGE, np.float32(0.2)], {}, 13),
        ("Clip", [IMAGE.astype(np.float16), np.float16(-0.1), np.float16(0.2)], {}, 13),
        ("Clip", [ints(4, 4), np.int64(-1)], {}, 13),
        ("Clip", [IMAGE], {"max": 0.25}, 6),
        ("Shrink", [np.arange(-30, 30, dtype=np.int8)], {"bias": 1.5, "lambd": 1.5}, 9),
    ],
)
def test_an_operator_of_constants_computes_what_onnxruntime_does(op, inputs, attributes, opset):
    """ONNX's reference implementation, which folds constants, computes some of these otherwise."""
    model, x = constants_only(op, inputs, attributes, opset), {"x": np.zeros(1, np.float32)}
    np.testing.assert_allclose(computed(model, x)[0], literal(model, x)[0], rtol=1e-5, atol=1e-5)


def test_where_onnx_has_no_rule_for_dims_the_type_is_that_of_the_schema():
    values = np.array([4, 7], np.uint16)
    found = computed(model_of("OneHot", [np.float16(1), np.uint16(3), values], {}, opset=11), {"x0": np.float16(1)})[0]
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, np.uint16([4, 7, 4]))


def test_what_numpy_raises_names_the_node():
    """Indices that the run gives, one of them out of range."""
    node, inputs = helper.make_node("Gather", ["x", "i"], ["y"], "rows"), [info("x", F, [3, 2]), info("i", I64, [2])]
    model = model_parts.model([node], inputs, [info("y", F, [2, 2])])
    with pytest.raises(ExecutionError, match=r"node 'rows' \(Gather\) cannot run on .*: an index is out of range"):
        computed(model, {"x": f(3, 2), "i": np.array([0, 9])})


def assert_with_and_without_kernels(model, x, wanted):
    for disable in ((), ("pointwise",)):
        (found,) = run_on_host(prepare(model), {"x0": x}, disable=disable)[0].values()
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_erf_of_whole_numbers_is_rounded_towards_zero(dtype):
    """In float32, where that of 4 is 1, as ONNX's reference computes it."""
    x = np.array([0, 1, 4, 5, 6, 100] if dtype[0] == "u" else [-9, -4, -1, 0, 1, 4, 5, 6, 100], dtype)
    model = model_of("Erf", [x], {}, opset=13)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x0": x})
    assert_with_and_without_kernels(model, x, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize(("bias", "lambd"), [(1.5, 1.5), (-2.5, 0.5), (0.75, -3.0), (2.0, 3.0)])
def test_shrink_of_whole_numbers_cuts_fractions_off_as_onnxruntime_does(dtype, bias, lambd):
    x = np.arange(20 if dtype[0] == "u" else -30, 60).astype(dtype)
    model = model_of("Shrink", [x], {"bias": bias, "lambd": lambd}, opset=9)
    assert_with_and_without_kernels(model, x, literal(model, {"x0": x})[0])
