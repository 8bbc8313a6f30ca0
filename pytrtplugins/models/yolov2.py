"""Detector for YOLOv2 and related networks: from images to detections."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args, overload

import numpy as np

from ..engines.base.detection import Boxes, DetectionContext, Pixels, Timings
from ..engines.base.engine import Engine
from ..engines.base.run_future import RunFuture
from ..errors import UsageError
from ..utils.name_list import read_class_names
from ..utils.not_copyable import NotCopyable
from ..utils.prefetch import map_ahead, map_async, threads_for_files
from ..vision import MODES, Detection, Detections, Frame, Head, Sources, Tracker, check_image, load_image
from ..vision.device_images import DeviceImage, ImageDecoder
from ..vision.image import Image
from ..vision.jpeg import Memory, empty
from .description import read_description
from .heads import read_heads, read_size

__all__ = ["Yolov2", "read_names"]

ImageSource = str | Path | Image
Item = TypeVar("Item")
_Chunk = list[tuple[Item, ImageSource | None, Pixels, float]]
"""Items, where their images come from, the images, and the milliseconds that reading each took."""
Decoder = Literal["cpu", "gpu"]
"""Who may decode the images of `Yolov2.stream`."""
_SCORE, _IOU = 0.5, 0.45  # thresholds where neither the user nor the model says any


class Yolov2(NotCopyable):
    """Detector for YOLOv2 and any network whose outputs are darknet's region or yolo layers.

    Anchors, classes and input size are read from the engine's model. One object serves one thread; objects made from
    one engine share its weights.

    Args:
        engine: A built engine.
        names: Names of the classes: a file with one a line (darknet's .names) or a list. None: those that the model brings (see
            `describe`), else ``class 0``, ``class 1``, ...
        mode: How images are fitted into the input; see :func:`pytrtplugins.vision.letterbox`. None: as the model says, else
            ``"letterbox"``.
        max_detections: Largest number of boxes of an image: the best.
        batch: Most images of a run. None: the model's batch; where that is free, what the engine was built for.

    Attributes:
        score_threshold: What calls take where they are given none: the model's, else 0.5.
        iou_threshold: The same: the model's, else 0.45.
        timings: How long the last call took, all its images together. Reading files is part of the preprocess, but for
            frames of `Sources`, which are read ahead. Engines that
            do all of it on a GPU count copying the image to pinned memory as preprocess, and everything up to the boxes as
            network.

    Raises:
        ModelError: the engine's model has no region or yolo layer at its outputs.
        UsageError: the number of names is not that of the classes, the mode is unknown, or the batch is larger than the model's.
        BindingError: the model does not take one batch of RGB images.

    Example:
        >>> detector = Yolov2(engine, names="voc.names")           # doctest: +SKIP
        >>> for box in detector("dog.jpg", score_threshold=0.5):   # doctest: +SKIP
        ...     print(box.label, f"{box.score:.0%}", box.xyxy)
        >>> detector("dog.jpg").boxes_xyxy                         # doctest: +SKIP
    """

    instead = "save the engine, load it where it is needed, and make another Yolov2 of it"

    def __init__(
        self,
        engine: Engine,
        names: str | Path | Sequence[str] | None = None,
        *,
        mode: str | None = None,
        max_detections: int = 200,
        batch: int | None = None,
    ) -> None:
        model = engine.model_without_weights
        heads, description = read_heads(model), read_description(model)
        mode = mode or description.mode or "letterbox"
        if mode not in MODES:
            raise UsageError(f"Yolov2: mode: expected one of {', '.join(MODES)}, found {mode!r}.", mode=mode)
        self.engine = engine
        self.names = read_names(description.names if names is None else names, heads[0].classes)
        self.score_threshold = _SCORE if description.score_threshold is None else description.score_threshold
        self.iou_threshold = _IOU if description.iou_threshold is None else description.iou_threshold
        self.context = engine.create_detection_context(heads, read_size(engine), mode, max_detections, batch)
        self.batch = min(batch or self.context.batch, self.context.batch)
        if batch and batch > self.context.batch:
            self.context.close()
            raise UsageError(
                f"Yolov2: batch: the model's is {self.context.batch}, found {batch}.\n"
                f"Do: pytrt build NETWORK.cfg --batch {batch} -o NETWORK.engine, or darknet2caffe --batch dynamic for an ONNX file",
                batch=batch,
            )
        self.timings = Timings()
        self._decoder: ImageDecoder | None = None
        self._async_contexts = deque[DetectionContext]()

    def another(self, max_detections: int) -> Yolov2:
        """Return a detector of the same engine with another maximum number of boxes per image."""
        batch, mode = self.context.free_batch, self.context.mode
        return Yolov2(self.engine, self.names, mode=mode, max_detections=max_detections, batch=batch)

    @property
    def heads(self) -> tuple[Head, ...]:
        """The network's region and yolo layers."""
        return self.context.heads

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the network's input."""
        return self.context.size

    @overload
    def __call__(
        self, source: ImageSource, *, score_threshold: float | None = ..., iou_threshold: float | None = ...
    ) -> Detections: ...

    @overload
    def __call__(
        self,
        source: list[ImageSource] | tuple[ImageSource, ...],
        *,
        score_threshold: float | None = ...,
        iou_threshold: float | None = ...,
    ) -> list[Detections]: ...

    def __call__(
        self,
        source: ImageSource | list[ImageSource] | tuple[ImageSource, ...],
        *,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
    ) -> Detections | list[Detections]:
        """Detect objects on an image or a list of images.

        Args:
            source: Path of an image, or a uint8 array (H, W, 3) in RGB; or a list of them.
            score_threshold: Scores above it are reported, 0..1; None: the detector's.
            iou_threshold: Overlap above which the weaker of two boxes of a class is dropped, 0..1; None: the detector's.

        Returns:
            Detections of the image, best first; for a list of images a list of them.

        Raises:
            ImageError: an image cannot be read.
            UsageError: a threshold is outside 0..1.
        """
        score_threshold, iou_threshold = self._thresholds(score_threshold, iou_threshold)
        if isinstance(source, (str, Path, np.ndarray)):
            return self._detect([source], score_threshold, iou_threshold)[0]
        return self._detect(list(source), score_threshold, iou_threshold)

    def detect_async(
        self,
        images: Sequence[Pixels],
        *,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
    ) -> Future[list[Detections]]:
        """Queue a run on a batch of images, and return a future.

        On a GPU two runs are on their way at a time; a third call first waits for the oldest. ``timings`` are not set.

        Args:
            images: 1 to ``batch`` uint8 arrays (H, W, 3) in RGB of any size, or images of ``context.create_decoder()``; unchanged
                until the result is there.
            score_threshold: As for a call.
            iou_threshold: As for a call.

        Returns:
            The future of their detections: ``.result()`` waits for them.

        Raises:
            Exception: as for a call, here or from the future.
        """
        score_threshold, iou_threshold = self._thresholds(score_threshold, iou_threshold)
        if not self._async_contexts:
            self._async_contexts.extend(self.context.another() for _ in range(self.context.side_by_side))
        self._async_contexts.rotate()
        context = self._async_contexts[0]
        queued = context.detect_async(images, score_threshold=score_threshold, iou_threshold=iou_threshold)
        sources = [None if isinstance(image, DeviceImage) else image for image in images]
        return RunFuture(lambda: self._make_detections(queued.result(), sources, context.timings)[0])

    def stream(
        self,
        items: Iterable[Item],
        *,
        image: Callable[[Item], ImageSource] | None = None,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        track: bool = False,
        decode: Decoder = "cpu",
    ) -> Iterator[tuple[Item, Detections]]:
        """Detect objects on many images, with overlapping file reads, copies and runs of the network.

        Images are read in threads ahead of the network, and looked at in batches; on a GPU two are on their way at a time. Only a
        few batches of images are in memory, however many there are.

        Args:
            items: Frames of `Sources`, images, or anything that ``image`` makes images of; may be endless.
            image: Gives an item's image, as a path or an array; called in threads.
            score_threshold: As for a call.
            iou_threshold: As for a call.
            track: Follow objects from frame to frame: ``track_ids`` of the detections. Each video is a scene of its own, and all
                images together are one.
            decode: Who decodes JPEG files of `Sources`: ``"cpu"``, all cores; ``"gpu"``, the GPU of engine ``cuda``, where the
                pixels stay. Those may differ by a few steps, and by more at sharp edges of colour, and so boxes by a little. What the
                GPU cannot decode the CPU decodes.

        Yields:
            Each item with its detections, in order. ``timings`` are then those of the run that its image was part of.

        Raises:
            Exception: as for a call, or what the items and ``image`` raise, at their item's turn.
            UsageError: ``decode="gpu"`` for another engine, or other items.
            MissingExtraError: ``track``, and the library trackers is missing; ``decode="gpu"``, and nvImageCodec is.
        """
        score_threshold, iou_threshold = self._thresholds(score_threshold, iou_threshold)
        tracker = Tracker(score_threshold) if track else None
        lowest_score = tracker.lowest if tracker else score_threshold

        def read(item: Item) -> tuple[Item, ImageSource | None, Pixels, float]:
            if isinstance(item, Frame):
                path = item.source.address if item.number is None else None
                return item, path if isinstance(path, Path) else None, item.pixels, 0.0
            start = time.perf_counter()
            source = cast(ImageSource, item) if image is None else image(item)
            pixels = _read(source, self.context.memory)
            # an array that `image` made is not kept: who keeps all results would keep all images
            kept_source = source if image is None or isinstance(source, (str, Path)) else None
            return item, kept_source, pixels, 1000 * (time.perf_counter() - start)

        def start(context: DetectionContext, chunk: _Chunk[Item]) -> Future[list[Boxes]]:
            images = [image for _, _, image, _ in chunk]
            return context.detect_async(images, score_threshold=lowest_score, iou_threshold=iou_threshold)

        def finish(
            context: DetectionContext, chunk: _Chunk[Item], boxes: list[Boxes]
        ) -> tuple[list[Item], list[Detections], Timings]:
            detections, timings = self._make_detections(boxes, [source for _, source, _, _ in chunk], context.timings)
            return [item for item, *_ in chunk], detections, timings + Timings(sum(reading for *_, reading in chunk))

        contexts = (self.context.another() for _ in range(self.context.side_by_side))
        read_items = self._read_ahead(read, items, image is None, self._decoder_for(decode, items))
        chunks = _chunks(read_items, self.batch)
        for finished_items, detections_of_items, timings in map_async(start, chunks, contexts=contexts, finish=finish):
            self.timings = timings
            for item, detections in zip(finished_items, detections_of_items, strict=True):
                frame = item if isinstance(item, Frame) else None
                yield item, tracker.update(detections, frame) if tracker else detections

    def _decoder_for(self, decode: Decoder, items: Iterable[Item]) -> ImageDecoder | None:
        """Return the device's decoder for ``decode="gpu"``, always the same one, since it caches memory; None for ``"cpu"``."""
        if decode not in get_args(Decoder):
            known = ", ".join(get_args(Decoder))
            raise UsageError(f"stream: decode: expected one of {known}, found {decode!r}.", decode=decode)
        if decode == "cpu":
            return None
        if not isinstance(items, Sources):
            raise UsageError(
                'stream: decode="gpu" needs files to read.\nDo: detector.stream(Sources([...]), decode="gpu")'
            )
        if self._decoder is None:
            self._decoder = self.context.create_decoder()
        return self._decoder

    def _read_ahead(
        self,
        read: Callable[[Item], tuple[Item, ImageSource | None, Pixels, float]],
        items: Iterable[Item],
        plain: bool,
        decoder: ImageDecoder | None,
    ) -> Iterator[tuple[Item, ImageSource | None, Pixels, float]]:
        """Yield `read` of each item, ahead of the caller; in threads for items that must be decoded."""
        if isinstance(items, Sources):  # they decode ahead themselves
            with closing(items.frames(2 * self.batch, self.context.memory, decoder)) as frames:
                yield from map(read, cast(Iterable[Item], frames))
            return
        readers = threads_for_files()
        yield from map_ahead(
            read,
            items,
            threads=readers,
            ahead=readers + 2 * self.batch,
            inline=lambda item: isinstance(item, Frame) or (plain and isinstance(item, np.ndarray)),
        )

    def _thresholds(self, score: float | None, iou: float | None) -> tuple[float, float]:
        """Return the thresholds, or the detector's own for None."""
        return self.score_threshold if score is None else score, self.iou_threshold if iou is None else iou

    def warm_up(self) -> None:
        """Run once on a grey image, to load libraries and allocate buffers before the first timed call."""
        self._detect([np.full((2, 2, 3), 128, np.uint8)], 1.0, 1.0)

    def close(self) -> None:
        """Release the engine's context; the detector cannot be used afterwards."""
        self._decoder = None
        for context in (*self._async_contexts, self.context):
            context.close()

    def __enter__(self) -> Yolov2:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        width, height = self.size
        return f"Yolov2({self.engine.name}, {self.engine.precision}, {width}x{height}, {len(self.names)} classes)"

    def _detect(self, sources: Sequence[ImageSource], score_threshold: float, iou_threshold: float) -> list[Detections]:
        detections: list[Detections] = []
        self.timings = Timings()
        for chunk in _chunks(sources, self.batch):
            start = time.perf_counter()
            images = [_read(source) for source in chunk]
            reading = 1000 * (time.perf_counter() - start)
            boxes = self.context.detect(images, score_threshold=score_threshold, iou_threshold=iou_threshold)
            batch_detections, timings = self._make_detections(boxes, chunk, self.context.timings)
            detections += batch_detections
            self.timings += timings + Timings(reading)
        return detections

    def _make_detections(
        self, boxes: Sequence[Boxes], sources: Sequence[ImageSource | None], timings: Timings
    ) -> tuple[list[Detections], Timings]:
        """Return the detections of a run, and its timings including this conversion."""
        start = time.perf_counter()
        detections = [
            Detections(self._detections(image_boxes), source)
            for image_boxes, source in zip(boxes, sources, strict=True)
        ]
        return detections, timings + Timings(postprocess_ms=1000 * (time.perf_counter() - start))

    def _detections(self, boxes: Boxes) -> list[Detection]:
        if not len(boxes.scores):
            return []
        corners = boxes.placement.to_image(boxes.boxes_cxcywh).tolist()
        return [
            Detection(self.names[k], k, score, (x1, y1, x2, y2))
            for k, score, (x1, y1, x2, y2) in zip(boxes.classes.tolist(), boxes.scores.tolist(), corners, strict=True)
        ]


def read_names(names: str | Path | Iterable[str] | None, classes: int) -> tuple[str, ...]:
    """Read class names from a file with one a line or a list, or generate them; their number is checked.

    Raises:
        UsageError: the file cannot be read, or the number does not fit.
    """
    if names is None:
        return tuple(f"class {number}" for number in range(classes))
    where = str(names) if isinstance(names, (str, Path)) else "names"
    result = read_class_names(names)
    if len(result) != classes:
        raise UsageError(
            f"{where}: expected {classes} class names, as the network has classes, found {len(result)}"
            f"{': ' + ', '.join(result[:6]) + (', ...' if len(result) > 6 else '') if result else ''}.\n"
            "Causes: (1) the .names belong to another network; (2) a line is missing.",
            expected=classes,
            found=len(result),
        )
    return result


def _read(source: ImageSource, memory: Memory = empty) -> Image:
    return load_image(source, memory=memory) if isinstance(source, (str, Path)) else check_image(source)


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of ``size`` items; items read before an error are yielded before it is raised."""
    chunk: list[Item] = []
    read_error: Exception | None = None
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except Exception as error:
        read_error = error
    if chunk:
        yield chunk
    if read_error:
        raise read_error
