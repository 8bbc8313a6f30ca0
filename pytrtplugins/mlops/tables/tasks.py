"""Tasks of a network, and figures of its accuracy: verification, classification, detection."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...engines.base.context import Arrays
from ...engines.base.engine import Engine
from ...errors import NoDataError, UsageError
from ...models import YoloData, Yolov2, evaluate
from ...models.image_network import ImageNetwork
from ...tensor import TensorDesc
from ...vision import PIXELS, letterbox
from ...vision.pixels import image_batches, image_input
from .augmentation import VIEWS, augmented_copy
from .image_pairs import ImagePairs
from .labelled import LabelledImages
from .verification import cosines, fold_accuracy, normalized, verify

__all__ = ["ClassificationTask", "DetectionTask", "Figure", "Task", "VerificationTask"]


@dataclass(frozen=True)
class Figure:
    """A figure of accuracy.

    Attributes:
        key: In JSON.
        title: At the head of a column.
        digits: Behind the decimal point.
        drawn: Whether the chart shows it.
    """

    key: str
    title: str
    digits: int = 4
    drawn: bool = False


_VERIFICATION = (
    Figure("tpr_at_001", "TPR at FPR 0.001", drawn=True),
    Figure("tpr_at_01", "TPR at FPR 0.01"),
    Figure("balanced_accuracy", "balanced accuracy"),
    Figure("cosine_mean", "cosine to the first row, mean", 5, drawn=True),
    Figure("cosine_1", "its 1st percentile", 5),
)


def _by_folds(count: int) -> tuple[Figure, ...]:
    return Figure("fold_accuracy", f"balanced accuracy, {count} folds"), Figure("fold_error", "its standard error")


class Task(Protocol):
    """The task of a network: data, and figures of accuracy."""

    @property
    def name(self) -> str:
        """``"verification"``, ``"classification"`` or ``"detection"``."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures that `measure` returns. Larger is better for each that is drawn."""

    @property
    def identity(self) -> dict[str, Any]:
        """What figures depend on, as values for JSON."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for readers of the table."""

    def calibration(self, inputs: Sequence[TensorDesc], count: int) -> list[Arrays]:
        """Batches for calibration, of so many images in all.

        Raises:
            NoDataError: there are fewer.
            UsageError: there are none, or the network takes something else.
        """

    def inputs(self, inputs: Sequence[TensorDesc], batch: int) -> Arrays:
        """Real inputs of a run, whose time is measured."""

    def measure(self, engine: Engine, reference: Any, batch: int | None = None) -> tuple[dict[str, float], Any]:
        """Figures of an engine, and what other engines are compared with, if this is the first one.

        Args:
            engine: What is measured.
            reference: The second result for the first engine; None: this is the first one.
            batch: Images of every run, where the network leaves that free: an engine may have chosen its kernels for some
                batches only. None: as it comes.
        """


