from __future__ import annotations

import numpy as np
import onnx
import pytest

from pytrtplugins.passes import DropRepeatedPairs, to_ir, to_proto
from tests.passes.nets import Net, path_up, photo, quantized_names, run

ZERO = np.int8(0)


def pairs_net(between="Transpose", scales=(0.02, 0.02), zeros=(ZERO, ZERO), outputs=("y",)):
    """data → Q/DQ → something → Q/DQ → y."""
    net = Net()
    x = "data"
    for number, (scale, zero) in enumerate(zip(scales, zeros, strict=True)):
        codes = [net.constant(f"s{number}", np.float32(scale)), net.constant(f"z{number}", zero)]
        net.add("QuantizeLinear", [x, *codes], f"q{number}")
        net.add("DequantizeLinear", [f"q{number}", *codes], f"d{number}")
        x = f"d{number}"
        if number == 0 and between:
            x = net.add(between, [x], "between")
    net.add("Relu", [x], "y")
    return net.model(*outputs)


def dropped(model):
    ir_model = to_ir(model)
    result = DropRepeatedPairs()(ir_model)
    return to_proto(ir_model), result.modified


@pytest.mark.parametrize("between", [None, "Transpose", "Identity", "Flatten"])
def test_the_second_pair_goes_and_no_value_changes(between):
    model = pairs_net(between)
    changed, modified = dropped(model)
    onnx.checker.check_model(changed)
    assert modified
    assert quantized_names(changed) == ["data"]
    assert (
        path_up(changed, "y", 3)[1:]
        == ([between] if between else []) + ["DequantizeLinear", "QuantizeLinear"][: 1 + (not between)]
    )
    x = photo(model) * 6 - 3
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"scales": (0.02, 0.03)},
        {"zeros": (ZERO, np.int8(1))},
        {"zeros": (ZERO, np.uint8(0))},
        {"between": "Relu"},
        {"outputs": ("y", "d1")},
    ],
)
def test_another_scale_or_a_computation_between_keeps_both_pairs(arguments):
    model = pairs_net(**arguments)
    changed, modified = dropped(model)
    assert not modified
    assert len(quantized_names(changed)) == 2
