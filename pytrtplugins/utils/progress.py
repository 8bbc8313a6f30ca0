"""A progress bar on a terminal; nothing elsewhere, or without rich."""

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
    """What the block inside of `progress_bar` reports to; without a terminal it shows nothing. It has tqdm's words, which pooch uses."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task, self._total = bar, task, 0

    def update(self, units: int = 1, text: str = "") -> None:
        """Report units that are done since the last call, and what comes now."""
        if self._bar is not None:
            self._bar.update(self._task, advance=units, description=text)

    __call__ = update

    @property
    def total(self) -> int:
        """Units in all; 0: unknown."""
        return self._total

    @total.setter
    def total(self, units: int) -> None:
        self._total = units
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        if self._bar is not None:
            self._bar.reset(self._task, total=self._total or None)

    def close(self) -> None:
        """The bar ends with its block."""


@contextmanager
def progress_bar(
    label: str, total: int | None, wanted: bool = True, *, in_bytes: bool = False
) -> Iterator[ProgressBar]:
    """Show a bar while the block runs; a total of None is unknown."""
    try:
        shown = wanted and sys.stderr.isatty() and not is_quiet()
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
    with rich.Progress(*columns, console=console) as bar:
        yield ProgressBar(bar, bar.add_task("", total=total))
