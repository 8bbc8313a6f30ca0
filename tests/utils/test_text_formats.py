"""JSON and YAML from others: refused before they cost anything, with the line."""

import contextlib
import json
import math
import re
import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import CalibrationTableError, FormatError, PytrtpluginsError
from pytrtplugins.utils.text_formats import MAX_DEPTH, parse_json, parse_yaml, read_json, read_yaml, shorten
from tests.damage import yaml_bomb

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_what_python_writes_as_json_is_read(value):
    assert parse_json(json.dumps(value), "x.json") == value
    assert parse_json(json.dumps(value, ensure_ascii=False), "x.json") == value


@given(JSON_VALUES)
def test_what_pyyaml_writes_is_read_as_pyyaml_reads_it(value):
    yaml = pytest.importorskip("yaml")
    text = yaml.safe_dump(value, allow_unicode=True)
    if "&id" in text:  # equal lists that are one object are written as aliases
        return
    assert parse_yaml(text, "x.yaml") == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("{\n1}", "not JSON: Expecting property name .* in line 2, column 1", 2),
        ("", "not JSON: Expecting value in line 1", 1),
        ("[1]\n[2]", "not JSON: Extra data in line 2", 2),
        ("\n" + "[" * 100_000, f"nested more than {MAX_DEPTH} deep in line 2", 2),
        ('{"a":' * 100_000, f"nested more than {MAX_DEPTH} deep in line 1", 1),
        (b'["\xff"]', "not UTF-8 in line 1", 1),
    ],
    ids=range(6),
)
def test_json_that_is_broken_or_too_deep_is_refused_with_its_line(text, problem, line):
    with pytest.raises(FormatError, match=rf"^x\.json: {problem}") as caught:
        parse_json(text, "x.json")
    assert (caught.value.path, caught.value.line) == ("x.json", line)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' appears twice"),
        ("[NaN]", "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ("1e999", "'1e999' is beyond float64"),
        ("1" * 5000, "a number has 5,000 digits"),
    ],
)
def test_json_with_two_meanings_is_refused(text, problem):
    with pytest.raises(FormatError, match=re.escape(problem)):
        parse_json(text, "x.json")


def test_depth_is_counted_outside_of_texts():
    deep = "[" * MAX_DEPTH + '"' + r"[{\"[\\" * 100 + '"' + "]" * MAX_DEPTH
    assert shorten(parse_json(deep, "x.json")) == "[[[[...]]]]"
    with pytest.raises(FormatError, match="nested"):
        parse_json(f"[{deep}]", "x.json")


def test_yaml_may_be_as_deep_as_json():
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_yaml(deep, "x.yaml") == parse_json(deep, "x.json")
    with pytest.raises(FormatError, match=f"nested more than {MAX_DEPTH} deep"):
        parse_yaml(f"[{deep}]", "x.yaml")


def test_the_text_that_python_writes_for_nan_is_taken_where_it_is_asked_for():
    assert math.isnan(parse_json("[NaN]", "x.json", allow_nan=True)[0])


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        (yaml_bomb(), "aliases and anchors are not allowed", 1),
        ("a: 1\nb: *a", "aliases and anchors are not allowed", 2),
        ("a: !!python/object/apply:os.system ['true']", "tags such as .* are not allowed", 1),
        ("a: !!binary aGk=", "tags such as .* are not allowed", 1),
        ("a: 1\n\na: 2", "the key 'a' appears twice", 3),
        ("1: a\n1.0: b", "the key 1.0 appears twice", 2),
        ("? [a]\n: b", "a key must be a text or a number", 1),
        ("a:\n" + "  " + "[" * 1000, f"nested more than {MAX_DEPTH} deep", 2),
        ("- " * 1000 + "1", f"nested more than {MAX_DEPTH} deep", 1),
        ("a: 1\n---\nb: 1", "another document", 2),
        ("a: [1", "expected ',' or ']'", 1),
        ("a: " + "1:" * 300 + "1", "a number has 601 characters", 1),
        ("a: 0b_", "'0b_' is not a number", 1),
    ],
    ids=range(13),
)
def test_yaml_beyond_jsons_values_is_refused_with_its_line(text, problem, line):
    with pytest.raises(
        FormatError, match=rf"^x\.yaml: not usable YAML: .*{problem}.* in line {line}, column"
    ) as caught:
        parse_yaml(text, "x.yaml")
    assert (caught.value.path, caught.value.line) == ("x.yaml", line)


@pytest.mark.parametrize("text", ['"\\UFFFFFFFF"', "\x00", "a: \x07"])
def test_yaml_with_characters_that_do_not_exist_is_refused(text):
    with pytest.raises(FormatError, match=r"x\.yaml: not usable YAML"):
        parse_yaml(text, "x.yaml")


def test_dates_are_texts_in_yaml():
    assert parse_yaml("a: 2024-13-45\nb: 2024-01-01", "x.yaml") == {"a": "2024-13-45", "b": "2024-01-01"}


def test_files_have_a_limit_and_the_errors_of_their_reader(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('"' + "x" * 100 + '"')
    with pytest.raises(CalibrationTableError, match=r"expected at most 50 bytes, found 102") as caught:
        read_json(path, max_bytes=50, error=CalibrationTableError)
    assert caught.value.path == path
    path.write_text("{")
    with pytest.raises(CalibrationTableError, match="not usable YAML"):
        read_yaml(path, error=CalibrationTableError)


def test_a_yaml_bomb_takes_no_memory(tmp_path):
    path = tmp_path / "precision.yaml"
    path.write_text(f"{yaml_bomb()}\nformat: *j")  # which was shown whole
    assert path.stat().st_size < 800
    code = "import sys; from pytrtplugins.passes import Precisions; Precisions.read(sys.argv[1])"
    limit = 2 << 30
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert "FormatError" in done.stderr
    assert "aliases and anchors are not allowed in line 1" in done.stderr


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, ["x" * 10**6] * 100, {"a": "x" * 10**6}, 10**5000, [10**5000], b"x" * 10**6, [[[[[[1]]]]]]],
    ids=range(7),
)
def test_a_value_is_never_shown_whole(value):
    assert len(shorten(value)) <= 80
    assert len(shorten(value, 200)) <= 200


def test_a_short_value_is_shown_as_it_is():
    assert shorten("it's") == '"it\'s"'
    assert shorten({"a": [1, 2.5, None]}) == "{'a': [1, 2.5, None]}"


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_our_error(data):
    for parse in (parse_json, parse_yaml):
        with contextlib.suppress(PytrtpluginsError):
            parse(data, "x")
