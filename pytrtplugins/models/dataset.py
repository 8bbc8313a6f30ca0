"""Labelled images in the YOLO layout, in folders or tars."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, NoDataError
from ..utils.files import open_regular, read_regular
from ..vision.image import MAX_FILE_BYTES, decode_image

__all__ = ["YoloData"]

_MAX_TEXT_BYTES = 16 << 20  # of a list, or of the labels of an image


class YoloData:
    """A data set: ``images/``, ``labels/`` (one text file an image), ``classes.txt`` and lists such as ``val.txt``.

    A label's line is ``class centre-x centre-y width height``, in 0..1 of the image; an image without objects has an empty
    file or none. Tars are read in place, never extracted; a folder that holds tars instead of ``images/`` works too.

    Args:
        source: A folder or a tar, or several that together make one set.

    Raises:
        NoDataError: a path does not exist, or ``classes.txt`` is missing.
        FormatError: a tar cannot be read.
    """

    def __init__(self, source: str | Path | Iterable[str | Path]) -> None:
        paths = [Path(source)] if isinstance(source, (str, Path)) else [Path(path) for path in source]
        self._files: dict[str, Path | tuple[Path, int, int]] = {}
        for path in paths:
            if path.is_dir():
                self._add_folder(path)
            elif path.is_file():
                self._add_tar(path)
            else:
                raise NoDataError(
                    f"data {str(path)!r}: no such folder or tar. Looked for: {path.absolute()}", path=path
                )
        self.name = ", ".join(map(str, paths))
        self.classes = tuple(self._lines("classes.txt"))
        if not self.classes:
            raise NoDataError(f"data {self.name!r}: classes.txt names no class.", path=paths[0])

    def images(self, split: str = "val.txt") -> list[str]:
        """Names of the images that a list holds, such as ``images/2009_003804.jpg``.

        Raises:
            NoDataError: the list is missing or empty.
        """
        names = self._lines(split)
        if not names:
            raise NoDataError(f"data {self.name!r}: the list {split} is empty.")
        return names

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        """The image as (H, W, 3) uint8, RGB.

        Raises:
            NoDataError: it is missing.
            ImageError: it cannot be decoded.
        """
        return decode_image(self._read(name), name)

    def boxes(self, name: str) -> npt.NDArray[np.float64]:
        """The image's objects: rows of class, centre x, centre y, width, height; the last four in 0..1.

        Raises:
            FormatError: a line is broken or names a class that does not exist.
        """
        path = PurePosixPath(name)
        parts = ["labels" if part == "images" else part for part in path.parts[:-1]]
        label = str(PurePosixPath(*parts, path.stem + ".txt"))
        if label not in self._files:
            return np.zeros((0, 5))
        rows = [
            self._row(label, number, line)
            for number, line in enumerate(self._text(label).splitlines(), 1)
            if line.strip()
        ]
        return np.array(rows, np.float64).reshape(-1, 5)

    def _row(self, name: str, number: int, line: str) -> list[float]:
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            values = []
        if len(values) != 5 or not np.isfinite(values).all() or values[0] not in range(len(self.classes)):
            raise FormatError(
                f"data {self.name!r}: {name} line {number}: expected 'class x y w h' with a class from 0 to "
                f"{len(self.classes) - 1}, found {line[:80]!r}.",
                path=name,
                line=number,
            )
        return values

    def _add_folder(self, folder: Path) -> None:
        self._files |= {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        if not (folder / "images").is_dir():
            for path in sorted(folder.glob("*.tar")):
                self._add_tar(path)

    def _add_tar(self, path: Path) -> None:
        """Remember where each file lies in an uncompressed tar."""
        try:
            with open_regular(path) as file, tarfile.open(fileobj=_Bounded(file), mode="r:") as tar:  # type: ignore[call-overload]
                for member in tar:
                    if member.isfile() and not member.issparse():
                        name = PurePosixPath(member.name).as_posix().removeprefix("./")
                        self._files.setdefault(name, (path, member.offset_data, member.size))
        except (tarfile.TarError, OSError, ValueError, ArithmeticError, LookupError) as error:  # of damaged headers
            raise FormatError(
                f"data {str(path)!r}: not an uncompressed tar ({error}).\nDo: extract it, and pass the folder",
                path=path,
            ) from error

    def _read(self, name: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        place = self._files.get(name)
        if place is None:
            raise NoDataError(
                f"data {self.name!r}: {name} is missing; {len(self._files):,} files were found.\n"
                "Do: give a folder or tars with images/, labels/, classes.txt and val.txt",
                file=name,
            )
        if isinstance(place, Path):
            return read_regular(place, max_bytes)
        path, offset, size = place
        if size > max_bytes:
            raise FormatError(f"{path}: {name}: expected at most {max_bytes:,} bytes, found {size:,}.", path=path)
        with open_regular(path) as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) < size:
            raise FormatError(f"{path}: {name}: the tar ends within it.", path=path)
        return data

    def _text(self, name: str) -> str:
        try:
            return self._read(name, _MAX_TEXT_BYTES).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"data {self.name!r}: {name} is not text ({error}).", path=name) from error

    def _lines(self, name: str) -> list[str]:
        return [line.strip() for line in self._text(name).splitlines() if line.strip()]


class _Bounded:
    """A file that takes no memory for what it does not hold, whatever a header claims."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        self.seek, self.tell = file.seek, file.tell

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._size - self._file.tell())
        return self._file.read(left if count < 0 else min(count, left))
