"""Regions of a page that a command fills; the text around them is written by people."""

from __future__ import annotations

import re
from pathlib import Path

from pytrtplugins.utils.atomic import write_atomic

__all__ = ["fill_region", "fill_table", "region_body", "region_names"]

BEGIN, END = "<!-- results: {name} -->", "<!-- end -->"
_NAMES = re.compile(r"^<!-- results: (.+) -->$", re.MULTILINE)


def region_names(text: str) -> list[str]:
    """Return the names of a page's regions, in order."""
    return _NAMES.findall(text)


def region_body(text: str, name: str) -> str | None:
    """Return what stands in a region of a page; None if the page has no such region."""
    place = _place(text, name)
    return None if place is None else text[place].strip("\n")


def fill_region(page: Path, name: str, body: str) -> None:
    """Write the body of a region; a page without the region gets it at its end, below a heading with the name."""
    text = page.read_text("utf-8") if page.exists() else f"# {page.stem.replace('_', ' ').capitalize()}\n"
    if _place(text, name) is None:
        text = f"{text.rstrip()}\n\n## {name}\n\n{BEGIN.format(name=name)}\n{END}\n"
    place = _place(text, name)
    assert place is not None
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(page, f"{text[: place.start]}\n\n{body}\n\n{text[place.stop :]}".encode())


def fill_table(page: Path, name: str, text: str) -> None:
    """Write a table between the marks that it has in a page: of docs/reference/operators.md, which has outcomes of tests, not results."""
    content = page.read_text("utf-8")
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if begin not in content or end not in content:
        raise SystemExit(f"{page}: the marks {begin} and {end} are missing")
    head, tail = content.partition(begin)[0], content.partition(end)[2]
    write_atomic(page, f"{head}{begin}\n{text}\n{end}{tail}".encode())


def _place(text: str, name: str) -> slice | None:
    """Return where the body of a region stands."""
    begin = BEGIN.format(name=name)
    start = text.find(begin)
    end = text.find(END, start)
    return None if start < 0 or end < 0 else slice(start + len(begin), end)
