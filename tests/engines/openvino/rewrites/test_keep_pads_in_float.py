import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.keep_pads_in_float import KeepPadsInFloat
from pytrtplugins.passes import quantize, to_ir, to_proto
from tests.passes.nets import Net, calibrated, image, passed, path_up, producers, run


def padded_net(op="Pad", **attributes):
    """A border around values that MaxPool copies from quantized ones."""
    net = Net()
    pool = net.add("MaxPool", [net.conv("data", "a")], "pool", kernel_shape=[2, 2], strides=[2, 2])
    pads = [net.constant("pads", np.array([0, 0, 1, 0, 0, 0, 0, 0]))] if op == "Pad" else []
    border = net.add(op, [pool, *pads], "border", **attributes)
    net.conv(net.add("Concat", [net.conv(border, "b"), net.conv(border, "c")], "cat", 8, axis=1), "d")
    net.conv(net.conv(pool, "e"), "f")
    return net.model("d_leaky", "f_leaky")


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Pad", {}), ("AveragePool", {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1})],
)
def test_max_stands_before_a_border_and_changes_no_value(op, attributes):
    model = padded_net(op, **attributes)
    quantized = quantize(model, calibrated(model))
    changed, modified = passed(quantized, KeepPadsInFloat())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    assert path_up(changed, "border", 3) == [op, "Max", "MaxPool"]
    assert producers(changed)["e"].input[0] == "pool"
    x, outputs = image(model), ["border", "d_leaky", "f_leaky"]
    for name, value in run(changed, x, outputs).items():
        np.testing.assert_array_equal(value, run(quantized, x, [name])[name])


def test_averages_that_do_not_count_their_border_stay():
    model = padded_net("AveragePool", kernel_shape=[3, 3], pads=[1] * 4)
    quantized = quantize(model, calibrated(model))
    assert passed(quantized, KeepPadsInFloat()) == (quantized, False)


def test_float_models_stay():
    model = padded_net()
    assert passed(model, KeepPadsInFloat()) == (to_proto(to_ir(model)), False)


def border_net(op="Pad", domain="", quantized="", **attributes):
    """A border around dequantized values; ``quantized``: the domain of the DequantizeLinear."""
    net = Net()
    codes = [net.constant("s", np.float32(0.02)), net.constant("z", np.int8(0))]
    x = net.add("QuantizeLinear", ["data", *codes], "q")
    x = net.add("DequantizeLinear", [x, *codes], "d", domain=quantized)
    pads = [net.constant("pads", np.array([0, 0, 1, 0, 0, 0, 0, 0]))] if op == "Pad" else []
    return net.model(net.add("Neg", [net.add(op, [x, *pads], "border", domain=domain, **attributes)], "y"))


@pytest.mark.parametrize(
    "model",
    [
        border_net("Pad", domain="elsewhere"),
        border_net("Pad", quantized="elsewhere"),
        border_net("MaxPool", kernel_shape=[3, 3], pads=[1] * 4),
        border_net("AveragePool", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=0),
        border_net("AveragePool", domain="elsewhere", count_include_pad=1),
        border_net("Softmax"),
    ],
)
def test_everything_else_stays(model):
    assert passed(model, KeepPadsInFloat()) == (to_proto(to_ir(model)), False)


def test_the_inserted_tensor_has_the_shape_and_type_of_what_it_copies():
    model = border_net()
    changed, modified = passed(model, KeepPadsInFloat())
    assert modified
    made = producers(changed)["border"].input[0]
    infos = {info.name: info.type for info in changed.graph.value_info}
    assert infos[made] == infos["d"] == {info.name: info.type for info in model.graph.value_info}["d"]
    assert list(producers(changed)[made].input) == ["d", "d"]
    assert list(producers(changed)["border"].input)[1] == "pads"
