"""Detection: an engine's path from images to boxes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from ...utils.numbers import LARGEST_BATCH, check_int, check_share
from ...vision import Head, Placement, check_image
from ...vision.device_images import DeviceImage, ImageDecoder
from ...vision.image import Image
from ...vision.jpeg import Memory, empty
from .exclusive import Exclusive
from .types import OwningEngine

__all__ = ["MAX_DETECTIONS", "Boxes", "DetectionContext", "Image", "Pixels", "Timings"]

Pixels = Image | DeviceImage
"""What contexts look at: arrays, and what they have decoded themselves."""
MAX_DETECTIONS = 100_000
"""Largest number of boxes that a context gives of an image."""
_LONGEST_SIDE = 1 << 14


@dataclass(frozen=True)
class Timings:
    """Times in milliseconds."""

    preprocess_ms: float = 0.0
    network_ms: float = 0.0
    postprocess_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """Sum of the three."""
        return self.preprocess_ms + self.network_ms + self.postprocess_ms

    def __add__(self, other: Timings) -> Timings:
        """Both, one after the other."""
        return Timings(
            self.preprocess_ms + other.preprocess_ms,
            self.network_ms + other.network_ms,
            self.postprocess_ms + other.postprocess_ms,
        )

    def __str__(self) -> str:
        """The times as the samples print them."""
        return f"preprocess {self.preprocess_ms:.1f} ms, network {self.network_ms:.1f} ms, postprocess {self.postprocess_ms:.1f} ms"


@dataclass(frozen=True, eq=False)
class Boxes:
    """Detections on one image, sorted by score.

    Fields:
        classes: (B,) int64.
        scores: (B,) float32.
        boxes_cxcywh: (B, 4) float32: centre x, centre y, width, height in 0..1 of the network's input.
        placement: Position and size of the image in the input.
    """

    classes: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    boxes_cxcywh: npt.NDArray[np.float32]
    placement: Placement


class DetectionContext(Exclusive[list[Boxes]]):
    """The state of one thread's detections. Close it, or use it in a ``with`` block.

    Subclasses fill in `_open`, `_detect`, which sets ``timings``, and `_close`; those whose device works by itself `_queue` too.
    ``side_by_side`` is how many of them keep the engine's device busy where there are many images.

    Args:
        engine: The engine of the network, which has one input.
        heads: The network's region and yolo layers.
        size: (width, height) of the network's input.
        mode: How images are fitted into it; see `pytrtplugins.vision.letterbox`.
        max_detections: Largest number of boxes of an image, 1 to 100,000.
        batch: Most images of one run, where the model leaves that free; None: the engine decides.

    Attributes:
        timings: How long the last `detect` took.
    """

    made_by = "engine.create_detection_context(...)"
    instead = "make another context where it is needed: engine.create_detection_context(...)"
    side_by_side: ClassVar[int] = 1

    def __init__(
        self,
        engine: OwningEngine,
        heads: Sequence[Head],
        size: tuple[int, int],
        mode: str = "letterbox",
        max_detections: int = 200,
        batch: int | None = None,
    ) -> None:
        super().__init__(engine)
        width, height = size
        self.size = check_int("width", width, 1, _LONGEST_SIDE), check_int("height", height, 1, _LONGEST_SIDE)
        self.heads, self.mode = tuple(heads), mode
        self.max_detections = check_int("max_detections", max_detections, 1, MAX_DETECTIONS)
        self.free_batch = None if batch is None else check_int("batch", batch, 1, LARGEST_BATCH)
        self.timings = Timings()
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Acquire what runs need; called by the constructor."""

    @property
    def memory(self) -> Memory:
        """Gives memory for images that the device copies fastest; threads may call it."""
        return empty

    def create_decoder(self) -> ImageDecoder:
        """Make what decodes JPEG files on the engine's device.

        Raises:
            UsageError: the device decodes none.
            MissingExtraError: the library for that is not installed.
        """
        raise UsageError(
            f"decode: engine {self.engine.name!r} has no decoder of images on its device.\n"
            'Do: decode="cpu", or build with engine="cuda"',
            engine=self.engine.name,
        )

    @property
    @abstractmethod
    def batch(self) -> int:
        """Most images of one run."""

    @abstractmethod
    def _detect(self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float) -> list[Boxes]:
        """Run once on 1 to `batch` checked images."""

    def detect(
        self, images: Sequence[Pixels], *, score_threshold: float = 0.5, iou_threshold: float = 0.45
    ) -> list[Boxes]:
        """Find objects on images, in one run of the network.

        Args:
            images: 1 to `batch` uint8 arrays (H, W, 3), RGB, each of any size, or images of the context's own decoder.
            score_threshold: Scores above it are reported, 0..1.
            iou_threshold: Overlap above which the weaker of two boxes of a class is dropped, 0..1.

        Returns:
            For each image its boxes, at most as many as the context was made for: the best.

        Raises:
            UsageError: a threshold is outside 0..1, or there are no images or too many.
            ImageError: an array is not an image.
            EngineError: the context is closed, or another thread is running it.
        """
        checked = self._check(images, score_threshold, iou_threshold)
        return self._run_once(checked, score_threshold, iou_threshold)

    def detect_async(
        self, images: Sequence[Pixels], *, score_threshold: float = 0.5, iou_threshold: float = 0.45
    ) -> Future[list[Boxes]]:
        """Queue a `detect` after those queued before it, for example of the next images while boxes of earlier ones are processed.

        Args:
            images: As for `detect`; unchanged until the boxes are there.
            score_threshold: As for `detect`.
            iou_threshold: As for `detect`.

        Returns:
            The future of the boxes: ``.result()`` waits for them.

        Raises:
            Exception: as for `detect`, here or from the future.
        """
        checked = self._check(images, score_threshold, iou_threshold)
        self._check_open()
        self._check_caller()
        return self._queue(checked, score_threshold, iou_threshold)

    def _run_once(self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float) -> list[Boxes]:
        with self._running():
            return self._detect(images, score_threshold, iou_threshold)

    def _queue(self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float) -> Future[list[Boxes]]:
        """Queue a run on checked images: in a thread; a context whose device works by itself overrides it."""
        return self._submit(self._run_once, images, score_threshold, iou_threshold)

    def _check(self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float) -> list[Pixels]:
        for name, value in (("score_threshold", score_threshold), ("iou_threshold", iou_threshold)):
            check_share(f"detect: {name}", value)
        if not 1 <= len(images) <= self.batch:
            raise UsageError(f"detect: expected 1 to {self.batch} images, found {len(images)}.")
        return [image if isinstance(image, DeviceImage) else check_image(image) for image in images]

    def another(self) -> DetectionContext:
        """A new context of the same kind, for example for another thread."""
        return type(self)(self.engine, self.heads, self.size, self.mode, self.max_detections, self.free_batch)
