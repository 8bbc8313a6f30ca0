"""The picture of a pipeline: where its steps stand, and in which colours."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from pytrtplugins.mlops.pipeline import picture
from pytrtplugins.mlops.pipeline.picture import draw_pipeline
from pytrtplugins.mlops.pipeline.state import StepState

GRAPH = {"data": (), "train": ("data",), "draw": ("data",), "check": ("data", "train"), "publish": ("check", "draw")}


def test_a_step_stands_below_all_that_it_needs():
    assert picture._rows(GRAPH) == [["data"], ["train", "draw"], ["check"], ["publish"]]


def test_a_row_has_the_order_of_the_steps_above_it():
    graph = {"a": (), "b": (), "of b": ("b",), "of both": ("a", "b"), "of a": ("a",)}
    assert picture._rows(graph) == [["a", "b"], ["of a", "of both", "of b"]]


def test_arrows_that_others_imply_are_left_out():
    assert {name: picture._direct_predecessors(needed, GRAPH) for name, needed in GRAPH.items()} == {
        "data": [],
        "train": ["data"],
        "draw": ["data"],
        "check": ["train"],
        "publish": ["check", "draw"],
    }


def test_the_picture_has_room_for_its_rows_and_colours_for_its_states(tmp_path):
    """Boxes of 2.3 by 0.5 inches, 0.25 apart in a row and 0.42 between rows; a point is 1/72 inch."""
    pytest.importorskip("matplotlib")
    states = ["done", "stale", "failed", "waiting for approval", "running"]
    steps = [StepState(name, state) for name, state in zip(GRAPH, states, strict=True)]
    draw_pipeline(SimpleNamespace(graph=lambda: GRAPH), steps, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    root = ElementTree.fromstring(text)
    sizes = [float(root.get(key).removesuffix("pt")) for key in ("width", "height")]
    assert sizes == pytest.approx([72 * 2 * (2.3 + 0.25), 72 * (4 * (0.5 + 0.42) + 0.42)])
    found = (re.search(rf"<!-- {name} -->\s+<g [^>]*translate\(([\d.]+) ", text) for name in GRAPH)
    lefts = [float(match[1]) for match in found if match]
    middle, beside = (2 * (2.3 + 0.25) - 2.3) / 2, 0.25 / 2  # of boxes, whose texts begin 0.1 inches inside
    others = {"draw": beside + 2.3 + 0.25, "train": beside}
    assert lefts == pytest.approx([72 * (0.1 + others.get(name, middle)) for name in GRAPH])
    colours = ["#009e73", "#e69f00", "#d55e00", "#cc79a7", "#0072b2"]
    for state, colour in zip(states, colours, strict=True):
        drawn = text.partition(f"<!-- ■ {state} -->")[2].partition("</g>")[0]
        assert f"fill: {colour}" in drawn
