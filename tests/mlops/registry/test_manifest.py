"""A manifest has what was written, or is refused; nothing in it is a path."""

import hashlib
import json
from dataclasses import fields, replace

import pytest

from pytrtplugins.errors import ModelRegistryError
from pytrtplugins.mlops.registry import ModelVersion, StoredFile
from pytrtplugins.mlops.registry.manifest import FORMAT, _digest, read, version_from_json, write
from pytrtplugins.mlops.registry.registry import _alike

VERSION = ModelVersion(
    name="scale",
    version=2,
    created="2026-01-31T12:00:00Z",
    engine="reference",
    precision="fp32",
    files={"engine": StoredFile("scale.engine", "0" * 64, 3)},
    networks={"built": "1" * 64},
    figures={"map50": 0.5},
    parent=1,
)


def manifest(**changes):
    """A manifest with other fields, whose digest fits."""
    content = {**json.loads(write(VERSION))["content"], **changes}
    return json.dumps({"format": FORMAT, "sha256": _digest(content), "content": content}).encode()


def test_what_was_written_is_read():
    assert version_from_json(read(write(VERSION), "x"), "x") == VERSION


def test_a_manifest_has_the_bytes_that_it_had():
    """Registries of earlier versions have such files: where this value changes, they are called damaged."""
    assert json.loads(write(VERSION))["sha256"] == "2bf1fe09457112ea5a0baa8ba5b374647053f3aecaa8e0a974a2377601a716d0"
    assert (
        hashlib.sha256(write(VERSION)).hexdigest() == "07d1c019a2afc8413238b7ba12b5651f52ca90345ac69b09ed5d8ba27dcde849"
    )


LONGEST = {  # a value that just fits each field, and one that does not
    "note": ("x" * 4000, "x" * 4001),
    "licence": ("x" * 4000, "x" * 4001),
    "version": (10**9 - 1, 10**9),
    "parent": (10**9 - 1, 10**9),
    "figures": ({"a": 9.99e299}, {"a": 1e300}),
}


@pytest.mark.parametrize("field", LONGEST)
def test_the_largest_value_of_each_field_is_read_again(field):
    fits, too_large = LONGEST[field]
    assert getattr(version_from_json(read(manifest(**{field: fits}), "x"), "x"), field) == fits
    with pytest.raises(ModelRegistryError, match=field):
        version_from_json(read(manifest(**{field: too_large}), "x"), "x")


FILE = {"name": "scale.engine", "sha256": "0" * 64, "bytes": 3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "../scale"),
        ("version", 0),
        ("version", True),
        ("version", "2"),
        ("created", "yesterday"),
        ("engine", 7),
        ("precision", "x" * 5000),
        ("files", {}),
        ("files", {"engine": {**FILE, "name": "../../etc/passwd"}}),
        ("files", {"engine": {**FILE, "sha256": "../../etc/passwd"}}),
        ("files", {"engine": {**FILE, "bytes": -1}}),
        ("files", {"engine": {**FILE, "path": "/etc/passwd"}}),
        ("files", {"../x": FILE, "engine": FILE}),
        ("networks", {"built": "abc"}),
        ("data", {"shards": "/photos"}),
        ("figures", {"map50": "high"}),
        ("figures", {"map50": True}),
        ("figures", {"map50": 10**310}),
        ("figures", {f"f{number}": 1 for number in range(5000)}),
        ("hardware", []),
        ("parent", 0),
        ("licence", None),
    ],
)
def test_a_field_with_something_else_is_refused_by_its_name(field, value):
    with pytest.raises(ModelRegistryError, match=f"{field}") as caught:
        version_from_json(read(manifest(**{field: value}), "x.json"), "x.json")
    assert caught.value.path == "x.json"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (manifest(colour="red"), "expected the fields"),
        *((data, "Do: pytrt models check") for data in (b"", b"[]", b"{}", b"\xff", b'{"format": 1}')),
        (b'{"format": 1, "sha256": "", "content": {}}', "Do: pytrt models check"),
        (b'{"format": 2, "new": 1}', "Do: pip install --upgrade pytrtplugins"),
        (b'{"format": "1", "new": 1}', "Do: pip install --upgrade pytrtplugins"),
        (b'{"format": null, "new": 1}', "Do: pip install --upgrade pytrtplugins"),
    ],
)
def test_what_is_no_manifest_of_this_format_is_refused_with_a_command(data, message):
    with pytest.raises(ModelRegistryError, match=message):
        version_from_json(read(data, "x"), "x")


OTHER = {
    **{
        "hardware": {"GPU": "H200"},
        "packages": {"numpy": "3"},
        "parent": 7,
        "version": 8,
        "created": "later",
        "run": "r",
    },
    **{
        "name": "x",
        "engine": "cpu",
        "precision": "int8",
        "networks": {},
        "data": {"evaluation": "2" * 64},
        "figures": {},
    },
    **{"licence": "MIT", "note": "n", "files": {"engine": StoredFile("scale.engine", "1" * 64, 3)}},
}


@pytest.mark.parametrize("name", [field.name for field in fields(ModelVersion)])
def test_what_is_added_again_differs_in_time_and_machine_alone(name):
    same = ("version", "created", "run", "parent", "hardware", "packages")
    assert _alike(VERSION, replace(VERSION, **{name: OTHER[name]})) == (name in same)


def test_a_file_of_another_name_is_the_same():
    assert _alike(VERSION, replace(VERSION, files={"engine": StoredFile("b.engine", "0" * 64, 3)}))
