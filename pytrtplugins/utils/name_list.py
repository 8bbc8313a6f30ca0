"""Lists of names: from a file with one name per line, or from arguments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import FormatError, UsageError
from .encodings import EncodingError, decode_utf8
from .files import read_regular

__all__ = ["check_class_names", "read_class_names", "read_name_list", "split_lines"]

_MAX_BYTES = 1 << 20


def split_lines(text: str) -> list[str]:
    """Split a text into lines without outer spaces. Lines end as in darknet and editors, not at Unicode's other separators."""
    return [line.strip() for line in re.split(r"\r\n|\n|\r", text)]


def read_name_list(names: str | Path | Iterable[str], *, max_bytes: int = _MAX_BYTES) -> tuple[str, ...]:
    """Names of photos from a file with one a line, or from a list; empty ones are left out."""
    return tuple(name for name in _lines(names, "photo", max_bytes) if name)


def read_class_names(names: str | Path | Iterable[str]) -> tuple[str, ...]:
    """Names of classes, in the order of their numbers, from a file with one a line, or from a list.

    Raises:
        UsageError: the file cannot be read, or a class before the last one has no name.
    """
    lines = _lines(names, "class", _MAX_BYTES)
    try:
        return check_class_names(lines)
    except ValueError as error:
        path = str(names) if isinstance(names, (str, Path)) else ""
        raise UsageError(
            f"names {path!r}: {error}.\nDo: remove the line, or give the class a name", path=path
        ) from error


def check_class_names(lines: Sequence[str], *, once: bool = False) -> tuple[str, ...]:
    """The class names in the lines of a file, without blank lines at the end.

    Args:
        lines: One for each class.
        once: Whether each name must be there once: boxes that are labelled with a name have to tell their class.

    Raises:
        ValueError: a line is blank, which darknet counts as a class: the numbers of all others would change; or a name appears twice.
    """
    names = list(lines)
    while names and not names[-1]:
        names.pop()
    if "" in names:
        raise ValueError(f"line {names.index('') + 1} is blank, which darknet counts as a class without a name")
    counts = Counter(names)
    repeated = next((name for name in names if once and counts[name] > 1), None)
    if repeated is not None:
        numbers = [str(number) for number, name in enumerate(names) if name == repeated]
        raise ValueError(f"{repeated[:80]!r} is the name of the classes {' and '.join(numbers[:2])}")
    return tuple(names)


def _lines(names: str | Path | Iterable[str], of: str, max_bytes: int) -> list[str]:
    if not isinstance(names, (str, Path)):
        return [name.strip() for name in names]
    try:
        return split_lines(decode_utf8(read_regular(names, max_bytes)))
    except (OSError, FormatError, EncodingError) as error:
        raise UsageError(
            f"names {str(names)!r}: cannot be read ({error}).\nDo: give a text file with one {of} a line, in UTF-8",
            path=str(names),
        ) from error
