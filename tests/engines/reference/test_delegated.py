"""What the reference engine leaves to onnx.reference, against onnxruntime and against the tests that ONNX ships."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from benchmarks.node_tests import PASSED, REFUSED, WRONG, load_cases, run_case
from pytrtplugins.engines.reference.delegate import Delegated
from pytrtplugins.errors import EngineError
from tests.engines.model_parts import parsed
from tests.engines.networks import run
from tests.engines.operators import IMAGE, f, ints, literal, model_of

GRID = f(2, 5, 5, 2, low=-1.2, high=1.2)
TWICE = np.array([1, 1, 2, 2], np.float32)
CASES = [
    ("Celu", [IMAGE], {"alpha": 0.7}, 1), ("ThresholdedRelu", [IMAGE], {"alpha": 0.3}, 1), ("Sin", [IMAGE], {}, 1),
    ("Resize", [IMAGE, None, TWICE], {"mode": "linear"}, 1), ("Resize", [IMAGE, None, TWICE], {"mode": "cubic"}, 1),
    ("Resize", [IMAGE, None, np.array([1, 1, 3, 3], np.float32)], {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, 1),
    ("Resize", [IMAGE, None, np.array([2, 1.5], np.float32)], {"mode": "linear", "axes": [-2, -1]}, 1),
    ("Resize", [IMAGE, None, None, ints(9, 5)], {"mode": "cubic", "axes": [-1, 2]}, 1),
    ("Pad", [IMAGE, ints(0, 0, 1, 2, 0, 0, 2, 1)], {"mode": "reflect"}, 1), ("Pad", [IMAGE, ints(*[1] * 8)], {"mode": "edge"}, 1),
    ("ConvTranspose", [IMAGE, f(4, 4, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, 1),
    ("ConvTranspose", [IMAGE, f(4, 4, 3, 3)], {"output_shape": [14, 18], "strides": [2, 2]}, 1),
    ("GlobalMaxPool", [IMAGE], {}, 1),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2]}, 2),
    ("TopK", [IMAGE, ints(3)], {"axis": 1, "largest": 0}, 2), ("ArgMax", [IMAGE], {"axis": 2, "keepdims": 0}, 1),
    ("LayerNormalization", [IMAGE, f(8), f(8)], {"axis": -1}, 1), ("InstanceNormalization", [IMAGE, f(4), f(4)], {}, 1),
    ("LogSoftmax", [IMAGE * 100], {"axis": 1}, 1), ("Hardmax", [IMAGE], {"axis": 1}, 1), ("ReduceLogSumExp", [IMAGE * 100, ints(1)], {}, 1),
    ("ScatterElements", [IMAGE, ints(1, 0, 3).reshape(3, 1, 1, 1)[:2], IMAGE[:2, :1, :1, :1]], {"axis": 1}, 1),
    ("ScatterND", [IMAGE, ints(1, 0).reshape(2, 1), IMAGE[:2] + 1], {"reduction": "add"}, 1),
    ("GatherElements", [IMAGE, np.ones((2, 4, 6, 8), np.int64)], {"axis": 1}, 1), ("GatherND", [IMAGE, ints(1, 2).reshape(1, 2)], {}, 1),
    ("CumSum", [IMAGE, ints(2)[0]], {"reverse": 1}, 1), ("NonZero", [np.round(IMAGE)], {}, 1), ("Trilu", [IMAGE], {"upper": 0}, 1),
    ("GridSample", [IMAGE, GRID], {"mode": "bilinear", "padding_mode": "border"}, 1), ("GridSample", [IMAGE, GRID], {"mode": "nearest"}, 1),
    ("LSTM", [f(5, 2, 3), f(1, 16, 3), f(1, 16, 4), f(1, 32)], {"hidden_size": 4}, 3),
    ("GRU", [f(5, 2, 3), f(2, 12, 3), f(2, 12, 4), f(2, 24)],
     {"hidden_size": 4, "direction": "bidirectional", "linear_before_reset": 1}, 2),
    ("OneHot", [np.array([1, 0, 2], np.int64), ints(4), f(2)], {}, 1), ("CumSum", [IMAGE, ints(2)], {"exclusive": 1}, 1),
    ("OneHot", [np.array([1, 0, 2], np.int64), ints(4)[0], f(2)], {}, 1), ("Einsum", [f(3, 4), f(4, 5)], {"equation": "ij,jk->ki"}, 1),
    ("BatchNormalization", [IMAGE, f(4), f(4), f(4), f(4, low=0.1)], {"training_mode": 1}, 3),
    ("LpNormalization", [IMAGE], {"p": 1, "axis": 1}, 1), ("DynamicQuantizeLinear", [IMAGE], {}, 3),
    ("MatMulInteger", [np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(8, dtype=np.int8).reshape(4, 2)], {}, 1),
    ("ReduceProd", [IMAGE, ints(1)], {}, 1),
    ("BitShift", [np.array([1, 2, 3], np.uint8), np.array([1, 2, 3], np.uint8)], {"direction": "LEFT"}, 1),
]  # fmt: skip


def computed(model, *inputs, precision="fp32"):
    feeds = dict(zip((info.name for info in model.graph.input), inputs, strict=True))
    found = run(ptp.build(model, engine="reference", precision=precision), feeds)
    return [found[info.name] for info in model.graph.output]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "outputs"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_an_operator_gives_onnxruntimes_numbers(op, inputs, attributes, outputs):
    model = model_of(op, inputs, attributes, outputs)
    for found, wanted in zip(computed(model, inputs[0]), literal(model, {"x0": inputs[0]}), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceSum", "ReduceMax"])
def test_a_reduction_of_no_axis_still_computes_its_other_steps(op):
    x = np.array([-3.0, 2.0], np.float32)
    wanted = {"ReduceL1": abs(x), "ReduceL2": abs(x), "ReduceSumSquare": x * x}.get(op, x)
    np.testing.assert_array_equal(computed(model_of(op, [x], {"noop_with_empty_axes": 1}), x)[0], wanted)


@pytest.mark.parametrize("every", [24, pytest.param(1, marks=pytest.mark.slow)])
def test_the_tests_that_onnx_ships(every):
    """Three of four at least are computed, and what is accepted is right, but for a known difference in float16."""
    outcomes = {case.name: run_case(case, "reference") for case in load_cases()[::every]}
    counts = Counter(outcome.kind for outcome in outcomes.values())
    wrong = {name for name, outcome in outcomes.items() if outcome.kind == WRONG}
    assert wrong <= {"attention_4d_causal_fp16_expanded"}  # the test's own numbers are rounded after each node
    assert counts[PASSED] >= max(1100 // every, 0.75 * len(outcomes))
    sequences = [name for name, outcome in outcomes.items() if outcome.kind not in (PASSED, REFUSED, WRONG)]
    assert not [name for name in sequences if "seq" not in name and "opt" not in name]


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.FLOAT16, "float16"), (TensorProto.BFLOAT16, "bfloat16")])
def test_half_numbers_are_computed_wide_and_rounded_once(kind, dtype):
    half = helper.tensor_dtype_to_np_dtype(kind)
    x, scale, bias = (f(*dims).astype(half) for dims in ((4, 33), (33,), (33,)))
    wide = [value.astype(np.float32) for value in (x, scale, bias)]
    exact = computed(model_of("LayerNormalization", wide, {}), wide[0])[0]
    found = computed(model_of("LayerNormalization", [x, scale, bias], {}), x)[0]
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(found, exact.astype(half))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_precision_reaches_what_is_delegated(precision):
    x = f(3, 5)
    half = helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT16 if precision == "fp16" else TensorProto.BFLOAT16)
    rounded = x.astype(half).astype(np.float32)
    found = computed(model_of("Celu", [x], {}), x, precision=precision)[0]
    wanted = computed(model_of("Celu", [rounded], {}), rounded)[0].astype(half).astype(np.float32)
    np.testing.assert_array_equal(found, wanted)


def test_a_second_output_keeps_the_type_that_the_model_says():
    """LayerNormalization's mean is float32 beside a float16 result."""
    x, scale = f(2, 9).astype(np.float16), np.ones(9, np.float16)
    found = computed(model_of("LayerNormalization", [x, scale, None], {}, outputs=3), x)
    assert [value.dtype for value in found] == [np.float16, np.float32, np.float32]


