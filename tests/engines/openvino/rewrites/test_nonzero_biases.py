import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.nonzero_biases import NonzeroBiases
from pytrtplugins.passes import quantize, to_ir, to_proto
from tests.passes.nets import Net, calibrated, constants, image, passed, producers, run


def quantized_net(bias=None, op="Conv", readers=("Neg", "Relu"), outputs=()):
    """A convolution that is quantized, and what reads its result."""
    net = Net(channels=16)
    weights = (
        np.random.default_rng(0).standard_normal((4, 16, 3, 3) if op == "Conv" else (16, 4, 3, 3)).astype(np.float32)
    )
    operands = [net.constant("w", weights)] + ([] if bias is None else [net.constant("b", np.float32(bias))])
    net.add(op, ["data", *operands], "x", 4)
    read = [net.add(reader, ["x"], f"y{index}") for index, reader in enumerate(readers)]
    return net.model(
        *(net.conv(y, f"{y}_conv", leaky=False) for y in read), *outputs
    )  # without a layer behind it, x stays in float


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("bias", [None, [0] * 4])
@pytest.mark.parametrize(("readers", "outputs"), [(("Neg", "Relu"), ()), (("Neg",), ("x",)), (("Neg",), ())])
def test_a_convolution_gets_a_bias_that_changes_no_value(op, bias, readers, outputs):
    model = quantized_net(bias, op, readers, outputs)
    quantized = quantize(model, calibrated(model))
    changed, modified = passed(quantized, NonzeroBiases())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    given = constants(changed)[producers(changed)["x"].input[2]]
    assert given.shape == (4,)
    assert given.dtype == np.float32
    assert given.all()  # zeros would be removed again
    x = image(model)
    for name, value in run(changed, x).items():
        if name in run(quantized, x):
            np.testing.assert_array_equal(value, run(quantized, x)[name])


def test_others_stay():
    for model, is_quantized in (
        (quantized_net([0, 0, 0.1, 0]), True),
        (quantized_net(), False),
    ):  # one has a bias, one is float
        given = quantize(model, calibrated(model)) if is_quantized else model
        assert passed(given, NonzeroBiases()) == (to_proto(to_ir(given)), False)
