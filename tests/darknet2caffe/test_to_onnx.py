from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from darknet2caffe import read_network, to_onnx
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.fold import batch_norm_form, folded_bias, folded_weights
from darknet2caffe.weights import Header
from pytrtplugins.errors import CfgError, UsageError
from tests.darknet2caffe.networks import image, network, run, session
from tests.engines.operators import literal, model_of
from tests.measures import relative_error

NET = "[net]\nwidth=6\nheight=4\nchannels=4\n"


def small(layers: str, seed: int = 0):
    return read_network(parse_cfg(NET + layers)).with_random_weights(seed)


def outputs(model, x):
    values = run(model, x)
    return [values[output.name] for output in model.graph.output]


def dims(value):
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_the_model_is_valid_and_names_its_tensors():
    model = to_onnx(network())
    onnx.checker.check_model(model)
    assert model.ir_version == 10
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 18, "darknet": 1}
    assert (model.graph.input[0].name, dims(model.graph.input[0])) == ("data", [1, 3, 48, 32])
    assert [(value.name, dims(value)) for value in model.graph.output] == [
        ("14_yolo", [1, 14, 24, 16]),
        ("19_region", [1, 16, 6, 4]),
        ("21_softmax", [1, 16, 1, 1]),
    ]


def test_every_layers_dims_are_those_that_run_gives():
    net = network()
    values = run(to_onnx(net, batch=2), image(net, batch=2))
    for layer in net.layers:
        assert values[net.tensor_name(layer.index)].shape == (2, *layer.dims)


def test_the_heads_fields_are_in_the_metadata():
    (entry,) = to_onnx(network()).metadata_props
    net = json.loads(entry.value)
    assert entry.key == "darknet.net"
    assert (net["width"], net["height"], net["channels"]) == (32, 48, 3)
    yolo, region, softmax = net["heads"]
    assert (yolo["output"], yolo["type"], yolo["classes"], yolo["mask"]) == ("14_yolo", "yolo", 2, [1, 2])
    assert yolo["anchors"] == [10, 14, 23, 27, 37, 58]
    assert (region["output"], region["anchors"], region["num"]) == ("19_region", [1, 2, 3, 4], 2)
    assert softmax == {"output": "21_softmax", "type": "softmax"}


@pytest.mark.parametrize("bn_eps", ["darknet-cpu", "darknet-gpu"])
def test_folding_changes_nothing(bn_eps):
    net = network()
    x = image(net)
    folded, plain = (outputs(to_onnx(net, fold=f, bn_eps=bn_eps), x) for f in (True, False))
    assert max(map(relative_error, folded, plain)) < 1e-5


def test_without_folding_batch_normalization_stays_a_node():
    count = [node.op_type for node in to_onnx(network(), fold=False).graph.node].count("BatchNormalization")
    assert count == 3
    assert "BatchNormalization" not in [node.op_type for node in to_onnx(network()).graph.node]


@pytest.mark.parametrize("variance", [0.0, 1e-12, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    ("bn_eps", "divisor"), [("darknet-cpu", lambda v: v**0.5 + 1e-6), ("darknet-gpu", lambda v: (v + 1e-5) ** 0.5)]
)
def test_both_forms_divide_as_darknet_does(variance, bn_eps, divisor):
    parameters = {
        name: np.array([value], np.float32)
        for name, value in [("biases", 3), ("scales", 2), ("rolling_mean", 5), ("rolling_variance", variance)]
    } | {"weights": np.ones((1, 1, 1, 1), np.float32)}
    expected = divisor(float(np.float32(variance)))
    weights, bias = folded_weights(parameters, bn_eps, axis=0), folded_bias(parameters, bn_eps)
    assert weights.item() == pytest.approx(2 / expected, rel=1e-6)
    assert bias.item() == pytest.approx(3 - 5 * 2 / expected, rel=1e-6)
    converted, epsilon = batch_norm_form(parameters, bn_eps)
    assert np.sqrt(float(converted.item()) + epsilon) == pytest.approx(expected, rel=1e-6)


def test_leaky_and_relu_can_be_exchanged():
    net = small("[conv]\nfilters=2\nactivation=leaky\n[conv]\nactivation=relu\n[conv]\nactivation=logistic\n")

    def operators(activation):
        return [node.op_type for node in to_onnx(net, activation=activation).graph.node if node.op_type != "Conv"]

    assert operators("as-is") == ["LeakyRelu", "Relu", "Sigmoid"]
    assert operators("relu") == ["Relu", "Relu", "Sigmoid"]
    assert operators("leaky") == ["LeakyRelu", "LeakyRelu", "Sigmoid"]


def test_a_dynamic_batch_has_a_name():
    net = network()
    model = to_onnx(net, batch="dynamic")
    onnx.checker.check_model(model)
    assert dims(model.graph.input[0]) == ["N", 3, 48, 32]
    assert dims(model.graph.output[0]) == ["N", 14, 24, 16]
    x = image(net, batch=3)
    together, alone = outputs(model, x), outputs(model, x[1:2])
    assert max(relative_error(a[1:2], b) for a, b in zip(together, alone, strict=True)) < 1e-6


def test_another_input_size_is_used_and_checked():
    net = network()
    assert dims(to_onnx(net, input_size=(64, 32)).graph.input[0]) == [1, 3, 32, 64]
    with pytest.raises(CfgError):
        to_onnx(net, input_size=(36, 36))


@pytest.mark.parametrize("layers", ["[conv]\n[dropout]\n", "[conv]\n[conv]\n[route]\nlayers=0\n", "[activation]\n"])
def test_a_last_layer_that_changes_nothing_is_still_an_output(layers):
    net = small(layers)
    model = to_onnx(net)
    onnx.checker.check_model(model)
    x = image(net)
    assert model.graph.output[0].name == net.layers[-1].name
    np.testing.assert_array_equal(outputs(model, x)[0], run(model, x)[net.tensor_name(len(net.layers) - 1)])


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(2, 2, 1), (2, 1, 1), (3, 1, 2), (3, 2, 2), (5, 1, 4), (2, 2, 0)]
)
def test_maxpool_ignores_what_is_outside(size, stride, padding):
    net = small(f"[maxpool]\nsize={size}\nstride={stride}\npadding={padding}\n")
    x = -1 - image(net)  # a padding of zeros would win
    (found,) = outputs(to_onnx(net), x)
    low = padding // 2
    for (i, j), value in np.ndenumerate(found[0, 0]):
        top, left = i * stride - low, j * stride - low
        assert value == x[0, 0, max(top, 0) : top + size, max(left, 0) : left + size].max()


