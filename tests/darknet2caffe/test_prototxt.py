"""The reader of protobuf's text format, beside protobuf's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from darknet2caffe import to_caffe
from darknet2caffe.prototxt import MAX_BYTES, parse_prototxt, read_prototxt
from pytrtplugins.errors import ModelError
from tests.darknet2caffe.caffe import read_prototxt as read_by_protobuf
from tests.darknet2caffe.networks import network


def test_written_files_are_read_as_protobuf_reads_them(tmp_path):
    text, _ = to_caffe(network(), tmp_path / "a")
    found = parse_prototxt(text.read_text()).mapping()
    expected = json_format.MessageToDict(read_by_protobuf(text), preserving_proto_field_name=True)
    assert normal(found) == normal(expected)


def normal(value):
    """One form for values that the two tell differently: lists of one, float32, 64-bit numbers as text."""
    if isinstance(value, dict):
        return {key: normal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return normal(value[0]) if len(value) == 1 else [normal(inner) for inner in value]
    is_number = type(value) in (int, float) or (isinstance(value, str) and value.removeprefix("-").isdigit())
    return round(float(value), 6) if is_number else value


def test_all_forms_of_values_are_read():
    text = """
    # a comment
    a: 1, b: -2; c: 0x1F d: 010 e: .5f f: 1e3   g: [1, 2, 3] h: [] i: inf j: -nan
    k: "x # no comment" l: 'it\\'s \\303\\251\\x41\\n' m: MAX n: true t: '\\a\\b\\f\\r\\t\\v\\\\'
    o { p: 1 } q: { p: 2 } r < p: 3 > s: [ { p: 4 }, { p: 5 } ]
    """
    found = parse_prototxt(text).mapping()
    assert math.isnan(found.pop("j"))
    assert found == {
        **{"a": 1, "b": -2, "c": 31, "d": 8, "e": 0.5, "f": 1000.0, "g": [1, 2, 3], "i": math.inf},
        **{"k": "x # no comment", "l": "it's éA\n", "m": "MAX", "n": True, "t": "\a\b\f\r\t\v\\"},
        **{"o": {"p": 1}, "q": {"p": 2}, "r": {"p": 3}, "s": [{"p": 4}, {"p": 5}]},
    }


def test_fields_are_asked_for_by_type():
    message = parse_prototxt('a: 3 b: 2.5 c: false d: AVE e: "text" f { g: 1 } h: 1 h: 2 d2: 1 c2: 1 i: 1 i: 2.5')
    assert (message.integer("a", 0), message.number("b", 0), message.number("a", 0)) == (3, 2.5, 3.0)
    assert (message.flag("c", True), message.flag("c2", False), message.flag("none", True)) == (False, True, True)
    assert (message.choice("d", ("MAX", "AVE"), "MAX"), message.choice("d2", ("MAX", "AVE"), "MAX")) == ("AVE", "AVE")
    assert (message.text("e", ""), message.text("none", "default")) == ("text", "default")
    assert (message.message("f").integer("g", 0), message.message("none").fields) == (1, [])
    assert (message.integers("h"), message.numbers("i"), message.has("h"), message.has("none")) == (
        [1, 2],
        [1, 2.5],
        True,
        False,
    )
    message.finish()


def test_whole_numbers_have_31_bits():
    message = parse_prototxt("a: 2147483647 b: 2147483648")
    assert (message.integer("a", 0), message.integers("a")) == (2**31 - 1, [2**31 - 1])
    with pytest.raises(ModelError, match=r"2,147,483,648|2147483648"):
        message.integer("b", 0)


def test_braces_may_be_32_deep_and_numbers_100_digits_long():
    def deep(count):
        return "a {" * count + " b: 1 " + "}" * count

    message = parse_prototxt(deep(32))
    for _ in range(32):
        (message,) = message.messages("a")
    assert message.integer("b", 0) == 1
    with pytest.raises(ModelError, match="braces in braces, more than 32 deep"):
        parse_prototxt(deep(33))
    assert parse_prototxt("a: " + "0" * 99 + "1").integer("a", 0) == 1
    with pytest.raises(ModelError, match="a number of 101 characters"):
        parse_prototxt("a: " + "0" * 100 + "1")


def test_a_file_may_have_4_mebibytes(tmp_path):
    (tmp_path / "a.prototxt").write_bytes(b"a: 1 #" + b" " * (4 * 1024**2 - 6))
    assert read_prototxt(tmp_path / "a.prototxt").integer("a", 0) == 1


def test_a_field_that_nobody_asked_for_is_an_error():
    message = parse_prototxt("a: 1\nb: 2\n")
    message.integer("a", 0)
    message.finish(frozenset(["b"]))
    with pytest.raises(ModelError, match="the prototxt:2: the field b is not supported here"):
        message.finish()


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb 2", 2, "expected a colon or a brace"),
        ("a: 1\n}", 2, "expected a field's name, found '}'"),
        ("a {\nb: 1\n", 3, "found the end of the file"),
        ("a: {\n b: 1 >", 2, "found '>'"),
        ("a:", 1, "expected a value"),
        ("a: [1, 2", 1, "expected a value"),
        ("a: }", 1, "expected a value"),
        ("n" * 41 + ": }", 1, r"\bn{40}: expected a value"),
        ("\na: 'x\n'", 2, "not part of protobuf's text format"),
        ("a { '}' }", 1, "expected a field's name"),
        ("a '{' b: 1 }", 1, "expected a colon or a brace"),
        ("a: @", 1, "not part of protobuf's text format"),
        ("1: 2", 1, "expected a field's name"),
        ("-a: 2", 1, "expected a field's name"),
        ("a: '\\377'", 1, "is not UTF-8"),
        ("a: " + "9" * 5000, 1, "5,000 characters"),
        ("a {" * 100_000, 1, "more than 32 deep"),
    ],
)
def test_broken_texts_are_refused_with_the_line(text, line, problem):
    with pytest.raises(ModelError, match=problem) as caught:
        parse_prototxt(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        (b"a: 1\n\xff", ":2: not UTF-8"),
        (b" " * (MAX_BYTES + 1), "more than 4,194,304 bytes"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path, content, problem):
    if content is not None:
        (tmp_path / "a.prototxt").write_bytes(content)
    with pytest.raises(ModelError, match=problem) as caught:
        read_prototxt(tmp_path / "a.prototxt")
    assert caught.value.path == str(tmp_path / "a.prototxt")


@settings(deadline=10_000)
@given(st.text(alphabet="ab:{}<>[]\"'\\#-.09eEfxX \n,;é", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        parse_prototxt(text).mapping()
        line: Any = 1
    except ModelError as error:
        line = error.line
    assert 1 <= line <= text.count("\n") + 1
