"""Evaluate a detector on labelled images: average precision by pycocotools."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..engines.base.arithmetic import Arithmetic
from ..engines.base.detection import MAX_DETECTIONS
from ..errors import NoDataError
from ..utils.optional import require
from ..utils.progress import progress_bar
from ..vision import Detection
from .class_match import ClassMatch, match_classes
from .dataset import YoloData
from .yolov2 import Yolov2

__all__ = ["ClassResult", "Detector", "Evaluation", "evaluate"]

Item = TypeVar("Item")
_RECALLS = 101  # COCO's


class Detector(Protocol):
    """Interface of detectors for `evaluate`: :class:`~pytrtplugins.models.Yolov2`, or any object with these two members."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the classes."""

    def __call__(
        self, source: npt.NDArray[np.uint8], *, score_threshold: float = ..., iou_threshold: float = ...
    ) -> Sequence[Detection]:
        """Find objects on an image."""


@dataclass(frozen=True)
class ClassResult:
    """Results of one class.

    Fields:
        name: The class in the data.
        ap50: Average precision at IoU 0.5; NaN where the images hold no such object.
        ap: Mean of the average precision at IoU 0.5, 0.55, ... 0.95.
        objects: How many the labels name.
        detections: How many were reported, whatever their score.
        precision_at_50: Highest precision at IoU 0.5 with a recall of at least 0.00, 0.01, ... 1.00: 101 values, 0 where the
            recall is not reached; ap50 is their mean. Empty where the images hold no such object.
    """

    name: str
    ap50: float
    ap: float
    objects: int
    detections: int
    precision_at_50: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True)
