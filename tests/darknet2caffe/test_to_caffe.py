from __future__ import annotations

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

from darknet2caffe import read_network, to_caffe, to_onnx, write_darknet
from darknet2caffe.caffe_schema import messages
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.errors import UsageError
from pytrtplugins.layers import Region, Reorg, Yolo
from tests.darknet2caffe.networks import first_layers, image, published, relative_error, run

NET = "[net]\nwidth=12\nheight=8\nchannels=4\n"
EXPRESSIBLE = """
[conv]
filters=8
size=3
pad=1
batch_normalize=1
activation=leaky
[maxpool]
size=2
stride=2
[conv]
filters=8
groups=8
size=3
stride=1
pad=1
batch_normalize=1
activation=relu
[conv]
filters=8
activation=logistic
[shortcut]
from=-3
[upsample]
stride=2
[route]
layers=-1,0
[dropout]
[maxpool]
size=3
stride=1
"""


def small(layers: str):
    return read_network(parse_cfg(NET + layers, "small.cfg")).with_random_weights()


def opencv(network, prefix, x, **options):
    """OpenCV 4's caffe importer: the last layer's output."""
    text, binary = to_caffe(network, prefix, **options)
    net = cv2.dnn.readNetFromCaffe(str(text), str(binary))
    net.setInput(x, "data")
    return net.forward()


def last_output(network, x, **options):
    model = to_onnx(network, **options)
    return run(model, x)[model.graph.output[-1].name]


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("bn_eps", ["darknet-cpu", "darknet-gpu"])
def test_opencv_computes_what_the_onnx_file_says(tmp_path, fold, bn_eps):
    net = small(EXPRESSIBLE)
    x = image(net)
    expected = last_output(net, x, bn_eps=bn_eps)
    assert relative_error(opencv(net, tmp_path / "a", x, fold=fold, bn_eps=bn_eps), expected) < 1e-5


@pytest.mark.parametrize("activation", ["relu", "leaky"])
def test_activations_can_be_exchanged(tmp_path, activation):
    net = small(EXPRESSIBLE)
    x = image(net)
    found = opencv(net, tmp_path / "a", x, activation=activation)
    assert relative_error(found, last_output(net, x, activation=activation)) < 1e-5
    assert relative_error(found, last_output(net, x)) > 1e-4


@pytest.mark.parametrize(
    "layers", ["[avgpool]\n[softmax]\n", "[conv]\nfilters=2\n[dropout]\n", "[conv]\n[conv]\n[route]\nlayers=0\n"]
)
def test_classifiers_and_unchanged_outputs_are_written(tmp_path, layers):
    net = small(layers)
    x = image(net)
    assert relative_error(opencv(net, tmp_path / "a", x), last_output(net, x)) < 1e-6


@pytest.mark.parametrize(("name", "layers"), [("yolov2-tiny-voc", 11), ("yolov3-tiny", 10)])
def test_opencv_gives_darknets_trunk(tmp_path, libdarknet, name, layers):
    _check_trunk(tmp_path, libdarknet, first_layers(published(name), layers))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layers"), [("yolov2-voc", 27), ("darknet19", 26), ("data/pretrained/yolo-fastest-1.1.cfg", 121)]
)
def test_opencv_gives_darknets_trunk_of_larger_networks(tmp_path, libdarknet, name, layers):
    _check_trunk(tmp_path, libdarknet, first_layers(published(name), layers))


def _check_trunk(folder, libdarknet, net):
    net = net.with_random_weights(3)
    write_darknet(net, folder / "a.cfg", folder / "a.weights")
    x = image(net)
    with libdarknet.load(folder / "a.cfg", folder / "a.weights") as oracle:
        expected = oracle.predict(x[0])
    for fold in (True, False):
        assert relative_error(opencv(net, folder / "a", x, fold=fold), expected) < 1e-5


