"""ScalesApart: where Max stands before sums, and what it leaves alone."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.scales_apart import ScalesApart
from pytrtplugins.passes import to_ir, to_proto
from tests.passes.nets import Net, image, passed, path_up, run


def pair(net, x, scale):
    """QuantizeLinear and DequantizeLinear of a tensor."""
    constants = [net.constant(f"{x}_scale", np.float32(scale)), net.constant(f"{x}_zero", np.uint8(9))]
    net.add("QuantizeLinear", [x, *constants], f"{x}_codes")
    return net.add("DequantizeLinear", [f"{x}_codes", *constants], f"{x}_values")


def sum_net(op="Add", scales=(1.0, 1e-5), step="", behind=None):
    """A sum of two quantized tensors; one operator before it, and one and a quantization behind it."""
    net = Net()
    operands = []
    for name, scale in zip("ab", scales, strict=True):
        x = net.add("Abs", ["data"], name)
        x = x if scale is None else pair(net, x, scale)
        operands.append(net.add(step, [x], f"{name}_step") if step else x)
    y = net.add(op, operands, "y")
    if behind is None:
        return net.model(y)
    return net.model(pair(net, net.add("Relu", [y], "z"), behind))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"op": "Sub"},
        {"scales": (1e-5, 1)},
        {"step": "Neg"},
        {"scales": (1, None), "behind": 1e-5},
        {"scales": (1, 1), "behind": 1e-5},
    ],
)
def test_max_stands_before_the_larger_operand_and_changes_no_value(options):
    model = sum_net(**options)
    changed, modified = passed(model, ScalesApart())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    maxima = [node for node in changed.graph.node if node.op_type == "Max"]
    assert len(maxima) == sum(scale == 1 for scale in options.get("scales", (1, 0)))
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


@pytest.mark.parametrize(
    "options",
    [
        {"scales": (1, 0.001)},
        {"op": "Mul"},
        {"scales": (1, None)},
        {"scales": (None, None), "behind": 1e-5},
        {"scales": (0.001, 0.001), "behind": 1.0},
    ],
)
def test_others_stay(options):
    model = sum_net(**options)
    assert passed(model, ScalesApart()) == (to_proto(to_ir(model)), False)


def test_the_other_operand_keeps_its_place():
    assert path_up(passed(sum_net(), ScalesApart())[0], "y", 2)[:2] == ["Add", "Max"]
