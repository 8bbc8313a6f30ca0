"""Show a progress bar on a terminal; without a terminal or without rich show nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import MissingExtraError
from .optional import require
from .terminal import is_quiet

__all__ = ["ProgressBar", "progress_bar"]


class ProgressBar:
    """The progress of the block in `progress_bar`; without a terminal it shows nothing."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task = bar, task

    def update(self, units: int = 1, text: str = "") -> None:
        """Report units that are done since the last call, and what comes now."""
        if self._bar is not None:
            self._bar.update(self._task, advance=units, description=text)

    __call__ = update

    def begin(self, total: int | None) -> None:
        """Begin anew, with so many units in all; None: unknown."""
        if self._bar is not None:
            self._bar.reset(self._task, total=total)


@contextmanager
def progress_bar(
    label: str, total: int | None, enabled: bool = True, *, in_bytes: bool = False
) -> Iterator[ProgressBar]:
    """Show a bar while the block runs; a total of None is unknown."""
    try:
        shown = enabled and sys.stderr.isatty() and not is_quiet()
        rich = require("rich.progress", extra="cli") if shown else None
    except MissingExtraError:
        rich = None
    if rich is None:
        yield ProgressBar()
        return
    console = require("rich.console", extra="cli").Console(stderr=True)
    columns = (
        rich.TextColumn(label, markup=False),
        rich.BarColumn(),
        rich.DownloadColumn() if in_bytes else rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn() if total is None and not in_bytes else rich.TimeRemainingColumn(),
        rich.TextColumn("{task.description}", markup=False),
    )
    # what goes to stdout stays there where that is a file; on a terminal it stands above the bar
    with rich.Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as bar:
        yield ProgressBar(bar, bar.add_task("", total=total))
