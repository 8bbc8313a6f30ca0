"""Plugins as ONNX nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins.errors import FieldError, ModelError, RegistryError
from pytrtplugins.plugin.onnx_node import from_node, is_plugin_node, node_attributes
from tests.user_plugins import Copy


@ptp.plugin(namespace="test.node", version="2")
class Everything(Copy):
    flag: bool = False
    count: int = 1
    ratio: float = 0.5
    name_: str = ""
    flags: tuple[bool, ...] = ()
    counts: tuple[int, ...] = ()
    ratios: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    weights: np.ndarray = np.zeros((2, 0), np.float32)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(
    st.booleans(),
    st.integers(-9, 2**40),
    st.floats(width=32, allow_nan=False),
    TEXT,
    st.lists(st.booleans()),
    st.lists(TEXT),
)
def test_a_plugin_survives_the_way_through_a_node(flag, count, ratio, text, flags, names):
    plugin = Everything(flag, count, ratio, text, flags, [count] * 3, [ratio], names, np.arange(4, dtype=np.int8))
    node = onnx.NodeProto.FromString(plugin.as_node(["x"], ["y"], "n").SerializeToString())
    assert from_node(node) == plugin


def test_namespace_and_version_are_always_written():
    node = Everything().as_node(["x"], ["y"], "layer")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name.startswith("plugin_")}
    assert (node.domain, node.op_type, node.name) == ("test.node", "Everything", "layer")
    assert attributes == {"plugin_namespace": b"test.node", "plugin_version": b"2"}
    assert is_plugin_node(node)
    assert not is_plugin_node(onnx.helper.make_node("Relu", ["x"], ["y"]))


def test_an_unknown_attribute_and_an_unknown_plugin_are_named():
    node = Everything().as_node(["x"], ["y"], "layer")
    node.attribute.append(onnx.helper.make_attribute("extra", 1))
    with pytest.raises(FieldError, match=r"node 'layer'.*\['extra'\]"):
        from_node(node)
    with pytest.raises(RegistryError, match="Do: import"):
        from_node(onnx.helper.make_node("Nothing", ["x"], ["y"], domain="test.node"))


def test_a_text_is_no_tuple_of_its_letters():
    node = Everything(count=1).as_node(["x"], ["y"])
    (names,) = (attribute for attribute in node.attribute if attribute.name == "names")
    names.CopyFrom(onnx.helper.make_attribute("names", "abc"))
    with pytest.raises(
        FieldError, match=r"names: expected tuple\[str, \.\.\.\], found 'abc' \(str\), from attribute 'names'"
    ):
        from_node(node)


def test_a_missing_attribute_takes_the_default():
    node = onnx.helper.make_node("Everything", ["x"], ["y"], domain="test.node", count=4)
    assert from_node(node) == Everything(count=4)


def test_a_long_text_that_is_not_utf8_is_shortened():
    node = Everything().as_node(["x"], ["y"], name="n")
    for attribute in node.attribute:
        if attribute.name == "name_":
            attribute.s = b"\xff" * 1_000_000
    with pytest.raises(ModelError, match=r"node 'n': a text attribute is not UTF-8: b'") as caught:
        node_attributes(node)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["plugin_namespace", "plugin_version"])
@pytest.mark.parametrize("value", [[1, 2], 3, ["a"], 0.5])
def test_a_namespace_or_version_that_is_no_text_is_refused(name, value):
    node = onnx.helper.make_node("Reorg", ["x"], ["y"], domain="darknet")
    node.attribute.append(onnx.helper.make_attribute(name, value))
    with pytest.raises(FieldError, match=f"node 'Reorg': attribute '{name}': expected text, found "):
        from_node(node)