@dataclass(frozen=True, eq=False)
class _OnImages:
    """Base of tasks on labelled images and on pairs of images.

    Attributes:
        data: What is measured on.
        calibrated_on: What calibration sees; None: none was given.
        pixels: How pixels become numbers; one of `PIXELS`.
        augmented: Whether calibration makes more images of those that it sees, where they do not suffice; see `augmented_copy`.
    """

    data: LabelledImages | ImagePairs
    calibrated_on: LabelledImages | None = None
    pixels: str = "0..1"
    augmented: bool = field(default=False, kw_only=True)

    @property
    def identity(self) -> dict[str, Any]:
        """Digests of the images, and the form of pixels."""
        other = None if self.calibrated_on is None else self.calibrated_on.digest()
        return {"data": self.data.digest(), "calibration": other, "pixels": self.pixels}

    @property
    def notes(self) -> tuple[str, ...]:
        """How many calibration images are augmented."""
        if not self.augmented or self.calibrated_on is None:
            return ()
        count = f"{len(self.calibrated_on):,}"
        return (f"calibration has {count} images: those beyond {count} are mirrored and moved copies of them",)

    def calibration(self, inputs: Sequence[TensorDesc], count: int) -> list[Arrays]:
        """The first image of each label, then the second, and so on; then augmented copies, if enabled."""
        images = self.calibrated_on
        if images is None:
            raise UsageError(
                "INT8 and FP8 need images to calibrate on, which the accuracy is not measured on.\n"
                "Do: pytrt table --calibration DIR, or --precision fp32"
            )
        views = VIEWS if self.augmented else 1
        if count > views * len(images):
            more = (
                "" if self.augmented else f"; pytrt table --augment-calibration makes {VIEWS * len(images):,} of them"
            )
            raise NoDataError(
                f"calibration with {count:,} images: {images.source} has {len(images):,} for that{more}",
                path=images.source,
            )
        rank: dict[int, int] = {}
        places = []
        for index, number in enumerate(images.numbers.tolist()):
            rank[number] = rank.get(number, -1) + 1
            places.append((rank[number], index))
        order = itertools.islice(itertools.product(range(views), sorted(places)), count)
        chosen = (augmented_copy(images.image(images.names[index]), number) for number, (_, index) in order)
        return [dict(arrays) for arrays, _ in image_batches(chosen, inputs, PIXELS[self.pixels])]

    def inputs(self, inputs: Sequence[TensorDesc], batch: int) -> Arrays:
        """The first images, repeated where there are too few."""
        name, size, _ = image_input(inputs)
        names = [self.data.names[index % len(self.data)] for index in range(batch)]
        return {name: PIXELS[self.pixels]([self.data.image(image_name) for image_name in names], size)}

    def _outputs(self, engine: Engine, batch: int | None) -> npt.NDArray[np.float32]:
        """The output for every image, (N, values)."""
        with closing(ImageNetwork(engine, self.pixels, batch)) as network:
            return network(map(self.data.image, self.data.names))


@dataclass(frozen=True, eq=False)
class VerificationTask(_OnImages):
    """Decide whether two images show the same person, by the cosine of their embeddings: on all pairs of the data, or those of a file."""

    name: str = field(default="verification", init=False)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Accuracy by folds is among them where the pairs have folds."""
        folds = self.data.pairs.folds if isinstance(self.data, ImagePairs) else None
        by_folds = () if folds is None else _by_folds(len(np.unique(folds)))
        return (*_VERIFICATION[:3], *by_folds, *_VERIFICATION[3:])

    def measure(self, engine: Engine, reference: Any, batch: int | None = None) -> tuple[dict[str, float], Any]:
        """Figures of `verify`, and how near embeddings are to those of the first engine."""
        embeddings, pairs = normalized(self._outputs(engine, batch)), self.data.pairs
        similarity = cosines(embeddings, pairs.first, pairs.second)
        figures_of_pairs = verify(similarity, pairs.same)
        alike = (embeddings * (embeddings if reference is None else np.asarray(reference))).sum(axis=1)
        figures = {
            "tpr_at_001": figures_of_pairs.tpr_at_001,
            "tpr_at_01": figures_of_pairs.tpr_at_01,
            "balanced_accuracy": figures_of_pairs.balanced_accuracy,
            "cosine_mean": float(alike.mean()),
            "cosine_1": float(np.percentile(alike, 1)),
        }
        if pairs.folds is not None:
            by_folds = fold_accuracy(similarity, pairs.same, pairs.folds)
            figures |= {"fold_accuracy": by_folds.mean, "fold_error": by_folds.error}
        return figures, embeddings.tolist()


@dataclass(frozen=True, eq=False)
class ClassificationTask(_OnImages):
    """Assign each image to a class.

    Attributes:
        data: What is measured on.
        classes: Names of the outputs, in their order; None: the labels of the data, in their order.
    """

    data: LabelledImages
    classes: tuple[str, ...] | None = None
    name: str = field(default="classification", init=False)
    figures: tuple[Figure, ...] = field(
        default=(Figure("top1", "top-1", drawn=True), Figure("top5", "top-5"), Figure("same", "same as the first row")),
        init=False,
    )

    def measure(self, engine: Engine, reference: Any, batch: int | None = None) -> tuple[dict[str, float], Any]:
        """Top-1 and top-5 accuracy, and the share of images with the first engine's class."""
        scores = self._outputs(engine, batch)
        names = self.classes or self.data.labels
        missing = [label for label in self.data.labels if label not in names]
        if missing or scores.shape[1] != len(names):
            raise UsageError(
                f"classification: the network has {scores.shape[1]} classes, and {len(names)} have names"
                + (f"; without a name are {', '.join(missing[:5])}" if missing else "")
                + ".\nDo: give the names of all classes, in the network's order (pytrt table --names FILE)"
            )
        twice = [label for label in self.data.labels if names.count(label) > 1]
        if twice:
            raise UsageError(
                f"classification: several classes of the network are called {', '.join(twice[:5])}.\n"
                "Do: give each class a name of its own (pytrt table --names FILE)"
            )
        labels = np.array([names.index(label) for label in self.data.labels])[self.data.numbers]
        order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        hits = order == labels[:, None]
        best = order[:, 0]
        same = 1.0 if reference is None else float((best == np.asarray(reference)).mean())
        return {"top1": float(hits[:, 0].mean()), "top5": float(hits.any(axis=1).mean()), "same": same}, best.tolist()


