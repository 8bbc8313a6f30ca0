"""Barriers before convolutions: where Max stands before convolutions, and what it leaves alone."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.barrier_before_conv import BarrierBeforeConv
from pytrtplugins.passes import to_ir, to_proto
from tests.passes.nets import Net, image, passed, path_up, run

PLACES = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
CHANNELS = np.array([[[1]], [[-2]], [[3]]], np.float32)


def scaled_net(*steps, last="Conv"):
    """Operators with constants, and a convolution or another operator behind them; a constant may stand before the tensor."""
    net, x = Net(size=3), "data"
    for index, (op, *operands, first) in enumerate(steps):
        names = [net.constant(f"c{index}", np.asarray(value)) for value in operands]
        x = net.add(op, [*names, x] if first else [x, *names], f"t{index}", 3)
    if last == "Conv":
        weights = net.constant("w", np.random.default_rng(0).standard_normal((3, 1, 3, 3)).astype(np.float32))
        return net.model(net.add("Conv", [x, weights], "y", group=3, pads=[1] * 4))
    return net.model(net.add(last, [x], "y"))


@pytest.mark.parametrize(
    "steps",
    [
        [("Mul", PLACES, False)],
        [("Mul", PLACES, True)],
        [("Div", PLACES, False)],
        [("Div", PLACES, True)],
        [("Mul", PLACES[:1], False)],
        [("Mul", PLACES[None, None, :, :1], False)],
        [("Mul", CHANNELS * PLACES, False)],
        [("Mul", PLACES, False), ("Identity", False)],
    ],
)
def test_max_stands_before_the_convolution_and_changes_no_value(steps):
    model = scaled_net(*steps)
    changed, modified = passed(model, BarrierBeforeConv())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    assert path_up(changed, "y", 3)[:2] == ["Conv", "Max"]
    x = image(model) + 0.5
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


def test_a_factor_that_is_computed_from_constants_is_one():
    net = Net(size=3)
    factor = net.add("Sqrt", [net.constant("c", PLACES)], "root", 3)
    x = net.add("Mul", ["data", factor], "t0")
    model = net.model(net.add("Conv", [x, net.constant("w", np.ones((3, 3, 3, 3), np.float32))], "y", pads=[1] * 4))
    model = onnx.shape_inference.infer_shapes(model)
    assert passed(model, BarrierBeforeConv())[1]


@pytest.mark.parametrize(
    "model",
    [
        scaled_net(("Mul", CHANNELS, False)),
        scaled_net(("Mul", np.float32(2), False)),
        scaled_net(("Mul", CHANNELS[None], True)),
        scaled_net(("Add", PLACES, False)),
        scaled_net(("Mul", PLACES, False), ("Relu", False)),
        scaled_net(("Mul", PLACES, False), last="Relu"),
        scaled_net(),
    ],
)
def test_everything_else_stays(model):
    assert passed(model, BarrierBeforeConv()) == (to_proto(to_ir(model)), False)


def test_a_factor_that_hangs_on_the_input_stays():
    net = Net(size=3)
    x = net.add("Mul", ["data", net.add("Sigmoid", ["data"], "gate")], "t0")
    weights = net.constant("w", np.ones((3, 3, 3, 3), np.float32))
    model = onnx.shape_inference.infer_shapes(net.model(net.add("Conv", [x, weights], "y", pads=[1] * 4)))
    assert not passed(model, BarrierBeforeConv())[1]
