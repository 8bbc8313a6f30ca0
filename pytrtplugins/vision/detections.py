"""The result class `Detections`: all objects found on an image."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..utils.listing import count_text
from ..utils.notebook import object_html
from ..utils.optional import require
from .detection import Detection
from .draw import draw
from .image import Image, check_image, load_image

if TYPE_CHECKING:
    import pandas
    import supervision

__all__ = ["Detections"]

_SHOWN = 5  # labels of a repr
_WIDEST_PX = 800  # of a notebook's image


class Detections(Sequence[Detection]):
    """The objects on one image, best first: a sequence of :class:`Detection` with its columns as arrays.

    An index gives a Detection; a slice, or an array of indices or truth values, gives Detections. A list of the same
    Detections is equal.

    Args:
        items: What was found.
        source: The image, as a path or an array; `plot` and notebooks draw on it.

    Attributes:
        source: The image, not copied; None where it is not known.

    Example:
        >>> found = Detections([Detection("dog", 1, 0.82, (10.0, 20.0, 110.0, 220.0)), Detection("cat", 0, 0.4, (0.0, 0.0, 9.0, 9.0))])
        >>> found
        <2 detections: dog: 82%, cat: 40%>
        >>> found[found.scores > 0.5].boxes_xyxy.tolist()
        [[10.0, 20.0, 110.0, 220.0]]
    """

    def __init__(self, items: Iterable[Detection] = (), source: str | Path | Image | None = None) -> None:
        self._items = tuple(items)
        self.source = source

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Detection: ...

    @overload
    def __getitem__(self, index: slice | npt.NDArray[Any]) -> Detections: ...

    def __getitem__(self, index: int | np.integer[Any] | slice | npt.NDArray[Any]) -> Detection | Detections:
        if isinstance(index, slice):
            return Detections(self._items[index], self.source)
        if isinstance(index, np.ndarray) and index.ndim:
            return Detections((self._items[number] for number in np.arange(len(self))[index]), self.source)
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Detections, list, tuple)):
            return NotImplemented
        return self._items == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # a list that is equal has none

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._items[:_SHOWN])) + (", ..." if len(self) > _SHOWN else "")
        return f"<{count_text(len(self), 'detection')}{': ' * bool(self)}{shown}>"

    @cached_property
    def boxes_xyxy(self) -> npt.NDArray[np.float64]:
        """(n, 4): left, top, right, bottom in pixels of the image."""
        return _read_only(np.array([item.xyxy for item in self._items], np.float64).reshape(-1, 4))

    @cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """(n,): objectness times class probability, 0..1."""
        return _read_only(np.array([item.score for item in self._items], np.float64))

    @cached_property
    def class_ids(self) -> npt.NDArray[np.int64]:
        """(n,): numbers of the classes, from 0."""
        return _read_only(np.array([item.class_id for item in self._items], np.int64))

    @cached_property
    def labels(self) -> npt.NDArray[np.str_]:
        """(n,): names of the classes."""
        return _read_only(np.array([item.label for item in self._items], np.str_))

    @cached_property
    def track_ids(self) -> npt.NDArray[np.int64]:
        """(n,): numbers of the objects in a video, from 0; -1 where an object is not tracked, or not yet."""
        ids = [-1 if item.track_id is None else item.track_id for item in self._items]
        return _read_only(np.array(ids, np.int64))

    def plot(self, image: Image | None = None) -> Image:
        """Draw boxes and labels on a copy of the image.

        Args:
            image: Another image than `source`, such as one of the same size in grey; needed where there is no source.

        Returns:
            (H, W, 3) uint8, RGB.

        Raises:
            UsageError: there is no image.
            ImageError: the image cannot be read.
        """
        if image is None and self.source is None:
            raise UsageError("Detections.plot: the image is not known.\nDo: found.plot(image)")
        image = self.source if image is None else image  # type: ignore[assignment]
        return draw(load_image(image) if isinstance(image, (str, Path)) else check_image(image), self)

    def to_coco(self, image_id: int = 0, category_ids: Mapping[int, int] | None = None) -> list[dict[str, Any]]:
        """Return entries of COCO's results file: boxes as left, top, width, height, and ``track_id`` of tracked objects.

        Args:
            image_id: The image's number in COCO's file of labels.
            category_ids: Class number → COCO's category id, for models whose numbers differ; by default the class number.

        Raises:
            UsageError: a class has no category id.
        """
        entries = []
        for item in self._items:
            if category_ids is not None and item.class_id not in category_ids:
                raise UsageError(
                    f"Detections.to_coco: class {item.class_id} ({item.label}) has no category id", found=item.class_id
                )
            left, top, right, bottom = item.xyxy
            entry = {
                "image_id": image_id,
                "category_id": category_ids[item.class_id] if category_ids is not None else item.class_id,
                "bbox": [left, top, right - left, bottom - top],
                "score": item.score,
            }
            entries.append(entry if item.track_id is None else {**entry, "track_id": item.track_id})
        return entries

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with columns label, class_id, score, left, top, right, bottom, and track_id if any object is tracked.

        Raises:
            MissingExtraError: pandas is missing.
        """
        table = require("pandas", extra="", feature="Detections.to_pandas").DataFrame(
            {"label": list(map(str, self.labels)), "class_id": self.class_ids, "score": self.scores}
            | dict(zip(("left", "top", "right", "bottom"), self.boxes_xyxy.T, strict=True))
            | ({"track_id": self.track_ids} if (self.track_ids >= 0).any() else {})
        )
        return table

    def to_supervision(self) -> supervision.Detections:
        """Return ``supervision.Detections``, for its trackers and annotators; ``data["class_name"]`` has the labels.

        Raises:
            MissingExtraError: supervision is missing.
        """
        detections = require("supervision", extra="", feature="Detections.to_supervision").Detections(
            xyxy=self.boxes_xyxy.astype(np.float32),
            confidence=self.scores.astype(np.float32),
            class_id=self.class_ids.copy(),
            tracker_id=self.track_ids.copy() if (self.track_ids >= 0).any() else None,
            data={"class_name": self.labels.copy()},
        )
        return detections

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the image with its boxes, and a table."""
        jpeg = self._encode_plot("JPEG", _WIDEST_PX)
        image_tag = "" if jpeg is None else f'<img src="data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"/>'
        rows = [
            (item.label, f"{item.score:.2f}", ", ".join(f"{side:.0f}" for side in item.xyxy)) for item in self._items
        ]
        notes = [] if rows else ["nothing found"]
        return f"<div>{image_tag}{object_html('', ('label', 'score', 'left, top, right, bottom in px'), rows, notes)}</div>"

    def _repr_png_(self) -> bytes | None:
        """Return a PNG for notebooks and consoles that show images only."""
        return self._encode_plot("PNG")

    def _encode_plot(self, form: str, widest: int | None = None) -> bytes | None:
        """Return the encoded image with its boxes; None if there is no source image, or its file is missing."""
        if self.source is None or (isinstance(self.source, (str, Path)) and not Path(self.source).is_file()):
            return None
        image = require("PIL.Image", extra="vision", package="pillow", feature="drawing").fromarray(self.plot())
        if widest:
            image.thumbnail((widest, widest))
        file = io.BytesIO()
        image.save(file, format=form)
        return file.getvalue()


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array read-only, since it is cached, and return it."""
    array.flags.writeable = False
    return array
