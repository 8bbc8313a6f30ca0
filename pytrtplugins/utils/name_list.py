"""Lists of names: one a line in a file, or as they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import FormatError, UsageError
from .files import read_regular

__all__ = ["read_name_list"]

_MAX_NAMES_BYTES = 1 << 20


def read_name_list(names: str | Path | Iterable[str]) -> tuple[str, ...]:
    """Class names from a file with one a line, or from a list; empty ones are left out.

    Raises:
        UsageError: the file cannot be read.
    """
    if isinstance(names, (str, Path)):
        try:
            names = read_regular(names, _MAX_NAMES_BYTES).decode().splitlines()
        except (OSError, FormatError, UnicodeDecodeError) as error:
            raise UsageError(
                f"names {str(names)!r}: cannot be read ({error}).\nDo: give a text file with one class a line",
                path=str(names),
            ) from error
    return tuple(name.strip() for name in names if name.strip())
