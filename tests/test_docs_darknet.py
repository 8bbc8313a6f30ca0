"""docs/reference/darknet.md says what the reader does: its cfgs are read and refused as it says, and it names all that there is."""

import re

import pytest

from darknet2caffe.cfg import parse_cfg
from darknet2caffe.layers import ALEXEYAB_ACTIVATIONS, ALEXEYAB_TYPES, LAYER_TYPES
from darknet2caffe.layers._base import ACTIVATIONS
from darknet2caffe.network import read_network
from pytrtplugins.errors import CfgError
from tests.pages import read, texts

TEXT = read("docs/reference/darknet.md")
NET = "[net]\nwidth=8\nheight=8\nchannels=4\n"
VERDICT = re.compile(r"# (read|refused)(?: by (auto|pjreddie|alexeyab))?: (.+)\n")
BLOCKS = texts("docs/reference/darknet.md", "cfg")
CLAIMS = [(block, *found) for block in BLOCKS for found in VERDICT.findall(block)]
LAYERS = {**LAYER_TYPES, **ALEXEYAB_TYPES}


def whole(block):
    """A block of the page as a whole cfg."""
    return block if "[net]" in block else NET + block


@pytest.mark.parametrize(("block", "verdict", "dialect", "claim"), CLAIMS)
def test_its_cfgs_are_read_and_refused_as_it_says(block, verdict, dialect, claim):
    cfg = parse_cfg(whole(block), "page.cfg")
    if verdict == "refused":
        with pytest.raises(CfgError, match=re.escape(claim)):
            read_network(cfg, dialect=dialect or "auto")
        return
    c, h, w = read_network(cfg, dialect=dialect or "auto").layers[-1].dims
    assert f"{w} x {h} x {c}" == claim


@pytest.mark.parametrize(
    ("block", "claim"),
    [(block, claim) for block, verdict, dialect, claim in CLAIMS if verdict == "read" and dialect in ("", "pjreddie")],
)
def test_darknet_gives_the_same_dims(block, claim, libdarknet, tmp_path):
    path = tmp_path / "page.cfg"
    path.write_text(whole(block))
    with libdarknet.load(path) as network:
        c, h, w = network.layer_shape(len(network) - 1)
    assert f"{w} x {h} x {c}" == claim


def test_every_block_makes_a_claim():
    assert len(BLOCKS) > 15
    assert all(VERDICT.match(block) for block in BLOCKS)


@pytest.mark.parametrize("name", [*LAYERS, "rnn", "gru", "lstm", "crnn", "conv_lstm", "iseg"])
def test_it_names_every_layer_type(name):
    assert f"[{name}]" in TEXT


@pytest.mark.parametrize("name", [*ACTIVATIONS, *ALEXEYAB_ACTIVATIONS])
def test_it_names_every_activation(name):
    assert f"`{name}`" in TEXT


def test_it_names_every_key_that_is_refused():
    refused = {key for layer in LAYERS.values() for key in [*layer.refused, *layer.alexeyab_refused]}
    assert {key for key in refused if not re.search(rf"`{key}(=.*?)?`", TEXT)} == set()


@pytest.mark.parametrize("name", ["convolutional", "deconvolutional", "connected", "batchnorm", "local"])
def test_its_table_has_the_arrays_in_the_order_of_the_file(name):
    (row,) = re.findall(rf"^\| {name} \| (.*?) \|", TEXT, re.MULTILINE)
    words = re.findall("biases|scales|mean|variance|weights", row.split(";")[0])
    keys = "size=3\npad=1\nbatch_normalize=1\n" if "size" in row and name != "local" else "batch_normalize=1\n"
    (layer,) = read_network(parse_cfg(f"{NET}[{name}]\n{keys if name != 'batchnorm' else ''}")).layers
    assert words == [array.removeprefix("rolling_") for array, _ in layer.parameters]
