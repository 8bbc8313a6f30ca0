"""Codes of 8 bits: what weights and scales become in FP8, and what a model with them says."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.errors import ModelError, UsageError
from pytrtplugins.passes import CODES, Placement, Quantize, quantize, to_ir
from pytrtplugins.passes.codes import FP8, INT8, codes_of, nearest_fp8, quantize_weights, round_together
from tests.measures import sqnr
from tests.passes import nets
from tests.passes.nets import calibrated, constants, image, ones, run, tiny_yolo

VALUES = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)


def nearest(value):
    """The code of E4M3 whose value is nearest, of two the one whose last bit is 0, as its value."""
    finite = [
        code for code in range(256) if np.isfinite(VALUES[code]) and np.signbit(VALUES[code]) == np.signbit(value)
    ]
    return VALUES[min(finite, key=lambda code: (abs(VALUES[code] - float(value)), code % 2))]


@given(arrays.arrays(np.float32, 8, elements=st.floats(-1000, 1000, width=32)))
def test_values_become_the_nearest_code_and_saturate(values):
    found = FP8.rounded(values).astype(np.float64)
    np.testing.assert_array_equal(found, [nearest(value) for value in values])


@given(arrays.arrays(np.float32, 8, elements=st.floats(-448, 448, width=32)))
def test_the_values_of_nearest_codes_come_without_casts(values):
    np.testing.assert_array_equal(nearest_fp8(values), [nearest(value) for value in values])


def test_ties_and_their_neighbours_come_without_casts():
    values = np.sort(VALUES[np.isfinite(VALUES)]).astype(np.float32)
    ties = (values[1:] + values[:-1]) / 2
    tried = np.concatenate([values, ties, np.nextafter(ties, np.float32(1e9)), np.nextafter(ties, np.float32(-1e9))])
    np.testing.assert_array_equal(nearest_fp8(tried), FP8.rounded(tried).astype(np.float32))


def test_halves_become_even_codes_and_small_values_keep_their_steps():
    values = np.float32([17, 19, 2**-10, 3 * 2**-10, 2**-9, 447, 449, 464, 1e6, -1e6])
    expected = [16, 20, 0, 2 * 2**-9, 2**-9, 448, 448, 448, 448, -448]
    assert FP8.rounded(values).astype(np.float64).tolist() == expected


@given(
    weights=arrays.arrays(np.float32, (3, 2, 2), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    axis=st.integers(0, 2),
    shared=st.booleans(),
)
def test_weights_in_fp8_are_finite_codes_near_them_and_zeros_stay(weights, axis, shared):
    codes, scales = quantize_weights(weights, axis, codes=FP8, shared=shared)
    assert (codes.dtype, codes.shape, scales.shape) == (ml_dtypes.float8_e4m3fn, weights.shape, (weights.shape[axis],))
    scale = scales.reshape([-1 if k == axis else 1 for k in range(3)]).astype(np.float64)
    values = codes.astype(np.float64) * scale
    assert np.isfinite(values).all()
    assert not values[weights == 0].any()
    others = tuple(k for k in range(3) if k != axis)
    largest = np.abs(weights).max(axis=None if shared else others, keepdims=True)
    assert (np.abs(values - weights) <= np.maximum(largest / 8, scale * 2**-9)).all()  # the largest step of a filter


def squared_error(row, scale):
    """Of a row on the nearest codes of a scale, by trying all."""
    return sum((nearest(value / scale) * np.float64(scale) - value) ** 2 for value in row)


@pytest.mark.parametrize("shared", [False, True])
def test_the_scale_has_the_least_squared_error_of_eight_within_an_octave(shared):
    weights = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)
    largest = np.abs(weights).max(axis=1)
    if shared:
        largest[:] = largest.max()
    tried = [(largest / 448 * 2 ** (k / 8)).astype(np.float32) for k in range(8)]
    errors = np.array(
        [[squared_error(row, scale) for row, scale in zip(weights, scales, strict=True)] for scales in tried]
    )
    best = errors.sum(axis=1, keepdims=True).repeat(4, axis=1).argmin(axis=0) if shared else errors.argmin(axis=0)
    assert shared or best.any()
    _, found = quantize_weights(weights, 0, codes=FP8, shared=shared)
    np.testing.assert_allclose(found, [tried[k][row] for row, k in enumerate(best)], rtol=2e-7)


def gram(channels, taps):
    """What is expected of the products of two inputs, as a matrix."""
    return np.eye(channels * taps) + np.kron(np.eye(channels), np.ones((taps, taps))) + 0.5


@pytest.mark.parametrize(("channels", "taps"), [(1, 9), (7, 1), (4, 9), (3, 2)])
def test_weights_are_rounded_as_if_those_behind_them_could_make_up_for_it(channels, taps):
    """Each time by solving for all that are left, and by trying all codes."""
    rows = np.random.default_rng(1).normal(0, 60, (3, channels * taps)).astype(np.float32)
    rows[0, 1] = 0
    matrix, expected = gram(channels, taps), []
    for row in rows:
        errors = np.zeros(row.size)
        for k in range(row.size):
            moves = np.linalg.solve(matrix[k:, k:], -matrix[k:, :k] @ errors[:k])
            code = nearest(np.float64(row[k]) + moves[0]) if row[k] else 0.0
            errors[k] = code - row[k]
        expected.append(row + errors)
    np.testing.assert_allclose(round_together(rows, taps).astype(np.float64), expected, rtol=1e-6)


def test_filters_of_inputs_that_are_alike_change_less_than_by_rounding_to_nearest():
    random = np.random.default_rng(2)
    weights = random.standard_normal((16, 24, 3, 3)).astype(np.float32)
    smooth = random.standard_normal((200, 24, 1, 1)) + 0.3 * random.standard_normal((200, 24, 3, 3))
    x = np.maximum(smooth, 0).reshape(200, -1)
    codes, scales = quantize_weights(weights, 0, codes=FP8)
    rows, scale = weights.reshape(16, -1), np.abs(weights).max(axis=(1, 2, 3))[:, None] / 448
    found = codes.astype(np.float64).reshape(16, -1) * scales[:, None]
    plain = FP8.rounded(rows / scale).astype(np.float64) * scale
    assert sqnr(x @ found.T, x @ rows.T) > sqnr(x @ plain.T, x @ rows.T) + 3


def test_filters_without_weights_have_the_scale_1():
    for shape in ((2, 0), (2, 3)):
        codes, scales = quantize_weights(np.zeros(shape, np.float32), 0, codes=FP8)
        assert (codes.shape, scales.tolist()) == (shape, [1, 1])
        assert not codes.astype(np.float32).any()


def test_precisions_name_their_codes():
    assert {name: codes_of(name) for name in CODES} == {"int8": INT8, "fp8": FP8}
    with pytest.raises(UsageError, match="expected int8 or fp8, found 'fp4'"):
        codes_of("fp4")


def test_fp8_stands_where_int8_would_with_other_codes_and_scales():
    model = tiny_yolo(opset=19)
    table = calibrated(model)
    int8, fp8 = (quantize(model, table, float_first=False, precision=precision) for precision in ("int8", "fp8"))
    onnx.checker.check_model(fp8, full_check=True)
    assert [node.op_type for node in fp8.graph.node] == [node.op_type for node in int8.graph.node]
    assert fp8.ir_version >= 9
    steps, values = constants(int8), constants(fp8)
    scales = [name for name in steps if name.endswith("_scale")]
    assert scales
    for name in scales:
        octaves = np.log2(values[name] / (steps[name] * 127 / 448))
        assert (octaves > -1e-6).all(), name
        assert (octaves < (1 if name.endswith("_w_scale") else 1e-6)).all(), name
    kinds = {tensor.data_type for tensor in fp8.graph.initializer}
    assert kinds == {TensorProto.FLOAT, TensorProto.FLOAT8E4M3FN}


def test_an_image_loses_most_of_its_bits_in_fp8_and_its_layer_therefore_stays_in_float():
    """Pixels of 0 to 255 on the nearest codes, by trying all; and what a filter makes of them that looks for edges."""
    pixels = np.arange(256) / np.float32(255)
    codes = {nearest(value * 448) for value in pixels}
    assert len([code for code in codes if code >= 224]) == 9  # for 128 pixels
    model = tiny_yolo(opset=19)
    table, x = calibrated(model), image(model)
    expected = run(model, x, ["e"])["e"]
    made = [quantize(model, table, precision="fp8", float_first=first) for first in (None, False)]
    (found,), (worse,) = (ReferenceEvaluator(each).run(["e"], {"data": x}) for each in made)
    assert sqnr(np.asarray(found), expected) > sqnr(np.asarray(worse), expected)
    assert made[0].graph.node[0].op_type == "Conv"
    assert "data_scale" not in constants(made[0])


def test_the_version_of_the_format_goes_up_for_fp8_alone():
    model = tiny_yolo(opset=19)
    model.ir_version = 8
    found = {name: quantize(model, calibrated(model), precision=name).ir_version for name in CODES}
    assert found == {"int8": 8, "fp8": 9}


def test_a_model_in_fp8_computes_nearly_what_its_float_form_does_and_what_onnx_says():
    model = tiny_yolo(opset=19)
    fp8 = quantize(model, calibrated(model), precision="fp8")
    x = image(model)
    expected = run(model, x, ["e"])["e"]
    (found,) = ReferenceEvaluator(fp8).run(["e"], {"data": x})
    assert 20 < sqnr(np.asarray(found), expected) < 60


def test_opsets_without_fp8_are_refused_with_the_way_out():
    model = tiny_yolo(opset=18)
    with pytest.raises(ModelError, match=r"has opset 18: expected 19 or newer.*float8_e4m3fn") as error:
        quantize(model, ones(model), precision="fp8")
    assert "convert_version(model, 19)" in str(error.value)


def test_levels_of_weights_are_int8s():
    model = tiny_yolo(opset=19)
    with pytest.raises(UsageError, match="found 64 for fp8"):
        Quantize(ones(model), weight_levels=64, precision="fp8")(to_ir(model))


def test_in_fp8_pairs_stand_behind_a_pool_for_an_engine_whose_pools_take_no_fp8_and_values_are_the_same():
    net = nets.Net(channels=16, opset=19)
    pool = net.add("MaxPool", [net.conv("data", "a")], "pool", 4, kernel_shape=[2, 2], strides=[2, 2])
    net.conv(net.conv(pool, "b"), "c", leaky=False)
    model = net.model("c")
    table = CalibrationTable(dict.fromkeys(nets.ones(model), 0.02))
    before, behind = (
        quantize(model, table, precision="fp8", float_first=False, placement=Placement(fp8_pools=pools))
        for pools in (True, False)
    )
    assert nets.producers(before)["pool"].input[0] == "a_leaky_dequantized"
    assert nets.producers(behind)["pool"].input[0] == "a_leaky"
    assert nets.producers(behind)["b"].input[0] == "pool_dequantized"
    x = image(model)
    results = [np.asarray(ReferenceEvaluator(each).run(["c"], {"data": x})) for each in (before, behind)]
    np.testing.assert_array_equal(*results)
    assert np.ptp(results[1]) > 0


def test_in_int8_pools_hand_codes_on_whatever_an_engine_does_in_fp8():
    model = nets.tiny_yolo()
    table = CalibrationTable(dict.fromkeys(nets.ones(model), 0.02))
    names = [
        nets.quantized_names(quantize(model, table, placement=placement))
        for placement in (None, Placement(fp8_pools=False))
    ]
    assert names[0] == names[1]


def test_in_int8_a_pair_stands_behind_a_pool_that_a_slice_reads_where_an_engine_wants_it():
    net = nets.Net(channels=16, opset=19)
    pool = net.add("MaxPool", [net.conv("data", "a")], "pool", 4, kernel_shape=[2, 2], strides=[2, 2])
    bounds = [net.constant(name, np.array([value])) for name, value in (("from", 0), ("to", 2), ("axis", 1))]
    part = net.add("Slice", [pool, *bounds], "part", 2)
    net.conv(net.add("Concat", [part, net.conv(pool, "b")], "joined", 6, axis=1), "c")
    net.conv("c_leaky", "d", leaky=False)
    model = net.model("d")
    table = CalibrationTable(dict.fromkeys(nets.ones(model), 0.02))
    before, behind = (quantize(model, table, placement=Placement(sliced_pools=pools)) for pools in (True, False))
    assert nets.producers(before)["pool"].input[0] == "a_leaky_dequantized"
    producers = nets.producers(behind)
    assert producers["pool"].input[0] == "a_leaky"
    assert producers["b"].input[0] == producers["part"].input[0] == "pool_dequantized"
    x = image(model)
    results = [run(each, x, ["d"])["d"] for each in (before, behind)]
    np.testing.assert_array_equal(*results)
