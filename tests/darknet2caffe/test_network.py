from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

from darknet2caffe import read_network
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.errors import CfgError, UsageError
from tests.darknet2caffe.networks import CFGS, network, published

NET = "[net]\nwidth=16\nheight=8\nchannels=3\n"


def read(layers: str):
    return read_network(parse_cfg(NET + layers))


def test_every_layer_has_darknets_dims():
    dims = {layer.name: layer.dims for layer in network().layers}
    assert dims["3_convolutional"] == (16, 24, 16)
    assert dims["6_maxpool"] == (16, 24, 16)
    assert dims["8_route"] == (48, 24, 16)
    assert dims["9_convolutional"] == (12, 12, 8)
    assert dims["11_upsample"] == (12, 24, 16)
    assert dims["14_yolo"] == (14, 24, 16)
    assert dims["17_reorg"] == (16, 6, 4)
    assert dims["21_softmax"] == (16, 1, 1)


def test_layers_that_change_nothing_have_the_tensor_of_what_they_read():
    net = network()
    assert net.tensor_name(4) == "3_convolutional"
    assert net.tensor_name(15) == net.tensor_name(10) == "9_convolutional"
    assert read("[activation]\n").tensor_name(0) == "data"


def test_the_outputs_are_the_heads_in_order_or_the_last_layer():
    assert [layer.name for layer in network().outputs] == ["14_yolo", "19_region", "21_softmax"]
    assert [layer.name for layer in read("[conv]\n[avgpool]\n").outputs] == ["1_avgpool"]


def test_route_takes_absolute_and_relative_numbers():
    net = read("[conv]\nfilters=2\n[conv]\nfilters=3\n[route]\nlayers=0,-1\n")
    assert net.layers[2].inputs == (0, 1)
    assert net.layers[2].dims == (5, 8, 16)


@pytest.mark.parametrize("numbers", ["2", "5", "-3", "-99999999999", "0,7", "0,,1"])
def test_a_route_to_a_missing_layer_is_refused_with_its_line(numbers):
    with pytest.raises(CfgError) as caught:
        read(f"[conv]\n[conv]\n[route]\nlayers={numbers}\n")
    assert caught.value.line == 8


@pytest.mark.parametrize(
    ("layers", "line", "words"),
    [
        ("[convolutionl]\n", 5, "unknown or not supported"),
        ("[lstm]\noutput=3\n", 5, "recurrent"),
        ("[conv]\n[net]\n", 6, "unknown or not supported"),
        ("[conv]\nactivation=lekay\n", 6, "linear, leaky"),
        ("[conv]\nstride_x=2\n", 6, "not supported"),
        ("[conv]\ndilation=2\n", 6, "not supported"),
        ("[gru]\n", 5, "recurrent"),
        ("[reorg]\nstride=2\n", 5, "layer 0"),
        ("[conv]\nfilters=75\n[region]\nclasses=20\nnum=5\n", 7, "layer 1"),
        ("[conv]\nfilters=8\n[yolo]\nclasses=3\nembedding_layer=1\n", 9, "not supported"),
    ],
)
def test_a_layer_that_cannot_be_converted_is_refused_with_line_and_reason(layers, line, words):
    """More of them, with their whole messages, are in test_layer_messages.py."""
    with pytest.raises(CfgError, match=words) as caught:
        read(layers)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[net]\n[conv]\n", "channels is 0 or missing"),
        ("[net]\nwidth=0\nheight=1\nchannels=1\n[conv]\n", "width is 0"),
        ("[net]\nwidth=99999\nheight=99999\nchannels=3\n[conv]\n", "too large"),
        (NET, "no layers"),
    ],
)
def test_a_net_without_a_usable_input_is_refused(text, words):
    with pytest.raises(CfgError, match=words):
        read_network(parse_cfg(text))


def test_unknown_keys_are_logged_with_their_line(caplog):
    with caplog.at_level(logging.WARNING):
        read("[conv]\nfilters=2\nfliters=3\n")
    assert caplog.messages == ["<cfg>:7: [conv]: unknown key fliters=3 is ignored"]


def test_neutral_values_of_refused_keys_are_taken():
    assert read("[conv]\nfilters=8\nxnor=0\n[yolo]\nclasses=3\nscale_x_y = 1.00\n").layers[1].dims == (8, 8, 16)


def test_another_input_size_keeps_the_weights():
    net = network()
    wider = net.with_input_size(64, 32)
    assert wider.dims == (3, 32, 64)
    assert wider.weights is net.weights
    assert wider.layers[0].dims == (8, 32, 64)


