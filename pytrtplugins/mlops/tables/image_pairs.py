"""Pairs of images listed in a file: LFW's ``pairs.txt``, a list, or comma-separated values."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, NoDataError
from ...utils.encodings import EncodingError, decode_utf8
from ...utils.files import read_regular, sha256_hex
from ...utils.text_formats import shorten
from ...vision import load_image
from .labelled import SUFFIXES
from .verification import Pairs

__all__ = ["PAIR_SUFFIXES", "ImagePairs"]

PAIR_SUFFIXES = (".csv", ".txt")
_MOST_BYTES = 64 << 20
_MOST_PAIRS = 1_000_000
_MOST_FOLDS = 1000
_NUMBER = re.compile("[0-9]{1,6}")
_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True)
class _Row:
    """A pair as a line names it; fold -1 if the file has no folds."""

    line: int
    first: str
    second: str
    same: bool
    fold: int = -1


class ImagePairs:
    """Pairs of images, each with whether both show the same person.

    Args:
        source: A file in one of these forms. A ``.csv`` file has the lines ``first.jpg,second.jpg,1``, with a number for the fold as a
            fourth value if there are folds, and may begin with a line of titles. A ``.txt`` file is LFW's ``pairs.txt``, whose first line
            has the number of folds and of pairs, or has the lines ``first.jpg second.jpg 1``. 1 means the same, 0 different ones.
        folder: Where the images are; None: where the file is.

    Attributes:
        names: Of the images, as paths within the folder, in the order in which the file first names them.
        pairs: The pairs.

    Raises:
        NoDataError: the file or an image is missing.
        FormatError: a line is broken; ``.path`` and ``.line`` say which.
    """

    def __init__(self, source: str | Path, folder: str | Path | None = None) -> None:
        self.source = Path(source)
        self.folder = self.source.parent if folder is None else Path(folder)
        rows = _check_rows(self.source, self._rows(_text(self.source)))
        self._check_images(rows)
        numbers: dict[str, int] = {}
        pair_numbers = [[numbers.setdefault(name, len(numbers)) for name in (row.first, row.second)] for row in rows]
        first, second = np.array(pair_numbers, np.int64).T
        folds = None if rows[0].fold < 0 else np.array([row.fold for row in rows], np.int64)
        self.names = tuple(numbers)
        self.pairs = Pairs(first, second, np.array([row.same for row in rows], np.bool_), folds)

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.names)

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        """An image as (H, W, 3) uint8, RGB.

        Raises:
            ImageError: it cannot be read.
        """
        return load_image(self.folder / name)

    def digest(self) -> str:
        """Digest of the pairs and the images; equal digests mean equal figures."""
        hasher = hashlib.sha256(sha256_hex(self.source).encode())
        for name in self.names:
            hasher.update(f"{name}\0{sha256_hex(self.folder / name)}\n".encode("utf-8", "surrogateescape"))
        return hasher.hexdigest()

    def _rows(self, text: str) -> Iterator[_Row]:
        lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if self.source.suffix.lower() == ".csv":
            return _table(self.source, text)
        head = lines[0][1].split() if lines else []
        if 1 <= len(head) <= 2 and all(map(_NUMBER.fullmatch, head)):
            return _lfw(self.source, lines, self._photo)
        return (_row(self.source, number, line.split()) for number, line in lines)

    def _photo(self, person: str, number: str) -> str:
        """The path of a person's photo in LFW, whatever its format."""
        stem = f"{person}/{person}_{int(number):04d}"
        there = (stem + suffix for suffix in SUFFIXES if os.path.isfile(self.folder / (stem + suffix)))
        return next(there, f"{stem}.jpg")

    def _check_images(self, rows: Sequence[_Row]) -> None:
        checked: set[str] = set()
        for row in rows:
            for name in (image for image in (row.first, row.second) if image not in checked):
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts:
                    raise _wrong(
                        self.source, row.line, f"expected an image in the folder {self.folder}, found {shorten(name)}"
                    )
                if not os.path.isfile(self.folder / name):
                    raise NoDataError(
                        f"{self.source} line {row.line}: there is no image {shorten(name)} in the folder {self.folder}.\n"
                        "Do: give the folder that the names begin in: pytrt table --image-root DIR",
                        path=self.source,
                        line=row.line,
                    )
            checked |= {row.first, row.second}


