"""Files that say what is served."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.config import read_limits, read_models
from pytrtplugins.utils.toml_file import TomlFile

VERSIONS = """
[limits]
head_bytes = 4096

[models.animals]
target = "animals.engine"
max_batch = 16
sizes = [1, 8]

[[models.animals.versions]]
version = "2"
target = "new/animals.engine"
queue = 9

[[models.animals.versions]]
version = "10"
target = "package.module:Animals"

[models.lines]
target = "lines.py:Lines"
max_delay_ms = 1
"""


@pytest.fixture
def read(tmp_path):
    def opened(text):
        (tmp_path / "serving.toml").write_text(text)
        return TomlFile.read(tmp_path / "serving.toml")

    return opened


def test_models_have_what_the_file_says_versions_what_their_model_says_and_else_the_defaults(read, tmp_path):
    found = read_models(read(VERSIONS), {"queue": 7, "max_delay_ms": 5.0})
    common = {"max_batch": 16, "sizes": (1, 8), "max_delay_ms": 5.0}
    assert found == [
        ModelSpec("animals", f"{tmp_path}/animals.engine", queue=7, **common),
        ModelSpec("animals", f"{tmp_path}/new/animals.engine", queue=9, version="2", **common),
        ModelSpec("animals", "package.module:Animals", queue=7, version="10", **common),
        ModelSpec("lines", f"{tmp_path}/lines.py:Lines", queue=7, max_delay_ms=1),
    ]


def test_a_model_whose_table_has_no_target_is_its_versions_alone(read, tmp_path):
    text = "[models.a]\nqueue = 3\n[[models.a.versions]]\nversion = '4'\ntarget = '/x.engine'\n"
    assert read_models(read(text), {}) == [ModelSpec("a", "/x.engine", queue=3, version="4")]


def test_limits_are_those_of_the_file_and_those_that_are_given(read):
    assert read_limits(read(VERSIONS), {"body_bytes": 9}) == Limits(body_bytes=9, head_bytes=4096)
    with pytest.raises(FormatError, match=r"line 2: limits has no key 'body_bytes'"):
        read_limits(read("[limits]\nbody_bytes = 5"), {"body_bytes": 9})


@pytest.mark.parametrize("cls", [ModelSpec, Limits])
def test_every_field_is_a_key_with_a_type_that_is_checked(cls, read):
    """A field that is added needs no further code: one of a wrong type is refused by the file and in Python."""
    for field in fields(cls):
        if field.name == "name":
            continue
        table = "models.a" if cls is ModelSpec else "limits"
        text = f"[{table}]\n{field.name} = 1979-05-27"
        with pytest.raises(FormatError, match=rf"line 2: {table}, {field.name}: expected .*, found datetime"):
            read_models(read(text), {}) if cls is ModelSpec else read_limits(read(text), {})
        given = {"name": "a", "target": "x.engine"} if cls is ModelSpec else {}
        with pytest.raises(UsageError, match=rf"{cls.__name__}\.{field.name}: expected .*, found <object"):
            cls(**{**given, field.name: object()})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.a]\ntarget = 'x'\nmax_bach = 2", "line 3: models.a has no key 'max_bach'.\nDo: write max_batch"),
        ("[models.a]\ntarget = 'x'\nname = 'b'", "line 3: models.a has no key 'name'."),
        ("[models.a]\ntarget = 'x'\nqueue = 0", "line 3: models.a, queue: expected a whole number from 1 to 1,000,000, found 0"),
        ("[models.a]\ntarget = 'x'\nsizes = [0]", "line 3: models.a, sizes: expected a list of a whole number from 1 to"),
        ("[models.a]\ntarget = 'x'\nmax_delay_ms = nan", "line 3: models.a, max_delay_ms: expected a number from 0 to"),
        ("[models.a]\nqueue = 1", "line 1: models.a: target is missing: a file, or module:Class"),
        ("[models.'a/b']\ntarget = 'x'", "models.a/b: name: expected letters, digits"),
        ("[models.stats]\ntarget = 'x'", "line 1: models.stats: name: expected letters, digits"),
        ("[models.a]\ntarget = 'x'\nversion = '0'", "line 1: models.a: version: expected a whole number from 1 on"),
        ("[models.a]\ntarget = 'x'\nversion = 2", "line 3: models.a, version: expected text, found 2"),
        ("models = 1", "line 1: models: expected a table, [models], found 1"),
        ("[models]\na = 1", "line 2: models.a: expected a table, [models.a], found 1"),
        ("[models.a.versions]\nx = 1", "line 1: models.a.versions: expected tables, [[models.a.versions]], found"),
        (
            "[models.a]\ntarget = 'x'\n[[models.a.versions]]\nversion = '2'\ntarget = 'y'\n[[models.a.versions]]\nqeue = 2",
            "line 7: models.a.versions has no key 'qeue'.\nDo: write queue",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_file_line_key_and_what_is_expected(read, text, said):
    with pytest.raises(FormatError, match=re.escape(said)) as caught:
        read_models(read(text), {})
    assert "serving.toml" in str(caught.value)


@pytest.mark.parametrize("cls", [ModelSpec, Limits])
def test_the_page_lists_every_key(cls):
    page = (Path(__file__).parents[2] / "docs/how-to/serving_config.md").read_text("utf-8")
    keys = {field.name for field in fields(cls)} - {"name", "body_bytes", "shared_memory_regions", "urls"}
    assert keys <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
