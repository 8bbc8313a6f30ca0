"""AddedBiases: which convolutions it parts from their bias, and that no value changes."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.added_biases import AddedBiases
from pytrtplugins.passes import to_ir, to_proto
from tests.passes.nets import Net, image, passed, run


def biased_net(batch="N", bias="constant", op="Conv", quantized=True):
    net = Net()
    net.input[0] = batch
    weights = np.random.default_rng(0).standard_normal((3, 3, 3, 3)).astype(np.float32)
    operands = ["data", net.constant("w", weights)]
    if bias:
        operands.append(net.constant("b", np.float32([1, -2, 3])))
    if bias == "computed":
        operands[2] = net.add("ReduceMean", ["data", net.constant("axes", np.array([0, 2, 3]))], "mean", keepdims=0)
    outputs = [net.add(op, operands, "y", 3)]
    if quantized:
        scale, zero = net.constant("scale", np.float32(0.1)), net.constant("zero", np.int8(0))
        codes = net.add("QuantizeLinear", ["data", scale, zero], "codes")
        outputs.append(net.add("DequantizeLinear", [codes, scale, zero], "rounded"))
    return net.model(*outputs)


@pytest.mark.parametrize("bias", ["constant", "computed"])
def test_an_add_behind_the_convolution_gives_the_same_values(bias):
    model = biased_net(bias=bias)
    changed, modified = passed(model, AddedBiases())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    (convolution,) = (node for node in changed.graph.node if node.op_type == "Conv")
    assert len(convolution.input) == 2
    assert convolution.name == "y"
    assert "Add" in [node.op_type for node in changed.graph.node]
    x = image(model)
    np.testing.assert_allclose(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"], atol=1e-5)


@pytest.mark.parametrize("options", [{"batch": 2}, {"bias": None}, {"op": "ConvTranspose"}, {"quantized": False}])
def test_others_stay(options):
    model = biased_net(**options)
    assert passed(model, AddedBiases()) == (to_proto(to_ir(model)), False)
