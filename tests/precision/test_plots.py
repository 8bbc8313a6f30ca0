"""What plots show of numbers that have no place on an axis, and of histograms."""

import pytest

from pytrtplugins.precision.plots import _clamped, draw_errors, draw_histograms, draw_ranges, number_text


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


@pytest.mark.parametrize(
    "draw", [lambda figure, rows: draw_errors(figure, {"before": rows, "after": rows}), draw_ranges]
)
def test_every_layer_has_a_place_on_the_axis(draw):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    rows = [
        {"name": f"conv{number}", "own": number, "total": 0, "amax": 3, "limit": 2, "clipped": 0.5}
        for number in range(5)
    ]
    draw(figure, rows)
    axes = figure.axes[0]
    assert axes.get_xlim() == (-1, 5)
    assert [label.get_text() for label in axes.get_xticklabels()] == [row["name"] for row in rows]


def test_shares_of_clipped_values_are_drawn_in_percent():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw_ranges(figure, [{"name": "conv", "amax": 3, "limit": 2, "clipped": share} for share in (0, 0.25)])
    clipped = figure.axes[1]
    assert clipped.get_ylabel() == "clipped values, %"
    assert [bar.get_height() for bar in clipped.patches] == [0, 25]
