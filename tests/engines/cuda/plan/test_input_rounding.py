"""What networks round their inputs to, as the plan tells it."""

import numpy as np
import pytest

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.plan.input_rounding import InputRounding, find_input_rounding
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import host_execution
from tests.passes.nets import Net


def data(channels=3):
    return {"data": np.random.default_rng(0).random((1, channels, 8, 8), dtype=np.float32)}


def rounded(model, float_type=DType.FLOAT16, inputs=None, disable=()):
    inputs = inputs or data()
    return find_input_rounding(host_execution(prepare(model), inputs, float_type, disable).plan, "data")


def two_layers(filters=16):
    net = Net()
    return net.model(net.conv(net.conv("data", "first", filters), "last", 8))


def test_a_stem_in_float16_rounds_to_float16_and_one_in_float32_does_not():
    found = rounded(two_layers())
    assert (found.dtype, found.scale) == (DType.FLOAT16, 1.0)
    assert rounded(two_layers(), DType.FLOAT32) is None


def calibrated():
    net = Net(opset=19)
    model = prepare(net.model(net.conv(net.conv(net.conv("data", "first", 16), "second", 8), "last", 4, leaky=False)))
    return model, calibrate(model, MinMaxCalibrator([data()]), engine="reference", progress=False)


def test_a_stem_in_int8_rounds_to_codes_of_the_scale():
    model, table = calibrated()
    found = rounded(quantize(model, table), DType.FLOAT32)
    assert (found.dtype, found.scale) == (DType.INT8, float(table["data"]))


def test_a_stem_in_fp8_rounds_to_codes_that_the_host_does_not_make():
    model, table = calibrated()
    quantized = quantize(model, table, float_first=False, precision="fp8")
    execution = host_execution(quantized, data(), DType.FLOAT32)
    (stem,) = (step for step in execution.plan.steps if step.attributes.get("image"))
    assert stem.attributes["x_scale"]
    assert find_input_rounding(execution.plan, "data") is None


def test_a_stem_that_writes_fp8_rounds_its_image_to_float16():
    model, table = calibrated()
    quantized = quantize(model, table, precision="fp8")
    execution = host_execution(quantized, data(), DType.FLOAT16)
    (stem,) = (step for step in execution.plan.steps if step.attributes.get("image"))
    assert not stem.attributes["x_scale"]
    assert execution.plan.tensors[stem.outputs[0]].format.dtype is DType.FLOAT8E4M3FN
    assert find_input_rounding(execution.plan, "data") == InputRounding(DType.FLOAT16)
    assert rounded(quantized, DType.FLOAT32) is None


@pytest.mark.parametrize("disable", [(), ("stem",)])
def test_an_input_that_something_else_reads_too_is_not_rounded(disable):
    net = Net()
    first = net.conv("data", "first", 16)
    model = net.model(net.conv(first, "last", 8), net.add("Sigmoid", ["data"], "other"))
    assert rounded(model, disable=disable) is None


def test_an_input_that_a_pass_over_it_casts_is_not_rounded():
    assert rounded(two_layers(filters=24)) is None  # no stem
