"""Files that people write, with the line number of each key, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FormatError

__all__ = ["FileWithLines", "Names"]

Names = tuple[str | int, ...]
"""Where a value stands: keys, and positions in lists."""


@dataclass(frozen=True)
class FileWithLines:
    """Parsed data of a file, or one table of it, with the line number of each key.

    Attributes:
        path: The file.
        data: What it says.
        lines: The lines of its tables and keys.
        table: Where ``data`` stands in the file.
    """

    path: Path
    data: dict[str, Any]
    lines: Mapping[Names, int]
    table: Names = ()

    def line(self, names: Names) -> int:
        """The line of a table or a key; 0 where it is not known."""
        return self.lines.get((*self.table, *names), 0)

    def error(self, names: Names, problem: str) -> FormatError:
        """The error that something is wrong there."""
        line = self.line(names)
        where = f"{self.path}, line {line}" if line else f"{self.path}"
        return FormatError(f"{where}: {problem}", path=self.path, line=line or None)
