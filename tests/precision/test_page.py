"""The page says what the search found, and stays readable with many layers."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import pytest

from pytrtplugins.precision import Network, parse_tolerance, search, to_dict, write_html
from tests.precision.planted import cancelling, chain, samples

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


def test_the_page_names_the_layers_and_draws_four_plots(page):

    class Tags(HTMLParser):
        seen: list[str]

        def handle_starttag(self, tag, attrs):
            self.seen.append(tag)

    tags = Tags()
    tags.seen = []
    tags.feed(page)
    assert tags.seen.count("svg") == 4
    assert tags.seen.count("table") == 3
    for name in ("add", "left", "right"):
        assert f"<td>{name}</td>" in page
    assert "pin with parents" in page
    assert not re.search(r'(src|href)="https?:', page)


def test_the_same_search_has_the_same_page(result, page, tmp_path):
    assert written(result, tmp_path) == page


def rows_of(page):
    """The cells of a page's tables, row by row, without their heads."""
    tables = re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    cells = [
        [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", part)] for part in tables
    ]
    return [[list(map(html.unescape, row)) for row in part if row] for part in cells]


def test_the_pages_figures_are_those_of_the_search(result, page):
    treated, _, tried = rows_of(page)
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


def test_the_columns_of_tables_have_these_titles_in_this_order(page):
    heads = [re.findall(r"<th[^>]*>(.*?)</th>", head) for head in re.findall(r"<thead>(.*?)</thead>", page, re.DOTALL)]
    assert [[html.unescape(re.sub("<.*?>", "", title)) for title in head] for head in heads] == [
        ["layer", "precision", "strategy", "error before", "after", "µs", "reason"],
        [
            *("", "layer", "operator", "own error", "in the network before", "after"),
            *("largest |x|", "precision holds", "clipped %", "precision"),
        ],
        ["step", "layer", "own error", "intervention", "error with it", "µs more", ""],
    ]


def test_a_network_that_needs_nothing_has_a_page_too(tmp_path):
    assert "every layer computes in low precision" in written(found(chain()), tmp_path)


@pytest.fixture(scope="module")
def many(result, tmp_path_factory):
    """The page of 300 layers, with names and operators that HTML and mathematics would take for their own."""
    data = to_dict(result)
    for part in ("before", "after"):
        data[part] = [
            {
                **data[part][0],
                "name": f"</script><b>${number}&",
                "op_type": ["<x>"],
                "own": number / 100,
                "clipped": number / 2000,
            }
            for number in range(300)
        ]
    path = tmp_path_factory.mktemp("many") / "report.html"
    write_html(data, path)
    return path.read_text(encoding="utf-8")


def test_every_layer_has_a_row_with_its_figures(result, page):
    _, layers, _ = rows_of(page)
    after = {layer.name: layer for layer in result.after}
    kept = result.precisions.layers
    assert layers == [
        [str(number), layer.name, layer.op_type, f"{layer.own:.4g}", f"{layer.total:.4g}", f"{after[layer.name].total:.4g}",
         f"{layer.amax:.4g}", f"{layer.limit:.4g}" if layer.limit else "–", f"{100 * layer.clipped:.4g}",
         kept[layer.name].precision if layer.name in kept else "fp16"]
        for number, layer in enumerate(result.before, 1)
    ]  # fmt: skip
    assert any(cells[-1] == "fp32" for cells in layers)
    assert any(cells[-1] == "fp16" for cells in layers)


def test_of_many_layers_each_has_its_row_and_its_marks(many):
    _, layers, _ = rows_of(many)
    assert [(cells[1], cells[8]) for cells in layers] == [
        (f"</script><b>${number}&", f"{number / 20:.4g}") for number in range(300)
    ]
    for group, count in (("errors-zoom-own-before", 299), ("ranges-zoom-largest", 300)):  # one has no own error
        marks = many[many.index(f'<g id="{group}">') + 1 :]
        assert marks[: marks.index('<g id="')].count("<use ") == count
    assert len(re.findall(r'id="ranges-zoom-clipped-\d+"', many)) == 300
    assert 40 < len(re.findall(r'id="errors-name-\d+"', many)) <= 64  # as many names as there is room for
    assert len(many) < 2_000_000


def test_the_script_finds_what_it_moves(many):
    assert many.count('<svg class="zoom"') == 2
    for plot in ("errors", "ranges"):
        assert many.count(f'id="{plot}-zoom-frame"') == 1
    script = many[many.rindex("<script>") :]
    for name in re.findall(r"(\w+): \(\) =>", script[script.index("const actions") :].partition("\n")[0]):
        assert many.count(f'<button name="{name}"') == 1
    for selector in ('id="tools"', 'class="scroll layers"', "<output>", '<input type="search"'):
        assert many.count(selector) == 1


def test_the_page_needs_nothing_else(many):
    assert many.count("<script") == many.count("</script>") == 1  # no name of a layer ends it
    assert not re.search(r"<(link|iframe|img)|@import|fetch\(|XMLHttpRequest|import\(", many)
    outside = set(re.findall(r"https?://[^\s\"'<>)]+", many))
    hosts = {address.split("/")[2] for address in outside}  # in names
    assert hosts <= {"www.w3.org", "purl.org", "creativecommons.org", "matplotlib.org"}


def test_without_the_script_nothing_is_hidden_but_its_tools(many):
    body = many[many.index("<body>") : many.rindex("<script>")]
    assert re.findall(r"<(\w+)[^>]* hidden", body) == ["div"]
    assert "display: none" not in body


def test_plots_and_text_become_light_on_dark_screens(page):
    assert page.count("prefers-color-scheme: dark") == 5  # the page's own and each plot's


def test_names_of_operators_may_be_anything(many):
    assert "&lt;x&gt;" in many
    assert "<x>" not in many
