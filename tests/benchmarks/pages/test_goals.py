"""Goals against rows that are made up."""

from __future__ import annotations

import pytest

from benchmarks.pages.goals import GOALS, goals_table

OURS = {"kind": "race", "runner": "pytrtplugins", "precision": "FP16", "batch": 1, "pinned": False}


def line(what: str, *rows: dict) -> str:
    (found,) = (each for each in goals_table(rows).splitlines() if each.startswith(f"| {what} |"))
    return found


@pytest.mark.parametrize(("figure", "verdict"), [(150.0, "150.0 | met"), (150.4, "150.4 | missed")])
def test_a_time_is_at_most_the_limit(figure, verdict):
    found = line("FP16, batch 1, on the GPU", {**OURS, "gpu_us": figure}, {**OURS, "batch": 8, "gpu_us": 1.0})
    assert found == f"| FP16, batch 1, on the GPU | 150 µs | {verdict} |"


@pytest.mark.parametrize(("figure", "verdict"), [(7.0, "7.00 | met"), (6.9, "6.90 | missed")])
def test_a_speed_is_at_least_the_limit(figure, verdict):
    what = "FP16, batch 1, times darknet's speed: NumPy to NumPy"
    assert line(what, {**OURS, "over_darknet": figure}) == f"| {what} | 7 x | {verdict} |"


def test_int8_is_compared_with_fp16s_time():
    row = {**OURS, "precision": "INT8", "gpu_us": 100.0, "gpu_ratio": 0.5}
    assert line("the same, times the speed of FP16", row).endswith("| 1 x | 2.00 | met |")


@pytest.mark.parametrize(("figure", "verdict"), [(100.0, "1.00 | met"), (106.0, "1.06 | missed")])
def test_fp8_is_compared_with_int8s_time(figure, verdict):
    rows = ({**OURS, "precision": name, "gpu_us": time} for name, time in (("INT8", 100.0), ("FP8", figure)))
    assert line("FP8, batch 1, on the GPU, times the time of INT8", *rows).endswith(f"| 1.05 of it | {verdict} |")


def test_what_was_not_measured_is_no_success():
    lines = goals_table([]).splitlines()[2:]
    assert len(lines) == len(GOALS)
    assert all(each.endswith("| – | not measured |") for each in lines)