def test_softmax_of_groups_is_over_each_part():
    net = small("[softmax]\ngroups=3\ntemperature=2\n")
    x = image(net)
    parts = np.exp(x.reshape(3, -1) / 2)
    (found,) = outputs(to_onnx(net), x)
    np.testing.assert_allclose(found.reshape(3, -1), parts / parts.sum(1, keepdims=True), rtol=1e-6)
    assert found.shape == x.shape


def test_upsampling_repeats_each_value():
    net = small("[upsample]\nstride=3\n")
    x = image(net)
    np.testing.assert_array_equal(outputs(to_onnx(net), x)[0], x.repeat(3, axis=2).repeat(3, axis=3))


@pytest.mark.parametrize("custom_layers", ["functions", "inline"])
def test_onnxruntime_runs_the_file_when_plugins_are_written_out(custom_layers):
    net = network()
    model = to_onnx(net, custom_layers=custom_layers)
    onnx.checker.check_model(model, full_check=custom_layers == "inline")
    x = image(net)
    found = session(model).run(None, {"data": x})
    assert max(map(relative_error, found, outputs(to_onnx(net), x))) < 1e-5


@pytest.mark.parametrize("layer", ["[local]\nfilters=2\nsize=3\n", "[shortcut]\nfrom=-1\nalpha=0.5\nbeta=2\n"])
def test_layers_of_several_operators_keep_their_names_apart_from_their_activations(layer):
    first = "[convolutional]\nfilters=4\nactivation=linear\n" if "shortcut" in layer else ""
    x = image(small(f"{first}{layer}activation=linear\n"))
    (linear,), (ramp,) = (
        outputs(to_onnx(small(f"{first}{layer}activation={kind}\n")), x) for kind in ("linear", "ramp")
    )
    np.testing.assert_allclose(ramp, linear * (linear > 0) + 0.1 * linear, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "gelu"},
        {"bn_eps": "caffe"},
        {"batch": 0},
        {"batch": "many"},
        {"custom_layers": "none"},
    ],
)
def test_unknown_options_are_refused(options):
    with pytest.raises(UsageError, match="expected"):
        to_onnx(network(), **options)


def test_a_network_without_weights_is_refused():
    net = network()
    with pytest.raises(UsageError, match="no weights"):
        to_onnx(replace(net, weights=None))


def test_the_same_network_gives_the_same_bytes():
    assert to_onnx(network()).SerializeToString() == to_onnx(network()).SerializeToString()
    assert network().weights.header == Header()


def test_the_factor_of_a_shortcut_is_one_number_where_maps_have_one_size():
    def constants(filters):
        text = f"[net]\nwidth=4\nheight=4\nchannels=3\n[conv]\nfilters={filters}\n[conv]\nfilters=4\n[shortcut]\nfrom=0\nalpha=.5\n"
        model = to_onnx(network(text))
        return [tensor.name for tensor in model.graph.initializer if tensor.name.startswith("2_shortcut")]

    assert "2_shortcut.one" in constants(3)
    for filters in (4, 5):
        assert "2_shortcut.one" not in constants(filters)


def test_a_reorg3d_is_onnxs_space_to_depth():
    """Of a map that is not square, with other channels than its stride."""
    net = read_network(parse_cfg("[net]\nwidth=6\nheight=4\nchannels=3\n[reorg3d]\nstride=2\n"), dialect="alexeyab")
    x = np.arange(72, dtype=np.float32).reshape(1, 3, 4, 6)
    (found,) = outputs(to_onnx(net), x)
    (wanted,) = literal(model_of("SpaceToDepth", [x], {"blocksize": 2}), {"x0": x})
    np.testing.assert_array_equal(found, wanted)
