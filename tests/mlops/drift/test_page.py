"""The chart of a comparison: histograms of both sets, and the classes whose shares differ most."""

from types import SimpleNamespace

import pytest

from pytrtplugins.mlops.drift.compare import Drift
from pytrtplugins.mlops.drift.page import _draw

matplotlib = pytest.importorskip("matplotlib.figure")


def test_bars_are_percent_of_each_set():
    width = Drift("width", "width", None, None, 0.5, 0.1, 0.2, (0.0, 1.0, 3.0), (0.25, 0.75), (0.5, 0.5))
    classes = [SimpleNamespace(name="cat", a=0.5, b=0.25), SimpleNamespace(name="dog", a=0.5, b=0.75)]
    sets = {"a": SimpleNamespace(name="old"), "b": SimpleNamespace(name="new")}
    rows = (width, Drift("classes", "classes", None, None, 0.5, 0.1, 0.2))
    figure = matplotlib.Figure()
    _draw(figure, SimpleNamespace(rows=rows, classes=classes, embedding=None, **sets))
    histogram, shares, empty = figure.axes
    stairs = [(each.get_data().values.tolist(), each.get_fill()) for each in histogram.patches]
    assert stairs == [([25, 75], True), ([50, 50], True), ([25, 75], False), ([50, 50], False)]
    assert [bar.get_width() for bar in shares.patches] == [50, 25, 50, 75]
    assert [text.get_text() for text in shares.get_yticklabels()] == ["cat", "dog"]
    assert (histogram.get_ylabel(), empty.axison) == ("%", False)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A: old", "B: new"]
