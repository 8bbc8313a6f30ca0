"""``pytrt data compare``: its options, what it prints and writes, its JSON and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("typer")
pytest.importorskip("PIL")

import onnx
from onnx import parser

from pytrtplugins import cli
from tests.shards.photos import make_set, photo


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Two sets; the photos of b are larger."""
    place = tmp_path_factory.mktemp("sets")
    for name in "ab":
        make_set(place / name, 40)
    for number in range(40):
        (place / f"b/images/p{number}.jpg").write_bytes(photo(number, (48, 32)))
    return place


@pytest.fixture(autouse=True)
def folder(sets, monkeypatch):
    """The folder in which both are."""
    monkeypatch.chdir(sets)


def run(*words, code=0):
    with pytest.raises(SystemExit) as end:
        cli.main([str(word) for word in words])
    assert (end.value.code or 0) == code


def test_a_set_beside_itself_is_within_the_limit(capsys):
    run("shards", "make", "a", "-o", "shards", "-q")
    run("data", "compare", "shards", "a", "--limit", "drift=0.2")
    printed = capsys.readouterr().out
    assert "Drift, the largest PSI that is more than chance: 0.000." in printed
    assert "A is shards: 40 photos, 40 of them measured, 26 of those with boxes." in printed


def test_another_set_is_beyond_it(capsys):
    run("data", "compare", "a", "b", "--limit", "drift=0.2", "--limit", "brightness=0.5", code=1)
    assert "Beyond the limit: drift is" in capsys.readouterr().out
    run("data", "compare", "a", "b", "--limit", "width=0.2", "-q", code=1)
    assert capsys.readouterr().err.startswith("width is ")


def test_results_as_json_and_files(capsys):
    words = [word for suffix in ("md", "json") for word in ("-o", f"x.{suffix}")]
    run("data", "compare", "a", "b", "--photos", "20", "--json", *words)
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert json.loads(Path("x.json").read_text()) == found["result"]
    assert found["result"]["a"]["measured"] == 20
    assert Path("x.md").read_text().startswith("|  | A: median")


def test_a_network_sees_too(capsys):
    text = '<ir_version: 8, opset_import: ["": 17]> net (float[1, 3, 8, 8] x) => (float[1, 3, 1, 1] y) { y = GlobalAveragePool (x) }'
    onnx.save(parser.parse_model(text), "mean.onnx")
    run(
        "data", "compare", "a", "b", "--model", "mean.onnx", "--engine", "reference", "--limit", "embedding=5", "--json"
    )
    assert json.loads(capsys.readouterr().out)["result"]["embedding"]["values"] == 3


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--limit", "drift"), "such as drift=0.2"),
        (("--limit", "embedding=1"), "needs a network"),
        (("--pixels", "0..3"), "--pixels 0..3"),
        (("--labels", "yolo"), "expected auto or one of"),
        (("-o", "x.txt"), "unknown suffix"),
    ],
)
def test_words_that_are_refused(capsys, words, what):
    run("data", "compare", "a", "b", *words, code=2)
    assert what in " ".join(capsys.readouterr().err.split())


def test_photos_without_labels(capsys):
    run("data", "compare", "a/images", "b/images", code=2)
    assert "--labels none" in " ".join(capsys.readouterr().err.split())
    run("data", "compare", "a/images", "b/images", "--labels", "none")
    assert "0 of those with boxes" in capsys.readouterr().out
