"""CVAT's own XML, "CVAT for images 1.1": one file for all photos, with corners in pixels from 0 on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ...errors import FormatError
from ...utils.file_set import FileSet
from ...utils.xml_text import parse_children, root_tag
from .annotations import OTHER_CLASSES, Annotations, ClassNumbers, LabelledPhoto, PhotoFilter, Problem, rows_of
from .photo_files import PhotoFiles

__all__ = ["NAME", "read", "recognize"]

NAME = "cvat"
_MAX_BYTES = 1 << 30
_SHAPES = ("polygon", "polyline", "points", "ellipse", "mask", "skeleton", "cuboid")
_LOOKED_AT = 5


def recognize(files: FileSet, photos: PhotoFiles) -> str:
    """Why these files are of this format; empty where they are not."""
    return ", ".join(_xml_files(files))


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: PhotoFilter) -> Annotations:
    """Read the photos of all files; a photo without boxes is one.

    Raises:
        FormatError: a file is not of this format, or truncated.
    """
    found = Annotations(NAME)
    for name in _xml_files(files):
        for element in parse_children(files.read(name, _MAX_BYTES), name, max_bytes=_MAX_BYTES):
            if element.tag == "meta":
                numbers.declare(_declared(element))
            elif element.tag == "image":
                _add(element, name, photos, numbers, wanted, found)
            elif element.tag == "track":
                raise FormatError(
                    f"{name}: tracks of a video.\nDo: export the task from CVAT as 'CVAT for images 1.1', with its images",
                    path=name,
                )
    return found


def _add(
    image: Element, place: str, photos: PhotoFiles, numbers: ClassNumbers, wanted: PhotoFilter, found: Annotations
) -> None:
    """Add a photo with its boxes, or the problem with it."""
    file = image.get("name", "")
    photo = photos.wanted(file, place, wanted, found.problems)
    if photo is None:
        return
    rows = []
    try:
        size = (round(_number(image, "width")), round(_number(image, "height")))
        if min(size) < 1:
            raise ValueError(f"a size of {size[0]} x {size[1]}")
        for each in image:
            if each.tag in _SHAPES:
                found.left_out["shapes that are not boxes, left out"] += 1
            if each.tag != "box":
                continue
            kind = numbers.number(each.get("label", ""))
            if kind is None:
                found.left_out[OTHER_CLASSES] += 1
            else:
                rows.append((kind, *_corners(each)))
        found.photos.append(LabelledPhoto(photo, rows_of(rows, size), size))
    except ValueError as error:
        found.problems.append(Problem(photo, str(error)))


def _corners(box: Element) -> tuple[float, float, float, float]:
    """Left, top, right, bottom; of a box that is turned, those of the upright box around it."""
    left, top, right, bottom = (_number(box, name) for name in ("xtl", "ytl", "xbr", "ybr"))
    angle = math.radians(_number(box, "rotation")) if box.get("rotation") else 0.0
    if not angle or not math.isfinite(angle):
        return left, top, right, bottom
    x, y, across, down = (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2
    cos, sin = abs(math.cos(angle)), abs(math.sin(angle))
    across, down = across * cos + down * sin, across * sin + down * cos
    return x - across, y - down, x + across, y + down


def _number(element: Element, name: str) -> float:
    text = element.get(name, "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"<{element.tag}>: expected a number as {name}, found {text[:40]!r}")
    return number


def _declared(meta: Element) -> Iterator[str]:
    """Names of the labels of a task, a project or a job, without parts of skeletons."""
    for label in meta.iter("label"):
        name = (label.findtext("name") or "").strip()
        if name and not (label.findtext("parent") or "").strip():
            yield name


def _xml_files(files: FileSet) -> list[str]:
    """CVAT's files. Where none of the first few is one, no other is: VOC has a file for each photo."""
    names = sorted((name for name in files if name.lower().endswith(".xml")), key=lambda name: (name.count("/"), name))
    if not any(_is_cvat(files, name) for name in names[:_LOOKED_AT]):
        return []
    return [name for name in names if _is_cvat(files, name)]


def _is_cvat(files: FileSet, name: str) -> bool:
    return root_tag(files.read(name, _MAX_BYTES), name, max_bytes=_MAX_BYTES) == "annotations"
