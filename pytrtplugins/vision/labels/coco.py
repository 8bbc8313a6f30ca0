"""Reader of COCO labels: one JSON for all photos, with boxes as x, y, width and height in pixels. CVAT exports it too."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from ...errors import FormatError
from ...utils.encodings import seems_to_hold
from ...utils.file_set import FileSet
from ...utils.text_formats import parse_json, shorten
from .annotations import OTHER_CLASSES, Annotations, ClassNumbers, LabelledPhoto, PhotoFilter, Problem, rows_of
from .photo_files import PhotoFiles

__all__ = ["NAME", "read", "recognize"]

NAME = "coco"
_MAX_BYTES = 1 << 30
_KEYS = (b'"images"', b'"annotations"', b'"categories"')
_MAX_SIDE = 1 << 20
_LONGEST_ID = 18  # digits of a text that counts as a number
_Object = dict[str, Any]


def recognize(files: FileSet, photos: PhotoFiles) -> str:
    """Return the evidence that the files are of this format; empty if they are not."""
    return ", ".join(_json_files(files))


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: PhotoFilter) -> Annotations:
    """Read the photos of all files; a photo without annotations has no boxes.

    Raises:
        FormatError: a file is not COCO's.
    """
    result = Annotations(NAME)
    for name in _json_files(files):
        facts = parse_json(files.read(name, _MAX_BYTES), name, max_bytes=_MAX_BYTES)
        images, annotations, categories = (
            _objects(facts, key, name) for key in ("images", "annotations", "categories")
        )
        names = _categories(categories, name)
        numbers.declare(names.values())
        result.left_out["categories with the name of another, joined"] += len(names) - len(set(names.values()))
        reader = _FileReader(name, photos, names, numbers, wanted, result)
        reader.add(images, annotations)
    return result


class _FileReader:
    """Reader of one file: adds its photos, or problems with them, to a result."""

    def __init__(
        self,
        file: str,
        photos: PhotoFiles,
        names: dict[int | str, str],
        numbers: ClassNumbers,
        wanted: PhotoFilter,
        result: Annotations,
    ) -> None:
        self._file, self._photos, self._names = file, photos, names
        self._numbers, self._wanted, self._result = numbers, wanted, result

    def add(self, images: list[_Object], annotations: list[_Object]) -> None:
        """Add all photos, each with the annotations that name its id."""
        by_image = defaultdict[int | str, list[_Object]](list)
        for item in annotations:
            image_id = _id(item.get("image_id"))
            if image_id is None:
                self._add_problem(f"annotation {shorten(item.get('id'))}: {_id_text(item, 'image_id')}")
            else:
                by_image[image_id].append(item)
        owners = defaultdict[int | str, list[_Object]](list)
        for image in images:
            image_id = _id(image.get("id"))
            if image_id is None:
                self._add_problem(f"the image {shorten(image.get('file_name'))}: {_id_text(image, 'id')}")
            else:
                owners[image_id].append(image)
        for image_id, images_of_id in owners.items():
            boxes = by_image.pop(image_id, [])
            if len(images_of_id) == 1:
                self._add_photo(images_of_id[0], boxes)
            else:
                files = " and ".join(shorten(item.get("file_name")) for item in images_of_id[:3])
                self._add_problem(f"{len(images_of_id):,} images have the id {shorten(image_id)}: {files}")
        if by_image:
            what = f"{len(by_image):,} annotations are of images that it does not list: {shorten(list(by_image)[:3])}"
            self._add_problem(what)

    def _add_problem(self, what: str) -> None:
        self._result.problems.append(Problem(self._file, what))

    def _add_photo(self, image: _Object, annotations: list[_Object]) -> None:
        """Add a photo with its boxes, or the problem with it."""
        file = image.get("file_name")
        if not isinstance(file, str) or not file:
            self._add_problem(f"the image {shorten(image.get('id'))}: expected a file_name, found {shorten(file)}")
            return
        photo = self._photos.wanted(file, self._file, self._wanted, self._result.problems)
        if photo is None:
            return
        rows, left_out = [], self._result.left_out
        try:
            size = self._size(image, photo)
            for annotation in annotations:
                if _is_crowd(annotation):
                    left_out["boxes of crowds, left out"] += 1
                    continue
                kind = self._numbers.number(self._category(annotation))
                if kind is None:
                    left_out[OTHER_CLASSES] += 1
                    continue
                left, top, width, height = _box(annotation)
                rows.append((kind, left, top, left + width, top + height))
            self._result.photos.append(LabelledPhoto(photo, rows_of(rows, size), size))
        except ValueError as error:
            self._result.problems.append(Problem(photo, str(error)))

    def _size(self, image: _Object, photo: str) -> tuple[int, int]:
        """Return width and height from the labels, or from the photo's own file if they are missing or 0."""
        sides = [image.get(name) for name in ("width", "height")]
        if any(side in (None, 0, "", "0") for side in sides):
            return self._photos.size(photo)
        width, height = (_id(side) for side in sides)
        if not isinstance(width, int) or not isinstance(height, int) or min(width, height) <= 0:
            raise ValueError(f"expected its width and height, found {shorten(sides)}")
        if max(width, height) > _MAX_SIDE:
            raise ValueError(f"expected a width and height of at most {_MAX_SIDE:,}, found {shorten(sides)}")
        return width, height

    def _category(self, annotation: _Object) -> str:
        number = _id(annotation.get("category_id"))
        if number is None or number not in self._names:
            name = shorten(annotation.get("category_id"))
            raise ValueError(f"annotation {shorten(annotation.get('id'))}: unknown category {name}")
        return self._names[number]


