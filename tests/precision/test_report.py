"""The page and the JSON say what the search found."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.precision import Network, parse_tolerance, read_report, search, to_dict, write_html, write_json
from tests.precision.planted import cancelling, chain, overflowing, samples

pytest.importorskip("matplotlib")


def found(model):
    return search(Network(model, "reference"), samples(model, 1), parse_tolerance("cosine=0.9995"), "fp16")


@pytest.fixture(scope="module")
def result():
    """Of a network with layers that are treated."""
    return found(cancelling())


@pytest.fixture(scope="module")
def page(result, tmp_path_factory):
    return written(result, tmp_path_factory.mktemp("page"))


def written(result, folder):
    write_html(to_dict(result), folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_json_holds_every_layer_and_comes_back(tmp_path):
    result = found(overflowing())
    write_json(result, tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    data = read_report(tmp_path / "report.json")
    assert data == to_dict(result)
    assert [row["name"] for row in data["before"]] == [layer.name for layer in result.before]
    assert data["offenders"] == ["conv3"]
    assert float(data["final_before"]) == float("inf")
    assert sum(data["before"][0]["histogram"]) == 800


def test_the_page_names_the_layers_and_draws_four_plots(page):

    class Tags(HTMLParser):
        seen: list[str]

        def handle_starttag(self, tag, attrs):
            self.seen.append(tag)

    tags = Tags()
    tags.seen = []
    tags.feed(page)
    assert tags.seen.count("svg") == 4
    assert tags.seen.count("table") == 2
    for name in ("add", "left", "right"):
        assert f"<td>{name}</td>" in page
    assert "pin with parents" in page
    assert not re.search(r'(src|href)="https?:', page)


def test_the_same_search_has_the_same_page(result, page, tmp_path):
    assert written(result, tmp_path) == page


def rows_of(page):
    """The cells of a page's tables, row by row, without their heads."""
    tables = re.findall(r"<table>(.*?)</table>", page, re.DOTALL)
    cells = [
        [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", part)] for part in tables
    ]
    return [[list(map(html.unescape, row)) for row in part if row] for part in cells]


def test_the_pages_figures_are_those_of_the_search(result, page):
    treated, tried = rows_of(page)
    assert treated == [
        [name, "fp32", layer.strategy, f"{layer.error_before:.4g}", f"{layer.error_after:.4g}", f"{layer.latency_us:.4g}",
         layer.reason]
        for name, layer in result.precisions.layers.items()
    ]  # fmt: skip
    assert tried == [
        [
            str(number),
            step.layer,
            f"{step.own:.4g}",
            name,
            f"{error:.4g}",
            f"{cost:.4g}",
            "kept" * (name == step.action),
        ]
        for number, step in enumerate(result.steps, 1)
        for name, error, cost in step.tried
    ]
    assert len({row[4] for row in tried}) > 1
    assert f"error {result.final_before:.4g} of the tolerance before, {result.final:.4g} after" in page
    times = (f"{time:.4g} µs" for time in (result.latency_before_us, result.latency_us, result.latency_fp32_us))
    assert "Latency {} before, {} after, {} in float32 (modelled)".format(*times) in page


def test_the_json_has_the_figures_of_every_layer(result):
    data = to_dict(result)
    for part, layers in (("before", result.before), ("after", result.after)):
        for row, layer in zip(data[part], layers, strict=True):
            for key in ("name", "op_type", "own", "total", "amax", "clipped", "histogram_range", "limit"):
                assert row[key] == getattr(layer, key)
            assert row["histogram"] == list(layer.histogram)
    assert [data[name] for name in ("final_before", "final", "holds", "runs")] == [
        result.final_before,
        result.final,
        True,
        result.runs,
    ]


def test_a_network_that_needs_nothing_has_a_page_too(tmp_path):
    assert "every layer computes in low precision" in written(found(chain()), tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "before": [], "after": []}', '{"format": 1, "before": [1], "after": []}']
)
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FormatError, match=r"(?s)x\.json: .*not the figures of a precision search"):
        read_report(tmp_path / "x.json")
