"""The figures' style: colours that every reader tells apart, on light pages and on dark ones."""

import itertools
import re
import sys
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from pytrtplugins.errors import MissingExtraError
from pytrtplugins.utils import figures

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color):
    value = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ rgb / TO_XYZ.sum(1), 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(first, second):
    """As WCAG defines it."""
    low, high = sorted(0.05 + TO_XYZ[1] @ linear(color) for color in (first, second))
    return high / low


@pytest.fixture
def svg():
    with figures.drawing(3, 2) as figure:
        figure.subplots().plot([1, 2], label="a line")
        return figures.svg(figure)


def test_the_colours_have_the_order_that_charts_and_states_count_on():
    """Those of Okabe and Ito: blue, vermillion, bluish green, reddish purple, sky blue, orange."""
    assert figures.PALETTE == ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
    assert (figures.INK, figures.MUTED, figures.FAINT) == ("#1f2328", "#848d97", "#d8dee4")


@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_colours_differ_for_every_sight(sight):
    seen = [lab(np.clip(SIGHTS[sight] @ linear(color), 0, 1)) for color in figures.PALETTE]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 10  # 2.3 is just noticeable


@pytest.mark.parametrize("color", [*figures.PALETTE, figures.MUTED])
def test_each_colour_can_be_seen_on_light_and_on_dark_pages(color):
    assert contrast(color, "#ffffff") > 2
    assert contrast(color, "#0d1117") > 3


def test_text_and_frames_of_an_svg_become_light_on_a_dark_page(svg):
    assert "prefers-color-scheme: dark" in svg
    rules = dict(re.findall(r'\[style\*="((?:fill|stroke): #\w+)"\] \{(.*?) !important\}', svg))
    styles = re.findall(r'style="(.*?)"', svg)
    for key in (f"stroke: {figures.INK}", f"fill: {figures.INK}"):
        assert any(key in style for style in styles)  # the rule meets what matplotlib wrote
        assert contrast(rules[key].partition(": ")[2], "#0d1117") > 7
    drawn = {color for style in styles for color in re.findall(r"(?:fill|stroke): (#\w+)", style)}
    assert drawn <= {figures.INK, "#0072b2"}  # no background


def test_axes_have_two_sides_a_title_on_the_left_and_a_legend_without_a_frame():
    with figures.drawing(3, 2) as figure:
        axes = figure.subplots()
        (line,) = axes.plot([1, 2], label="a line")
        axes.set(xlabel="x", title="a title")
        axes.grid()
        legend = axes.legend()
        assert {side for side, spine in axes.spines.items() if spine.get_visible()} == {"left", "bottom"}
        assert (axes.get_title(loc="left"), axes.get_title(), axes.get_axisbelow()) == ("a title", "", True)
        sizes = [axes.title, axes.xaxis.label, axes.get_xticklabels()[0], axes.get_yticklabels()[0]]
        assert [text.get_fontsize() for text in [*sizes, *legend.get_texts()]] == [11, 9, 8, 8, 9]
        assert (legend.get_frame_on(), line.get_linewidth(), axes.get_facecolor()) == (False, 1.4, (0, 0, 0, 0))
        (grid, *_) = axes.get_xgridlines()
        assert (grid.get_color(), grid.get_linewidth()) == (figures.FAINT, 0.6)
        for text in (axes.title, axes.xaxis.label, axes.get_xticklabels()[0]):
            assert text.get_color() == figures.INK


def test_a_figure_is_saved_in_each_format(tmp_path):
    paths = [tmp_path / name for name in ("a.png", "a.SVG", "a.pdf", "a")]
    with figures.drawing(3, 2) as figure:
        figure.subplots().plot([1, 2])
        figures.save(figure, *paths)
    starts = [b"\x89PNG", b"<?xml", b"%PDF", b"\x89PNG"]
    assert [path.read_bytes()[: len(start)] for path, start in zip(paths, starts, strict=True)] == starts
    assert ElementTree.parse(paths[1]).getroot().tag.endswith("svg")


def test_the_same_figure_has_the_same_bytes(svg):
    with figures.drawing(3, 2) as figure:
        figure.subplots().plot([1, 2], label="a line")
        assert figures.svg(figure) == svg


def test_the_callers_own_style_changes_nothing(svg):
    own = {
        "font.family": "serif",
        "font.size": 20,
        "axes.titlesize": 30,
        "xtick.labelsize": 4,
        "axes.spines.right": True,
    }
    with matplotlib.rc_context(own), figures.drawing(3, 2) as figure:
        figure.subplots().plot([1, 2], label="a line")
        assert figures.svg(figure) == svg


def test_the_callers_own_style_is_left_alone():
    before = dict(matplotlib.rcParams)
    with figures.drawing(3, 2):
        assert matplotlib.rcParams["axes.spines.top"] is False
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    wanted = pytest.raises(MissingExtraError, match=r'(?s)a thing needs.*Do: pip install "pytrtplugins\[cli\]"')
    with wanted, figures.drawing(1, 1, feature="a thing"):
        pass
