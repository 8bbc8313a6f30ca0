"""Results and pages: what one says the other says too."""

import json
import shutil

import pytest

from benchmarks.pages import __main__ as command
from benchmarks.pages.machine import about
from benchmarks.pages.region import fill_region, region_body, region_names
from benchmarks.pages.results import DOCS, differences, publish, read_result, results_folder
from benchmarks.pages.table import left, right, table

pytest.importorskip("matplotlib")

ROWS = [
    {"command": "a", "median_s": 1.5, "min_s": 1.25, "bytes": 3e8, "over_weights": 1.5},
    {"command": "b", "median_s": 2.0, "min_s": 1.75, "bytes": 4e8, "over_weights": 2.0},
]


@pytest.fixture
def docs(tmp_path):
    return tmp_path / "docs"


def record(rows=ROWS):
    return {"subject": "conversion", **about(["numpy"], "a command", "Nothing else ran."), "rows": rows}


def test_the_projects_pages_and_charts_are_those_of_its_results():
    assert list(differences()) == []


def test_a_page_has_a_section_for_each_record_and_keeps_its_text(docs):
    docs.mkdir()
    (docs / "trial.md").write_text("# Trials\n\nBefore.\n\n<!-- results: one -->\nold\n<!-- end -->\n\nBehind.\n")
    for name in ("one", "two", "one"):
        assert publish(record(), "trial", name, docs) == docs / "trial.md"
    text = (docs / "trial.md").read_text()
    assert region_names(text) == ["one", "two"]
    assert text.startswith("# Trials\n\nBefore.\n\n<!-- results: one -->\n\n")
    assert "<!-- end -->\n\nBehind.\n\n## two\n\n<!-- results: two -->\n" in text
    assert "Command: `a command`. Nothing else ran.\n\n| whole process |" in text
    assert "old" not in text
    assert read_result("trial", "one", docs)["rows"] == ROWS
    assert list(differences(docs)) == []


def test_numbers_of_other_libraries_are_kept(docs):
    numpy = pytest.importorskip("numpy")
    publish(record([{**ROWS[0], "median_s": numpy.float32(0.5)}]), "trial", "one", docs)
    assert read_result("trial", "one", docs)["rows"][0]["median_s"] == 0.5


def test_the_command_makes_pages_again_and_finds_what_differs(docs, capsys, monkeypatch):
    shutil.copytree(results_folder(DOCS) / "serving_benchmarks", results_folder(docs) / "serving_benchmarks")
    monkeypatch.setattr("sys.argv", ["pages", "--docs", str(docs)])
    assert command.main() == 0
    assert "serving_benchmarks.md" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["pages", "--docs", str(docs), "--check"])
    assert command.main() == 0
    page, result = docs / "serving_benchmarks.md", results_folder(docs) / "serving_benchmarks" / "gpu.json"
    text, facts = page.read_text(), json.loads(result.read_text())
    page.write_text(text.replace("| 4,876 |", "| 4,877 |", 1) + "\n<!-- results: other -->\n\n<!-- end -->\n")
    assert command.main() == 1
    found = capsys.readouterr().out
    assert "serving_benchmarks.md: the region gpu differs from its results" in found
    assert "serving_benchmarks.md: the region other has no results" in found
    page.write_text(text)
    facts["rows"][0]["rate"] += 1000
    result.write_text(json.dumps(facts))
    assert any("images/serving-gpu-0.svg lacks" in line for line in differences(docs))


def test_a_region_without_an_end_is_no_region(docs):
    assert region_body("<!-- results: a -->\ntext", "a") is None
    fill_region(docs / "new_page.md", "a", "Figures.")
    assert (
        docs / "new_page.md"
    ).read_text() == "# New page\n\n## a\n\n<!-- results: a -->\n\nFigures.\n\n<!-- end -->\n"


def test_a_column_that_no_row_has_is_left_out_and_none_is_a_dash():
    columns = [left("name", "name"), right("x", "x", ".1f"), right("y", "y", "d"), right("z", lambda row: row["x"])]
    rows = [{"name": "a", "x": 1.25}, {"name": "b", "x": None}]
    assert table(columns, rows).splitlines() == [
        "| name | x | z |",
        "|---|---:|---:|",
        "| a | 1.2 | 1.25 |",
        "| b | – | – |",
    ]
