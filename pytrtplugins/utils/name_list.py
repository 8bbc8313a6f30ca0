"""Lists of names: one a line in a file, or as they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import FormatError, UsageError
from .files import read_regular

__all__ = ["read_name_list"]

_MAX_BYTES = 1 << 20


def read_name_list(
    names: str | Path | Iterable[str], *, of: str = "class", max_bytes: int = _MAX_BYTES
) -> tuple[str, ...]:
    """Names of classes, or ``of`` something else, from a file with one a line, or from a list; empty ones are left out.

    Raises:
        UsageError: the file cannot be read.
    """
    if isinstance(names, (str, Path)):
        try:
            names = read_regular(names, max_bytes).decode("utf-8-sig").splitlines()
        except (OSError, FormatError, UnicodeDecodeError) as error:
            raise UsageError(
                f"names {str(names)!r}: cannot be read ({error}).\nDo: give a text file with one {of} a line",
                path=str(names),
            ) from error
    return tuple(name.strip() for name in names if name.strip())
