"""What plots show of numbers that have no place on an axis, and of histograms."""

from typing import Any

import numpy as np
import pytest

from pytrtplugins.precision.plots import _clamped, draw_errors, draw_front, draw_histograms, draw_ranges, number_text


@pytest.mark.parametrize(
    ("value", "drawn"),
    [(2, 2.0), ("0.5", 0.5), (0, 1e-6), (-1, 1e-6), (1e-6, 1e-6), (1e6, 1e6), (1e7, 1e6), ("inf", 1e6), ("nan", 1e6)],
)
def test_errors_are_drawn_within_the_axis(value, drawn):
    assert _clamped(value) == drawn


def test_numbers_have_four_digits():
    assert [number_text(value) for value in (None, 0, 0.123456, "inf", 123456)] == [
        "–",
        "0",
        "0.1235",
        "inf",
        "1.235e+05",
    ]


@pytest.mark.parametrize(
    ("counts", "shown"), [([3, 0, 1, 0], [3, 0, 1]), ([0, 2, 0, 5], [0, 2, 0, 5]), ([0, 0, 0, 0], [0])]
)
def test_a_histogram_ends_behind_the_last_value(counts, shown):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    row = {"name": "conv", "own": 0.5, "clipped": 0.25, "limit": 2.0, "histogram": counts, "histogram_range": 8.0}
    draw_histograms(figure, {"before": [row]})
    axes = figure.axes[0]
    values, edges, _ = axes.patches[0].get_data()
    assert (list(values), list(edges)) == (shown, [2.0 * edge for edge in range(len(shown) + 1)])
    assert axes.get_title() == "conv\nown error 0.5, clipped 25.00%"
    assert axes.patches[0].get_fill()
    assert [axes.get_visible() for axes in figure.axes] == [True, *[False] * 5]


ROWS = [
    {"name": name, "own": own, "total": total, "amax": amax, "limit": 2, "clipped": clipped}
    for name, own, total, amax, clipped in (
        ("conv", 0, 0, 3, 0),
        ("$" + 30 * "x" + "add", 4, 0.5, 5, 0.25),
        ("c", 2, 3, 0, 0.5),
    )
]
SEARCH = {
    "before": ROWS,
    "after": [{**row, "total": 2 * row["total"]} for row in ROWS],
    "steps": [
        {"action": action, "latency_us": us, "final": 9 - us} for us, action in ((5, "pin"), (6, ""), (7, "pin"))
    ],
    **{"latency_before_us": 4, "final_before": 8, "latency_us": 8, "final": 0.5, "latency_fp32_us": 20},
}
NAN = np.nan
DRAWN: dict[str, Any] = {
    "errors": (
        draw_errors,
        ["error, in units of the tolerance"],
        ["own, alone on float32's inputs", "in the network, before", "in the network, after"],
        [[NAN, 4, 2], [NAN, 0.5, 3], [NAN, 1, 6], [1, 1]],
    ),
    "ranges": (
        lambda figure, data: draw_ranges(figure, data["before"]),
        ["|x|, in the tensor's own unit", "clipped values, %"],
        ["largest |x| in float32", "largest that the precision holds", "clipped values"],
        [[3, 5, NAN], [2, 2, 2]],
    ),
    "front": (
        draw_front,
        ["error of the outputs,\nin units of the tolerance"],
        ["the search's way", "float32: no error"],
        [[8, 4, 2, 0.5], [0.05], [1, 1]],
    ),
}


@pytest.mark.parametrize("plot", DRAWN)
def test_a_plot_has_its_axes_its_legend_and_its_numbers(plot):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw, labels, legend, lines = DRAWN[plot]
    draw(figure, SEARCH)
    assert [axes.get_ylabel() for axes in figure.axes] == labels
    assert [text.get_text() for text in figure.legends[0].get_texts()] == legend
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    for line, values in zip(axes.get_lines(), lines, strict=True):
        np.testing.assert_allclose(line.get_ydata(), values)
    if plot == "front":
        assert [list(line.get_xdata()) for line in axes.get_lines()[:2]] == [[4, 5, 7, 8], [20]]
        assert axes.get_xlabel() == "latency, µs"
        notes = [(text.get_text(), text.xy, text.get_position()[1]) for text in axes.texts]
        points = [("start", (4, 8), 5), ("1", (5, 4), 5), ("3", (7, 2), 5), ("end", (8, 0.5), -11)]
        assert notes == [*points, ("tolerance", (1, 1), 3)]
    else:
        assert axes.get_xlim() == (-1, 3)
        names = ["conv", "…" + 24 * "x" + "add", "c"]
        assert [label.get_text() for label in axes.get_xticklabels()] == names
    if plot == "ranges":
        clipped = figure.axes[1]
        assert [bar.get_height() for bar in clipped.patches] == [0, 25, 50]
        assert clipped.get_ylim() == pytest.approx((0, 55))


@pytest.mark.parametrize(("count", "step"), [(64, 1), (65, 2), (129, 3)])
def test_of_many_layers_some_have_their_name_below_the_axis(count, step):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw_ranges(figure, [{"name": str(number), "amax": 1, "limit": 2, "clipped": 0} for number in range(count)])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [*map(str, range(0, count, step))]
    assert figure.axes[1].get_ylim() == (0, 1)


def test_the_six_layers_with_the_largest_own_errors_have_a_histogram_and_limits_that_are_near_a_line():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    limits = (0, 0.5, 12, 12.5, 3, 3, 3)
    rows = [
        {"name": f"l{own}", "own": own, "clipped": 0, "limit": limit, "histogram": [1, 1], "histogram_range": 4}
        for own, limit in zip((7, 6, 5, 4, 3, 2, 1), limits, strict=True)
    ]
    draw_histograms(figure, {"before": rows[::-1]})
    assert [axes.get_title().partition("\n")[0] for axes in figure.axes] == ["l7", "l6", "l5", "l4", "l3", "l2"]
    assert [[line.get_xdata()[0] for line in axes.get_lines()] for axes in figure.axes] == [
        [],
        [0.5],
        [12],
        [],
        [3],
        [3],
    ]
    assert [[text.get_text() for text in axes.texts] for axes in figure.axes][:5] == [
        [],
        [],
        [],
        ["holds up to 12.5"],
        [],
    ]
    assert [axes.get_ylabel() for axes in figure.axes] == ["values", "", ""] * 2
    assert {(axes.get_xlabel(), axes.get_yscale(), axes.get_visible()) for axes in figure.axes} == {
        ("|x|", "symlog", True)
    }
