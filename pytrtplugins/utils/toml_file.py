"""TOML that people write, with the lines of its tables and keys, which errors name."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import FormatError
from .files import read_regular
from .placed_file import Names, PlacedFile

__all__ = ["TomlFile", "read_text"]

_MAX_BYTES = 1 << 20


class TomlFile(PlacedFile):
    """A TOML file that was read, or one table of it."""

    @classmethod
    def read(cls, path: Path, table: tuple[str, ...] = ()) -> TomlFile:
        """Read a file.

        Args:
            path: The file.
            table: Where the part of it stands that is wanted.

        Raises:
            FormatError: it is not TOML, is no text, or is too large.
            OSError: it cannot be read.
        """
        import tomllib  # which takes long to import

        text = read_text(path)
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise FormatError(f"{path}: {error}.", path=path) from error
        for number, part in enumerate(table):
            data = data.get(part, {})
            if not isinstance(data, dict):
                raise FormatError(f"{path}: {'.'.join(table[: number + 1])}: expected a table.", path=path)
        return cls(path, data, _lines(text), table)


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        FormatError: it is not UTF-8, or too large.
        OSError: it cannot be read.
    """
    try:
        return read_regular(path, _MAX_BYTES).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 at byte {error.start}.", path=path) from error


def _lines(text: str) -> dict[Names, int]:
    """The lines of tables and keys, by their names; tables of a list also have their position."""
    found: dict[Names, int] = {}
    table: Names = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[\[([^\[\]]+)\]\]", line):
            names = _names(match[1])
            count = sum(each[:-1] == names and isinstance(each[-1], int) for each in found)
            table = (*names, count)
            found[table] = number
            found.setdefault(names, number)
        elif match := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = _names(match[1])
            found.setdefault(table, number)
        elif match := re.match(r"""\s*([\w\s."'-]+?)\s*=""", line):
            found.setdefault((*table, *_names(match[1])), number)
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip(" \t\"'") for part in text.split("."))
