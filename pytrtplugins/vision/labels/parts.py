"""Find the photos of a split of a data set, such as train: from a list, or from a data.yaml."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import FormatError, NoDataError
from ...utils.file_set import FileSet
from ...utils.name_list import split_lines
from .photo_files import PhotoFiles

__all__ = ["listed_names", "part_photos"]

_MAX_LIST_BYTES = 256 << 20


def part_photos(files: FileSet, photos: PhotoFiles, name: str) -> list[str]:
    """Return the photos of a split, in their order.

    Args:
        files: The set.
        photos: Its photos.
        name: A list in the set, such as ``val.txt``; or a part that a data.yaml has. A data.yaml that is the source itself comes first,
            then a list, then a data.yaml in the set.

    Raises:
        NoDataError: there is no such list or part, it is empty, or it names a photo that is missing.
        FormatError: it names something that may be several photos.
    """
    if (entries := _part_entries(files, name)) is not None:
        names = [photo for entry in entries for photo in _entry_photos(files, photos, entry)]
    elif name in files:
        names = list(_listed_photos(files, photos, name))
    else:
        parts = files.description.parts if files.description else ()
        parts_text = f"; data.yaml has {', '.join(parts)}" if parts else ""
        raise NoDataError(
            f"data {files.name!r}: {name} is missing; {len(files):,} files were found{parts_text}.\n"
            "Do: write a list, with the name of a photo in each line",
            file=name,
        )
    if not names:
        raise NoDataError(f"data {files.name!r}: the list {name} is empty.")
    return list(dict.fromkeys(names))


def listed_names(files: FileSet, photos: PhotoFiles, name: str | None) -> list[str] | None:
    """Return the names of a list, also of missing photos; or the photos of a split in a data.yaml.

    Args:
        files: The set.
        photos: Its photos.
        name: As in `part_photos`. None: all photos, which are those of all parts where a data.yaml is the source itself.

    Returns:
        None: all photos of the set.

    Raises:
        NoDataError: there is no such list or part, or a part is missing; ``test`` alone may be, where all parts are asked for.
        FormatError: a part names something that may be several photos.
    """
    if name is not None:
        return (
            files.lines(name)
            if _part_entries(files, name) is None and name in files
            else part_photos(files, photos, name)
        )
    description = files.description
    if description is None or not description.top or not description.parts:
        return None
    names: dict[str, None] = {}
    for part in description.parts:
        try:
            names |= dict.fromkeys(part_photos(files, photos, part))
        except NoDataError:
            if part != "test":  # which Roboflow names even where it has none
                raise
    return list(names)


def _part_entries(files: FileSet, name: str) -> tuple[str, ...] | None:
    """Return the entries of a split in a data.yaml; None if it has no such split, or the set has a list of this name."""
    description = files.description
    if description is None or (name in files and not description.top):
        return None
    part = description.part(name)
    return None if part is None else description.parts[part]


def _entry_photos(files: FileSet, photos: PhotoFiles, entry: str) -> Iterator[str]:
    description = files.description
    if description is None:
        raise AssertionError("an entry is one of a data.yaml")
    place = description.place(entry, lambda name: name in files or files.is_folder(name))
    if place in photos:
        yield place
    elif place in files:
        yield from _listed_photos(files, photos, place)
    else:
        yield from (photo for photo in photos.names if place == "." or photo.startswith(f"{place}/"))


def _listed_photos(files: FileSet, photos: PhotoFiles, name: str) -> Iterator[str]:
    for number, line in enumerate(split_lines(files.text(name, _MAX_LIST_BYTES)), 1):
        if not line:
            continue
        try:
            photo = photos.listed(line, name)
        except ValueError as error:
            raise FormatError(
                f"data {files.name!r}: {name} line {number}: {error}.\nDo: write its whole path", path=name, line=number
            ) from error
        if photo is None:
            raise NoDataError(
                f"data {files.name!r}: {name} line {number} names {line[:200]!r}, which is missing; {len(files):,} files were found.\n"
                "Do: look at docs/how-to/shards.md, which says where photos and labels lie",
                file=line,
            )
        yield photo
