"""The loaders that work beside the steps: SPDL's stages, each with its own threads, and bounded queues between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from pytrtplugins.errors import ExecutionError
from pytrtplugins.utils.optional import require
from pytrtplugins.utils.override import override

from .batch import Batch
from .decode_gpu import GpuDecoding
from .loader import Loader, Options
from .staging import Copies, Slot, Staged

__all__ = ["GpuStream", "Stream"]

_PART = 8  # photos at most that a thread works on at a time


@dataclass(eq=False)
class _Part:
    """Some rows of a step's batch on their way through the stages; or the error that ended it."""

    step: int
    slot: Slot
    rows: range
    numbers: list[int]
    records: list[Any] = field(default_factory=list)
    error: Exception | None = None


class Stream(Loader):
    """Read, decode, stage: all at once, for different photos. See `Loader`.

    A slot of host memory is taken for each step; the stages fill it, photo by photo, and it is copied to the device on a stream of
    its own. It is free again when a step has taken the batch: so there are ``ahead`` batches at most, in work and ready together,
    however slow steps are. Queues keep the order. An error goes through them like a batch, and is raised at its step's turn.
    """

    on_gpu = False  # whether photos are decoded there

    @override
    def _open(self) -> None:
        options, share = self.options, self.photos.sampler.share
        self._copies = Copies(self.device)
        self._decoding = None
        if self.on_gpu:
            self._decoding = GpuDecoding(options.decoder, self.photos, self._copies, self.clock)
        self._part = max(1, min(_PART, -(-share // options.decoding_threads)))
        side, pinned = 0 if self.on_gpu else self.photos.side, self.device.type == "cuda"
        self._free = SimpleQueue[Slot | None]()  # slots that can be filled; None: the end
        for _ in range(options.ahead):
            self._free.put(Slot(share, side, options.boxes, pinned=pinned))
        self._begun, self._executors = threading.Event(), list[ThreadPoolExecutor]()
        self._pipeline = self._build(options)
        self._pipeline.start()
        threading.Thread(target=self._close_with_main, name="training-loader-watch", daemon=True).start()

    def _build(self, options: Options) -> Any:
        spdl = require(
            "spdl.pipeline", extra="train", package="spdl-core", feature="this loader (Python 3.11 or newer)"
        )
        builder = spdl.PipelineBuilder().add_source(self._parts(range(self.step, self.stop)))
        self._add_stage(builder, "read", options.readers, self._guarded(self._read))
        if self._decoding is None:
            self._add_stage(builder, "decode", options.decoding_threads, self._guarded(self._decode))
        else:
            self.clock.declare("decode")
        builder.aggregate(-(-self.photos.sampler.share // self._part))
        self._add_stage(builder, "staging", 1, self._stage)
        builder.add_sink(options.ahead)
        return builder.build(num_threads=1, use_thread_output_queue=True, task_hook_factory=lambda _: [])

    def _add_stage(self, builder: Any, name: str, threads: int, work: Callable[[Any], Any]) -> None:
        """A stage with threads of its own: SPDL alone would run some more at a time than it is told."""
        self.clock.declare(name, threads)
        executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._executors.append(executor)
        builder.pipe(work, concurrency=threads, executor=executor, output_order="input", name=name)

    def _parts(self, steps: range) -> Iterator[_Part]:
        self._begun.set()
        for step in steps:
            slot = self._free.get()
            if slot is None or self.closed.is_set():
                return
            numbers = self.photos.numbers(step)
            for begin in range(0, len(numbers), self._part):
                some = numbers[begin : begin + self._part]
                yield _Part(step, slot, range(begin, begin + len(some)), some)

    def _guarded(self, work: Callable[[_Part], None]) -> Callable[[_Part], _Part]:
        def run(part: _Part) -> _Part:
            if part.error is None and not self.closed.is_set():
                try:
                    work(part)
                except Exception as error:  # raised where the batch is asked for
                    part.error = error
            return part

        return run

    def _read(self, part: _Part) -> None:
        with self.clock.stage("read", len(part.rows)):
            part.records = [self.photos.data.read(number) for number in part.numbers]

    def _decode(self, part: _Part) -> None:
        with self.clock.stage("decode", len(part.rows)):
            for row, record in zip(part.rows, part.records, strict=True):
                good, pixels = self.photos.decode(part.step, row, record)
                part.slot.put(row, good.key, pixels, good.boxes)

    def _stage(self, parts: list[_Part]) -> tuple[Slot, Staged] | Exception:
        slot, step = parts[0].slot, parts[0].step
        try:
            if error := next((part.error for part in parts if part.error is not None), None):
                return error
            pixels = None
            if self._decoding is not None:
                pixels = self._decoding.decode(step, [record for part in parts for record in part.records], slot)
            with self.clock.stage("staging", self.photos.sampler.share):
                return slot, self._copies.send(step, slot, pixels)
        except Exception as error:
            return error

    @override
    def _take(self, step: int) -> Batch:
        try:
            found = self._pipeline.get_item()
        except EOFError:
            raise ExecutionError(
                f"the loader ended before step {step}.\nDo: look for the error before this one"
            ) from None
        if isinstance(found, Exception):
            raise found
        slot, staged = found
        self._free.put(slot)
        return staged.arrive()

    def close(self) -> None:
        """End all threads."""
        first = not self.closed.is_set()
        super().close()
        if first:
            self._free.put(None)
            self._begun.wait(1)  # stages that never began would warn of it
            self._pipeline.stop()
            for executor in self._executors:
                executor.shutdown(cancel_futures=True)

    def _close_with_main(self) -> None:
        """Python waits for threads at its end, so they have to end by themselves where nobody closed the loader."""
        while not self.closed.wait(0.2):
            if not threading.main_thread().is_alive():
                self.close()


class GpuStream(Stream):
    """The same with photos decoded on the GPU."""

    on_gpu = True