def test_bits_of_half_numbers_are_not_widened():
    x = np.array([1.0, -2.0], np.float16)
    found = computed(model_of("BitCast", [x], {"to": int(TensorProto.BFLOAT16)}, opset=26), x)[0]
    assert found.dtype.name == "bfloat16"
    np.testing.assert_array_equal(found.view(np.int16), x.view(np.int16))


def delegated_to(function, types):
    """An operator of onnx.reference, computed by a function of its input."""
    delegated = Delegated(helper.make_node("Celu", ["x"], ["y"]), {"": 18}, types, "node 'y'")
    delegated._evaluator = SimpleNamespace(run=lambda names, feeds: [function(feeds["x0"])])
    return delegated


def test_weights_and_inputs_stay_what_they_are():
    """An operator of onnx.reference that writes its input fails, and changes nothing."""
    delegated = delegated_to(lambda x: np.copyto(x, 0), {})
    x = np.ones(3, np.float32)
    with pytest.raises(EngineError, match=r"node 'y': onnx\.reference cannot compute it: .*read-only"):
        delegated([x])
    np.testing.assert_array_equal(x, 1)
    assert x.flags.writeable


@pytest.mark.parametrize(("given", "kept"), [(np.float64, True), (np.int64, False)])
def test_a_result_of_another_type_than_the_model_says_is_rounded_or_refused(given, kept):
    types = {"y": helper.make_tensor_type_proto(TensorProto.FLOAT, [3])}
    delegated = delegated_to(lambda x: x.astype(given), types)
    if kept:
        assert delegated([np.ones(3, np.float32)])[0].dtype == np.float32
    else:
        with pytest.raises(EngineError, match=r"the model says float32, onnx\.reference gives int64"):
            delegated([np.ones(3, np.float32)])


def test_dims_that_do_not_fit_name_the_node():
    for op in ("Add", "BitwiseAnd"):  # ours, and onnx.reference's
        values = np.ones((2, 3), np.int32), np.ones(4, np.int32)
        model = parsed(f"(int32[N,3] a, int32[M] b) => (int32[] y) {{ y = {op} (a, b) }}", 18, 10)
        with pytest.raises(EngineError, match=rf"node '{op}_y': .*cannot"):
            computed(model, *values)


def test_sequences_between_nodes():
    text = """(float[2,3] x) => (float[2,4] y) <int64 one = {1}> {
        parts = SplitToSequence <axis = 1, keepdims = 1> (x)  part = SequenceAt (parts, one)
        more = SequenceInsert (parts, part)  y = ConcatFromSequence <axis = 1> (more) }"""
    model = parsed(text, 18, 10)
    onnx.checker.check_model(model)
    x = f(2, 3)
    np.testing.assert_array_equal(computed(model, x)[0], np.concatenate([x, x[:, 1:2]], axis=1))