def _text(path: Path) -> str:
    try:
        return decode_utf8(read_regular(path, _MOST_BYTES))
    except EncodingError as error:
        raise FormatError(f"{path}: expected a text in UTF-8: {error}", path=path, line=error.line) from error
    except OSError as error:
        raise NoDataError(f"pairs {str(path)!r}: cannot be read: {error.strerror}", path=path) from error


def _table(path: Path, text: str) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        for index, cells in enumerate(reader):
            titles = index == 0 and len(cells) in (3, 4) and not any(map(_DIGIT.search, cells[2:]))
            if cells and not titles:
                yield _row(path, reader.line_num, [cell.strip() for cell in cells])
    except csv.Error as error:
        raise _wrong(path, reader.line_num, f"not comma-separated values: {error}") from error


def _row(path: Path, line: int, cells: Sequence[str]) -> _Row:
    is_valid = len(cells) in (3, 4) and all(cells) and cells[2] in ("0", "1") and all(map(_NUMBER.fullmatch, cells[3:]))
    if not is_valid:
        raise _wrong(
            path, line, f"expected two images, 1 or 0, and possibly a fold's number, found {shorten(' '.join(cells))}"
        )
    return _Row(line, cells[0], cells[1], cells[2] == "1", int(cells[3]) if cells[3:] else -1)


def _lfw(path: Path, lines: Sequence[tuple[int, str]], photo: Callable[[str, str], str]) -> Iterator[_Row]:
    """LFW's own form: in each fold so many pairs of the same person, ``name 1 2``, then as many others, ``name 1 name 2``."""
    head = [int(word) for word in lines[0][1].split()]
    folds, pairs_per_fold = head if len(head) == 2 else (1, head[0])
    if len(lines) - 1 != 2 * folds * pairs_per_fold:
        raise _wrong(
            path,
            lines[0][0],
            f"the first line tells of {2 * folds * pairs_per_fold:,} pairs, and {len(lines) - 1:,} lines follow",
        )
    for index, (line, text) in enumerate(lines[1:]):
        words = text.split("\t") if "\t" in text else text.split()
        same = index % (2 * pairs_per_fold) < pairs_per_fold
        numbers = (words[1], words[2]) if len(words) == 3 else tuple(words[1::2])
        if len(words) != (3 if same else 4) or not all(words) or not all(map(_NUMBER.fullmatch, numbers)):
            form = "a name and two numbers" if same else "a name and a number, twice"
            raise _wrong(path, line, f"expected {form}, found {shorten(text)}")
        other = words[0] if same else words[2]
        yield _Row(
            line,
            photo(words[0], numbers[0]),
            photo(other, numbers[1]),
            same,
            index // (2 * pairs_per_fold) if folds > 1 else -1,
        )


def _check_rows(path: Path, rows: Iterator[_Row]) -> list[_Row]:
    """All rows, after checking that either all or none have folds, and that each fold has pairs of both kinds."""
    checked_rows: list[_Row] = []
    for row in rows:
        if len(checked_rows) == _MOST_PAIRS:
            raise _wrong(path, row.line, f"expected at most {_MOST_PAIRS:,} pairs")
        if checked_rows and (row.fold < 0) != (checked_rows[0].fold < 0):
            raise _wrong(path, row.line, "expected a fold's number in each line, or in none")
        if row.first == row.second:
            raise _wrong(path, row.line, f"expected two images, found {shorten(row.first)} twice")
        checked_rows.append(row)
    kinds: dict[int, set[bool]] = {}
    for row in checked_rows:
        kinds.setdefault(row.fold, set()).add(row.same)
    bad = [fold for fold, both in kinds.items() if len(both) < 2]
    if bad or not checked_rows:
        where = f" in fold {bad[0]}" if bad and bad[0] >= 0 else ""
        raise FormatError(
            f"{path}: expected pairs of the same and pairs of different ones{where}", path=path, line=None
        )
    if checked_rows[0].fold >= 0 and not 2 <= len(kinds) <= _MOST_FOLDS:
        raise FormatError(f"{path}: expected 2 to {_MOST_FOLDS:,} folds, found {len(kinds):,}", path=path, line=None)
    return checked_rows


def _wrong(path: Path, line: int, what: str) -> FormatError:
    return FormatError(f"{path} line {line}: {what}.", path=path, line=line)
