"""Features of photos, and their measurement on a set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...errors import ImageError
from ...utils.prefetch import map_ahead, threads_for_files
from ...vision.image import decode_image
from ..shards import Example

__all__ = ["FEATURES", "Embed", "Feature", "Features", "Photos", "measure_photos"]

Values = npt.NDArray[np.float64]
Embed = Callable[[Iterator[npt.NDArray[np.uint8]]], Values]
"""Images (H, W, 3) → vectors, a row for each; takes them one after another."""
_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
_MOST_PIXELS = 1 << 18  # of a photo, of which brightness is measured


class Photos(Protocol):
    """Interface of a set of photos, such as `Shards` and `PhotoSet`."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, in the order of their numbers."""

    def __len__(self) -> int: ...

    def read(self, number: int, /) -> Example:
        """Read a photo with its boxes."""


@dataclass(frozen=True)
class Feature:
    """One measured feature.

    Attributes:
        name: As limits have it.
        title: As tables have it.
        of_boxes: Whether every box has one, not every photo.
        needs_labels: Whether it says nothing where there are no labels.
    """

    name: str
    title: str
    of_boxes: bool = False
    needs_labels: bool = False


FEATURES = (
    Feature("width", "width, pixels"),
    Feature("height", "height, pixels"),
    Feature("aspect", "width / height"),
    Feature("brightness", "brightness, 0..1"),
    Feature("contrast", "contrast, 0..1"),
    Feature("boxes", "boxes a photo", needs_labels=True),
    Feature("box-size", "side of a box / side of the photo", of_boxes=True, needs_labels=True),
    Feature("box-shape", "width / height of a box", of_boxes=True, needs_labels=True),
)
"""Brightness is the mean of luma, contrast its standard deviation; the size of a box is the root of its share of the photo's area."""


@dataclass(frozen=True)
class Features:
    """All measurements of a set.

    Attributes:
        photos: How many were measured.
        labelled: With one box or more.
        unreadable: That could not be decoded, and are left out.
        values: Of each of `FEATURES`, by its name.
        classes: Boxes of each class.
        vectors: (N, values), of a network; None where there is none.
    """

    photos: int
    labelled: int
    unreadable: int
    values: dict[str, Values]
    classes: Counter[str]
    vectors: Values | None


def measure_photos(
    photos: Photos, count: int, seed: int, embed: Embed | None, advance: Callable[[], object]
) -> Features:
    """Measure ``count`` photos of a set, drawn by the seed, or all if it has fewer."""
    numbers = np.sort(np.random.default_rng(seed).permutation(len(photos))[:count]).tolist()
    collected = _Collector(photos.classes)

    def images() -> Iterator[npt.NDArray[np.uint8]]:
        for example, image in map_ahead(lambda number: _decode(photos, number), numbers, threads=threads_for_files()):
            collected.add(example, image)
            advance()
            if image is not None:
                yield image

    vectors = None
    if embed is not None:
        vectors = embed(images())
    else:
        for _ in images():
            pass
    return collected.finish(vectors)


class _Collector:
    """Measurements that are being collected."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self._classes, self._counts = classes, Counter[str]()
        self._rows: dict[str, list[float]] = {feature.name: [] for feature in FEATURES}
        self._labelled = self._unreadable = 0

    def add(self, example: Example, image: npt.NDArray[np.uint8] | None) -> None:
        if image is None:
            self._unreadable += 1
            return
        height, width = image.shape[:2]
        step = max(1, round((height * width / _MOST_PIXELS) ** 0.5))
        luma = image[::step, ::step] @ _LUMA / 255
        boxes = example.boxes.astype(np.float64)
        for name, values in {
            "width": [width],
            "height": [height],
            "aspect": [width / height],
            "brightness": [luma.mean()],
            "contrast": [luma.std()],
            "boxes": [len(boxes)],
            "box-size": np.sqrt(boxes[:, 3] * boxes[:, 4]),
            "box-shape": boxes[:, 3] * width / np.maximum(boxes[:, 4] * height, 1e-9),
        }.items():
            self._rows[name].extend(float(value) for value in values)
        self._labelled += len(boxes) > 0
        self._counts.update(self._classes[int(number)] for number in boxes[:, 0])

    def finish(self, vectors: Values | None) -> Features:
        values = {name: np.array(rows, np.float64) for name, rows in self._rows.items()}
        return Features(len(values["width"]), self._labelled, self._unreadable, values, self._counts, vectors)


def _decode(photos: Photos, number: int) -> tuple[Example, npt.NDArray[np.uint8] | None]:
    example = photos.read(number)
    try:
        return example, decode_image(example.image, example.key)
    except ImageError:
        return example, None
