"""A progress bar on a terminal; nothing elsewhere, or without rich."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import MissingExtraError
from .optional import require

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(label: str, total: int | None, wanted: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Show a bar while the block runs.

    Args:
        label: What is being done.
        total: Units of it; None: unknown.
        wanted: Whether to show one at all.

    Yields:
        A function that takes how many units are done since it was called last, and a text that says what comes now.
    """
    try:
        rich = require("rich.progress", extra="cli") if wanted and sys.stderr.isatty() else None
    except MissingExtraError:
        rich = None
    if rich is None:
        yield lambda units, text: None
        return
    console = require("rich.console", extra="cli").Console(stderr=True)
    columns = (
        rich.TextColumn(label),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.description}", markup=False),
    )
    with rich.Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda units, text: bar.update(task, advance=units, description=text)
