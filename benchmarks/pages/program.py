"""What programs share that measure row after row: their options, their record, and how it becomes a result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .results import DOCS, publish, write_json

__all__ = ["add_options", "collect", "keep"]


def add_options(parser: argparse.ArgumentParser, name: str, docs: Path | None = DOCS) -> None:
    """Add the options of the record and of its section."""
    add = parser.add_argument
    add("--name", default=name, help="heading on the page (default: %(default)s)")
    add("--note", default="", metavar="TEXT", help="a sentence for the page, such as what else ran on the machine")
    add("--docs", type=Path, default=docs, metavar="FOLDER", help="folder of the page (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="keep the record in this file, after each row")


def collect(record: dict[str, Any], rows: Iterable[Any], line: Callable[[Any], str], path: Path | None) -> None:
    """Take rows, which are dataclasses, into a record and its file, one by one, until Ctrl-C; print a line of each."""
    try:
        for row in rows:
            record["rows"].append(asdict(row))
            if path:
                write_json(path, record)
            print(line(row), flush=True)
    except KeyboardInterrupt:
        print("ended early", file=sys.stderr)


def keep(record: dict[str, Any], page: str, name: str, docs: Path | None) -> int:
    """Keep a record among the results, and make its section where there is a folder for pages; returns the exit status."""
    if not record["rows"]:
        print("no row was finished, so nothing is written", file=sys.stderr)
        return 1
    if docs:
        print(f"written: {publish(record, page, name, docs)}")
    return 0
