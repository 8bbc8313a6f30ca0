"""Codes of 8 bits: what weights and scales become in FP8, and what a model with them says."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from pytrtplugins.errors import ModelError, UsageError
from pytrtplugins.passes import CODES, Quantize, quantize, to_ir
from pytrtplugins.passes.codes import FP8, INT8, codes_of, quantize_weights
from tests.measures import sqnr
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


def test_halves_become_even_codes_and_small_values_keep_their_steps():
    values = np.float32([17, 19, 2**-10, 3 * 2**-10, 2**-9, 447, 449, 464, 1e6, -1e6])
    expected = [16, 20, 0, 2 * 2**-9, 2**-9, 448, 448, 448, 448, -448]
    assert FP8.rounded(values).astype(np.float64).tolist() == expected


@given(
    weights=arrays.arrays(np.float32, (3, 2, 2), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    axis=st.integers(0, 2),
)
def test_weights_in_fp8_are_within_a_sixteenth_of_themselves_or_half_a_least_step(weights, axis):
    codes, scales = quantize_weights(weights, axis, codes=FP8)
    assert codes.dtype == ml_dtypes.float8_e4m3fn
    scale = scales.reshape([-1 if k == axis else 1 for k in range(3)]).astype(np.float64)
    error = np.abs(weights - codes.astype(np.float64) * scale)
    assert (error <= np.maximum(np.abs(weights) / 16, scale * 2**-10) * (1 + 1e-5)).all()


def test_the_largest_weight_of_each_channel_is_the_largest_code():
    weights = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    codes, scales = quantize_weights(weights, 0, codes=FP8)
    np.testing.assert_array_equal(np.abs(codes.astype(np.float32)).max(axis=1), 448)
    np.testing.assert_allclose(scales, np.abs(weights).max(axis=1) / 448, rtol=1e-7)


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
        np.testing.assert_allclose(values[name], steps[name] * 127 / 448, rtol=3e-7, err_msg=name)
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
    found = [sqnr(np.asarray(ReferenceEvaluator(each).run(["e"], {"data": x})[0]), expected) for each in made]
    assert found[0] > found[1]
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