class Evaluation:
    """Results of a detector.

    Fields:
        map50: Mean over the classes of the average precision at IoU 0.5: COCO's AP50, with 101 recall points.
        map: The same, averaged over IoU 0.5 to 0.95.
        classes: Figures of each class.
        images: How many images were looked at.
        seconds: How long it took, reading images included.
        ignored: Classes of the data that the detector does not know; they count nowhere.
        computed: In which precision the detector's layers computed; None where it has no engine that says so.
    """

    map50: float
    map: float
    classes: tuple[ClassResult, ...]
    images: int
    seconds: float
    ignored: tuple[str, ...] = ()
    computed: Arithmetic | None = None

    @property
    def precision_at_50(self) -> npt.NDArray[np.float64]:
        """Precision over recall at IoU 0.5: (101 recalls from 0 to 1, classes); NaN for classes without an object.

        The mean over the recalls is each class's ap50, and map50 the mean of these. :func:`draw_curves` draws it.
        """
        missing = (float("nan"),) * _RECALLS
        return np.array([row.precision_at_50 or missing for row in self.classes], np.float64).reshape(-1, _RECALLS).T

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values; NaN becomes None."""
        values = asdict(self)
        values["classes"] = [{key: _or_none(value) for key, value in row.items()} for row in values["classes"]]
        return {key: _or_none(value) for key, value in values.items()}

    def table(self) -> str:
        """Return the results as a text table: a line per class and one for all."""
        width = max([3, *(len(row.name) for row in self.classes)])
        lines = [f"{'class':<{width}}  objects  detections   AP50  AP50:95"]
        for row in self.classes:
            figures = f"{row.ap50:5.3f}    {row.ap:5.3f}" if row.objects else "    -        -"
            lines.append(f"{row.name:<{width}}  {row.objects:>7}  {row.detections:>10}  {figures}")
        objects, detections = sum(row.objects for row in self.classes), sum(row.detections for row in self.classes)
        lines.append(f"{'all':<{width}}  {objects:>7}  {detections:>10}  {self.map50:5.3f}    {self.map:5.3f}")
        return "\n".join(lines)


def evaluate(
    detector: Detector,
    data: str | Path | Iterable[str | Path] | YoloData,
    split: str = "val.txt",
    *,
    score_threshold: float = 0.005,
    iou_threshold: float = 0.45,
    class_map: Mapping[str, str] | None = None,
    limit: int | None = None,
    progress: bool = True,
) -> Evaluation:
    """Evaluate a detector on labelled images by COCO's metrics (pycocotools).

    pycocotools counts the 100 best detections of each class on an image. It gets all that a :class:`~pytrtplugins.models.Yolov2` finds,
    whatever the detector's ``max_detections``, so that a network has one figure.

    Classes are matched by name, whatever their order. Where no name is exactly the same, upper and lower case are the same. Detections of
    classes that the data do not label are left out, and so are labelled classes that the detector does not know.

    Args:
        detector: Usually a :class:`~pytrtplugins.models.Yolov2`.
        data: Folder or tar in the YOLO layout; see :class:`YoloData`.
        split: The list of images, or a part that a data.yaml has, such as ``val``.
        score_threshold: Detections below it are not looked at; low, since precision is averaged over all recalls.
        iou_threshold: Of the suppression.
        class_map: Names in the data → names of the detector, where they differ: ``{"tv": "tvmonitor"}``. Several classes of the data may
            be one of the detector: they are measured as that one.
        limit: Use only the first images.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        NoDataError: the data are missing or empty, no image has labels, or none has an object of a class that both know.
        UsageError: detector and data share no class, or names differ in upper and lower case in several ways.
        ImageError: an image cannot be read.
    """
    tools = require("pycocotools.coco", extra="evaluate", package="pycocotools", feature="evaluation")
    data = data if isinstance(data, YoloData) else YoloData(data)
    names = data.images(split)
    data.check_labels(names)
    names = names[: None if limit is None else max(1, limit)]
    boxes = [data.boxes(name) for name in names]
    class_match = match_classes(detector.names, data.classes, class_map or {})
    truths: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    started = time.perf_counter()
    sizes: dict[str, tuple[int, int]] = {}

    def read(name: str) -> npt.NDArray[np.uint8]:
        image = data.image(name)
        sizes[name] = image.shape[:2]
        return image

    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar("evaluating", len(names), progress))
        if isinstance(detector, Yolov2):
            detector = stack.enter_context(detector.another(max_detections=MAX_DETECTIONS))
        detections_by_image = _detections(
            detector, names, read, score_threshold=score_threshold, iou_threshold=iou_threshold
        )
        for number, (name, detections) in enumerate(detections_by_image, 1):
            height, width = sizes[name]
            images.append({"id": number, "width": width, "height": height})
            for kind, x, y, w, h in boxes[number - 1]:
                if int(kind) in class_match.labelled:
                    box = ((x - w / 2) * width, (y - h / 2) * height, w * width, h * height)
                    truths.append(_coco_annotation(number, class_match.labelled[int(kind)], box))
            for detection in detections:
                if detection.class_id in class_match.detected:
                    x1, y1, x2, y2 = detection.xyxy
                    row = class_match.detected[detection.class_id]
                    results.append(_coco_annotation(number, row, (x1, y1, x2 - x1, y2 - y1), score=detection.score))
            advance()
    if not truths:
        raise NoDataError(
            f"data {data.name!r}: the labels of {len(names):,} images have no object of the {len(class_match.names):,} classes that are "
            f"measured ({', '.join(class_match.names[:6])}).\nDo: look at the labels, and at the list of images",
            path=data.name,
        )
    for identity, entry in enumerate([*truths, *results], 1):
        entry["id"] = identity
    coco_labels = {
        "images": images,
        "annotations": truths,
        "categories": [{"id": row + 1, "name": name} for row, name in enumerate(class_match.names)],
    }
    precision = _precision(tools, coco_labels, results)
    arithmetic = detector.engine.arithmetic if isinstance(detector, Yolov2) else None
    evaluation = _make_evaluation(class_match, precision, truths, results, len(names), time.perf_counter() - started)
    return replace(evaluation, computed=arithmetic)


def _coco_annotation(image: int, row: int, box: tuple[float, float, float, float], **more: float) -> dict[str, Any]:
    """Return a box as a COCO annotation, with class ids from 1."""
    return {
        "image_id": image,
        "category_id": row + 1,
        "bbox": list(box),
        "area": box[2] * box[3],
        "iscrowd": 0,
        **more,
    }


def _precision(tools: Any, truth: dict[str, Any], results: list[dict[str, Any]]) -> npt.NDArray[np.float64]:
    """Return precision (10 IoU thresholds, 101 recalls, classes); -1 for a class without objects."""
    COCOeval = require("pycocotools.cocoeval", extra="evaluate", package="pycocotools").COCOeval
    with contextlib.redirect_stdout(io.StringIO()):
        labelled, detected = tools.COCO(), tools.COCO()
        labelled.dataset, detected.dataset = truth, {**truth, "annotations": results}
        labelled.createIndex()
        detected.createIndex()
        evaluation = COCOeval(labelled, detected, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
    precision: npt.NDArray[np.float64] = evaluation.eval["precision"][
        :, :, :, 0, -1
    ]  # objects of all sizes, 100 detections of a class
    return precision


def _make_evaluation(
    class_match: ClassMatch,
    precision: npt.NDArray[np.float64],
    truths: Sequence[dict[str, Any]],
    results: Sequence[dict[str, Any]],
    images: int,
    seconds: float,
) -> Evaluation:
    rows = []
    for row, name in enumerate(class_match.names):
        values = precision[:, :, row]
        objects, detections = (
            sum(entry["category_id"] == row + 1 for entry in entries) for entries in (truths, results)
        )
        ap50, ap = (float(values[0].mean()), float(values.mean())) if objects else (float("nan"), float("nan"))
        curve = tuple(values[0].tolist()) if objects else ()
        rows.append(ClassResult(name, ap50, ap, objects, detections, curve))
    present = [row for row in rows if row.objects]
    mean50, mean = (float(np.mean([getattr(row, figure) for row in present])) for figure in ("ap50", "ap"))
    return Evaluation(mean50, mean, tuple(rows), images, seconds, class_match.ignored)


def _detections(
    detector: Detector,
    names: Sequence[str],
    read: Callable[[str], npt.NDArray[np.uint8]],
    score_threshold: float,
    iou_threshold: float,
) -> Iterator[tuple[str, Sequence[Detection]]]:
    if isinstance(detector, Yolov2):
        yield from detector.stream(names, image=read, score_threshold=score_threshold, iou_threshold=iou_threshold)
    else:
        for name in names:
            yield name, detector(read(name), score_threshold=score_threshold, iou_threshold=iou_threshold)


def _or_none(value: object) -> object:
    return None if isinstance(value, float) and value != value else value
