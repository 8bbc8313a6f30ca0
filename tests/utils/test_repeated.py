"""Items of repeated fields of protobuf messages."""

import pytest
from onnx import NodeProto, helper

from pytrtplugins.utils.repeated import keep_items, set_items


def graph(count):
    return helper.make_graph(
        [NodeProto(name=str(number), input=["x"] * number) for number in range(count)], "g", [], []
    )


def names(field):
    return [item.name for item in field]


@pytest.mark.parametrize("wanted", [(), ("0",), ("3",), ("1", "2"), ("0", "1", "2", "3")])
def test_the_items_that_are_wanted_stay_in_their_order(wanted):
    found = graph(4)
    keep_items(found.node, lambda node: node.name in wanted)
    assert names(found.node) == list(wanted)
    assert [len(node.input) for node in found.node] == [int(name) for name in wanted]


def test_a_field_can_be_given_its_own_items_in_another_order():
    found, others = graph(1000), list(graph(2).node)
    own = list(found.node)
    set_items(found.node, [*others, *own[::-2]])
    assert names(found.node) == ["0", "1", *map(str, range(999, -1, -2))]
    assert [len(node.input) for node in found.node][2:] == list(range(999, -1, -2))
    found.node[2].name = "changed"
    assert own[-1].name == "999"  # they are copies


def test_an_iterator_over_the_field_itself_is_read_before_the_field_is_emptied():
    found = graph(5)
    set_items(found.node, (node for node in found.node if len(node.input) % 2))
    assert names(found.node) == ["1", "3"]
