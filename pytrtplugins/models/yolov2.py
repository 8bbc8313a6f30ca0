"""YOLOv2 and its relatives: an engine's outputs → boxes on a photo."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from ..errors import BindingError, UsageError
from ..vision import MODES, Detection, Letterboxed, check_image, letterbox, load_image, nms
from .heads import read_heads, read_input_size

if TYPE_CHECKING:
    from ..engines.base import Engine

__all__ = ["Timings", "Yolov2", "read_names"]

Floats = npt.NDArray[np.float32]
Photo = str | Path | npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Timings:
    """Milliseconds that the last call took, all its photos together; reading files is part of the preprocess."""

    preprocess_ms: float
    network_ms: float
    postprocess_ms: float

    @property
    def total_ms(self) -> float:
        """Sum of the three."""
        return self.preprocess_ms + self.network_ms + self.postprocess_ms

    def __str__(self) -> str:
        """As printed by the samples."""
        return f"preprocess {self.preprocess_ms:.1f} ms, network {self.network_ms:.1f} ms, postprocess {self.postprocess_ms:.1f} ms"


class Yolov2:
    """Find objects on photos with a YOLOv2, or any network whose outputs are darknet's region or yolo layers.

    Anchors, classes and input size are read from the engine's model. One object serves one thread; objects made from
    one engine share its weights.

    Args:
        engine: A built engine.
        names: Names of the classes: a file with one a line (darknet's .names) or a list. None: ``class 0``, ``class 1``, ...
        mode: How photos are fitted into the input; see :func:`pytrtplugins.vision.letterbox`.

    Raises:
        ModelError: the engine's model has no region or yolo layer at its outputs.
        UsageError: the number of names is not that of the classes, or the mode is unknown.
        BindingError: the model does not take one batch of RGB images.

    Example:
        >>> detector = Yolov2(engine, names="voc.names")           # doctest: +SKIP
        >>> for box in detector("dog.jpg", score_threshold=0.5):   # doctest: +SKIP
        ...     print(box.label, f"{box.score:.0%}", box.xyxy)
    """

    def __init__(
        self, engine: Engine, names: str | Path | Sequence[str] | None = None, *, mode: str = "letterbox"
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"Yolov2: mode: expected one of {', '.join(MODES)}, found {mode!r}.", mode=mode)
        self.engine = engine
        self.mode = mode
        self.heads = read_heads(engine.model)
        self.names = read_names(names, self.heads[0].classes)
        self._input_name, self._batch, self.size = _read_input(engine)
        self._context = engine.create_context()
        self._timings = Timings(0.0, 0.0, 0.0)

    @property
    def timings(self) -> Timings:
        """How long the last call took."""
        return self._timings

    @overload
    def __call__(
        self, source: Photo, *, score_threshold: float = ..., iou_threshold: float = ...
    ) -> list[Detection]: ...

    @overload
    def __call__(
        self, source: list[Photo] | tuple[Photo, ...], *, score_threshold: float = ..., iou_threshold: float = ...
    ) -> list[list[Detection]]: ...

    def __call__(
        self,
        source: Photo | list[Photo] | tuple[Photo, ...],
        *,
        score_threshold: float = 0.5,
        iou_threshold: float = 0.45,
    ) -> list[Detection] | list[list[Detection]]:
        """Find objects.

        Args:
            source: Path of a photo, or a uint8 array (H, W, 3) in RGB; or a list of them.
            score_threshold: Lowest score that is reported, 0..1.
            iou_threshold: Overlap above which the weaker of two boxes of a class is dropped, 0..1.

        Returns:
            Detections, best first; for a list of photos a list of such lists.

        Raises:
            ImageError: a photo cannot be read.
            UsageError: a threshold is outside 0..1.
        """
        for name, value in (("score_threshold", score_threshold), ("iou_threshold", iou_threshold)):
            if not 0 <= value <= 1:
                raise UsageError(f"Yolov2: {name}: expected a number from 0 to 1, found {value}.")
        if isinstance(source, (str, Path, np.ndarray)):
            return self._detect([source], score_threshold, iou_threshold)[0]
        return self._detect(list(source), score_threshold, iou_threshold)

    def warm_up(self) -> None:
        """Run once on grey: libraries are loaded and buffers made, so that the next call's timings are those of later ones."""
        self._detect([np.full((2, 2, 3), 128, np.uint8)], 1.0, 1.0)

    def close(self) -> None:
        """Release the engine's context; the detector cannot be used afterwards."""
        self._context.close()

    def __enter__(self) -> Yolov2:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        width, height = self.size
        return f"Yolov2({self.engine.name}, {self.engine.precision}, {width}x{height}, {len(self.names)} classes)"

    def _detect(self, photos: Sequence[Photo], score_threshold: float, iou_threshold: float) -> list[list[Detection]]:
        found: list[list[Detection]] = []
        spent = np.zeros(3)
        for chunk in _chunks(photos, self._batch):
            start = time.perf_counter()
            boxed = [self._preprocess(photo) for photo in chunk]
            data = _stack(boxed, self._batch)
            ready = time.perf_counter()
            outputs = self._context.run({self._input_name: data})
            done = time.perf_counter()
            found += self._postprocess(outputs, boxed, score_threshold, iou_threshold)
            spent += np.diff([start, ready, done, time.perf_counter()])
        self._timings = Timings(*(1000 * spent).tolist())
        return found

    def _preprocess(self, photo: Photo) -> Letterboxed:
        image = load_image(photo) if isinstance(photo, (str, Path)) else check_image(photo)
        return letterbox(image, self.size, self.mode)

    def _postprocess(
        self, outputs: dict[str, Any], boxed: Sequence[Letterboxed], score_threshold: float, iou_threshold: float
    ) -> list[list[Detection]]:
        parts = [head.decode(outputs[head.output], self.size) for head in self.heads]
        boxes = np.concatenate([part[0] for part in parts], axis=1)
        scores = np.concatenate([part[1] for part in parts], axis=1)
        scores = np.where(scores > score_threshold, scores, np.float32(0))
        return [self._select(boxes[i], scores[i], photo, iou_threshold) for i, photo in enumerate(boxed)]

    def _select(self, boxes: Floats, scores: Floats, photo: Letterboxed, iou_threshold: float) -> list[Detection]:
        """Suppress and name what is left of one photo."""
        likely = scores.any(axis=1)
        boxes, scores = boxes[likely], nms(boxes[likely], scores[likely], iou_threshold)
        corners = photo.to_image(boxes)
        chosen = sorted(zip(*scores.nonzero(), strict=True), key=lambda item: -scores[item])
        return [
            Detection(self.names[k], int(k), float(scores[row, k]), tuple(float(value) for value in corners[row]))  # type: ignore[arg-type]
            for row, k in chosen
        ]


def read_names(names: str | Path | Iterable[str] | None, classes: int) -> tuple[str, ...]:
    """Class names from a file with one a line, from a list, or made up; checked against the number of classes.

    Raises:
        UsageError: the file cannot be read, or the number does not fit.
    """
    if names is None:
        return tuple(f"class {number}" for number in range(classes))
    where = "names"
    if isinstance(names, (str, Path)):
        where = str(names)
        try:
            names = Path(names).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"names {where!r}: cannot be read ({error}).\nDo: give a text file with one class a line", path=where
            ) from error
    result = tuple(name.strip() for name in names if name.strip())
    if len(result) != classes:
        raise UsageError(
            f"{where}: expected {classes} class names, as the network has classes, found {len(result)}"
            f"{': ' + ', '.join(result[:6]) + (', ...' if len(result) > 6 else '') if result else ''}.\n"
            "Causes: (1) the .names belong to another network; (2) a line is missing.",
            expected=classes,
            found=len(result),
        )
    return result


