"""docs/how-to/drift.md can be followed as it stands, and what it says of chance is so."""

import pytest

from pytrtplugins.mlops.drift.compare import FEATURES
from pytrtplugins.mlops.drift.measures import chance_of
from pytrtplugins.mlops.shards import make_shards
from tests.mlops.shards.photos import make_set
from tests.pages import Reader, read

onnx = pytest.importorskip("onnx")
pytest.importorskip("typer")
pytest.importorskip("PIL")
NETWORK = '<ir_version: 8, opset_import: ["": 17]> net (float[N, 3, 8, 8] x) => (float[N, 3, 1, 1] y) { y = GlobalAveragePool (x) }'


def test_the_page_can_be_followed(tmp_path):
    make_shards(make_set(tmp_path / "data", 20), tmp_path / "shards")
    make_set(tmp_path / "today", 15)
    onnx.save(onnx.parser.parse_model(NETWORK), tmp_path / "animals.onnx")
    Reader(tmp_path).follow("docs/how-to/drift.md")


def test_the_page_has_every_row():
    page = read("docs/how-to/drift.md")
    assert all(f"`{feature.name}`" in page for feature in FEATURES)


def test_what_the_page_says_of_chance_is_so():
    assert round(chance_of(10, 100, 100), 2) == 0.56
    assert round(chance_of(10, 1000, 1000), 2) == 0.06