def test_an_input_size_that_a_layer_refuses_is_an_error_with_the_layers_line():
    with pytest.raises(CfgError, match="layer 17") as caught:
        network().with_input_size(36, 36)
    assert caught.value.line == network().layers[17].line


def test_given_arrays_become_the_weights():
    net = read("[conv]\nfilters=2\n[avgpool]\n")
    arrays = [{"biases": np.arange(2), "weights": np.ones((2, 3, 1, 1))}, {}]
    np.testing.assert_array_equal(net.with_weights(arrays).parameters(net.layers[0])["biases"], [0, 1])
    with pytest.raises(UsageError, match=r"shape \(2, 3\)"):
        net.with_weights([{"biases": np.arange(2), "weights": np.ones((2, 3))}, {}])
    with pytest.raises(UsageError, match="expected"):
        net.with_weights([{}, {}])
    with pytest.raises(UsageError, match="2 layers"):
        net.with_weights([{}])


def test_a_network_without_weights_says_how_to_get_them():
    net = read("[conv]\n")
    with pytest.raises(UsageError, match=r"Do: read_network\(cfg, weights\)"):
        net.parameters(net.layers[0])


def test_random_weights_follow_the_seed():
    assert network(seed=1).weights == network(seed=1).weights
    assert network(seed=1).weights != network(seed=2).weights


@pytest.mark.parametrize(
    ("name", "parameters", "outputs"),
    [
        ("yolov2", 50_983_561, {"31_region": (425, 19, 19)}),
        ("yolov2-voc", 50_676_061, {"31_region": (125, 13, 13)}),
        ("yolov2-tiny", 11_237_145, {"15_region": (425, 13, 13)}),
        ("yolov2-tiny-voc", 15_867_885, {"15_region": (125, 13, 13)}),
        ("yolov3-tiny", 8_858_734, {"16_yolo": (255, 13, 13), "23_yolo": (255, 26, 26)}),
        ("darknet19", 20_856_776, {"25_softmax": (1000, 1, 1)}),
    ],
)
def test_published_networks_have_their_sizes(name, parameters, outputs):
    net = read_network(published(name))
    assert sum(np.prod(shape) for layer in net.layers for _, shape in layer.parameters) == parameters
    assert {layer.name: layer.dims for layer in net.outputs} == outputs


def test_the_reading_of_published_networks_gives_no_warning(caplog):
    names = ("yolov2", "yolov2-voc", "yolov2-tiny", "yolov2-tiny-voc", "yolov3-tiny", "darknet19")
    if not CFGS.exists():
        pytest.skip(f"{CFGS} is missing (apt install darknet)")
    with caplog.at_level(logging.WARNING):
        for name in names:
            read_network(published(name))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ("[conv]\n[route]\nlayers=0\ngroups=1\n", "line 8: only AlexeyAB's darknet reads groups= in [route]"),
        ("[conv]\nactivation=mish\n", "line 6: mish is an activation"),
        ("[conv]\n[conv]\n[sam]\nfrom=0\n", r"line 7: [sam] is a layer"),
        ("[conv]\ndilation=1\n", "line 6: only AlexeyAB's darknet reads dilation="),
    ],
)
def test_auto_takes_the_forks_dialect_at_what_only_the_fork_knows_and_says_what(layers, reason):
    net = read(layers)
    assert net.dialect == "alexeyab"
    assert reason in net.dialect_reason


def test_auto_takes_pjreddies_dialect_otherwise():
    assert (network().dialect, network().dialect_reason) == ("pjreddie", "nothing in it is AlexeyAB's alone")
    assert read_network(network().cfg, dialect="alexeyab").dialect == "alexeyab"


def test_an_unknown_dialect_is_refused():
    with pytest.raises(UsageError, match="expected one of auto, pjreddie, alexeyab"):
        read_network(network().cfg, dialect="opencv")


def test_keys_of_the_other_dialect_are_ignored_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        net = read_network(parse_cfg(NET + "[conv]\nfilters=4\n[route]\nlayers=0\ngroups=2\n"), dialect="pjreddie")
        fork = read_network(parse_cfg(NET + "[conv]\n[shortcut]\nfrom=0\nalpha=3\n"), dialect="alexeyab")
    assert net.layers[1].dims == (4, 8, 16)
    assert fork.layers[1].alpha == 1
    assert [record.getMessage().split(": ", 2)[2] for record in caplog.records] == [
        "unknown key groups=2 is ignored",
        "unknown key alpha=3 is ignored",
    ]


