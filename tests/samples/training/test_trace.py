"""The stage clock as a trace and as a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.samples.needs_torch import torch
from training import trace
from training.clock import Clock, Lap, Stage
from training.trace import draw_stages, write_trace


def test_a_trace_has_each_piece_of_work_in_its_threads_row(tmp_path: Path) -> None:
    clock = Clock(trace=True)
    clock.add("read", 0.5, 0.75, 8, "reader")
    clock.add("decode", 0.75, 2.0, 8, "decoder")
    clock.add("read", 1.0, 1.5, 8, "reader")
    write_trace(tmp_path / "trace.json", clock, rank=3)
    content = json.loads((tmp_path / "trace.json").read_text())
    events = content["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    work = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], names[e["tid"]], e["ts"], e["dur"], e["args"]) for e in work] == [
        ("read", "reader", 500_000, 250_000, {"items": 8}),
        ("decode", "decoder", 750_000, 1_250_000, {"items": 8}),
        ("read", "reader", 1_000_000, 500_000, {"items": 8}),
    ]
    assert {event["pid"] for event in events} == {3}
    assert content["otherData"] == {"dropped": 0}


def test_the_figure_shows_percents_of_each_lap_with_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, lines = Clock(), {}
    clock.laps = [
        Lap(4.0, 4.0, 2, 1.0, (Stage("read", 2, 6.0), Stage("decode", 1, 1.0))),
        Lap(5.0, 1.0, 0, 1.0, (Stage("load", 1, 1.0),)),
        Lap(15.0, 10.0, 1, 5.0, (Stage("decode", 1, 10.0),)),
    ]

    def save(figure: object, path: Path) -> None:
        (axes,) = figure.axes
        lines.update({line.get_label(): line.get_xydata().tolist() for line in axes.lines})
        assert axes.get_ylim() == (0, 105)

    monkeypatch.setattr(trace, "save", save)
    draw_stages(tmp_path / "stages.png", clock)
    assert lines == {
        "read": [[4, 75], [15, 0]],
        "decode": [[4, 25], [15, 100]],
        "data_time": [[4, 25], [15, 50]],
    }


def test_the_figure_of_the_stages_is_a_picture(tmp_path: Path) -> None:
    clock = Clock()
    for _ in range(3):
        with clock.waiting(torch.device("cpu")), clock.stage("decode"):
            pass
        clock.lap()
    draw_stages(tmp_path / "stages.png", clock)
    with Image.open(tmp_path / "stages.png") as image:
        assert min(image.size) > 300
