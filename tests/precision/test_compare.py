"""The first tensor that differs is named, with its worst elements."""

import re

import numpy as np
import pytest
from onnx import numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import UsageError
from pytrtplugins.passes import LayerPrecision, Precisions, layer_names
from pytrtplugins.precision import Network, compare, parse_tolerance
from pytrtplugins.precision.compare import Comparison, TensorDifference
from tests.engines.networks import Affine, Complete, Witness, conv_net, image
from tests.engines.operators import model_of
from tests.precision.planted import chain, samples

CLOSE = parse_tolerance("atol=1e-4,rtol=1e-4")


def changed(model, name, index, value):
    copy = type(model)()
    copy.CopyFrom(model)
    tensor = next(tensor for tensor in copy.graph.initializer if tensor.name == name)
    array = np.array(numpy_helper.to_array(tensor))
    array[index] += value
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    return copy


def test_one_bias_that_differs_is_found_in_the_middle_of_a_network():
    model = chain()
    other = changed(model, "conv3_b", 2, 0.5)
    result = compare(
        ptp.build(model, engine="reference"), ptp.build(other, engine="reference"), samples(model), CLOSE, worst=3
    )
    first = result.first_difference
    assert (first.name, first.op_type) == ("conv3", "Conv")
    assert len(first.worst) == 3
    for (_, channel, _, _), one, two in first.worst:
        assert channel == 2
        assert two - one == pytest.approx(0.5, abs=1e-5)
    errors = {tensor.name: tensor.error for tensor in result.tensors}
    assert errors["conv2_leaky"] == 0
    assert min(errors["conv4"], errors["head"]) > 1
    assert "first difference: 'conv3', given by 'conv3' (Conv)" in str(result)
    page = result._repr_html_()
    assert re.findall(r"<th [^>]*>(.*?)</th>", page) == [
        "tensor that differs",
        "layer",
        "operator",
        "error / tolerance",
    ]
    rows = [(t.name, t.layer, t.op_type, f"{t.error:.4g}") for t in result.tensors if t.error > 1]
    assert re.findall(r"<td[^>]*>(.*?)</td>", page) == [cell for row in rows for cell in row]
    whole = compare(ptp.build(model, engine="reference"), ptp.build(other, engine="reference"), samples(model), CLOSE)
    assert len(whole.first_difference.worst) == 5


@pytest.mark.parametrize(("error", "differs"), [(1.0, False), (1.01, True), (float("nan"), True)])
def test_an_error_of_1_is_no_difference(error, differs):
    comparison = Comparison((TensorDifference("t", "l", "Relu", error),), (), (), None)
    assert (comparison.first_difference is not None) == differs == ("<td" in comparison._repr_html_())


def test_two_engines_that_agree_say_so():
    model = chain()
    result = compare(ptp.build(model, engine="reference"), ptp.build(model, engine="cpu"), samples(model), CLOSE)
    assert result.first_difference is None
    assert str(result).startswith("11 tensors agree")
    assert (result.only_in_first, result.only_in_second) == ((), ())


@pytest.mark.parametrize("order", [1, -1])
def test_the_sample_that_differs_most_is_told_whichever_it_is(order):
    arrays = [np.float32([[8, -20]]), np.float32([[7, 0]]), np.float32([[1, 2]])][::order]
    engines = [
        ptp.build(model_of("Clip", [arrays[0], np.float32(-10), np.float32(most)], {}), engine="reference")
        for most in (10, 5)
    ]
    (tensor,) = compare(*engines, [{"x0": array} for array in arrays], parse_tolerance("atol=1,rtol=0")).tensors
    assert (tensor.name, tensor.op_type, tensor.error) == ("y0", "Clip", 3)
    assert tensor.worst == (((0, 0), 8, 5),)


def test_engines_are_compared_in_the_forms_that_they_run():
    model, name = conv_net(Complete()), "test.engines::Complete"
    engines = [
        ptp.build(model, engine=engine, plugins={name: form})
        for engine, form in (("reference", "compute"), ("cpu", "enqueue"))
    ]
    Witness.calls.clear()
    assert compare(*engines, [{"data": image()}], CLOSE, limit_bytes=1).first_difference is None
    assert set(Witness.calls) == {"compute", "enqueue"}


def test_bounded_memory_gives_the_same():
    model = chain()
    engines = [ptp.build(net, engine="reference") for net in (model, changed(model, "conv2_b", 0, 1.0))]
    whole, parts = (compare(*engines, samples(model), CLOSE, limit_bytes=limit) for limit in (1 << 30, 1))
    assert whole == parts


def test_an_int8_engine_is_compared_with_float32_by_name():
    model = chain()
    table = ptp.engines.calibrate(
        model, ptp.calibration.MinMaxCalibrator(samples(model)), engine="reference", progress=False
    )
    engines = [
        ptp.build(model, engine="reference"),
        ptp.build(model, engine="reference", precision="int8", calibration=table),
    ]
    result = compare(*engines, samples(model), parse_tolerance("cosine=0.9"))
    assert result.first_difference is None
    assert all(tensor.error > 0 for tensor in result.tensors if tensor.name != "data")
    assert any("quantized" in name or "dequantized" in name for name in result.only_in_second)


def test_a_plugin_that_is_wrong_in_the_network_is_named():
    engines = [ptp.build(conv_net(Affine(factor)), engine="reference") for factor in (2.0, 2.5)]
    x = np.random.default_rng(0).random((1, 3, 8, 8), dtype=np.float32)
    assert compare(*engines, [{"data": x}], CLOSE).first_difference.layer == "plugin0"


def test_networks_without_a_common_name_are_refused():
    net = conv_net()
    model = type(net)()
    model.CopyFrom(net)
    for node in model.graph.node:
        node.output[0] += "_x"
        node.input[0] += "_x" if node.input[0] != "data" else ""
    model.graph.output[0].name += "_x"
    with pytest.raises(UsageError, match="share no tensor"):
        compare(ptp.build(net, engine="reference"), ptp.build(model, engine="reference"), [], CLOSE)


def test_layers_in_float16_are_compared_too():
    model = chain()
    network = Network(model, "reference")
    precisions = Precisions("fp16", network.digest, layer_names(network.model), {"conv3": LayerPrecision("fp32")})
    engines = [ptp.build(model, engine="reference", precision=kind) for kind in ("fp32", precisions)]
    result = compare(*engines, samples(model), CLOSE)
    assert result.first_difference.name == "conv1"
    assert (len(result.tensors), result.only_in_first) == (11, ())
