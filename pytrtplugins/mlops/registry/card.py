"""Show a version to people: facts, origin, figures and history, as rows of text and as a page."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

from ...utils.atomic import write_atomic
from ...utils.notebook import object_html
from .history import History
from .manifest import ModelVersion

__all__ = ["figure_text", "rows", "size_text", "write_html"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; background: #fff }
"""


def rows(version: ModelVersion, stage: str | None) -> list[tuple[str, str]]:
    """Names and values of a version's facts and origin, without figures."""
    return list(_rows(version, stage))


def write_html(version: ModelVersion, history: History, path: Path) -> None:
    """Write a page: what the version is, its figures, and what was done with it, in one file without scripts."""
    title = html.escape(f"{version}, {version.engine} {version.precision}")
    figures = [(name, figure_text(value)) for name, value in version.figures.items()]
    changes = [
        (change.time, change.action, change.stage or "", change.who, change.why)
        for change in history.changes
        if change.version == version.version
    ]
    parts = [
        f"<h1>{title}</h1>",
        object_html("", ("", ""), rows(version, history.stage_of(version.version))),
        f"<h2>Figures</h2>{object_html('', ('figure', 'value'), figures)}" if figures else "",
        f"<h2>History</h2>{object_html('', ('time', 'what', 'stage', 'who', 'why'), changes)}" if changes else "",
    ]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n{''.join(parts)}\n</body></html>\n"
    )
    write_atomic(path, page.encode())


def figure_text(value: float | None) -> str:
    """A figure with six significant digits; empty if there is none."""
    return "" if value is None else f"{value:.6g}"


def size_text(size: int) -> str:
    """A size in words, such as ``14.1 MiB``."""
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size:,} bytes"


def _rows(version: ModelVersion, stage: str | None) -> Iterator[tuple[str, str]]:
    yield "stage", stage or "none"
    yield "engine", f"{version.engine}, {version.precision}"
    for role, file in version.files.items():
        yield f"file {role}", f"{file.name}, {size_text(file.bytes)}, sha256 {file.sha256}"
    yield from ((f"network {role}", digest) for role, digest in version.networks.items())
    yield from ((f"data {role}", digest) for role, digest in version.data.items())
    for name, value in (("licence", version.licence), ("run", version.run), ("note", version.note)):
        if value:
            yield name, value
    yield "created", version.created
    yield "parent", f"{version.name}:{version.parent}" if version.parent else "none"
    yield from version.hardware.items()
    yield "packages", ", ".join(f"{name} {value}" for name, value in version.packages.items() if name != "built with")
    yield "built with", version.packages.get("built with", "")
