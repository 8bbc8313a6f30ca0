"""symbol.json is read as data: nodes in order, names once, numbers of nodes that exist."""

import json

import pytest

from pytrtplugins.errors import ModelError
from pytrtplugins.mxnet import read_symbol, symbol
from tests.mxnet.files import face


def read(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    return read_symbol(tmp_path / "x.json")


def changed(number, **fields):
    held = json.loads(face().json())
    held["nodes"][number].update(fields)
    return json.dumps(held)


def test_nodes_inputs_and_heads_are_those_of_the_file(tmp_path):
    found = read(tmp_path, face().json())
    assert [(node.op, node.name) for node in found.nodes[:3]] == [
        ("null", "data"), ("_minus_scalar", "_minusscalar0"), ("_mul_scalar", "_mulscalar0"),
    ]  # fmt: skip
    assert found.nodes[1].inputs == ((0, 0),)
    assert found.nodes[1].attributes == {"scalar": "127.5"}
    assert found.heads == ((len(found.nodes) - 1, 0),)


DAMAGED = {
    "no JSON": ("{", "not JSON"),
    "deep": ('{"nodes":' + "[" * 5000, "nested more than 64 deep"),
    "a list": ("[]", "not a symbol of MXNet"),
    "no nodes": ('{"nodes": [], "heads": []}', "not a symbol of MXNet"),
    "no heads": (json.dumps({**json.loads(face().json()), "heads": []}), "'heads' are []"),
    "a head that does not exist": (
        json.dumps({**json.loads(face().json()), "heads": [[999, 0]]}),
        "with nodes of 0 to",
    ),
    "a cycle": (changed(1, inputs=[[1, 0, 0]]), "node '_minusscalar0' (_minus_scalar): its inputs are [[1, 0, 0]]"),
    "a later node": (changed(1, inputs=[[2, 0, 0]]), "nodes that come before it, which is number 1"),
    "a negative node": (changed(1, inputs=[[-1, 0, 0]]), "its inputs are [[-1, 0, 0]]"),
    "a number with a fraction": (changed(1, inputs=[[0.5, 0]]), "its inputs are [[0.5, 0]]"),
    "inputs that are no list": (changed(1, inputs={}), "its inputs are {}"),
    "a name twice": (changed(1, name="data"), "another node has this name"),
    **{f"no {field}": (changed(1, **{field: ""}), "node 1 is") for field in ("op", "name")},
    **{f"a number as {field}": (changed(1, **{field: 7}), "node 1 is") for field in ("op", "name")},
    "attributes that are no texts": (changed(1, attrs={"scalar": 1}), "'attrs' is {'scalar': 1}"),
    "a node that is no object": (json.dumps({"nodes": [1], "heads": [[0, 0]]}), "node 0 is 1"),
}


def test_as_many_nodes_as_the_limit_are_read(tmp_path, monkeypatch):
    count = len(json.loads(face().json())["nodes"])
    monkeypatch.setattr(symbol, "MAX_NODES", count)
    assert len(read(tmp_path, face().json()).nodes) == count
    monkeypatch.setattr(symbol, "MAX_NODES", count - 1)
    with pytest.raises(ModelError, match=f"{count} nodes; expected at most {count - 1}"):
        read(tmp_path, face().json())


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_refused(tmp_path, case):
    text, expected = DAMAGED[case]
    with pytest.raises(ModelError) as caught:
        read(tmp_path, text)
    assert expected in str(caught.value)
    assert str(tmp_path) in str(caught.value)
