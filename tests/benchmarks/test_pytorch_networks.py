"""The rows of networks as others write them: real forms of one network, timed by a stub, and their table."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="PyTorch makes the networks (pip install torch)")
if (
    importlib.util.find_spec("onnxscript") is None
):  # it takes long to import, and is imported when networks are exported
    pytest.skip("PyTorch's newer exporter needs it (pip install onnxscript)", allow_module_level=True)

from benchmarks import accuracy, pytorch_networks, pytorch_rows
from benchmarks.pages.accuracy import pytorch as tables


def test_images_are_the_same_every_time_and_lie_in_0_to_1():
    for family in ("crnn", "resnet"):
        found = pytorch_networks.images(family, 2, seed=3)
        assert found.shape == (2, 3, pytorch_networks.SIZE, pytorch_networks.SIZE)
        assert found.dtype == np.float32
        assert 0 <= found.min() < found.max() <= 1
        np.testing.assert_array_equal(found, pytorch_networks.images(family, 2, seed=3))
        assert (found[0] != found[1]).any()


@pytest.mark.slow
@pytest.mark.parametrize("exporter", pytorch_networks.EXPORTERS)
@pytest.mark.parametrize("family", pytorch_networks.FAMILIES)
def test_every_family_is_exported_and_keeps_its_numbers_in_int8(family, exporter, monkeypatch):
    onnx.checker.check_model(pytorch_networks.exported(family, exporter), full_check=True)
    monkeypatch.setattr(
        pytorch_rows, "run_seconds", lambda runs, clock: {name: len(run()) / 1e3 for name, run in runs.items()}
    )
    rows = list(pytorch_rows.measure(family, exporter, threads=1))
    assert [row["engine"] for row in rows] == ["cpu", "onnxruntime"]
    for row in rows:
        assert row["quality"]["minmax"][0] > 0.99
        assert row["quality"]["minmax"][1] > 15
        assert set(row["ms"]) == {"fp32", "minmax", "own"}


def figures(family: str) -> dict[str, Any]:
    quality = {"minmax": (0.99991, 41.2), "entropy": (0.66, 3.4), "own": (0.99, 20.5)}
    ms = {"fp32": 2.0, "minmax": 1.0, "own": 1.5}
    return {"family": family, "exporter": "dynamo", "engine": "cpu", "ms": ms, "quality": quality}


def test_a_row_shows_times_in_milliseconds_and_quality():
    table, machine = tables("pytorch", {"rows": [figures("resnet")], "processor": "a CPU", "versions": {"torch": "2"}})
    head, _, row = table.splitlines()
    assert machine == "a CPU, torch 2."
    assert head.count("|") == row.count("|")
    assert row == "| resnet | dynamo | cpu | 2.00 | 1.00 | 1.50 | 0.9999 | 41.2 | 0.6600 | 3.4 | 20.5 |"


def test_the_table_is_written_only_where_all_families_are_measured(tmp_path, monkeypatch, capsys):
    page = tmp_path / "docs" / "lab" / "accuracy.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- results: pytorch -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(pytorch_rows, "measure", lambda family, exporter, threads: [figures(family)])
    accuracy.pytorch(["crnn"], 1, page.parent)
    assert "| crnn |" in capsys.readouterr().out
    assert "old" in page.read_text()
    accuracy.pytorch(None, 1, page.parent)
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert text.count("| dynamo | cpu |") == len(pytorch_networks.FAMILIES) * len(pytorch_networks.EXPORTERS)
    assert "1 thread, torch" in text


def test_quality_is_that_of_all_images():
    wanted = [np.float64([3, 4]), np.float64([1, 0])]
    cosine, decibel = pytorch_rows._quality(wanted, [np.float64([3, 4]), np.float64([0, 1])])
    assert cosine == pytest.approx(0.5)
    assert decibel == pytest.approx(10 * np.log10(26 / 2))
    assert pytorch_rows._quality(wanted, wanted)[1] == np.inf
