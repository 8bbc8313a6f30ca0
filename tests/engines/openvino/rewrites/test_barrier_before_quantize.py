import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.barrier_before_quantize import BarrierBeforeQuantize
from pytrtplugins.passes import to_ir, to_proto
from tests.passes.nets import Net, image, passed, path_up, producers, run

MIXED = np.float32([[[1]], [[-2]], [[3]]])


def quantized_net(*steps, domain=""):
    """Operators with constants, and Q/DQ behind them; a constant may stand before the tensor."""
    net, x = Net(), "data"
    for index, (op, *operands, first) in enumerate(steps):
        names = [net.constant(f"c{index}", np.asarray(value)) for value in operands]
        x = net.add(op, [*names, x] if first else [x, *names], f"t{index}", 3)
    codes = [net.constant("scale", np.float32(0.02)), net.constant("zero", np.int8(0))]
    y = net.add("DequantizeLinear", [net.add("QuantizeLinear", [x, *codes], "codes", domain=domain), *codes], "values")
    return net.model(net.add("Neg", [y], "y"))


@pytest.mark.parametrize(
    "steps",
    [
        [("Mul", MIXED, False)],
        [("Mul", MIXED, True)],
        [("Div", MIXED, False)],
        [("Mul", abs(MIXED), False), ("Neg", False)],
        [("Mul", np.float32(-1), False), ("Identity", False), ("Mul", abs(MIXED), True)],
    ],
)
def test_max_stands_before_the_quantization_and_changes_no_value(steps):
    model = quantized_net(*steps)
    changed, modified = passed(model, BarrierBeforeQuantize())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    assert path_up(changed, "codes", 3)[:3] == ["QuantizeLinear", "Max", steps[-1][0]]
    assert list(producers(changed)["codes"].input)[1:] == ["scale", "zero"]
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


@pytest.mark.parametrize(
    "model",
    [
        quantized_net(("Mul", abs(MIXED), False)),
        quantized_net(("Mul", np.float32(-2), False)),
        quantized_net(("Neg", False)),
        quantized_net(("Div", MIXED, True)),
        quantized_net(("Mul", MIXED, False), ("Relu", False)),
        quantized_net(("Mul", MIXED, False), ("Add", MIXED, False)),
        quantized_net(("Mul", MIXED, False), domain="elsewhere"),
    ],
)
def test_everything_else_stays(model):
    assert passed(model, BarrierBeforeQuantize()) == (to_proto(to_ir(model)), False)


@pytest.mark.parametrize(
    ("steps", "apart"),
    [
        ([("Add", MIXED, False)], True),
        ([("Sub", MIXED, True)], True),
        ([("Neg", False)], True),
        ([("Relu", False)], False),
        ([], False),
    ],
)
def test_every_product_and_sum_is_kept_apart_if_that_is_asked(steps, apart):
    model = quantized_net(*steps)
    changed, modified = passed(model, BarrierBeforeQuantize(every=True))
    assert modified == apart
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])
