"""``pytrt data compare``: its options, what it prints and writes, its JSON and its exit codes."""

import json
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("PIL")

import onnx
from onnx import parser

from tests.mlops.shards.photos import make_set, photo


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Two sets; the photos of b are larger."""
    place = tmp_path_factory.mktemp("sets")
    for name in "ab":
        make_set(place / name, 40)
    for number in range(40):
        (place / f"b/images/p{number}.jpg").write_bytes(photo(number, (48, 32)))
    return place


@pytest.fixture
def compared(pytrt, sets, monkeypatch):
    """Compares two sets, in the folder in which both are; gives what is printed as a result, or for code 2 as an error."""

    def run(*words, code=0):
        monkeypatch.chdir(sets)
        ended, out, err = pytrt("data", "compare", *words)
        assert ended == code, out + err
        return err if code == 2 else out

    return run


def test_a_set_beside_itself_is_within_the_limit(compared, printed, sets):
    printed("shards", "make", sets / "a", "-o", sets / "shards", "-q")
    out = compared("shards", "a", "--fail-above", "drift=0.2")
    assert "Drift, the largest PSI that is more than chance: 0.000." in out
    assert "A is shards: 40 photos, 40 of them measured, 26 of those with boxes." in out


def test_another_set_is_beyond_it(compared, pytrt):
    out = compared("a", "b", "--fail-above", "drift=0.2", "--fail-above", "brightness=0.5", code=1)
    assert "Beyond the limit: drift is" in out
    code, _, err = pytrt("data", "compare", "a", "b", "--fail-above", "width=0.2", "-q")
    assert (code, err.startswith("width is ")) == (1, True)


def test_results_as_json_and_files(compared):
    words = [word for suffix in ("md", "json") for word in ("-o", f"x.{suffix}")]
    found = json.loads(compared("a", "b", "--samples", "20", "--json", *words))
    assert found["ok"] is True
    assert json.loads(Path("x.json").read_text()) == found["result"]
    assert found["result"]["a"]["measured"] == 20
    assert Path("x.md").read_text().startswith("|  | A: median")


def test_a_network_sees_too(compared, sets):
    text = '<ir_version: 8, opset_import: ["": 17]> net (float[1, 3, 8, 8] x) => (float[1, 3, 1, 1] y) { y = GlobalAveragePool (x) }'
    onnx.save(parser.parse_model(text), sets / "mean.onnx")
    words = ("--model", "mean.onnx", "--engine", "reference", "--fail-above", "embedding=5", "--json")
    assert json.loads(compared("a", "b", *words))["result"]["embedding"]["values"] == 3


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("a", "b", "--fail-above", "drift"), "such as drift=0.2"),
        (("a", "b", "--fail-above", "embedding=1"), "needs a network"),
        (("a", "b", "--pixels", "0..3"), "--pixels 0..3"),
        (("a", "b", "--labels", "yolo"), "expected auto or one of"),
        (("a", "b", "-o", "x.txt"), "unknown suffix"),
        (("a/images", "b/images"), "--labels none"),
    ],
)
def test_words_that_are_refused(compared, words, what):
    assert what in " ".join(compared(*words, code=2).split())


def test_photos_without_labels(compared):
    assert "0 of those with boxes" in compared("a/images", "b/images", "--labels", "none")
