"""Objects in notebooks: HTML that is short, escaped and without scripts."""

from __future__ import annotations

import html.parser
import re

import numpy as np
import numpy.typing as npt
import pytest

import pytrtplugins as ptp
from pytrtplugins.bench import Benchmark, Row
from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.check import Report
from pytrtplugins.check.report import Entry
from pytrtplugins.engines import Arithmetic
from pytrtplugins.passes import LayerPrecision, Precisions
from pytrtplugins.precision import Comparison, SearchResult, TensorDifference
from pytrtplugins.utils.notebook import object_html
from tests.engines.networks import conv_net

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
ALLOWED = {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "br"}


@ptp.plugin(namespace="notebooks")
class Slope(ptp.Plugin):
    """Multiply <b>where</b> x is negative.

    And more.
    """

    slope: npt.NDArray[np.float32]
    mode: str = HOSTILE

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x


class Page(html.parser.HTMLParser):
    """The elements of a page, which must be closed in their order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def comparison(name):
    tensors = TensorDifference(name, name, "Add", 3.5), TensorDifference("fine", "fine", "Add", 0.1)
    return Comparison(tensors, (), (), (Arithmetic("fp32", "fp32"), Arithmetic("fp16", "fp16")))


def search(name):
    layers = {name: LayerPrecision("fp32", "pin", name)}
    precisions = Precisions("fp16", "0" * 64, (name,), layers)
    return SearchResult(precisions, (name,), (), (), (), (), 25.6, 0.1, 0.16, 0.23, 0.33, 8, False, name)


def benchmark(name):
    rows = (Row(name, "cpu", p50_ms=1.25, rate=800.0), Row("other", reason=name))
    return Benchmark(rows, 5, 2, {name: (1, 2)}, {"processor": name}, 0.1, "2026-01-01")


SHOWN = {
    "class": (lambda name: Slope, "must be given"),
    "instance": (lambda name: Slope(slope=np.ones(64, np.float32), mode=name), "array(float32, shape=(64,))"),
    "table": (lambda name: CalibrationTable({name: 1 / 127}, version="8.6.1"), "0.00787402"),
    "check": (lambda name: Report(name, (Entry("fine", True), Entry(name, False, name))), "FAILED"),
    "bench": (benchmark, "1.250"),
    "comparison": (comparison, "3.5"),
    "search": (search, "pin"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_each_shows_its_figures_and_no_markup_of_names(name):
    make, figure = SHOWN[name]
    shown = make(HOSTILE.replace("\n", " "))._repr_html_()
    page = Page(shown)
    assert page.seen <= ALLOWED
    assert page.attributes <= {"style"}
    assert len(shown) < 10_000
    assert any(figure in text for text in page.texts)
    assert any("<script>alert(1)</script>" in text for text in page.texts)


def test_an_engine_shows_its_inputs_and_outputs():
    page = Page(ptp.build(conv_net(), engine="reference")._repr_html_())
    assert page.texts[0] == "engine reference, fp32"
    assert {"input", "output", "float32"} <= set(page.texts)


def test_a_class_shows_its_own_fields_and_an_instance_its_values():
    assert "Multiply &lt;b&gt;where&lt;/b&gt; x is negative." in Slope._repr_html_()
    assert "And more" not in Slope._repr_html_()
    assert re.findall(r"<tr>\s*<td[^>]*>(\w+)<", Slope._repr_html_()) == ["slope", "mode"]
    assert "an instance" in Slope(slope=[1.0])._repr_html_()
    assert "without @plugin" in ptp.Plugin._repr_html_()
    assert Slope._repr_html_.__self__ is Slope  # notebooks ask a class for bound methods only


def test_many_rows_are_cut_and_long_cells_too():
    page = Page(object_html("t", ("a",), [(f"row {number}",) for number in range(100)], ["x" * 1000]))
    assert "row 29" in page.texts
    assert "row 30" not in page.texts
    assert "and 70 more" in page.texts
    assert "x" * 300 + "…" in page.texts


def test_without_rows_there_is_no_table():
    assert Page(object_html("t", ("a",), [], ["one\ntwo"])).seen == {"div", "p", "b", "br"}
