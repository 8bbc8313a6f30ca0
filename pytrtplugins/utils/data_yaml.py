"""Read data.yaml of Roboflow and Ultralytics: class names, and the folders of each part of a data set."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import FormatError, NoDataError
from .file_with_lines import FileWithLines
from .files import read_regular
from .name_list import check_class_names
from .text_formats import MAX_YAML_BYTES, parse_yaml_with_lines, shorten

__all__ = ["DATA_YAML", "PARTS", "DataYaml"]

DATA_YAML = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
"""Names that such a file has in a folder or tar; one that the user names may have any."""
PARTS = ("train", "val", "test")
_ALIASES = {"val": ("validation", "valid")}
_MOST_CLASSES = 100_000
_MOST_ENTRIES = 10_000


@dataclass(frozen=True)
class DataYaml:
    """The contents of a data.yaml.

    Attributes:
        file: The file.
        classes: Names of the classes, in the order of their numbers.
        root: The folder that the parts lie in, as the file has it; empty: that of the file.
        parts: ``train``, ``val`` and ``test`` → their folders of photos, lists of photos, or photos.
        folder: The file's folder: on the disk, or in the set that holds the file.
        top: The folder on the disk that is the set; empty: the set holds the file.
    """

    file: str
    classes: tuple[str, ...]
    root: str
    parts: dict[str, tuple[str, ...]]
    folder: str = ""
    top: str = ""

    @classmethod
    def parse(cls, data: bytes, file: str) -> DataYaml:
        """Parse the contents of a file in a data set; keys for other purposes than names and folders are ignored.

        Raises:
            FormatError: it is no such file, or a class's name is missing, blank, there twice, or no text; ``.line`` says where.
        """
        facts, lines = parse_yaml_with_lines(data, file)
        if not isinstance(facts, dict) or "names" not in facts:
            raise FormatError(
                f"{file}: expected names, and the folders train, val or test, as Ultralytics has them.\n"
                "Do: look at docs/how-to/shards.md, which shows such a file",
                path=file,
            )
        placed = FileWithLines(Path(file), facts, lines)
        root = facts.get("path")
        if root is not None and not isinstance(root, str):
            raise placed.error(("path",), f"path: expected a folder, found {shorten(root)}.")
        parts = {}
        for part in PARTS:
            key = next((key for key in (part, *_ALIASES.get(part, ())) if facts.get(key) is not None), None)
            if key is not None:
                parts[part] = _entries(placed, key)
        return cls(file, _names(placed), (root or "").replace("\\", "/"), parts, posixpath.dirname(file))

    @classmethod
    def read(cls, path: Path) -> DataYaml:
        """Read a file on the disk, whose parts may be in other folders.

        Raises:
            FormatError: see `parse`; or its parts have only the root of the disk in common.
        """
        parsed = cls.parse(read_regular(path, MAX_YAML_BYTES), str(path))
        described = replace(parsed, folder=Path(os.path.abspath(path)).parent.as_posix())
        return replace(described, top=described._common_folder())

    def part(self, name: str) -> str | None:
        """The part that a list's name means: ``val`` for ``val``, ``val.txt`` and ``valid``; None: there is none."""
        word = name.removesuffix(".txt")
        part = next((part for part in PARTS if word == part or word in _ALIASES.get(part, ())), word)
        return part if part in self.parts else None

    def place(self, entry: str, exists: Callable[[str], bool]) -> str:
        """The path within the data set of an entry of a part.

        It is below ``path``, or below the file's folder. Roboflow writes ``../`` before what is in that folder.

        Args:
            entry: A folder, list or photo, as the file has it.
            exists: Whether a name is in the set.

        Raises:
            NoDataError: it is in none of these places; ``.places`` are all of them.
        """
        places = self._places(entry)
        names = [posixpath.relpath(place, self.top) if self.top else place for place in places]
        name = next((name for name in names if exists(name)), None)
        if name is None:
            raise NoDataError(
                f"{self.file}: {entry[:200]!r} is missing, or holds no files. Looked for: {', '.join(place[:200] for place in places)}\n"
                "Do: correct the place, or path, in the file",
                path=self.file,
                places=tuple(places),
            )
        return name

    def _places(self, entry: str) -> list[str]:
        entry = entry.replace("\\", "/")
        roots = [posixpath.normpath(posixpath.join(self.folder, root)) for root in (self.root, "")]
        forms = (entry, entry.removeprefix("../"))
        places = [posixpath.normpath(posixpath.join(root, form)) for form in forms for root in roots]
        return list(dict.fromkeys(places))

    def _common_folder(self) -> str:
        """The folder that holds all existing parts with their labels: ``path`` if they are all below it."""
        root = posixpath.normpath(posixpath.join(self.folder, self.root))
        root = root if os.path.isdir(root) else self.folder
        folders = [root]
        for entry in (entry for entries in self.parts.values() for entry in entries):
            place = next((place for place in self._places(entry) if os.path.exists(place)), root)
            if posixpath.commonpath([place, root]) != root:
                folders.append(_above_images(place))
        common = posixpath.commonpath(folders)
        if common == posixpath.dirname(common):
            raise FormatError(
                f"{self.file}: the folders of its parts have only {common} in common.\nDo: correct path, train, val and test",
                path=self.file,
            )
        return common


def _above_images(place: str) -> str:
    """The folder that holds both photos and labels: the parent of the last folder ``images`` in a path."""
    parts = place.split("/")
    last = max((number for number, part in enumerate(parts) if part in ("images", "JPEGImages")), default=None)
    return posixpath.dirname(place) if last is None else "/".join(parts[:last]) or "/"


def _entries(placed: FileWithLines, key: str) -> tuple[str, ...]:
    value = placed.data[key]
    entries = value if isinstance(value, list) else [value]
    if len(entries) > _MOST_ENTRIES or not all(isinstance(entry, str) and entry.strip() for entry in entries):
        raise placed.error((key,), f"{key}: expected a folder, a list of photos, or several, found {shorten(value)}.")
    return tuple(entries)


def _names(placed: FileWithLines) -> tuple[str, ...]:
    """Names as a list, or as numbers and names."""
    value = placed.data["names"]
    names: Sequence[Any] = []
    if isinstance(value, list):
        names = value
    elif isinstance(value, dict):
        numbers = {_number(key): key for key in value}
        if set(numbers) != set(range(len(value))):
            keys = shorten(list(value))
            raise placed.error(
                ("names",), f"names: expected the numbers 0 to {len(value) - 1}, each once, found {keys}."
            )
        names = [value[numbers[number]] for number in range(len(value))]
    if not names or len(names) > _MOST_CLASSES:
        raise placed.error(("names",), f"names: expected 1 to {_MOST_CLASSES:,} names, found {shorten(value)}.")
    wrong = next((number for number, name in enumerate(names) if not isinstance(name, str) or not name.strip()), None)
    if wrong is not None:
        what = f"names: the name of class {wrong} is no text but {shorten(names[wrong])}: write it in quotes."
        raise placed.error(("names",), what)
    count = placed.data.get("nc")
    if count is not None and count != len(names):
        raise placed.error(("nc",), f"nc is {shorten(count)}, but there are {len(names)} names.")
    try:
        return check_class_names([name.strip() for name in names], once=True)
    except ValueError as error:
        raise placed.error(("names",), f"names: {error}.") from error


def _number(key: Any) -> int:
    """A class's number; -1: it is none."""
    if isinstance(key, str):
        return int(key) if key.isascii() and key.isdigit() and len(key) < 9 else -1
    return int(key) if isinstance(key, int) and not isinstance(key, bool) else -1