@pytest.mark.parametrize("width", [10, 11, 12, 13])
@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [(2, 2, 1), (3, 2, 2), (3, 1, 2), (5, 2, 4), (3, 3, 0), (2, 1, 1), (3, 3, 2), (5, 3, 3)],
)
def test_pooling_is_right_or_refused_by_name(tmp_path, width, size, stride, padding):
    pool = f"[maxpool]\nsize={size}\nstride={stride}\npadding={padding}\n"
    net = read_network(
        parse_cfg(f"[net]\nwidth={width}\nheight=12\nchannels=2\n{pool}", "pool.cfg")
    ).with_random_weights()
    x = -1 - image(net)
    try:
        found = opencv(net, tmp_path / "a", x)
    except UsageError as error:
        refusal = str(error)
    else:
        np.testing.assert_array_equal(found, last_output(net, x))
        return
    assert "layer 0 (maxpool, line 5 of pool.cfg)" in refusal
    assert "caffe's pooling gives" in refusal


def test_the_uneven_padding_of_the_tiny_networks_is_refused(tmp_path):
    net = small("[maxpool]\nsize=2\nstride=1\n")
    with pytest.raises(UsageError, match=r"layer 0 .*darknet pads unevenly") as caught:
        to_caffe(net, tmp_path / "a")
    assert caught.value.layer == 0
    assert list(tmp_path.iterdir()) == []


def test_the_common_pooling_is_written(tmp_path):
    net = small("[maxpool]\nsize=2\nstride=2\n")
    assert opencv(net, tmp_path / "a", image(net)).shape == (1, 4, 4, 6)


def test_softmax_that_caffe_lacks_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no temperature"):
        to_caffe(small("[avgpool]\n[softmax]\ntemperature=2\n"), tmp_path / "a")


def test_plugins_are_layers_of_their_own_type_with_their_fields(tmp_path):
    net = small(
        "[reorg]\nstride=2\n[conv]\nfilters=16\n[region]\nclasses=3\nnum=2\nanchors=1,2,3,4\nsoftmax=1\n"
        "[route]\nlayers=1\n[yolo]\nclasses=3\nnum=3\nmask=0,2\nanchors=1,2,3,4,5,6\n"
    )
    text, binary = to_caffe(net, tmp_path / "a")
    schema = messages((Region, Reorg, Yolo))
    proto = text_format.Parse(text.read_text(), schema["NetParameter"]())
    layers = {layer.name: layer for layer in proto.layer}
    assert (layers["0_reorg"].type, layers["0_reorg"].reorg_param.stride) == ("Reorg", 2)
    region = layers["2_region"].region_param
    assert (list(region.anchors), region.classes, region.num, region.softmax) == ([1, 2, 3, 4], 3, 2, True)
    assert list(layers["4_yolo"].yolo_param.mask) == [0, 2]
    assert list(layers["4_yolo"].bottom) == ["1_convolutional"]
    stored = schema["NetParameter"]()
    stored.ParseFromString(binary.read_bytes())
    weights, bias = next(layer for layer in stored.layer if layer.name == "1_convolutional").blobs
    assert list(weights.shape.dim) == [16, 16, 1, 1]
    np.testing.assert_array_equal(np.frombuffer(bias.data, "<f4"), net.weights.layers[1]["biases"])


@pytest.mark.parametrize("options", [{"batch": "dynamic"}, {"batch": 0}, {"activation": "elu"}, {"bn_eps": "x"}])
def test_unknown_options_are_refused(tmp_path, options):
    with pytest.raises(UsageError):
        to_caffe(small("[avgpool]\n"), tmp_path / "a", **options)


def test_batch_and_input_size_are_written(tmp_path):
    net = small("[conv]\n")
    x = image(net.with_input_size(6, 6), batch=2)
    assert opencv(net, tmp_path / "a", x, batch=2, input_size=(6, 6)).shape == (2, 1, 6, 6)
