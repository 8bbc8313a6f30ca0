"""Read the files of a data set by name, from folders and from uncompressed tars, which are never extracted."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..errors import FormatError, NoDataError, UsageError
from .data_yaml import DATA_YAML, DataYaml
from .encodings import EncodingError, decode_utf8
from .files import list_files, open_regular, read_regular
from .name_list import split_lines
from .text_formats import MAX_YAML_BYTES

__all__ = ["FileSet", "tar_members"]

_Place = Path | tuple[Path, int, int]
MAX_TEXT_BYTES = 16 << 20
"""Of a list, or of the labels of an image."""


class FileSet:
    """Read files by name from several folders and tars; the first that has a name is used.

    `check_alone` refuses a file for which that would be a guess.

    A folder that holds tars instead of ``images/`` counts as its tars and its other files. A data.yaml counts as the folder that it names.

    Raises:
        NoDataError: a path does not exist.
        FormatError: a tar or a data.yaml cannot be read.
        UsageError: there are several files data.yaml.
    """

    def __init__(self, source: str | Path | Iterable[str | Path]) -> None:
        paths = [Path(source)] if isinstance(source, (str, Path)) else [Path(path) for path in source]
        self.name = ", ".join(map(str, paths))
        self._places: dict[str, _Place] = {}
        self._others: dict[str, list[_Place]] = {}
        self._folders: set[str] = set()
        self._description: DataYaml | None = None
        for path in paths:
            if os.path.isdir(path):
                self._add_folder(path)
            elif path.suffix.lower() in (".yaml", ".yml") and os.path.isfile(path):
                self._add_yaml(path)
            elif os.path.isfile(path):
                self._add_tar(path)
            else:
                raise NoDataError(
                    f"data {str(path)!r}: no such folder or tar. Looked for: {path.absolute()}", path=path
                )

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a file's contents; a file larger than ``max_bytes`` is refused before it is read.

        Raises:
            FormatError: it is too large, or its tar ends within it.
        """
        return self._read(self._place(name), name, max_bytes)

    def read_head(self, name: str, count: int) -> bytes:
        """The first bytes of a file, so many at most."""
        place = self._place(name)
        path, offset, size = (place, 0, count) if isinstance(place, Path) else place
        with open_regular(path) as file:
            file.seek(offset)
            return file.read(min(size, count))

    def check_alone(self, name: str, max_bytes: int) -> None:
        """Refuse a file that is in several of the folders and tars, with different contents."""
        if name in self._others:
            first = self.read(name, max_bytes)
            for place in self._others[name]:
                if self._read(place, name, max_bytes) != first:
                    places = " and in ".join(
                        str(source if isinstance(source, Path) else source[0]) for source in (self._place(name), place)
                    )
                    raise FormatError(f"{name}: other contents in {places}", path=name)

    def _read(self, place: _Place, name: str, max_bytes: int) -> bytes:
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

    def text(self, name: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
        """Read a file's contents as UTF-8.

        Raises:
            FormatError: it is too large, or not text.
        """
        try:
            return decode_utf8(self.read(name, max_bytes))
        except EncodingError as error:
            what = f"data {self.name!r}: {name} is not text: {error}"
            raise FormatError(what, path=name, line=error.line) from error

    def lines(self, name: str, max_bytes: int = MAX_TEXT_BYTES) -> list[str]:
        """The lines of a text, without blank ones."""
        return [line for line in split_lines(self.text(name, max_bytes)) if line]

    @property
    def description(self) -> DataYaml | None:
        """The data.yaml that is the source, or lies in the set; None: there is none."""
        if self._description is None:
            name = next((name for name in DATA_YAML if name in self._places), None)
            if name is not None:
                self._description = DataYaml.parse(self.read(name, MAX_YAML_BYTES), name)
        return self._description

    def is_folder(self, name: str) -> bool:
        """Whether there are files in a folder of this name; ``.`` is that of the set."""
        if not self._folders:
            self._folders = {name[:end] for name in self._places for end in range(len(name)) if name[end] == "/"} | {
                "."
            }
        return name in self._folders

    def path(self, name: str) -> Path:
        """The path of a file on the disk; for a file in a tar, that of the tar."""
        place = self._place(name)
        return place if isinstance(place, Path) else place[0]

    def state(self, name: str) -> tuple[int, int]:
        """A file's bytes, and when it, or its tar, was last changed, in nanoseconds."""
        place = self._place(name)
        if isinstance(place, Path):
            status = place.stat()
            return status.st_size, status.st_mtime_ns
        return place[2], place[0].stat().st_mtime_ns

    def _place(self, name: str) -> _Place:
        place = self._places.get(name)
        if place is None:
            raise NoDataError(
                f"data {self.name!r}: {name} is missing; {len(self._places):,} files were found.\n"
                "Do: give a folder or tars with images/, labels/, classes.txt and val.txt",
                file=name,
            )
        return place

    def _add_folder(self, folder: Path) -> None:
        for path in list_files(folder):
            self._add(path.relative_to(folder).as_posix(), path)
        if not (folder / "images").is_dir():
            for path in sorted(folder.glob("*.tar")):
                self._add_tar(path)

    def _add_yaml(self, path: Path) -> None:
        """Add the folders that a data.yaml names."""
        if self._description is not None:
            raise UsageError(f"data {self.name!r}: several files data.yaml.\nDo: give one")
        self._description = DataYaml.read(path)
        self._add_folder(Path(self._description.top))

    def _add_tar(self, path: Path) -> None:
        try:
            for name, offset, size in tar_members(path):
                self._add(name, (path, offset, size))
        except FormatError as error:
            raise FormatError(f"data {str(path)!r}: {error}\nDo: extract it, and pass the folder", path=path) from error

    def _add(self, name: str, place: _Place) -> None:
        if self._places.setdefault(name, place) is not place:
            self._others.setdefault(name, []).append(place)


def tar_members(path: Path, *, within: Path | None = None) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each file in an uncompressed tar, without reading the files. ``within`` is that of `open_regular`.

    Raises:
        FormatError: it is no such tar, or damaged.
    """
    try:
        with (
            open_regular(path, within=within) as file,
            tarfile.open(fileobj=_Bounded(file), mode="r:") as tar,  # type: ignore[call-overload]
        ):
            for member in tar:
                if member.isfile() and not member.issparse():
                    name = PurePosixPath(member.name).as_posix().removeprefix("./")
                    yield name, member.offset_data, member.size
    except (tarfile.TarError, OSError, ValueError, ArithmeticError, LookupError) as error:  # of damaged headers
        raise FormatError(f"not an uncompressed tar ({error}).", path=path) from error


class _Bounded:
    """A file that never reads more bytes than it has, whatever size a header claims."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        self.seek, self.tell = file.seek, file.tell

    def read(self, count: int = -1) -> bytes:
        bytes_left = max(0, self._size - self._file.tell())
        return self._file.read(bytes_left if count < 0 else min(count, bytes_left))