@dataclass(frozen=True, eq=False)
class DetectionTask:
    """Detect objects: average precision on labelled images.

    Attributes:
        data: What is measured on, in the YOLO layout.
        split: The list of images that is measured on.
        calibrated_on: The list of images that calibration sees.
        names: Names of the detector's classes; None: as the model says.
        mode: How images are fitted.
        limit: Measure on the first images only; None: on all.
    """

    data: YoloData
    split: str = "val.txt"
    calibrated_on: str = "train.txt"
    names: tuple[str, ...] | None = None
    mode: str = "letterbox"
    limit: int | None = None
    name: str = field(default="detection", init=False)
    notes: tuple[str, ...] = field(default=(), init=False)
    figures: tuple[Figure, ...] = field(
        default=(Figure("map50", "mAP50", drawn=True), Figure("map", "mAP50:95")), init=False
    )

    @property
    def identity(self) -> dict[str, Any]:
        """The lists of images, and what their labels are drawn on."""
        chosen = self.data.images(self.split)[: self.limit]
        facts = {"data": self.data.name, "images": chosen, "names": self.names, "mode": self.mode}
        return facts if self.data.exif is None else {**facts, "exif": self.data.exif}

    def calibration(self, inputs: Sequence[TensorDesc], count: int) -> list[Arrays]:
        """The first images of the list."""
        names = self.data.images(self.calibrated_on)
        if count > len(names):
            raise NoDataError(
                f"calibration with {count:,} images: {self.calibrated_on} of {self.data.name} has {len(names):,}",
                path=self.calibrated_on,
            )
        return [self._letterboxed(inputs, [name]) for name in names[:count]]

    def inputs(self, inputs: Sequence[TensorDesc], batch: int) -> Arrays:
        """The first images, repeated where there are too few."""
        names = self.data.images(self.split)
        return self._letterboxed(inputs, [names[index % len(names)] for index in range(batch)])

    def measure(self, engine: Engine, reference: Any, batch: int | None = None) -> tuple[dict[str, float], Any]:
        """Mean average precision, as COCO defines it."""
        detector = Yolov2(engine, None if self.names is None else list(self.names), mode=self.mode)
        evaluation = evaluate(detector, self.data, self.split, limit=self.limit)
        return {"map50": evaluation.map50, "map": evaluation.map}, None

    def _letterboxed(self, inputs: Sequence[TensorDesc], names: Sequence[str]) -> Arrays:
        name, size, _ = image_input(inputs)
        return {
            name: np.stack([letterbox(self.data.image(image_name), size, mode=self.mode).data for image_name in names])
        }
