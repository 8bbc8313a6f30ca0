"""Results of benchmarks: a JSON file for each section of a page, and the section that is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytrtplugins.utils.atomic import write_atomic

from .chart import Chart
from .region import fill_region, region_body, region_names
from .subjects import blocks

__all__ = ["DOCS", "differences", "publish", "read_result", "render_all", "write_json"]

DOCS = Path(__file__).parents[2] / "docs"
Record = Mapping[str, Any]


def results_folder(docs: Path) -> Path:
    """Return the folder of the results beside a folder of pages: results/PAGE/SECTION.json."""
    return docs.parent / "benchmarks" / "results"


def find_page(page: str, docs: Path = DOCS) -> Path:
    """Return the file of a page, which is in any folder of the pages."""
    return next(iter(sorted(docs.rglob(f"{page}.md"))), docs / f"{page}.md")


def read_result(page: str, name: str, docs: Path = DOCS) -> Any:
    """Return the record of a section; None where there is none."""
    path = results_folder(docs) / page / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def write_json(path: Path, record: Record) -> None:
    """Write a record, whole or not at all; each fact and each row is a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"{_json(name)}: {_rows(value)}" for name, value in record.items())
    write_atomic(path, f"{{\n{lines}\n}}\n".encode())


def publish(record: Record, page: str, name: str, docs: Path = DOCS) -> Path:
    """Keep a record among the results, and make its section of a page; returns the page.

    Args:
        record: Its ``subject`` says how it is shown.
        page: Without ``.md``.
        name: Of the section.
        docs: Folder of the pages.
    """
    write_json(results_folder(docs) / page / f"{name}.json", record)
    return _render(page, name, docs)


def render_all(docs: Path = DOCS) -> list[Path]:
    """Make every section and every chart of the results; returns the pages."""
    names = (path.relative_to(results_folder(docs)) for path in sorted(results_folder(docs).glob("*/*.json")))
    return list(dict.fromkeys(_render(path.parent.name, path.stem, docs) for path in names))


def differences(docs: Path = DOCS) -> Iterator[str]:
    """Return what pages, charts and results do not have in common; nothing where they agree."""
    known = set()
    for path in sorted(results_folder(docs).glob("*/*.json")):
        page, name = path.parent.name, path.stem
        known.add((page, name))
        source = find_page(page, docs)
        text = source.read_text("utf-8")
        regions = _regions(text, name)
        if not regions:
            yield f"{page}.md has no region for {name}"
        for region in regions:
            body, charts = _section(page, name, region, docs)
            if region_body(text, region) != body:
                yield f"{page}.md: the region {region} differs from its results"
            for chart in charts:
                for label in chart.missing_labels(source.parent):
                    yield f"images/{chart.name}.svg lacks {label!r}"
    for path in sorted(docs.rglob("*.md")):
        for region in region_names(path.read_text("utf-8")):
            if (path.stem, region.partition(" ")[0]) not in known:
                yield f"{path.name}: the region {region} has no results"


def _render(page: str, name: str, docs: Path) -> Path:
    path = find_page(page, docs)
    for region in _regions(path.read_text("utf-8") if path.exists() else "", name) or [name]:
        body, charts = _section(page, name, region, docs)
        for chart in charts:
            chart.save(path.parent)
        fill_region(path, region, body)
    return path


def _regions(text: str, name: str) -> list[str]:
    """Return a page's regions for a record: one, or one for each of its parts."""
    return [region for region in region_names(text) if region.partition(" ")[0] == name]


def _section(page: str, name: str, region: str, docs: Path) -> tuple[str, list[Chart]]:
    """Return the body of a region, and its charts."""
    record = read_result(page, name, docs)
    shown = [block for block in blocks(name, region.partition(" ")[2], record) if block]
    charts = [block for block in shown if isinstance(block, Chart)]
    return "\n\n".join(block.link if isinstance(block, Chart) else block for block in shown), charts


def _rows(value: Any) -> str:
    """Return a value as JSON; of a list of rows, each in a line."""
    if isinstance(value, list) and value:
        return "[\n {}\n]".format(",\n ".join(map(_json, value)))
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a number of NumPy's as Python's, and anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)
