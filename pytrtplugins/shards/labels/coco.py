"""COCO's labels: one JSON for all photos, with boxes as x, y, width and height in pixels. CVAT exports it too."""

from __future__ import annotations

import math
from collections import defaultdict
from operator import itemgetter
from typing import Any

from ...errors import FormatError
from ...utils.file_set import FileSet
from ...utils.text_formats import parse_json, shorten
from .annotations import OTHER_CLASSES, Annotations, ClassNumbers, LabelledPhoto, Problem, Wanted, rows_of
from .photo_files import PhotoFiles

__all__ = ["NAME", "read", "recognize"]

NAME = "coco"
_MAX_BYTES = 1 << 30
_KEYS = (b'"images"', b'"annotations"', b'"categories"')
_MAX_SIDE = 1 << 20


def recognize(files: FileSet, photos: PhotoFiles) -> str:
    """Why these files are of this format; empty where they are not."""
    return ", ".join(_json_files(files))


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: Wanted) -> Annotations:
    """Read the photos of all files; a photo without annotations has no boxes.

    Raises:
        FormatError: a file is not COCO's.
    """
    found = Annotations(NAME)
    for name in _json_files(files):
        facts = parse_json(files.read(name, _MAX_BYTES), name, max_bytes=_MAX_BYTES)
        images, annotations, categories = (
            _objects(facts, key, name) for key in ("images", "annotations", "categories")
        )
        names: dict[Any, Any] = {each.get("id"): each.get("name") for each in categories}
        if not all(type(key) is int and isinstance(label, str) for key, label in names.items()):
            raise FormatError(f"{name}: a category lacks its id or its name.\nDo: export the labels again", path=name)
        numbers.declare(str(name) for _, name in sorted(names.items(), key=itemgetter(0)))
        by_image = defaultdict[Any, list[dict[str, Any]]](list)
        for each in annotations:
            by_image[_key(each.get("image_id"))].append(each)
        for image in images:
            boxes = by_image.pop(_key(image.get("id")), [])
            _add(image, boxes, name, photos, names, numbers, wanted, found)
        if by_image:
            what = f"{len(by_image):,} annotations are of images that it does not list: {shorten(list(by_image)[:3])}"
            found.problems.append(Problem(name, what))
    return found


def _add(
    image: dict[str, Any],
    annotations: list[dict[str, Any]],
    place: str,
    photos: PhotoFiles,
    names: dict[Any, Any],
    numbers: ClassNumbers,
    wanted: Wanted,
    found: Annotations,
) -> None:
    """Add a photo with its boxes, or the problem with it."""
    file = image.get("file_name")
    if not isinstance(file, str) or not all(_is_side(image.get(side)) for side in ("width", "height")):
        found.problems.append(
            Problem(place, f"the image {shorten(image.get('id'))} lacks its file_name, width or height")
        )
        return
    photo = photos.named(file, place)
    if photo is None or photo not in wanted:
        if file in wanted:
            found.problems.append(Problem(file[:200], f"the photo is missing, which {place} names"))
        return
    size, rows = (image["width"], image["height"]), []
    try:
        for each in annotations:
            if each.get("iscrowd") == 1:
                found.left_out["boxes of crowds, left out"] += 1
                continue
            kind = numbers.number(_category(each, names))
            if kind is None:
                found.left_out[OTHER_CLASSES] += 1
                continue
            left, top, width, height = _box(each)
            rows.append((kind, left, top, left + width, top + height))
        found.photos.append(LabelledPhoto(photo, rows_of(rows, size), size))
    except ValueError as error:
        found.problems.append(Problem(photo, str(error)))


def _category(annotation: dict[str, Any], names: dict[Any, Any]) -> str:
    name = names.get(_key(annotation.get("category_id")))
    if name is None:
        number = shorten(annotation.get("category_id"))
        raise ValueError(f"annotation {shorten(annotation.get('id'))}: unknown category {number}")
    return str(name)


def _box(annotation: dict[str, Any]) -> list[float]:
    box = annotation.get("bbox")
    if (
        not isinstance(box, list)
        or len(box) != 4
        or not all(type(value) in (int, float) and math.isfinite(value) for value in box)
    ):
        raise ValueError(
            f"annotation {shorten(annotation.get('id'))}: expected a bbox of 4 numbers, found {shorten(box)}"
        )
    return box


def _key(value: Any) -> Any:
    """An id, as a key."""
    return value if isinstance(value, (int, str)) else None


def _is_side(value: Any) -> bool:
    return type(value) is int and 0 < value <= _MAX_SIDE


def _objects(facts: Any, key: str, name: str) -> list[dict[str, Any]]:
    found = facts.get(key) if isinstance(facts, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise FormatError(
            f"{name}: expected a list of objects {key!r}, found {shorten(found)}.\nDo: export the labels again",
            path=name,
        )
    return found


def _json_files(files: FileSet) -> list[str]:
    """Files with the three lists. Where some are called ``instances``, as COCO's are, they alone: others have the same photos."""
    names = sorted(name for name in files if name.lower().endswith(".json"))
    instances = [name for name in names if name.rpartition("/")[2].startswith("instances")]
    found = []
    for name in instances or names:
        data = files.read(name, _MAX_BYTES)
        if all(key in data for key in _KEYS):
            found.append(name)
    return found
