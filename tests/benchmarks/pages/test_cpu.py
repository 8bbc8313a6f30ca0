"""The CPU's table and chart, of a made-up record."""

import pytest
from matplotlib.axes import Axes

from benchmarks.pages.cpu import latency

pytest.importorskip("matplotlib")


def row(runner, median, baseline, precision="FP32", error=1e-6):
    times = {"host_us": 1e3 * median, "host_least_us": 500 * median, "baseline_ms": baseline}
    return {"row": f"{runner}, {precision}", "runner": runner, "precision": precision, "error": error, **times}


@pytest.fixture
def record():
    return {
        "subject": "cpu", "processor": "a CPU (avx2), 2 threads, Linux", "python": "3.99.0", "versions": {"numpy": "9"},
        "date": "2026-11-21", "command": "", "note": "Baseline of the pairs: OpenVINO by hand.",
        "rows": [
            row("pytrtplugins cpu", 80.0, 64.0),
            row("darknet (one thread)", 2000.0, 100.0),
            row("OpenCV 4 dnn", 100.0, 80.0, error=None),
            row("pytrtplugins cpu", 16.0, 64.0, "INT8"),
        ],
    }  # fmt: skip


def test_ratios_are_what_one_divides_from_the_columns(record):
    machine, table, _ = latency("here", record)
    assert (
        machine
        == "a CPU (avx2), 2 threads, Linux, Python 3.99.0; numpy 9; 2026-11-21. Baseline of the pairs: OpenVINO by hand."
    )
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
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
    *_, chart = latency("here", record)
    chart.save(tmp_path)
    assert dots == [(2000.0, 0, "o"), (100.0, 1, "o"), (80.0, 2, "o"), (16.0, 3, "o")]
    assert "16.0 ms, 125.0 x darknet's speed" in chart.labels
    assert chart.missing_labels(tmp_path) == []