def _read_input(engine: Engine) -> tuple[str, int, tuple[int, int]]:
    """Name, photos per run, and (width, height) of the engine's input."""
    if len(engine.inputs) != 1:
        raise BindingError(f"Yolov2: expected an engine with one input, found {[desc.name for desc in engine.inputs]}.")
    desc = engine.inputs[0]
    dims = list(desc.dims)
    if len(dims) != 4 or dims[1] != 3:
        raise BindingError(f"Yolov2: input {desc.name!r}: expected dims (N, 3, H, W), found {desc.dims}.")
    width, height = read_input_size(engine.model) or (0, 0)
    height, width = (dims[2] if isinstance(dims[2], int) else height), (dims[3] if isinstance(dims[3], int) else width)
    if not (width and height):
        raise BindingError(
            f"Yolov2: input {desc.name!r}: its height and width are free and not in the model's metadata: {desc.dims}."
        )
    return desc.name, dims[0] if isinstance(dims[0], int) else 1, (width, height)


def _chunks(photos: Sequence[Photo], size: int) -> Iterator[Sequence[Photo]]:
    for start in range(0, len(photos), size):
        yield photos[start : start + size]


def _stack(boxed: Sequence[Letterboxed], batch: int) -> Floats:
    """The photos as one batch, filled up with grey where the engine's batch is larger."""
    if len(boxed) == batch == 1:
        return boxed[0].data[None]
    data: Floats = np.full((batch, *boxed[0].data.shape), 0.5, np.float32)
    for row, photo in zip(data, boxed, strict=False):
        row[...] = photo.data
    return data
