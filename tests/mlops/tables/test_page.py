"""The chart of a table: which rows it shows, where, and with which marks and texts."""

import numpy as np
import pytest

from pytrtplugins.mlops.tables import page, rows
from pytrtplugins.mlops.tables.tasks import Figure
from pytrtplugins.utils.figures import drawing


def test_every_precision_has_its_own_mark_in_the_chart():
    marks = page._marks(["fp32", "a.yaml", "int8", "b.yaml", "a.yaml"])
    assert len({marks[name] for name in ("fp32", "int8", "fp16", "a.yaml", "b.yaml")}) == 5


def test_the_chart_shows_rows_that_were_timed_and_have_the_figure():
    pytest.importorskip("matplotlib")
    time = {1: rows.Latency(2.0, 3.0, 500.0, 1.0)}
    figure = Figure("right", "accuracy")
    given = (
        rows.TableRow(rows.Variant("cpu", "fp32"), latency=time, figures={"right": 0.75}),
        rows.TableRow(rows.Variant("cpu", "int8", "minmax", 50), latency=time, figures={"right": 0.5}),
        rows.TableRow(rows.Variant("cpu", "int8", "minmax", 200), figures={"right": 0.25}),  # has the time of the first
        rows.TableRow(rows.Variant("cpu", "bf16"), figures={"right": 0.5}),
        rows.TableRow(rows.Variant("cpu", "fp16"), latency=time),
        rows.TableRow(rows.Variant("cuda", "fp32"), reason="no driver", latency=time, figures={"right": 0.5}),
    )
    with drawing(4, 3) as picture:
        axes = picture.subplots()
        shown = page._draw_figure(axes, rows.Table(given, (figure,), (1, 8), "task", "model", "data", {}, ""), figure)
        assert list(shown) == ["cpu fp32", "cpu int8"]
        assert [tuple(np.asarray(mark.get_offsets())[0]) for mark in axes.collections] == [
            (2, 0.75),
            (2, 0.5),
            (2, 0.25),
        ]
        assert [text.get_text() for text in axes.texts] == ["minmax 50", "minmax 200"]
        assert (axes.get_xlim(), axes.get_ylim()) == ((0, 2.5), pytest.approx((0.25 - 0.15 * 0.5, 0.75 + 0.1 * 0.5)))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("latency, p50, ms, batch 1", "accuracy")


def test_texts_in_the_chart_do_not_cover_each_other():
    texts = {3: {"minmax": [50]}, 12: {"entropy": [50, 200], "percentile": [50]}, 11: {"minmax": [200]}}
    assert list(page._apart(texts)) == [(12, "entropy 50, 200\npercentile 50"), (10.8, "minmax 200"), (3, "minmax 50")]