def _categories(categories: list[_Object], file: str) -> dict[int | str, str]:
    """Return id → name of the categories, sorted by id: numbers before strings."""
    names: dict[int | str, str] = {}
    for category in categories:
        number, name = _id(category.get("id")), category.get("name")
        if number is None or not isinstance(name, str) or not name.strip():
            problem = f"the category {shorten(name)} lacks its id or its name ({_id_text(category, 'id')})"
        elif names.setdefault(number, name) != name:
            problem = f"the categories {shorten(names[number])} and {shorten(name)} have the id {shorten(number)}"
        else:
            continue
        raise FormatError(f"{file}: {problem}.\nDo: correct it, or export the labels again", path=file)
    ordered = sorted(names.items(), key=lambda item: (isinstance(item[0], str), item[0]))
    return dict(ordered)


def _box(annotation: _Object) -> list[float]:
    box = annotation.get("bbox")
    if (
        not isinstance(box, list)
        or len(box) != 4
        or not all(type(value) in (int, float) and math.isfinite(value) for value in box)
    ):
        mask = (
            "; its mask is not read: pycocotools.mask.toBbox gives the box of it"
            if annotation.get("segmentation")
            else ""
        )
        raise ValueError(
            f"annotation {shorten(annotation.get('id'))}: expected a bbox of 4 numbers, found {shorten(box)}{mask}"
        )
    return box


def _is_crowd(annotation: _Object) -> bool:
    value = annotation.get("iscrowd", 0)
    if value in (None, "") or value is False:
        return False
    number = 1 if value is True else _id(value)
    if number not in (0, 1):
        raise ValueError(f"annotation {shorten(annotation.get('id'))}: expected iscrowd 0 or 1, found {shorten(value)}")
    return number == 1


def _id(value: Any) -> int | str | None:
    """Return an id as a key: 1, 1.0 and "1" are the same, since writers such as pandas mix them; None if it is invalid."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        is_number = value.isascii() and value.isdigit() and len(value) <= _LONGEST_ID
        return int(value) if is_number else value or None
    return value if type(value) is int else None


def _id_text(entry: _Object, key: str) -> str:
    return f"expected a number or a text as its {key}, found {shorten(entry[key]) if key in entry else 'nothing'}"


def _objects(facts: Any, key: str, name: str) -> list[_Object]:
    values = facts.get(key) if isinstance(facts, dict) else None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise FormatError(
            f"{name}: expected a list of objects {key!r}, found {shorten(values)}.\nDo: export the labels again",
            path=name,
        )
    return values


def _json_files(files: FileSet) -> list[str]:
    """Return the JSON files with COCO's three lists; only those named ``instances*`` if there are any."""
    names = sorted(name for name in files if name.lower().endswith(".json"))
    instances = [name for name in names if name.rpartition("/")[2].startswith("instances")]
    candidates = instances or names
    return [name for name in candidates if _is_coco(files.read(name, _MAX_BYTES))]


def _is_coco(data: bytes) -> bool:
    return all(seems_to_hold(data, key) for key in _KEYS)
