"""XML is parsed a child of the root at a time, as ElementTree would, and refused beyond the limits."""

from xml.etree import ElementTree

import pytest

from pytrtplugins.errors import ImageError
from pytrtplugins.utils.xml_text import MAX_DEPTH, parse_children

TEXT = """<?xml version="1.0"?>
<!-- a comment -->
<root a="1">between<first x="ä">text<in>side</in>tail</first><second/>
<third><![CDATA[<raw>]]>&amp;&#65;</third></root>
"""


def parsed(text, **more):
    return list(parse_children(text.encode() if isinstance(text, str) else text, "a.xml", **more))


def test_children_are_those_of_element_tree():
    root, *children = parsed(TEXT)
    known = ElementTree.fromstring(TEXT)
    assert (root.tag, root.attrib, len(root)) == (known.tag, known.attrib, 0)
    strip = [ElementTree.tostring(each, encoding="unicode").strip().removesuffix("\n") for each in known]
    assert [ElementTree.tostring(each, encoding="unicode") for each in children] == strip


def test_children_come_before_the_text_has_ended():
    text = "<root>" + "<a/>" * 50_000 + "</wrong>"
    found = parse_children(text.encode(), "a.xml")
    assert [next(found).tag for _ in range(3)] == ["root", "a", "a"]
    with pytest.raises(ValueError, match="mismatched tag in line 1"):
        list(found)


def test_other_encodings_are_read():
    text = '<?xml version="1.0" encoding="utf-16"?><r><a>ä</a></r>'
    assert parsed(text.encode("utf-16"))[1].text == "ä"


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("<r>\n<a></r>", "not XML: mismatched tag in line 2", 2),
        ("<r>\n<a/>", "not XML: no element found in line 2", 2),
        ("", "not XML: no element found in line 1", 1),
        ("<r>&x;</r>", "not XML: undefined entity in line 1", 1),
        ('<!DOCTYPE r [<!ENTITY x "y">]>\n<r>&x;</r>', "a DOCTYPE, which could declare entities in line 1", 1),
        ('<!DOCTYPE r SYSTEM "http://127.0.0.1/x.dtd"><r/>', "a DOCTYPE", 1),
        ("<a>" * (MAX_DEPTH + 1), "nested more than 64 deep", 1),
        ("<r><a>" + "<b/>" * 300_000 + "</a></r>", "more than 200,000 elements in one", 1),
        ('<?xml version="1.0" encoding="none-such"?><r/>', "unknown encoding", 1),
        (b"<r>\xff</r>", "not XML: not well-formed", 1),
    ],
)
def test_what_is_refused(text, what, line):
    with pytest.raises(ImageError, match=what) as raised:
        parsed(text, error=ImageError)
    assert (raised.value.path, raised.value.line) == ("a.xml", line)


def test_a_text_that_is_too_long_is_not_parsed():
    with pytest.raises(ValueError, match="expected at most 10 bytes, found 12"):
        parsed("<r>" + " " * 5 + "</r>", max_bytes=10)
