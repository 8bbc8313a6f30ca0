"""What a detector's model says of its input and its heads: in darknet2caffe's metadata, or as plugin nodes."""

import json
from types import SimpleNamespace

import pytest
from onnx import TensorProto, helper

from pytrtplugins.errors import BindingError, ModelError
from pytrtplugins.models.heads import read_heads, read_input_size, read_size
from pytrtplugins.tensor import SymbolicDim, TensorDesc

HEAD = {"output": "y", "type": "region", "anchors": [1, 2], "classes": 3}


def model(net=None, nodes=(), outputs=("y",), first=()):
    """A model with these metadata."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    found = helper.make_model(helper.make_graph(list(nodes), "net", [], values))
    texts = {**dict.fromkeys(first, "x"), **({} if net is None else {"darknet.net": net})}
    helper.set_model_props(
        found, {key: text if isinstance(text, str) else json.dumps(text) for key, text in texts.items()}
    )
    return found


def test_heads_are_those_of_the_metadata_at_outputs_in_their_order():
    yolo = {
        **HEAD,
        "type": "yolo",
        "output": "z",
        "mask": [1, 0],
        "background": 1,
        "new_coords": 1,
        "distance_power": 0,
    }
    entries = [{**HEAD, "output": "hidden"}, yolo, {"type": "softmax", "output": "y"}, HEAD]
    first, second = read_heads(model({"heads": entries}, outputs=("y", "z"), first=("other",)))
    assert (first.output, first.type, first.mask, first.background, first.new_coords) == (
        "z",
        "yolo",
        (1, 0),
        True,
        True,
    )
    assert (second.output, second.type, second.anchors, second.classes) == ("y", "region", (1.0, 2.0), 3)
    assert (second.mask, second.background, second.new_coords, second.distance_power) == ((), False, False, None)
    assert first.distance_power == 0


def test_without_metadata_heads_are_plugin_nodes_at_outputs():
    fields = {"anchors": [1.0, 2.0], "classes": 3}
    nodes = [
        helper.make_node("Yolo", ["x"], ["y"], domain="darknet", **fields),
        helper.make_node("Region", ["x"], ["hidden"], domain="darknet", **fields),
        helper.make_node("Reorg", ["x"], ["z"], domain="darknet"),
        helper.make_node("Region", ["x"], ["w"], **fields),
    ]
    (head,) = read_heads(model(nodes=nodes, outputs=("w", "y", "z")))
    assert (head.type, head.output, head.classes) == ("yolo", "y", 3)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], r"no output comes from a region or yolo layer \(outputs: y, z\)"),
        ([{**HEAD, "output": "hidden"}], "no output comes from"),
        ([HEAD, {**HEAD, "output": "z", "classes": 4}], r"disagree on the classes: \[3, 4\]"),
        ([{**HEAD, "tree": [0]}], r"head 'y' \(region\): it has a tree"),
        ([{**HEAD, "coords": 5}], "expected 4 coordinates a box, found 5"),
        ([{**HEAD, "distance_power": "inf"}], "distance_power: inf"),
        ([{**HEAD, "distance_power": -1}], "distance_power: -1"),
        ([{"output": "y", "type": "region", "classes": 3}], "incomplete or wrong.*anchors"),
        ([HEAD, 1], "names heads without output and type"),
        ([HEAD, {"type": "region"}], "names heads without output and type"),
        ([HEAD, {"output": "y"}], "names heads without output and type"),
        ({"y": HEAD}, "names heads without output and type"),
    ],
)
def test_heads_that_cannot_be_decoded_are_refused(entries, message):
    with pytest.raises(ModelError, match=message):
        read_heads(model({"heads": entries}, outputs=("y", "z")))


def test_one_box_has_4_coordinates_whether_the_metadata_say_so_or_not():
    assert read_heads(model({"heads": [{**HEAD, "coords": 4, "tree": None}]})) == read_heads(model({"heads": [HEAD]}))


@pytest.mark.parametrize(
    ("net", "size"),
    [(None, None), ({}, None), ({"width": 8}, None), ({"height": 8}, None), ({"width": 8, "height": 4}, (8, 4)),
     ({"width": 1, "height": 2**31 - 1, "more": 0}, (1, 2**31 - 1))],
)  # fmt: skip
def test_the_input_size_is_that_of_the_metadata(net, size):
    assert read_input_size(model(net, first=("other",))) == size


@pytest.mark.parametrize("wrong", [0, 2**31, True, "8", 8.0])
@pytest.mark.parametrize("key", ["width", "height"])
def test_a_wrong_size_is_refused(key, wrong):
    with pytest.raises(ModelError, match="has a wrong size"):
        read_input_size(model({"width": 8, "height": 8, key: wrong}))


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[]", "not a JSON object")])
def test_broken_metadata_are_refused(text, message):
    for read in (read_input_size, read_heads):
        with pytest.raises(ModelError, match=message):
            read(model(text))


def engine(*dims, net=None):
    descs = tuple(
        TensorDesc(f"x{i}", tuple(SymbolicDim(dim) if isinstance(dim, str) else dim for dim in each))
        for i, each in enumerate(dims)
    )
    return SimpleNamespace(inputs=descs, model_without_weights=model(net))


@pytest.mark.parametrize(
    ("dims", "net", "size"),
    [
        ((1, 3, 4, 8), None, (8, 4)),
        ((1, 3, 4, 8), {"width": 5, "height": 6}, (8, 4)),
        (("N", 3, "H", "W"), {"width": 5, "height": 6}, (5, 6)),
        ((1, 3, 4, "W"), {"width": 5, "height": 6}, (5, 4)),
        ((1, 3, "H", 8), {"width": 5, "height": 6}, (8, 6)),
    ],
)
def test_dims_of_the_input_come_before_the_metadata(dims, net, size):
    assert read_size(engine(dims, net=net)) == size


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ([], "expected an engine with one input"),
        ([(1, 3, 4, 8)] * 2, r"one input, found \['x0', 'x1'\]"),
        ([(1, 3, 4)], "expected dims"),
        ([(1, 3, 4, 8, 1)], "expected dims"),
        ([(3, 1, 4, 8)], "expected dims"),
        ([(1, 3, 4, "W")], "height and width are free"),
        ([(1, 3, "H", 8)], "height and width are free"),
    ],
)
def test_inputs_that_are_no_images_of_known_size_are_refused(dims, message):
    with pytest.raises(BindingError, match=message):
        read_size(engine(*dims))
