"""The CPU's tables and charts, of a made-up record."""

import json

import pytest
from matplotlib.axes import Axes

from benchmarks import report

pytest.importorskip("matplotlib")


def bench(runner, median, baseline, precision="FP32", error=1e-6):
    info = {
        "runner": runner, "precision": precision, "threads": 2, "baseline": "OpenVINO by hand", "baseline_ms": baseline,
        "ratio": 99.0, "error": error,
    }  # fmt: skip
    return {"extra_info": info, "stats": {"median": median / 1e3, "min": median / 2e3}}


@pytest.fixture
def record():
    return {
        "machine_info": {"cpu": {"flags": ["avx2"], "brand_raw": "a CPU"}, "python_version": "3.99.0"},
        "datetime": "2026-11-21T15:00:00",
        "benchmarks": [
            bench("pytrtplugins cpu", 80.0, 64.0),
            bench("darknet (one thread)", 2000.0, 100.0),
            bench("OpenCV 4 dnn", 100.0, 80.0, error=float("nan")),
            bench("pytrtplugins cpu", 16.0, 64.0, "INT8"),
        ],
    }


def test_ratios_are_what_one_divides_from_the_columns(record):
    lines = report.table(record).splitlines()[4:]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [cells[0] for cells in found] == [
        "darknet (one thread)",
        "OpenCV 4 dnn",
        "pytrtplugins cpu",
        "pytrtplugins cpu",
    ]
    for cells in found:
        median, baseline, over_baseline, over_darknet = (float(cells[place]) for place in (2, 4, 5, 6))
        assert over_baseline == pytest.approx(median / baseline, abs=6e-4)
        assert over_darknet == pytest.approx(2000 / median, abs=0.06)
    assert found[1][-1] == "other output"


def test_the_chart_has_a_dot_for_each_median_and_no_bar(record, tmp_path, monkeypatch):
    dots, plain = [], Axes.plot

    def plot(self, x, y, *style, **options):
        dots.append((x, y, *style))
        return plain(self, x, y, *style, **options)

    monkeypatch.setattr(Axes, "plot", plot)
    monkeypatch.setattr(Axes, "barh", None)  # a bar has no length on an axis without a zero
    report.chart(record, tmp_path / "a.svg")
    assert dots == [(2000.0, 0, "o"), (100.0, 1, "o"), (80.0, 2, "o"), (16.0, 3, "o")]
    texts = (tmp_path / "a.svg").read_text("utf-8")
    assert (
        "<!-- 16.0 ms, 125.0 x darknet&apos;s speed -->" in texts
        or "<!-- 16.0 ms, 125.0 x darknet's speed -->" in texts
    )


def test_a_section_is_written_with_its_chart_in_both_formats(record, tmp_path):
    saved = tmp_path / "record.json"
    saved.write_text(json.dumps(record))
    for _ in range(2):
        assert report.write([saved], "here", tmp_path) == [tmp_path / "benchmarks.md"]
    text = (tmp_path / "benchmarks.md").read_text()
    assert text.count("a CPU (AVX2), 2 threads, Linux, Python 3.99.0; ") == 1
    assert "[![latency](images/benchmark-here.svg)](images/benchmark-here.png)" in text
    assert (tmp_path / "images" / "benchmark-here.png").stat().st_size > 10_000
    assert "prefers-color-scheme: dark" in (tmp_path / "images" / "benchmark-here.svg").read_text("utf-8")
