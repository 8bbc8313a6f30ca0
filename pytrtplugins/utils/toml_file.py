"""Read TOML that people write, with the line number of each table and key, for error messages."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import FormatError
from .file_with_lines import FileWithLines, Names
from .files import read_regular

__all__ = ["TomlFile", "read_text"]

_MAX_BYTES = 1 << 20


class TomlFile(FileWithLines):
    """A parsed TOML file, or one table of it."""

    @classmethod
    def read(cls, path: Path, table: tuple[str, ...] = ()) -> TomlFile:
        """Read and parse a file, of which the part at ``table`` is wanted.

        Raises:
            FormatError: it is not TOML, is no text, or is too large.
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
    """
    try:
        return read_regular(path, _MAX_BYTES).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 at byte {error.start}.", path=path) from error


def _lines(text: str) -> dict[Names, int]:
    """Line numbers of tables and keys, by name; items of an array of tables also have their index."""
    line_numbers: dict[Names, int] = {}
    table: Names = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[\[([^\[\]]+)\]\]", line):
            names = _names(match[1])
            count = sum(key[:-1] == names and isinstance(key[-1], int) for key in line_numbers)
            table = (*names, count)
            line_numbers[table] = number
            line_numbers.setdefault(names, number)
        elif match := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = _names(match[1])
            line_numbers.setdefault(table, number)
        elif match := re.match(r"""\s*([\w\s."'-]+?)\s*=""", line):
            line_numbers.setdefault((*table, *_names(match[1])), number)
    return line_numbers


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip(" \t\"'") for part in text.split("."))
