"""Every option that darknet's parsers read is honoured, belongs to training, or is refused by name."""

import pytest

from darknet2caffe import read_network, to_onnx
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.dialect import ALEXEYAB_NET_KEYS
from darknet2caffe.layers import ALEXEYAB_TRAINING_KEYS, ALEXEYAB_TYPES, LAYER_TYPES
from darknet2caffe.network import _NET_KEYS
from pytrtplugins.errors import CfgError

from .parser_options import ALEXEYAB, PJREDDIE

PARSERS = {"pjreddie": PJREDDIE, "alexeyab": ALEXEYAB}
TREE = "tree"  # a file beside the cfg: tests/darknet2caffe/test_layers.py

HEADS = "[convolutional]\nfilters=14\nactivation=linear\n"
BEFORE = {"yolo": HEADS, "region": HEADS, "detection": "[connected]\noutput=64\nactivation=linear\n",
          "scale_channels": "[avgpool]\n"}  # fmt: skip
SECTIONS = {
    "convolutional": "filters=4\nsize=3\nbatch_normalize=1",
    "deconvolutional": "filters=4\nsize=3\nbatch_normalize=1",
    "connected": "output=4\nbatch_normalize=1",
    "local": "filters=2\nsize=3",
    "crop": "crop_width=4\ncrop_height=4",
    "detection": "side=4\nnum=1\ncoords=1\nclasses=2",
    "region": "num=2\nclasses=2\nsoftmax=1\nanchors=1,2,3,4",
    "yolo": "num=2\nclasses=2\nanchors=1,2,3,4\nbeta_nms=0.6\nnms_kind=diounms",
    "reorg": "stride=1",
    "reorg3d": "stride=1",
    "maxpool": "size=3\nstride=1",
    "route": "layers=0",
    "shortcut": "from=-2",
    "sam": "from=-2",
    "scale_channels": "from=0",
}
"""A section of each type behind two convolutions; what is not here needs no option."""
CHANGED = {
    "activation": "relu", "filters": "3", "size": "2", "stride": "2", "pad": "1", "padding": "1", "output": "3", "groups": "2",
    "batch_normalize": "0", "flipped": "1", "crop_height": "3", "crop_width": "3", "noadjust": "1", "anchors": "2,2,3,5",
    "mask": "0", "classes": "3", "num": "3", "coords": "3", "softmax": "0", "side": "2", "sqrt": "1", "background": "1",
    "temperature": "2", "reverse": "1", "flatten": "1", "extra": "4", "alpha": "2", "beta": "2", "kappa": "2", "scale": "2",
    "from": "1", "layers": "1", "group_id": "1", "scale_x_y": "1.5", "new_coords": "1", "nms_kind": "greedynms",
    "beta_nms": "0.3", "scale_wh": "1", "upsample stride": "3", "detection softmax": "1",
}  # fmt: skip


def known(dialect, section):
    """Honoured, training and refused keys."""
    fork = dialect == "alexeyab"
    cls = {**LAYER_TYPES, **(ALEXEYAB_TYPES if fork else {})}[section]
    honoured = cls.keys | (cls.alexeyab_keys if fork else cls.pjreddie_keys)
    training = cls.training_keys | (cls.alexeyab_training_keys | ALEXEYAB_TRAINING_KEYS if fork else frozenset())
    return honoured, training, {**cls.refused, **(cls.alexeyab_refused if fork else {})}


def options(*kinds):
    for dialect, parser in PARSERS.items():
        for section, keys in parser.items():
            if section in ("net", "layers"):
                continue
            for key in keys.split():
                honoured, training, refused = known(dialect, section)
                kind = "honoured" if key in honoured else "training" if key in training else "refused"
                if kind in kinds and key != TREE:
                    yield pytest.param(dialect, section, key, refused.get(key), id=f"{dialect}-{section}-{key}")


def network_with(dialect, section, line=""):
    given = SECTIONS.get(section, "")
    if line:  # the first of two equal keys counts
        given = "\n".join(option for option in given.splitlines() if option.split("=")[0] != line.split("=")[0])
    conv = "[convolutional]\nfilters=4\nactivation=linear\n"
    net = "[net]\nwidth=8\nheight=8\nchannels=4\n"
    text = f"{net}{conv}{conv}{BEFORE.get(section, '')}[{section}]\n{line}\n{given}\n"
    return read_network(parse_cfg(text), dialect=dialect)


def model_of(network):
    return to_onnx(network.with_random_weights(0)).SerializeToString(deterministic=True)


@pytest.mark.parametrize("dialect", PARSERS)
def test_every_option_that_a_parser_reads_has_a_place(dialect):
    for section, keys in PARSERS[dialect].items():
        if section == "net":
            assert set(keys.split()) <= _NET_KEYS | (ALEXEYAB_NET_KEYS if dialect == "alexeyab" else frozenset())
        elif section != "layers":
            honoured, training, refused = known(dialect, section)
            assert set(keys.split()) <= honoured | training | refused.keys(), section
            assert not training & refused.keys()


@pytest.mark.parametrize("dialect", PARSERS)
def test_options_of_every_layer_give_no_warning_but_where_weights_are_not_loaded(dialect, caplog):
    for key in PARSERS[dialect]["layers"].split():
        caplog.clear()
        if "load" in key:
            with pytest.raises(CfgError, match=f"{key}=1 is not supported"):
                network_with(dialect, "convolutional", f"{key}=1")
        else:
            assert model_of(network_with(dialect, "convolutional", f"{key}=1"))
            assert not caplog.messages


@pytest.mark.parametrize(("dialect", "section", "key", "_"), list(options("training")))
def test_options_of_training_change_nothing(dialect, section, key, _, caplog):
    assert model_of(network_with(dialect, section, f"{key}=1")) == model_of(network_with(dialect, section))
    assert not [message for message in caplog.messages if key in message]


@pytest.mark.parametrize(("dialect", "section", "key", "neutral"), list(options("refused")))
def test_options_that_are_not_supported_are_refused_by_name(dialect, section, key, neutral):
    value = "3" if neutral != "none" else "per_channel"
    with pytest.raises(CfgError, match=f"{key}={value} is not supported"):
        network_with(dialect, section, f"{key}={value}")
    if neutral:
        assert model_of(network_with(dialect, section, f"{key}={neutral}")) == model_of(network_with(dialect, section))


@pytest.mark.parametrize(("dialect", "section", "key", "_"), list(options("honoured")))
def test_other_options_change_the_network_or_are_refused_by_name(dialect, section, key, _):
    extra = "groups=2\n" if key == "group_id" else ""
    before = network_with(dialect, section, extra)
    value = CHANGED.get(f"{section} {key}", CHANGED[key])
    try:
        changed = network_with(dialect, section, f"{extra}{key}={value}")
    except CfgError as error:
        message = str(error)
    else:
        assert model_of(changed) != model_of(before) or before.layers[-1] != changed.layers[-1]
        return
    assert any(word in message for word in (f"{key}=", "anchor", "channels", "factors"))
