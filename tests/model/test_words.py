"""The words that attributes of operators may have, against the texts of ONNX's and onnxruntime's own schemas."""

from __future__ import annotations

import re

import onnx
import pytest

from pytrtplugins.validation.words import allowed_values

SCHEMAS = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]
STRING = onnx.defs.OpSchema.AttrType.STRING
NAMES = sorted({(each.name, name) for each in SCHEMAS for name, kind in each.attributes.items() if kind.type == STRING})
LIST = re.compile(
    r"(?:either|one of|loss:|apply:|modes:|modes include)((?:[ ,]+(?:or |and )?\w+(?: ?\([^)]*\))?)+)", re.I
)
WORD = re.compile(r"""["'`](\w+)["'`]|\b([A-Z]{3})\b""")
NO_WORDS = {
    "coordinate_transformation_mode": [
        *("x_resized", "x_original", "length_original", "length_resized", "output_width", "output_width_int", "roi"),
    ],
    "keep_aspect_ratio_policy": ["sizes", "scales", "axes", "i", "keep_aspect_ratio_policy", "round_int"],
    "mode": ["max_sequence_length"],
    "nearest_mode": ["nearest", "mode"],
}
"""What texts put in quotes beside words."""
OTHERS = {("Cast", "to"), ("Constant", "value_string"), ("Upsample", "mode")}
"""Free texts, and a mode of which onnxruntime knows more than ONNX."""


def listed_words(name, attribute):
    """What ONNX's texts list, those of the newest opset first."""
    words: dict[str, None] = {}
    for schema in sorted((each for each in SCHEMAS if each.name == name), key=lambda each: -each.since_version):
        text = schema.attributes[attribute].description if attribute in schema.attributes else ""
        bare = LIST.search(text)
        if bare and not re.search("[\"'`]", bare[0]):
            words |= dict.fromkeys(re.findall(r"\w+", re.sub(r"\([^)]*\)|\b(?:or|and)\b", "", bare[1])))
        else:
            found = dict.fromkeys(quoted or plain for quoted, plain in WORD.findall(text))
            words |= {word: None for word in found if word not in NO_WORDS.get(attribute, ())}
    return tuple(words)


@pytest.mark.parametrize(("name", "attribute"), [pair for pair in NAMES if pair not in OTHERS])
def test_the_words_are_those_that_onnxs_text_lists_in_its_order(name, attribute):
    assert allowed_values(name, "", attribute) == listed_words(name, attribute)


@pytest.mark.parametrize("name", sorted({each.name for each in SCHEMAS}))
def test_the_default_of_an_attribute_is_one_of_its_words(name):
    for attribute, item in onnx.defs.get_schema(name).attributes.items():
        known = allowed_values(name, "", attribute)
        if known and item.default_value.s:
            assert item.default_value.s.decode() in known, attribute


def test_operators_of_onnxruntime_have_the_words_of_onnxs():
    """Its schemas explain few of them; those of padding and directions are ONNX's."""
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    schemas = [each for each in state.get_all_operator_schema() if each.domain == "com.microsoft"]
    seen = {"auto_pad": 0, "direction": 0}
    for schema in schemas:
        for attribute, operator in (("auto_pad", "Conv"), ("direction", "LSTM")):
            expected = allowed_values(operator, "", attribute) if attribute in schema.attributes else ()
            assert allowed_values(schema.name, "com.microsoft", attribute) == expected, schema.name
            seen[attribute] += bool(expected)
    assert seen == {"auto_pad": 8, "direction": 2}
