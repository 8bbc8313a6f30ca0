"""Caffe files against libdarknet and onnxruntime, through OpenCV's caffe importer."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darknet2caffe import read_network, to_caffe, to_onnx
from darknet2caffe.caffe_schema import messages
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.weights import Header, Weights
from pytrtplugins.errors import CfgError, UsageError
from tests.darknet2caffe.caffe import PLUGINS, opencv, read_prototxt, run_opencv
from tests.darknet2caffe.networks import darknet_output, first_layers, image, published, run, sections
from tests.measures import relative_error

NET = "[net]\nwidth=12\nheight=8\nchannels=4\n"
EXPRESSIBLE = sections("""
[conv] filters=8 size=3 pad=1 batch_normalize=1 activation=leaky
[maxpool] size=2 stride=2
[conv] filters=8 groups=8 size=3 stride=1 pad=1 batch_normalize=1 activation=relu
[conv] filters=8 activation=logistic
[shortcut] from=-3
[upsample] stride=2
[route] layers=-1,0
[dropout]
[maxpool] size=3 stride=1
""")
CONV = "[conv]\nfilters=8\nsize=3\npad=1\nactivation=linear\n"
ACTIVATIONS = (
    *("linear", "leaky", "relu", "logistic", "loggy", "elu", "selu", "relie", "ramp", "tanh", "plse"),
    *("hardtan", "lhtan"),
)
FORK_ACTIVATIONS = ("mish", "swish", "relu6", "hard_mish", "gelu")
LAYERS = {
    "deconvolution": "[deconv]\nfilters=3\nsize=3\nstride=2\npad=1\nbatch_normalize=1\nactivation=leaky\n",
    "connected": f"{CONV}[connected]\noutput=9\nactivation=elu\n[connected]\noutput=5\nbatch_normalize=1\n",
    "connected then a map": "[connected]\noutput=6\nactivation=relu\n[conv]\nfilters=4\n",
    "batchnorm": f"{CONV}[batchnorm]\n[route]\nlayers=0,1\n",
    "batchnorm in place of nothing": f"{CONV}[batchnorm]\n[activation]\nactivation=leaky\n[shortcut]\nfrom=-2\n",
    "l2norm": "[l2norm]\n",
    "normalization": "[conv]\nfilters=9\n[normalization]\nsize=5\nalpha=.7\nbeta=.6\nkappa=1.5\n",
    "logistic": "[conv]\n[logistic]\n",
    "upsample": "[upsample]\nstride=3\nscale=.25\n",
    "upsample to nothing": "[conv]\nfilters=2\n[upsample]\nstride=-2\nscale=0\n[conv]\nfilters=2\n",
    "upsample reverse": "[upsample]\nstride=-2\nscale=1.5\n",
    "crop": "[crop]\ncrop_height=5\ncrop_width=9\n",
    "crop of rows": "[crop]\ncrop_height=6\ncrop_width=12\nnoadjust=1\n",
    "crop of nothing": "[crop]\ncrop_height=8\ncrop_width=12\nnoadjust=1\n",
    "crop that adjusts only": "[crop]\ncrop_height=8\ncrop_width=12\n[shortcut]\nfrom=-1\n[avgpool]\n",
    "route of unequal maps": f"{CONV}[maxpool]\nsize=2\nstride=2\n[route]\nlayers=0,1\n[connected]\noutput=3\n",
    "shortcut with factors": f"{CONV}{CONV}[shortcut]\nfrom=0\nalpha=.5\nbeta=-2\nactivation=leaky\n",
    "shortcut of fewer channels": "[conv]\nfilters=3\n[conv]\nfilters=5\n[shortcut]\nfrom=0\nalpha=2\nbeta=3\n",
    "shortcut of more channels": "[conv]\nfilters=5\n[conv]\nfilters=3\n[shortcut]\nfrom=0\nalpha=.5\n",
    "shortcut that skips": "[conv]\nfilters=3\n[conv]\nfilters=5\nsize=3\nstride=2\npad=1\n[shortcut]\nfrom=0\nbeta=2\n",
    "shortcut that spreads": "[conv]\nfilters=6\n[maxpool]\nsize=2\nstride=2\n[upsample]\n[shortcut]\nfrom=-2\n",
    "shortcut of odd sizes": "[crop]\ncrop_height=5\ncrop_width=7\n[maxpool]\nsize=3\nstride=2\npadding=1\n"
    "[shortcut]\nfrom=0\n",
    "shortcut that spreads over odd sizes": "[crop]\ncrop_height=5\ncrop_width=7\n[maxpool]\nsize=3\nstride=2\n"
    "padding=0\n[route]\nlayers=0\n[shortcut]\nfrom=-2\n",
    "softmax": "[avgpool]\n[softmax]\ntemperature=.1\n",
    "softmax of a map": "[softmax]\n",
    "softmax in groups": "[conv]\nfilters=6\n[softmax]\ngroups=3\ntemperature=2\n",
    "detection": "[connected]\noutput=39\n[detection]\nside=1\nnum=3\nclasses=24\ncoords=4\nsoftmax=1\n",
    "detection of cells": "[connected]\noutput=52\n[detection]\nside=2\nnum=2\nclasses=3\ncoords=4\nsoftmax=1\n",
    "detection of classes only": "[connected]\noutput=12\n[detection]\nside=2\nnum=0\nclasses=3\nsoftmax=1\n",
    "local": "[local]\nfilters=3\nsize=3\nstride=2\npad=1\nactivation=leaky\n",
    "local at one place": "[avgpool]\n[local]\nfilters=5\nsize=1\nactivation=ramp\n",
    "cost": "[connected]\noutput=4\n[softmax]\n[cost]\n",
    "flatten": "[reorg]\nflatten=1\nstride=2\n",
    "flatten reverse": "[reorg]\nflatten=1\nstride=2\nreverse=1\n",
    "extra": "[conv]\n[reorg]\nextra=7\nstride=1\n[connected]\noutput=3\n",
    "pooling of tiny networks": "[maxpool]\nsize=2\nstride=1\n",
    "nobody reads a layer": f"{CONV}[conv]\nfilters=2\n[route]\nlayers=0\n[avgpool]\n",
}
FORK_LAYERS = {
    "route of a group": f"{CONV}[route]\nlayers=-1\ngroups=2\ngroup_id=1\n[route]\nlayers=0,1\ngroups=4\ngroup_id=2\n",
    "reorg3d": "[reorg3d]\nstride=2\n",
    "scale_channels": f"{CONV}[avgpool]\n[conv]\nfilters=8\n[scale_channels]\nfrom=0\nactivation=leaky\n",
    "scale_channels by place": f"{CONV}[conv]\nfilters=1\n[scale_channels]\nfrom=0\nscale_wh=1\n",
    "scale_channels by place of as many channels as rows": "[conv]\nfilters=3\n[conv]\nfilters=1\n[scale_channels]\nfrom=0\nscale_wh=1\n",
    "sam": f"{CONV}{CONV}[sam]\nfrom=0\n",
    "shortcut of several": f"{CONV}{CONV}{CONV}[shortcut]\nfrom=0,1\nactivation=swish\n",
}


def small(layers: str, dialect: str = "auto"):
    return read_network(parse_cfg(NET + layers, "small.cfg"), dialect=dialect).with_random_weights(7)


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


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_that_caffe_can_express_gives_darknets_numbers(tmp_path, libdarknet, name, fold):
    net = small(LAYERS[name])
    x = image(net)
    expected = darknet_output(libdarknet, net, tmp_path, x)
    found = opencv(net, tmp_path / "a", x, fold=fold)
    assert found.shape[1:] == net.outputs[-1].dims
    assert relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("layers", ["[conv]\nfilters=8\nbatch_normalize=1\n", "[conv]\nfilters=8\n[activation]\n"])
def test_every_activation_that_caffe_can_express_gives_darknets_numbers(tmp_path, libdarknet, layers, kind):
    net = small(f"{layers}activation={kind}\n[route]\nlayers=-1,-1\n")
    x = 12 * image(net) - 6
    expected = darknet_output(libdarknet, net, tmp_path, x)
    assert relative_error(opencv(net, tmp_path / "a", x, fold=False), expected) < 2e-6


@pytest.mark.parametrize("name", FORK_LAYERS)
def test_the_forks_layers_give_the_onnx_files_numbers(tmp_path, name):
    net = small(FORK_LAYERS[name], "alexeyab")
    x = image(net, batch=2)
    assert relative_error(opencv(net, tmp_path / "a", x, batch=2), last_output(net, x, batch=2)) < 1e-5


@pytest.mark.parametrize("kind", FORK_ACTIVATIONS)
def test_the_forks_activations_give_the_onnx_files_numbers(tmp_path, kind):
    net = small(f"[conv]\nfilters=8\nbatch_normalize=1\nactivation={kind}\n", "alexeyab")
    x = 12 * image(net) - 6
    assert relative_error(opencv(net, tmp_path / "a", x, fold=False), last_output(net, x)) < 2e-6


def test_the_dialect_says_which_batch_normalization_is_followed(tmp_path):
    layers = "[conv]\nfilters=8\nbatch_normalize=1\nactivation=linear\n"
    for dialect, bn_eps in (("pjreddie", "darknet-cpu"), ("alexeyab", "darknet-gpu")):
        net = small(layers, dialect)
        _, binary = to_caffe(net, tmp_path / "default")
        _, explicit = to_caffe(net, tmp_path / "explicit", bn_eps=bn_eps)
        assert binary.read_bytes() == explicit.read_bytes()


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


@pytest.mark.parametrize(("parents", "slices"), [((-1, -1, 0, 0, 1, 2, 2, 2), 1), ((-1, -1, -1), 0)])
def test_a_tree_of_classes_gets_a_softmax_for_each_group_of_siblings(tmp_path, parents, slices):
    (tmp_path / "a.tree").write_text("".join(f"c{number} {parent}\n" for number, parent in enumerate(parents)))
    net = small(f"[conv]\nfilters={len(parents)}\n[avgpool]\n[softmax]\ntree={tmp_path / 'a.tree'}\n")
    x = image(net)
    assert relative_error(opencv(net, tmp_path / "a", x), last_output(net, x)) < 1e-6
    assert [layer.type for layer in read_prototxt(tmp_path / "a.prototxt").layer].count("Slice") == slices


def test_a_tree_of_too_many_groups_of_siblings_is_refused(tmp_path):
    tree, net = tmp_path / "a.tree", "[conv]\nfilters={}\n[avgpool]\n[softmax]\ntree={}\n"
    for count in (4096, 4097):  # each class but the root is the only child of the one before it
        tree.write_text("".join(f"c{number} {number - 1}\n" for number in range(count)))
        network = small(net.format(count, tree))
        if count == 4096:
            written = read_prototxt(to_caffe(network, tmp_path / "a")[0]).layer
            assert sum(layer.type == "Softmax" for layer in written) == count
        else:
            with pytest.raises(UsageError, match="its tree has 4,097 groups of siblings"):
                to_caffe(network, tmp_path / "b")


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("yolov3-tiny", 16),
        ("resnet18", 12),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("yolov2-tiny-voc", 15), ("cifar", 16), ("go", 16))),
    ],
)
def test_opencv_gives_darknets_numbers_of_published_networks_on_small_images(tmp_path, libdarknet, name, layers):
    net = first_layers(published(name), layers)
    _check_published(tmp_path, libdarknet, net.with_input_size(96, 160) if min(net.dims[1:]) > 160 else net)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layers"),
    [
        *[("yolov2-voc", 27), ("darknet19", 26), ("data/pretrained/yolo-fastest-1.1.cfg", 121)],
        *[("alexnet", 16), ("resnet50", 75), ("resnext50", 75), ("densenet201", 310), ("yolov3", 82), ("strided", 20)],
        *[("yolov1-tiny", 20), ("vgg-conv", 25), ("extraction", 30), ("yolov3-spp", 80)],
        *[("yolov2-tiny-voc", 15), ("yolov3-tiny", 16), ("resnet18", 12)],
    ],
)
def test_opencv_gives_darknets_numbers_of_larger_networks(tmp_path, libdarknet, name, layers):
    _check_published(tmp_path, libdarknet, first_layers(published(name), layers))


def _check_published(folder, libdarknet, net):
    net = net.with_random_weights(3)
    x = image(net)
    expected = darknet_output(libdarknet, net, folder, x)
    for fold in (True, False):
        assert relative_error(opencv(net, folder / "a", x, fold=fold), expected) < 1e-5


@pytest.mark.parametrize("width", [10, 11, 12, 13])
@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [(2, 2, 1), (3, 2, 2), (3, 1, 2), (5, 2, 4), (3, 3, 0), (2, 1, 1), (3, 3, 2), (5, 3, 3), (1, 3, 0)],
)
def test_pooling_has_darknets_windows_whatever_the_padding(tmp_path, width, size, stride, padding):
    pool = f"[maxpool]\nsize={size}\nstride={stride}\npadding={padding}\n"
    net = read_network(
        parse_cfg(f"[net]\nwidth={width}\nheight=12\nchannels=2\n{pool}", "pool.cfg")
    ).with_random_weights()
    x = -1 - image(net)
    np.testing.assert_array_equal(opencv(net, tmp_path / "a", x), last_output(net, x))


REFUSED = {
    "[conv]\nactivation=stair\n": "activation=stair",
    "[conv]\nfilters=4\n[maxpool]\nsize=2\nstride=2\n[upsample]\n[shortcut]\nfrom=1\nalpha=2\n": "alpha=2",
    "[upsample]\nstride=32\n[reorg]\nflatten=1\n": "too many to cut out",
}


@pytest.mark.parametrize("layers", REFUSED)
def test_what_caffe_cannot_express_is_refused_with_the_layer_and_the_reason(tmp_path, layers):
    net = small(layers)
    index = len(net.layers) - 1
    with pytest.raises(UsageError, match=REFUSED[layers]) as caught:
        to_caffe(net, tmp_path / "a")
    assert caught.value.layer == index
    assert f"layer {index} ({net.layers[-1].type}, line {net.layers[-1].line} of small.cfg)" in str(caught.value)
    assert "\nDo: " in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_only_caffes_own_layer_types_are_written(tmp_path):
    known = {
        *("BNLL", "BatchNorm", "Concat", "Convolution", "Deconvolution", "ELU", "Eltwise", "InnerProduct", "Input"),
        *("Pooling", "Power", "ReLU", "Reshape", "Scale", "Sigmoid", "Silence", "Slice", "Softmax", "TanH"),
    }
    texts = [small(layers) for layers in LAYERS.values()]
    texts += [small(layers, "alexeyab") for layers in FORK_LAYERS.values()]
    texts += [small(f"[conv]\nactivation={kind}\n", "alexeyab") for kind in (*ACTIVATIONS, *FORK_ACTIVATIONS)]
    written = {
        layer.type for net in texts for layer in read_prototxt(to_caffe(net, tmp_path / "a", fold=False)[0]).layer
    }
    assert written == known


def test_caffes_outputs_are_the_networks(tmp_path):
    for layers in LAYERS.values():
        net = small(layers)
        proto = read_prototxt(to_caffe(net, tmp_path / "a")[0])
        read = {name for layer in proto.layer for name in layer.bottom if name not in layer.top}
        tops = {name for layer in proto.layer for name in layer.top}
        assert tops - read == {layer.name for layer in net.outputs}


def test_nothing_is_changed_in_place_that_others_read(tmp_path):
    for layers in LAYERS.values():
        proto = read_prototxt(to_caffe(small(layers), tmp_path / "a", fold=False)[0])
        read_by, shares = dict[str, Any](), dict[str, Any]()
        for layer in proto.layer:
            for top in layer.top:
                if top in layer.bottom:
                    assert read_by[top] <= {top}, layer.name
                    assert read_by.get(shares.get(top), set()) <= {top}, layer.name
                elif layer.type == "Reshape" or (layer.type == "Concat" and len(layer.bottom) == 1):
                    shares[top] = layer.bottom[0]
                read_by.setdefault(top, set())
            for bottom in layer.bottom:
                read_by[bottom] |= set(layer.top)


def test_every_layer_has_a_name_of_its_own(tmp_path):
    texts = [small(layers) for layers in LAYERS.values()]
    texts += [small(f"[conv]\nactivation={kind}\n", "alexeyab") for kind in (*ACTIVATIONS, *FORK_ACTIVATIONS)]
    for net in texts:
        names = [layer.name for layer in read_prototxt(to_caffe(net, tmp_path / "a", fold=False)[0]).layer]
        assert len(names) == len(set(names))


def test_plugins_are_layers_of_their_own_type_with_their_fields(tmp_path):
    net = small(
        "[reorg]\nstride=2\n[conv]\nfilters=16\n[region]\nclasses=3\nnum=2\nanchors=1,2,3,4\nsoftmax=1\n"
        "[route]\nlayers=1\n[yolo]\nclasses=3\nnum=3\nmask=0,2\nanchors=1,2,3,4,5,6\n"
    )
    text, binary = to_caffe(net, tmp_path / "a")
    layers = {layer.name: layer for layer in read_prototxt(text).layer}
    assert (layers["0_reorg"].type, layers["0_reorg"].reorg_param.stride) == ("Reorg", 2)
    region = layers["2_region"].region_param
    assert (list(region.anchors), region.classes, region.num, region.softmax) == ([1, 2, 3, 4], 3, 2, True)
    assert list(layers["4_yolo"].yolo_param.mask) == [0, 2]
    assert list(layers["4_yolo"].bottom) == ["1_convolutional"]
    stored = messages(PLUGINS)["NetParameter"]()
    stored.ParseFromString(binary.read_bytes())
    assert stored.name == "small"
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


def test_a_network_without_weights_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no weights"):
        to_caffe(read_network(parse_cfg(NET + CONV)), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_weights_may_have_as_many_bytes_as_readers_take(tmp_path, monkeypatch):
    net = read_network(parse_cfg("[net]\ninputs=3\n[connected]\noutput=2\n")).with_random_weights()
    monkeypatch.setattr("darknet2caffe._caffe_writer.MAX_BYTES", 4 * (2 + 6))
    to_caffe(net, tmp_path / "a")
    monkeypatch.setattr("darknet2caffe._caffe_writer.MAX_BYTES", 4 * (2 + 6) - 1)
    with pytest.raises(UsageError, match=r"its weights have 32 bytes"):
        to_caffe(net, tmp_path / "b")


def test_weights_of_two_gibibytes_are_refused(tmp_path):
    net = read_network(parse_cfg("[net]\ninputs=30000\n[connected]\noutput=20000\n"))
    many = np.broadcast_to(np.float32(0), (20000, 30000))
    weights = Weights(Header(), ({"biases": np.zeros(20000, np.float32), "weights": many},))
    with pytest.raises(UsageError, match="2 GiB"):
        to_caffe(replace(net, weights=weights), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("fold", "most"), [(False, 1e6), (True, 20e6)])
def test_files_are_written_with_the_memory_of_one_layer(tmp_path, fold, most):
    layers = "".join("[connected]\noutput=1000\nactivation=linear\nbatch_normalize=1\n" for _ in range(12))
    net = read_network(parse_cfg(f"[net]\ninputs=1000\n{layers}", "many.cfg")).with_random_weights()
    to_caffe(small(CONV), tmp_path / "warm")
    tracemalloc.start()
    _, binary = to_caffe(net, tmp_path / "a", fold=fold)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert binary.stat().st_size > 48e6
    assert peak < most


def test_an_older_file_stays_when_writing_fails(tmp_path):
    text, binary = (Path(tmp_path / f"a.{suffix}") for suffix in ("prototxt", "caffemodel"))
    text.write_text("old")
    binary.write_text("old")
    with pytest.raises(UsageError):
        to_caffe(small("[conv]\nactivation=stair\n"), tmp_path / "a")
    assert (text.read_text(), binary.read_text()) == ("old", "old")
    assert len(list(tmp_path.iterdir())) == 2


def test_two_outputs_are_written(tmp_path):
    net = small(f"{CONV}[softmax]\n[route]\nlayers=0\n[conv]\nfilters=3\n")
    x = image(net)
    files = to_caffe(net, tmp_path / "a")
    values = run(to_onnx(net), x)
    for layer in net.outputs:
        assert relative_error(run_opencv(*files, x, layer.name), values[layer.name]) < 1e-5


def test_options_of_suppression_that_caffe_has_no_place_for_are_named(tmp_path, caplog):
    head = "[convolutional]\nfilters=14\n[yolo]\nnum=2\nclasses=2\nnms_kind={}\nbeta_nms=0.3\n"
    for kind, power in (("default", None), ("greedynms", 0.6), ("diounms", 0.3)):
        caplog.clear()
        network = small(head.format(kind), "alexeyab")
        to_caffe(network, tmp_path / kind)
        assert [f"distance_power={power}" in message for message in caplog.messages] == ([True] if power else [])
        (entry,) = network.head_metadata()
        assert entry.get("distance_power") == (None if power is None else pytest.approx(power, rel=1e-6))


@pytest.mark.parametrize("line", ["nms_kind=cornersnms", "nms_kind=diounms\nbeta_nms=-1"])
def test_kinds_of_suppression_that_the_fork_does_not_read_are_refused(line):
    with pytest.raises(CfgError, match=line.splitlines()[-1]):
        small(f"[convolutional]\nfilters=14\n[yolo]\nnum=2\nclasses=2\n{line}\n", "alexeyab")
