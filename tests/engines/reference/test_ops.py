"""Each operator of the reference engine against onnxruntime."""

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.engines.reference.ops import OPS
from pytrtplugins.errors import EngineError
from tests.engines.networks import run
from tests.engines.operators import IMAGE, POINT, both, f, ints, model_of
from tests.engines.sweeps import SWEEPS, assert_right


def by_engine(op, inputs, attributes):
    engine = ptp.build(model_of(op, inputs, attributes), engine="reference", progress=False)
    return run(engine, {"x0": inputs[0]})["y0"]


FLAGS = np.array([[True], [False], [True]])
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
WHOLE = np.arange(-8, 8, dtype=np.int64).reshape(4, 4)
BIG = ints(2**53 + 1, -(2**53) - 3, 7, -7)  # float64 does not hold the first two
HALVES = np.array([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5], np.float32)

ELEMENTWISE = [
    *((op, [IMAGE], {}) for op in ("Abs", "Neg", "Exp", "Tanh", "Softplus", "Relu", "Identity", "Erf", "Selu", "Elu", "Sign",
                                   "HardSwish", "HardSigmoid", "LeakyRelu", "Floor", "Ceil", "Round", "Dropout", "Sigmoid")),
    *((op, [f(3, 4, low=0.1)], {}) for op in ("Log", "Sqrt", "Reciprocal")),
    *((op, [HALVES], {}) for op in ("Floor", "Ceil", "Round", "Sign", "HardSwish", "HardSigmoid")),
    *((op, [np.array(0.5, np.float32)], {}) for op in ("Relu", "LeakyRelu", "Tanh", "Erf", "Identity")),
    *((op, [IMAGE * 50], {}) for op in ("Sigmoid", "Tanh", "Softplus", "Elu", "Selu", "Mish", "Erf", "HardSwish")),
    ("LeakyRelu", [IMAGE], {"alpha": 0.1}), ("Elu", [IMAGE], {"alpha": 0.7}), ("Selu", [IMAGE], {"alpha": 1.5, "gamma": 0.9}),
    ("HardSigmoid", [IMAGE], {"alpha": 0.3, "beta": 0.1}), ("PRelu", [IMAGE, f(4, 1, 1)], {}),
    *((op, [IMAGE, other], {}) for op in ("Add", "Sub", "Mul") for other in (f(4, 1, 1), IMAGE[:1], f(1), POINT)),
    *((op, [POINT, IMAGE], {}) for op in ("Add", "Mul")),
    ("Div", [IMAGE, f(1, low=1)], {}), ("Div", [WHOLE, ints(3, -3, 5, -7)], {}), ("Div", [BIG, ints(2, 2, 2, 2)], {}),
    ("Mod", [WHOLE, ints(3, -3, 5, -7)], {}), ("Mod", [IMAGE, f(1, low=1)], {"fmod": 1}),
    ("Add", [BIG, ints(1)], {}), ("Mul", [BIG, ints(3)], {}), ("Neg", [BIG], {}), ("Abs", [BIG], {}),
    ("Clip", [BIG, ints(-9)[0], ints(9)[0]], {}),
    ("Pow", [f(3, low=0.1), f(3)], {}), ("Pow", [IMAGE, np.float32(2)], {}), ("Pow", [WHOLE, ints(3)], {}),
    *((op, [f(3), f(2, 3), f(1)], {}) for op in ("Max", "Min", "Sum")), ("Sum", [IMAGE], {}),
    ("Clip", [IMAGE, np.float32(-0.5), np.float32(0.7)], {}), ("Clip", [IMAGE, None, np.float32(0.7)], {}),
    ("Clip", [IMAGE, np.float32(0)], {}), ("Clip", [IMAGE], {}), ("Clip", [IMAGE, np.float32(1), np.float32(-1)], {}),
    *((op, [WHOLE, WHOLE.T.copy()], {}) for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")),
    *((op, [FLAGS, FLAGS.T.copy()], {}) for op in ("And", "Or")), ("Not", [FLAGS], {}), ("Where", [FLAGS, f(3, 2), f(2)], {}),
    ("Cast", [IMAGE], {"to": TensorProto.INT64}), ("Cast", [WHOLE], {"to": TensorProto.BOOL}),
    ("Cast", [FLAGS], {"to": TensorProto.FLOAT}),
]  # fmt: skip
SUMS = [
    *((op, [x], {"axis": axis}) for op in ("Softmax", "LogSoftmax") for x in (IMAGE, POINT) for axis in (0, 1, 2, 3, -1)),
    *((op, [IMAGE * 100], {}) for op in ("Softmax", "LogSoftmax")),
    ("BatchNormalization", [IMAGE, f(4), f(4), f(4), f(4, low=0.1)], {"epsilon": 1e-3}),
    ("BatchNormalization", [f(2, 4), f(4), f(4), f(4), f(4, low=0.1)], {}),
    ("MatMul", [f(2, 3, 4), f(4, 5)], {}), ("MatMul", [f(2, 1, 3, 4), f(3, 4, 5)], {}), ("MatMul", [f(3, 4), f(4)], {}),
    ("MatMul", [BIG.reshape(2, 2), ints(1, 2, 3, 4).reshape(2, 2)], {}), ("MatMul", [f(4), f(2, 4, 5)], {}),
    ("Einsum", [f(2, 3, 4), f(5, 4, 3)], {"equation": "bij,oji->boi"}),
    *(("Gemm", [f(*((4, 3) if left else (3, 4))), f(*((5, 4) if right else (4, 5))), *bias],
       {"transA": left, "transB": right, "alpha": 0.5, "beta": 2.0})
      for left in (0, 1) for right in (0, 1) for bias in ([], [f(5)], [f(3, 1)], [f(1)])),
    ("Gemm", [f(1, 4), f(4, 1)], {}),
    *((op, [x, axes], {"keepdims": keep}) for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1",
                                                               "ReduceL2", "ReduceSumSquare")
      for x in (IMAGE, POINT) for axes, keep in ((ints(1), 1), (ints(-1, 2), 0), (None, 1))),
    ("ReduceSum", [IMAGE, ints()], {"noop_with_empty_axes": 1}), ("ReduceMean", [IMAGE], {"noop_with_empty_axes": 1}),
    ("GlobalAveragePool", [IMAGE], {}), ("GlobalAveragePool", [POINT], {}), ("GlobalMaxPool", [IMAGE], {}),
    ("GlobalMaxPool", [f(2, 3, 4)], {}),
    ("LRN", [IMAGE], {"size": 3, "alpha": 0.5}), ("LRN", [IMAGE], {"size": 5, "alpha": 1e-2, "beta": 0.6, "bias": 2.0}),
    *(("LpNormalization", [IMAGE], {"axis": 1, "p": p}) for p in (1, 2)),
]  # fmt: skip
SHAPES = [
    ("Concat", [IMAGE, IMAGE[:, :1]], {"axis": 1}), ("Concat", [IMAGE, IMAGE, IMAGE], {"axis": -1}), ("Concat", [IMAGE], {"axis": 0}),
    ("Reshape", [IMAGE, ints(0, -1, 8)], {}), ("Reshape", [IMAGE, ints(-1)], {}), ("Reshape", [f(0, 3), ints(3, 0)], {"allowzero": 1}),
    ("Transpose", [IMAGE], {"perm": [0, 2, 3, 1]}), ("Transpose", [IMAGE], {}),
    *(("Flatten", [IMAGE], {"axis": axis}) for axis in (0, 1, 2, -1, 4)),
    ("Squeeze", [f(1, 3, 1), ints(0)], {}), ("Squeeze", [f(1, 3, 1)], {}), ("Squeeze", [POINT, ints(-1, 2)], {}),
    ("Unsqueeze", [f(3), ints(0, 2)], {}), ("Unsqueeze", [f(3), ints(-1)], {}),
    ("Gather", [IMAGE, ints(2, 0)], {"axis": 1}), ("Gather", [IMAGE, ints(-1)[0]], {"axis": 1}), ("Gather", [IMAGE, WHOLE[2:3] % 2], {}),
    ("GatherElements", [f(3, 4), np.array([[2, -3, 0], [0, 1, -1]])], {}),
    ("GatherElements", [f(3, 4), np.array([[2, -4], [0, 3]])], {"axis": -1}),
    ("Shape", [IMAGE], {"start": 1}), ("Shape", [IMAGE], {"start": -3, "end": -1}),
    ("Expand", [f(3, 1), ints(2, 3, 4)], {}), ("Expand", [f(3, 4), ints(1)], {}), ("Tile", [IMAGE, ints(1, 2, 1, 3)], {}),
    ("ConstantOfShape", [ints(2, 3)], {}), ("ConstantOfShape", [ints(2)], {"value": numpy_helper.from_array(ints(7))}),
    ("SpaceToDepth", [IMAGE], {"blocksize": 2}), ("DepthToSpace", [IMAGE], {"blocksize": 2}),
    ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "CRD"}),
    ("Slice", [IMAGE, ints(1, -3), ints(4, 100), ints(1, 3), ints(2, 1)], {}), ("Slice", [IMAGE, ints(1, 1), ints(2, -1)], {}),
    ("Slice", [IMAGE, ints(-1), ints(-100), ints(3), ints(-2)], {}),
    ("Slice", [IMAGE, ints(0, 0), ints(6, 8), ints(-2, -1), ints(2, 2)], {}),
    ("Pad", [IMAGE, ints(0, 0, 1, 2, 0, 0, 3, 0), np.float32(1.5)], {}), ("Pad", [IMAGE, ints(0, 0, -1, 2, 0, 3, 1, -2)], {}),
    ("Pad", [IMAGE, ints(1, 2, 3, 0), None, ints(-1, 1)], {}), ("Pad", [WHOLE, ints(1, 0, 0, 1), ints(9)[0]], {}),
    *(("Resize", [IMAGE, f(0), np.array([1, 1, factor, factor], np.float32)],
       {"mode": "nearest", "coordinate_transformation_mode": place, "nearest_mode": rounding})
      for factor in (0.5, 1.5, 2, 3) for place in ("asymmetric", "half_pixel", "align_corners")
      for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
    ("Resize", [IMAGE, f(0), np.array([2, 2], np.float32)], {**NEAREST, "axes": [2, 3]}),
    ("Resize", [IMAGE, None, None, ints(2, 4, 9, 5)], NEAREST), ("Resize", [POINT, None, None, ints(7, 2)], {**NEAREST, "axes": [2, 3]}),
    ("Resize", [POINT, None, np.array([1, 1, 4, 4], np.float32)], NEAREST),
]  # fmt: skip
WINDOWS = [
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "count_include_pad": 1}),
    ("AveragePool", [POINT], {"kernel_shape": [1, 1]}), ("AveragePool", [f(2, 3, 7)], {"kernel_shape": [3], "strides": [2]}),
    ("LpPool", [IMAGE], {"kernel_shape": [2, 2], "p": 3}), ("LpPool", [f(2, 3, 7)], {"kernel_shape": [3], "p": 1, "strides": [2]}),
    ("LpPool", [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2]}),
    ("LpPool", [f(1, 2, 4, 5, 6)], {"kernel_shape": [2, 3, 2], "auto_pad": "SAME_UPPER"}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", [f(1, 2, 4, 5, 6)], {"kernel_shape": [2, 3, 2]}),
    ("MaxPool", [POINT], {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}),
    ("MaxPool", [f(2, 3, 7)], {"kernel_shape": [3], "auto_pad": "SAME_LOWER"}),
    ("Conv", [f(2, 3, 7), f(4, 3, 3), f(4)], {"pads": [2, 1], "strides": [2]}),
    ("Conv", [f(1, 2, 3, 4, 5), f(2, 1, 2, 2, 3)], {"group": 2}),
    *(("Conv", [IMAGE, f(4, 4, 3, 3)], {"auto_pad": kind, "strides": [2, 3]}) for kind in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    ("Conv", [POINT, f(3, 4, 1, 1)], {}), ("Conv", [POINT, f(3, 4, 3, 3), f(3)], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("ConvTranspose", [POINT, f(4, 3, 1, 1)], {}), ("ConvTranspose", [POINT, f(4, 3, 4, 4), f(3)], {"strides": [4, 4]}),
    ("ConvTranspose", [f(2, 4, 5), f(4, 2, 3)], {"group": 2, "strides": [2], "pads": [1, 0], "output_padding": [1]}),
    ("ConvTranspose", [IMAGE, f(4, 2, 2, 3)], {"auto_pad": "VALID", "strides": [1, 2]}),
]  # fmt: skip
CODES = [
    ("QuantizeLinear", [IMAGE * 90, np.float32(0.7), np.int8(0)], {}), ("QuantizeLinear", [IMAGE, np.float32(0.01), np.uint8(128)], {}),
    ("QuantizeLinear", [IMAGE, f(4, low=0.01, high=0.1), np.zeros(4, np.int8)], {"axis": 1}),
    ("QuantizeLinear", [IMAGE + 3, np.float32(0.1)], {}),
    ("DequantizeLinear", [np.arange(-8, 8, dtype=np.int8).reshape(4, 4), f(4, low=0.1), np.zeros(4, np.int8)], {"axis": 0}),
    ("DequantizeLinear", [np.arange(0, 16, dtype=np.uint8).reshape(4, 4), np.float32(0.3), np.uint8(5)], {}),
    ("DequantizeLinear", [np.arange(-8, 8, dtype=np.int32), np.float32(0.3)], {}),
]  # fmt: skip
LARGE = np.array([[2**24 + 1, 1], [2**24 + 1, 2**24 + 1]], np.int32)
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5]]], np.float32)
GRID = f(2, 5, 5, 2, low=-1.6, high=1.6)
TWICE = {"scales": np.array([1, 1, 2, 1.7], np.float32)}
INDEXES = [
    *(("GatherElements", [IMAGE, np.array([[[[0, -1], [5, 2]]]], np.int64)], {"axis": axis}) for axis in (2, 3, -1, -2)),
    *((op, [f(4, 3), index, f(2, 3)], {"reduction": reduction})
      for reduction in ("none", "add", "mul", "max", "min")
      for op, index in (("ScatterND", np.array([[-1], [0]])), ("ScatterElements", np.array([[0, 1, 2], [3, -1, 1]])))),
    *(("ScatterElements", [f(3), np.array([0, 0, -1]), f(3)], {"reduction": reduction}) for reduction in ("add", "mul", "max")),
    ("ScatterElements", [BIG, ints(0), ints(2**53 + 5)], {"reduction": "max"}), ("ScatterND", [f(4), np.zeros((0, 1), np.int64), f(0)], {}),
    *(("NonMaxSuppression", [BOXES, SCORES, *rest], {"center_point_box": centered}) for centered in (0, 1) for rest in (
        [], [ints(3)], [ints(3)[0], np.array(0.5, np.float32)], [ints(9), None, np.array([0.55], np.float32)], [ints(-1)],
        [None, np.array([0.5], np.float32)])),
    *(("Unique", [np.round(IMAGE)], {"axis": axis} if axis else {}) for axis in (None, -1)), ("Unique", [np.round(IMAGE)], {"sorted": 0}),
]  # fmt: skip
SAMPLED = [
    *(("GridSample", [IMAGE, GRID], {"mode": mode, "padding_mode": padding, "align_corners": corners})
      for mode in ("bilinear", "nearest", "bicubic") for padding in ("zeros", "border", "reflection") for corners in (0, 1)),
    ("GridSample", [f(1, 2, 1, 1), f(1, 2, 2, 2)], {"padding_mode": "reflection", "align_corners": 1}),
    *(("Resize", [IMAGE, None, TWICE["scales"]], {"mode": mode, **options}) for mode in ("linear", "cubic") for options in (
        {}, {"coordinate_transformation_mode": "pytorch_half_pixel"},
        {"coordinate_transformation_mode": "asymmetric"})),
    *(("Resize", [IMAGE, None, None, ints(2, 4, 1, 1)], {"mode": mode, "coordinate_transformation_mode": "pytorch_half_pixel"})
      for mode in ("nearest", "linear", "cubic")),
    *(("Resize", [IMAGE, np.array([0, 0, -0.2, 0.3, 1, 1, 1.1, 1.4], np.float32), None, ints(2, 4, 3, 6)],
       {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0})
      for mode in ("nearest", "linear", "cubic")),
    *(("Resize", [IMAGE, None, np.array([1, 1, 0.5, 0.7], np.float32)], {"mode": mode, "antialias": 1}) for mode in ("linear", "cubic")),
    ("Resize", [IMAGE, None, TWICE["scales"]], {"mode": "cubic", "exclude_outside": 1}),
    ("Resize", [IMAGE, None, None, ints(9, 7)], {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger", "mode": "linear"}),
    ("Resize", [np.arange(20, dtype=np.uint8).reshape(1, 1, 4, 5), None, TWICE["scales"]], {"mode": "linear"}),
]  # fmt: skip
EDGES = [
    ("Transpose", [np.array(2, np.float32)], {}), ("Pad", [IMAGE, ints(0, 0, -1, 2, 0, 0, 1, -1)], {"mode": "reflect"}),
    ("Pad", [IMAGE, ints(0, 0, 1, 2, 0, 0, 2, 1)], {"mode": "edge"}), ("Conv", [f(0, 4, 5, 5), f(6, 4, 3, 3)], {}),
    *((op, [f(2, 0)], {}) for op in ("Softmax", "LogSoftmax")), ("Mean", [f(3, 1), f(1, 4)], {}), ("Mean", [f(3)], {}),
    ("Clip", [np.array([np.inf, -np.inf, 1], np.float32), np.float32(0)], {}),
    ("Clip", [np.array([np.inf, -np.inf, 1], np.float32), None, np.float32(0)], {}),
    *(("ReduceLogSumExp", [x, axes], {}) for x, axes in ((IMAGE * 100, ints(1)), (np.full((2, 3), -np.inf, np.float32), ints(0)),
                                                         (np.array([[np.inf, 1], [-np.inf, np.inf]], np.float32), ints(1)))),
    ("ReduceLogSum", [f(3, 4, low=0.1), ints(1)], {}), ("ReduceL2", [LARGE[:1], ints(1)], {}), ("ReduceMean", [LARGE, ints(0)], {}),
    *(("ConvTranspose", [IMAGE, f(4, 3, 3, 3)], {"strides": [2, 2], **options}) for options in (
        {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"output_shape": [12, 16]}, {"output_shape": [13, 17]},
        {"output_shape": [12, 16], "auto_pad": "SAME_UPPER"}, {"output_shape": [13, 17], "output_padding": [1, 1]})),
    ("ConvTranspose", [IMAGE, f(4, 2, 3, 3)], {"strides": [2, 2], "group": 2, "output_shape": [12, 16]}),
    ("BatchNormalization", [f(4), f(1), f(1), f(1), f(1, low=0.1)], {}),
    ("MatMulInteger", [np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(20, dtype=np.int8).reshape(4, 5)], {}),
    ("MatMulInteger", [np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(16, dtype=np.int8).reshape(4, 4), np.uint8(7),
                       np.arange(4, dtype=np.int8)], {}),
]  # fmt: skip
CASES = [*ELEMENTWISE, *SUMS, *SHAPES, *WINDOWS, *CODES, *INDEXES, *SAMPLED, *EDGES]


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_an_operator_equals_onnxruntimes(op, inputs, attributes):
    if "noop_with_empty_axes" in attributes and ort.__version__.startswith("1.23."):
        pytest.skip("onnxruntime 1.23 fails at ReduceMean with noop_with_empty_axes")
    (found, *_), (wanted, *_) = both(op, inputs, attributes)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.dtype.kind == "f":
        largest = np.abs(wanted[np.isfinite(wanted)]).max(
            initial=1
        )  # sums of terms that cancel are as exact as the others
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6 * largest)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", sorted(SWEEPS.keys() & OPS.keys()))
def test_an_operator_is_right_at_the_limits_of_its_parameters(op):
    def compute(attributes, wanted, *inputs):
        counts = {"num_outputs": len(wanted)} if op in ("MaxPool", "Split") else {}
        return OPS[op](attributes | counts, *inputs)

    assert_right(op, compute)


def test_every_operator_of_the_table_is_compared():
    assert set(OPS) == {case[0] for case in CASES} | {"DynamicQuantizeLinear", "Split"}


@pytest.mark.parametrize(
    ("inputs", "attributes", "outputs"),
    [
        ([IMAGE, ints(1, 3)], {"axis": 1}, 2),
        ([IMAGE], {"axis": 3, "num_outputs": 3}, 3),
        ([POINT, ints(1, 0, 3)], {"axis": -3}, 3),
        ([POINT], {"num_outputs": 1}, 1),
    ],
)
def test_split_equals_onnxruntimes(inputs, attributes, outputs):
    for found, wanted in zip(*both("Split", inputs, attributes, outputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("block", [{"axis": 0, "block_size": 2}, {"axis": -1, "block_size": 3}])
@pytest.mark.parametrize(("op", "dtype"), [("DequantizeLinear", np.uint8), ("QuantizeLinear", np.int8)])
def test_a_scale_may_belong_to_a_block(op, dtype, block):
    x = f(4, 8, high=90) if op == "QuantizeLinear" else np.arange(32, dtype=dtype).reshape(4, 8)
    scale = f(*((2, 8) if block["axis"] == 0 else (4, 3)), low=0.1)
    (found,), (wanted,) = both(op, [x, scale, np.full(scale.shape, 3, dtype)], block, opset=21)
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


@pytest.mark.parametrize(
    "options", [{}, {"storage_order": 1}, {"auto_pad": "SAME_LOWER"}, {"pads": [1, 0, 1, 1]}, {"dilations": [1, 2]}]
)
def test_the_positions_of_a_max_pool_equal_onnxruntimes(options):
    x = np.round(IMAGE)  # several are the largest
    for found, wanted in zip(*both("MaxPool", [x], {"kernel_shape": [3, 2], **options}, 2), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("reduction", "wanted"), [("max", [5, np.nan, np.nan, 9]), ("min", [1, np.nan, np.nan, 4])])
def test_the_largest_of_not_a_number_and_a_number_is_not_a_number(reduction, wanted):
    """As in torch.scatter_reduce, whichever of them is the update; onnxruntime takes the update, and onnx.reference what was there."""
    x, updates = np.array([1, np.nan, 3, 4], np.float32), np.array([5, 7, np.nan, 9], np.float32)
    for op, index in (("ScatterElements", np.arange(4)), ("ScatterND", np.arange(4)[:, None])):
        with np.errstate(all="ignore"):
            found = OPS[op]({"reduction": reduction}, x, index, updates)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("x", [IMAGE, np.zeros(3, np.float32), -abs(IMAGE)])
def test_codes_of_a_range_that_is_found_in_the_run_equal_onnxruntimes(x):
    for found, wanted in zip(*both("DynamicQuantizeLinear", [x], {}, 3), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_zero_point_of_each_row():
    """onnxruntime refuses it."""
    x, y = np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(8, dtype=np.int8).reshape(4, 2)
    zeros = np.array([1, 2, 3], np.uint8)
    found = OPS["MatMulInteger"]({}, x, y, zeros)
    np.testing.assert_array_equal(found, (x.astype(int) - zeros[:, None].astype(int)) @ y.astype(int))


@pytest.mark.parametrize("axes", [[1], [-1, 2], None])
def test_axes_may_be_an_attribute_as_before_opset_18(axes):
    (found,), (wanted,) = both("ReduceMean", [IMAGE], {"axes": axes} if axes else {}, opset=13)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
    assert found.shape == wanted.shape


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("bounds", [[], [None, 2.0], [-2.0, None]])
def test_a_bound_of_clip_that_is_left_out_is_the_largest_finite_number_of_the_type(kind, bounds):
    x = np.array([-np.inf, -3, 3, np.inf], kind)
    limits = ml_dtypes.finfo(kind)
    low, high = (*bounds, None, None)[:2]
    given = [x, *(None if bound is None else np.asarray(bound, kind) for bound in bounds)]
    found = by_engine("Clip", given, {})
    assert found.dtype == kind
    wanted = np.clip(x.astype(np.float64), low if low else float(limits.min), high if high else float(limits.max))
    np.testing.assert_array_equal(found.astype(np.float64), wanted)


@pytest.mark.parametrize(
    ("op", "others"),
    [("BatchNormalization", [*[f(4)] * 3, f(4, low=0.5)]), ("Dropout", [np.float32(0.5)]), ("Pow", [np.float32(2)])],
)
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_a_half_operand_beside_a_wider_first_one_does_not_narrow_the_result(op, others, half):
    narrow = [np.asarray(value).astype(half) for value in others]
    found = by_engine(op, [IMAGE, *narrow], {})
    wanted = by_engine(op, [IMAGE, *(value.astype(np.float32) for value in narrow)], {})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_positions_lose_their_fractions():
    found = by_engine("OneHot", [f(3) * 0 + np.float32(1.25), np.int64(3), np.float32([0, 5])], {})
    np.testing.assert_array_equal(found, np.float32([[0, 5, 0]] * 3))


def test_pads_that_cut_off_more_than_there_is_are_refused():
    words = r"its pads cut off more than there is: the image that it gives would be \[-1, 3\]"
    with pytest.raises(EngineError, match=words):
        by_engine("ConvTranspose", [f(1, 1, 2, 3), f(1, 1, 1, 1)], {"pads": [2, 0, 1, 0]})