def test_a_cost_at_the_end_is_no_output_and_inputs_alone_make_no_map():
    net = read_network(parse_cfg("[net]\ninputs=12\n[connected]\noutput=5\n[softmax]\n[cost]\n"))
    assert (net.dims, net.layers[0].dims) == ((12, 1, 1), (5, 1, 1))
    assert [layer.name for layer in net.outputs] == ["1_softmax"]
    with pytest.raises(CfgError, match="inputs= of"):
        read_network(parse_cfg("[net]\ninputs=12\n[conv]\n"))
    with pytest.raises(CfgError, match="is not width x height"):
        read_network(parse_cfg(NET + "[conv]\n").with_net(inputs=5))


def test_a_tree_is_found_beside_the_cfg_and_checked(tmp_path):
    (tmp_path / "a.cfg").write_text(NET + "[connected]\noutput=4\n[softmax]\ntree=a.tree\n")
    tree = tmp_path / "a.tree"
    tree.write_text("a -1\nb -1\nc 0\nd 0\n")
    assert read_network(tmp_path / "a.cfg").layers[1].tree == (-1, -1, 0, 0)
    for text, words in [
        ("a -1\n", "has 1 classes, the layer 4"),
        ("a 0\n", "line 1"),
        ("a -1\nb x\n", "line 2"),
        ("a -1\n\nb -1\n", "line 2"),
        ("a -1\nb 1\n", "line 2"),
        ("a -1\nb -2\n", "line 2"),
        ("a -1\nb 9999\n", "line 2"),
        ("a -1\nb -15\n", "line 2"),
        ("a -1\nb 0000000009999\n", "line 2"),
        ("a -1\nb -0000000015\n", "line 2"),
        ("a -1\nb 0.0\n", "line 2"),
        ("a -1\nb ٠\n", "line 2"),
        ("a -1\nb " + "9" * 5000 + "\n", "line 2"),
    ]:
        tree.write_text(text)
        with pytest.raises(CfgError, match=words):
            read_network(tmp_path / "a.cfg")


def test_layers_at_their_limits_are_read():
    assert read_network(parse_cfg("[net]\nwidth=1\nheight=1\nchannels=2048\n[normalization]\n")).layers[0].size == 5
    with pytest.raises(CfgError, match="up to 2,048 channels, found 2,049"):
        read_network(parse_cfg("[net]\nwidth=1\nheight=1\nchannels=2049\n[normalization]\n"))
    one = "[net]\nwidth=1\nheight=1\nchannels=1\n[upsample]\nstride={}\n"
    with pytest.raises(CfgError, match="expected a number from -65,536 to 65,536"):
        read_network(parse_cfg(one.format(65537)))
    with pytest.raises(CfgError, match="stride=0 leaves nothing of the map"):
        read_network(parse_cfg(one.format(0)))
    assert read_network(parse_cfg(one.format(-1))).layers[0].dims == (1, 1, 1)


def test_networks_and_their_records_cannot_be_changed():
    net = network()
    for record, name in (
        (net, "cfg"), (net.layers[0], "index"), (net.weights, "layers"), (net.weights.header, "seen"),
    ):  # fmt: skip
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)


def test_a_tree_may_have_16_mebibytes(tmp_path):
    (tmp_path / "a.cfg").write_text(NET + "[connected]\noutput=4\n[softmax]\ntree=a.tree\n")
    tree = tmp_path / "a.tree"
    for size, words in (
        (16 << 20, "has 1 classes, the layer 4"),
        ((16 << 20) + 1, "expected at most 16,777,216 bytes"),
    ):
        with tree.open("wb") as file:
            file.truncate(size)
        with pytest.raises(CfgError, match=words):
            read_network(tmp_path / "a.cfg")


def test_a_class_without_a_parent_is_a_root(tmp_path):
    (tmp_path / "a.cfg").write_text(NET + "[connected]\noutput=3\n[softmax]\ntree=a.tree\n")
    (tmp_path / "a.tree").write_text("a\nb 0 more\nc\n")
    assert read_network(tmp_path / "a.cfg").layers[1].tree == (-1, 0, -1)


def test_dense_layers_tie_the_weights_to_one_input_size():
    net = read("[connected]\noutput=2\n")
    assert net.with_input_size(4, 4).layers[0].input_dims == ((3, 4, 4),)
    with pytest.raises(CfgError, match="has weights for an input of 16 x 8 only"):
        net.with_random_weights().with_input_size(4, 4)
