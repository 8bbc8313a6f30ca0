"""From image bytes to boxes in one launch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar

from ....tensor import bind_dims
from ....vision.device_images import ImageDecoder
from ....vision.jpeg import Memory
from ...base.detection import Boxes, DetectionContext, Pixels, Timings
from ..device.device import NETWORK_PRIORITY
from .decoding import JpegDecoder
from .image_run import ImageRun
from .owner import Owner
from .staging import image_memory

__all__ = ["CudaDetection"]


class CudaDetection(DetectionContext):
    """Letterbox, network, decoding and suppression as one CUDA graph, for images of any size; of boxes the best come back.

    The host copies the image by way of pinned memory, launches the graph, and waits. A batch that is free has a graph for each of
    the engine's setting ``batch``; images take the smallest that holds them. A plugin that cannot be captured runs between
    launches, as in every context of this engine.
    """

    engine: Owner
    side_by_side: ClassVar[int] = 2  # one copies an image while the other's is looked at

    def _open(self) -> None:
        self._cupy: Any = self.engine.device.xp
        dims = self.engine.inputs[0].dims
        free = {self.free_batch} if self.free_batch else set(self.engine.batches)
        self._batches = (dims[0],) if isinstance(dims[0], int) else tuple(sorted(free))
        self._runs: dict[int, ImageRun] = {}
        with self.engine.device.current():
            self._stream = self._cupy.cuda.Stream(non_blocking=True, priority=NETWORK_PRIORITY)

    @property
    def memory(self) -> Memory:
        """Page-locked memory, which the GPU reads by itself."""
        return partial(image_memory, self.engine.device)

    def create_decoder(self) -> ImageDecoder:
        """NvImageCodec."""
        return JpegDecoder(self.engine.device)

    @property
    def batch(self) -> int:
        """The model's batch; where that is free what the context was made for, else the largest of the setting ``batch``."""
        return self._batches[-1]

    def _detect(self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float) -> list[Boxes]:
        return self._begin(images, score_threshold, iou_threshold)()

    def _queue(self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float) -> Future[list[Boxes]]:
        return self._start(self._begin, images, score_threshold, iou_threshold)

    def _begin(
        self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float
    ) -> Callable[[], list[Boxes]]:
        start = time.perf_counter()
        with self.engine.device.current(), self._stream:
            run = self._run(len(images))
            placements = run.send(images, score_threshold, iou_threshold, self._stream)
            sent = time.perf_counter()
            self._launch(run)
        held = list(images)

        def finish() -> list[Boxes]:
            self._stream.synchronize()
            held.clear()  # until now, since the GPU reads page-locked ones itself
            done = time.perf_counter()
            found = run.boxes(placements)
            spent = sent - start, done - sent, time.perf_counter() - done
            self.timings = Timings(*(1000 * seconds for seconds in spent))
            return found

        return finish

    def _launch(self, run: ImageRun) -> None:
        if run.graph is not None:
            run.graph.launch(self._stream)
        elif not self._one_graph(run):
            run.queue(self._stream)
        else:
            with self.engine.capturing:
                run.queue(self._stream)  # once before it is captured, so that all is loaded
                self._stream.synchronize()
                self._stream.begin_capture()
                try:
                    run.queue(self._stream)
                finally:
                    run.graph = self._stream.end_capture()
                run.graph.upload(self._stream)

    def _one_graph(self, run: ImageRun) -> bool:
        """Whether a whole run can be one CUDA graph."""
        segments = run.execution.segments
        return "graph" not in self.engine.disabled and len(segments) == 1 and segments[0].capturable

    def _run(self, images: int) -> ImageRun:
        batch = next(batch for batch in self._batches if batch >= images)
        if batch not in self._runs:
            desc = self.engine.inputs[0]
            sizes = bind_dims(desc.dims, (batch, 3, self.size[1], self.size[0]))
            run = ImageRun(self.engine.execution(sizes), desc.name, self.heads, self.mode, self.max_detections)
            if "graph" not in self.engine.disabled and not self._one_graph(run):
                with self.engine.capturing:
                    run.execution.capture(self._stream)  # its parts
            self._runs[batch] = run
        return self._runs[batch]

    def _close(self) -> None:
        self._stream.synchronize()
        for run in self._runs.values():
            run.execution.close()
        self._runs.clear()
