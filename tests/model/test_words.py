"""The words that attributes of ONNX's operators may have, against the texts of ONNX's own schemas."""

from __future__ import annotations

import onnx
import pytest

from pytrtplugins.validation.words import known_words

LATEST = {schema.name: schema for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
PADDED = [name for name, schema in LATEST.items() if "auto_pad" in schema.attributes]
DIRECTED = [name for name, schema in LATEST.items() if name != "BitShift" and "direction" in schema.attributes]


def test_operators_that_choose_their_padding_have_the_four_words():
    assert len(PADDED) >= 7
    for name in PADDED:
        default = LATEST[name].attributes["auto_pad"].default_value.s.decode()
        assert known_words(name, "", "auto_pad") == ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"), name
        assert default in known_words(name, "", "auto_pad")


def test_recurrent_operators_have_three_directions():
    assert sorted(DIRECTED) == ["GRU", "LSTM", "RNN"]
    for name in DIRECTED:
        assert known_words(name, "", "direction") == ("forward", "reverse", "bidirectional")


@pytest.mark.parametrize("name", LATEST)
def test_the_default_of_an_attribute_is_one_of_its_words(name):
    for attribute, item in LATEST[name].attributes.items():
        known = known_words(name, "", attribute)
        if known and item.default_value.s:
            assert item.default_value.s.decode() in known, attribute
