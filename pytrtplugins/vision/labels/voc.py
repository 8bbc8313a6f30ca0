"""Reader of PASCAL VOC labels: an XML file for each photo, with corners in pixels from 1 on."""

from __future__ import annotations

import contextlib
import math
from pathlib import PurePosixPath
from xml.etree.ElementTree import Element

from ...errors import FormatError
from ...utils.file_set import FileSet
from ...utils.xml_text import parse_children, root_tag
from .annotations import OTHER_CLASSES, Annotations, ClassNumbers, LabelledPhoto, PhotoFilter, Problem, rows_of
from .pairing import AmbiguousError, Pairs
from .photo_files import PhotoFiles

__all__ = ["NAME", "read", "recognize"]

NAME = "voc"
_MAX_BYTES = 4 << 20  # of a photo's labels
_LOOKED_AT = 5  # files, of which some may be broken


def recognize(files: FileSet, photos: PhotoFiles) -> str:
    """Return the evidence that the files are of this format; empty if they are not."""
    names = _xml_files(files)
    if any(_is_voc(files, name) for name in names[:_LOOKED_AT]):
        return f"{len(names):,} .xml files with <annotation>"
    return ""


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: PhotoFilter) -> Annotations:
    """Read the labels of all photos with labels; other photos are left out."""
    result, names = Annotations(NAME), _xml_files(files)
    labelled, pairs = set[str](), Pairs(photos.names, names)
    for name in names:
        try:
            photo, children = _read_file(files, name, pairs, photos, wanted)
            if photo is not None and photo in wanted:
                labelled.add(photo)
                result.photos.append(_parse_photo(photo, children, photos, numbers, result))
        except AmbiguousError as error:
            if any(photo in wanted for photo in error.candidates):
                result.problems.append(Problem(name, str(error)))
        except (FormatError, ValueError) as error:
            result.problems.append(Problem(name, str(error).removeprefix(f"{name}: ")))
    unlabelled_count = sum(photo not in labelled and photo in wanted for photo in photos.names)
    result.left_out["photos without labels, left out"] += unlabelled_count
    return result


def _read_file(
    files: FileSet, name: str, pairs: Pairs, photos: PhotoFiles, wanted: PhotoFilter
) -> tuple[str | None, list[Element]]:
    """Return the photo of a label file and the file's elements; (None, []) if the filter rejects it or it has no labels."""
    with contextlib.suppress(AmbiguousError):
        photo = pairs.photo_of(name)
        if photo is not None and photo not in wanted:
            return None, []
    root, *children = parse_children(files.read(name, _MAX_BYTES), name)
    if root.tag != "annotation":
        return None, []
    file = _text(children, "filename")
    photo = pairs.photo_of(name, file) or photos.named(file, name)
    if photo is None and PurePosixPath(name).with_suffix(".jpg").name in wanted:
        raise ValueError(f"the photo {file[:120]!r} is missing")
    return photo, children


def _parse_photo(
    photo: str, children: list[Element], photos: PhotoFiles, numbers: ClassNumbers, result: Annotations
) -> LabelledPhoto:
    """Parse the labels of a photo."""
    sizes = [element for element in children if element.tag == "size"]
    width, height = (_number(sizes[0], side) for side in ("width", "height")) if sizes else (0.0, 0.0)
    if not math.isfinite(width) or not math.isfinite(height):
        raise ValueError(f"a size of {width:g} x {height:g}")
    size = (int(width), int(height)) if min(width, height) >= 1 else photos.size(photo)  # some writers put 0
    rows = []
    for element in children:
        if element.tag != "object":
            continue
        box = element.find("bndbox")
        if box is None:
            raise ValueError("an object without <bndbox>")
        kind = numbers.number((element.findtext("name") or "").strip())
        result.left_out["difficult boxes, kept"] += (element.findtext("difficult") or "").strip() == "1"
        if kind is None:
            result.left_out[OTHER_CLASSES] += 1
            continue
        left, top, right, bottom = (_number(box, name) for name in ("xmin", "ymin", "xmax", "ymax"))
        # the first pixel is 1, in files of the challenge; writers that begin at 0 are a pixel off at most
        rows.append((kind, left - (left >= 1), top - (top >= 1), right, bottom))
    return LabelledPhoto(photo, rows_of(rows, size), size)


def _number(parent: Element, name: str) -> float:
    text = parent.findtext(name)
    try:
        return float(text or "")
    except ValueError:
        found_text = "nothing" if text is None else repr(text[:40])
        raise ValueError(f"<{parent.tag}>: expected a number in <{name}>, found {found_text}") from None


def _text(children: list[Element], name: str) -> str:
    return next((child.text or "" for child in children if child.tag == name), "").strip()


def _xml_files(files: FileSet) -> list[str]:
    return sorted(name for name in files if name.lower().endswith(".xml"))


def _is_voc(files: FileSet, name: str) -> bool:
    try:
        return root_tag(files.read(name, _MAX_BYTES), name) == "annotation"
    except FormatError:  # a larger file is of another format
        return False
