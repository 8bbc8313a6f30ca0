"""Reader of CVAT's own XML, "CVAT for images 1.1": one file for all photos, with corners in pixels from 0 on."""

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
    """Return the evidence that the files are of this format; empty if they are not."""
    return ", ".join(_xml_files(files))


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: PhotoFilter) -> Annotations:
    """Read the photos of all files, also photos without boxes.

    Raises:
        FormatError: a file is not of this format, or truncated.
    """
    result = Annotations(NAME)
    for name in _xml_files(files):
        for element in parse_children(files.read(name, _MAX_BYTES), name, max_bytes=_MAX_BYTES):
            if element.tag == "meta":
                numbers.declare(_declared_labels(element))
            elif element.tag == "image":
                _add_photo(element, name, photos, numbers, wanted, result)
            elif element.tag == "track":
                raise FormatError(
                    f"{name}: tracks of a video.\nDo: export the task from CVAT as 'CVAT for images 1.1', with its images",
                    path=name,
                )
    return result


def _add_photo(
    image: Element,
    labels_file: str,
    photos: PhotoFiles,
    numbers: ClassNumbers,
    wanted: PhotoFilter,
    result: Annotations,
) -> None:
    """Add a photo with its boxes, or the problem with it."""
    file = image.get("name", "")
    photo = photos.wanted(file, labels_file, wanted, result.problems)
    if photo is None:
        return
    rows = []
    try:
        size = (round(_number(image, "width")), round(_number(image, "height")))
        if min(size) < 1:
            raise ValueError(f"a size of {size[0]} x {size[1]}")
        for shape in image:
            if shape.tag in _SHAPES:
                result.left_out["shapes that are not boxes, left out"] += 1
            if shape.tag != "box":
                continue
            kind = numbers.number(shape.get("label", ""))
            if kind is None:
                result.left_out[OTHER_CLASSES] += 1
            else:
                rows.append((kind, *_corners(shape)))
        result.photos.append(LabelledPhoto(photo, rows_of(rows, size), size))
    except ValueError as error:
        result.problems.append(Problem(photo, str(error)))


def _corners(box: Element) -> tuple[float, float, float, float]:
    """Return left, top, right, bottom of a box; of a rotated box, of the upright box around it."""
    left, top, right, bottom = (_number(box, name) for name in ("xtl", "ytl", "xbr", "ybr"))
    angle = math.radians(_number(box, "rotation")) if box.get("rotation") else 0.0
    if not angle or not math.isfinite(angle):
        return left, top, right, bottom
    x, y, half_width, half_height = (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2
    cos, sin = abs(math.cos(angle)), abs(math.sin(angle))
    half_width, half_height = half_width * cos + half_height * sin, half_width * sin + half_height * cos
    return x - half_width, y - half_height, x + half_width, y + half_height


def _number(element: Element, name: str) -> float:
    text = element.get(name, "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"<{element.tag}>: expected a number as {name}, found {text[:40]!r}")
    return number


def _declared_labels(meta: Element) -> Iterator[str]:
    """Yield the names of the labels of a task, project or job, without parts of skeletons."""
    for label in meta.iter("label"):
        name = (label.findtext("name") or "").strip()
        if name and not (label.findtext("parent") or "").strip():
            yield name


def _xml_files(files: FileSet) -> list[str]:
    """Return CVAT's files; none if none of the first few is CVAT's, since VOC has a file for each photo."""
    names = sorted((name for name in files if name.lower().endswith(".xml")), key=lambda name: (name.count("/"), name))
    if not any(_is_cvat(files, name) for name in names[:_LOOKED_AT]):
        return []
    return [name for name in names if _is_cvat(files, name)]


def _is_cvat(files: FileSet, name: str) -> bool:
    return root_tag(files.read(name, _MAX_BYTES), name, max_bytes=_MAX_BYTES) == "annotations"
