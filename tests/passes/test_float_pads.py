from __future__ import annotations

import numpy as np
import onnx
import pytest

from pytrtplugins.passes import FloatPads, quantize, to_ir, to_proto
from tests.passes.nets import Net, calibrated, path_up, photo, producers, run


def padded_net(op="Pad", **attributes):
    """A border around values that MaxPool copies from quantized ones."""
    net = Net()
    pool = net.add("MaxPool", [net.conv("data", "a")], "pool", kernel_shape=[2, 2], strides=[2, 2])
    pads = [net.constant("pads", np.array([0, 0, 1, 0, 0, 0, 0, 0]))] if op == "Pad" else []
    border = net.add(op, [pool, *pads], "border", **attributes)
    net.conv(net.add("Concat", [net.conv(border, "b"), net.conv(border, "c")], "cat", 8, axis=1), "d")
    net.conv(net.conv(pool, "e"), "f")
    return net.model("d_leaky", "f_leaky")


def with_float_pads(model):
    ir_model = to_ir(model)
    result = FloatPads()(ir_model)
    return to_proto(ir_model), result.modified


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Pad", {}), ("AveragePool", {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1})],
)
def test_max_stands_before_a_border_and_changes_no_value(op, attributes):
    model = padded_net(op, **attributes)
    quantized = quantize(model, calibrated(model))
    changed, modified = with_float_pads(quantized)
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    assert path_up(changed, "border", 3) == [op, "Max", "MaxPool"]
    assert producers(changed)["e"].input[0] == "pool"
    x, outputs = photo(model), ["border", "d_leaky", "f_leaky"]
    for name, value in run(changed, x, outputs).items():
        np.testing.assert_array_equal(value, run(quantized, x, [name])[name])


def test_averages_that_do_not_count_their_border_stay():
    model = padded_net("AveragePool", kernel_shape=[3, 3], pads=[1] * 4)
    quantized = quantize(model, calibrated(model))
    assert with_float_pads(quantized) == (quantized, False)


def test_float_models_stay():
    model = padded_net()
    assert with_float_pads(model) == (to_proto(to_ir(model)), False)
