"""Loaders that run next to the steps: SPDL's stages, each with its own threads, and bounded queues between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from pytrtplugins.errors import ExecutionError
from pytrtplugins.utils.optional import require
from pytrtplugins.utils.override import override

from ..batch import Batch
from ..loader import Loader, Options
from ..staging import Copies, Slot, Staged
from .decode_gpu import GpuDecoding

__all__ = ["GpuStagedLoader", "StagedLoader"]

_PART = 8  # photos at most that a thread works on at a time
_MOST_DECODERS = 8  # steps wait for Python's lock the longer the more threads share it


@dataclass(eq=False)
class _Work:
    """A step's batch on its way through the stages, or the error that ended it."""

    step: int
    slot: Slot
    numbers: list[int]
    records: list[Any]
    error: Exception | None = None


class StagedLoader(Loader):
    """Loader with the stages read, decode and stage, all concurrent. See `Loader`.

    A slot of host memory is taken for each step; the stages fill it, and it is copied to the device on a stream of its own. It is
    free again when a step has taken the batch: so there are ``ahead`` batches at most, in work and ready together, however slow
    steps are. SPDL's queues keep the order. An error goes through them like a batch, and is raised at its step's turn.

    SPDL hands whole batches on, and a stage's threads share the photos of those that it has: Python's lock is held whenever something
    is handed over.
    """

    on_gpu = False  # whether photos are decoded there

    @override
    def _open(self) -> None:
        options, share = self.options, self.photos.sampler.share
        self._copies = Copies(self.device)
        self._decoding = None
        if self.on_gpu:
            self._decoding = GpuDecoding(options.decoder, self.photos, self._copies, self.clock)
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
        builder = spdl.PipelineBuilder().add_source(self._batches(range(self.step, self.stop)))
        self._add_stage(builder, "read", options.ahead, self._shared("read", options.readers, self._read))
        if self._decoding is None:
            decode = self._shared("decode", options.decoding_threads(_MOST_DECODERS), self._decode)
            self._add_stage(builder, "decode", options.ahead, decode)
        else:
            self.clock.declare("decode")
        self.clock.declare("staging")
        self._add_stage(builder, "staging", 1, self._stage)
        builder.add_sink(options.ahead)
        return builder.build(num_threads=1, use_thread_output_queue=True, task_hook_factory=lambda _: [])

    def _add_stage(self, builder: Any, name: str, batches: int, work: Callable[[Any], Any]) -> None:
        """Add a stage for a number of concurrent batches, with its own threads: SPDL alone would start more."""
        builder.pipe(work, concurrency=batches, executor=self._executor(name, batches), output_order="input", name=name)

    def _executor(self, name: str, threads: int) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._executors.append(executor)
        return executor

    def _batches(self, steps: range) -> Iterator[_Work]:
        self._begun.set()
        for step in steps:
            slot = self._free.get()
            if slot is None or self.closed.is_set():
                return
            numbers = self.photos.numbers(step)
            yield _Work(step, slot, numbers, [None] * len(numbers))

    def _shared(self, stage: str, threads: int, do: Callable[[_Work, range], None]) -> Callable[[_Work], _Work]:
        """Split a stage's work on a batch: each of its threads takes some rows."""
        self.clock.declare(stage, threads)
        executor, most = self._executor(f"{stage}-rows", threads), self.photos.sampler.share
        part = max(1, min(_PART, -(-most // threads)))

        def some(work: _Work, rows: range) -> None:
            if work.error is None and not self.closed.is_set():
                with self.clock.stage(stage, len(rows)):
                    do(work, rows)

        def whole(work: _Work) -> _Work:
            count = len(work.numbers)
            try:
                parts = [range(begin, min(begin + part, count)) for begin in range(0, count, part)]
                running = [executor.submit(some, work, rows) for rows in parts]
                errors = [error for future in running if (error := future.exception()) is not None]
            except (RuntimeError, CancelledError) as error:  # the loader was closed
                errors = [error]  # type: ignore[list-item]
            if errors and work.error is None:
                work.error = errors[0]  # raised where the batch is asked for
            return work

        return whole

    def _read(self, work: _Work, rows: range) -> None:
        for row in rows:
            work.records[row] = self.photos.data.read(work.numbers[row])

    def _decode(self, work: _Work, rows: range) -> None:
        memory = work.slot.rows()
        for row in rows:
            good, pixels = self.photos.decode(work.step, row, work.records[row])
            memory.put(row, good.key, pixels, good.boxes)

    def _stage(self, work: _Work) -> tuple[Slot, Staged] | Exception:
        if work.error is not None:
            return work.error
        pixels = None
        try:
            if self._decoding is not None:
                pixels = self._decoding.decode(work.step, work.records, work.slot)
            with self.clock.stage("staging", len(work.numbers)):
                return work.slot, self._copies.send(work.step, work.slot, pixels)
        except Exception as error:
            return error

    @override
    def _take(self, step: int) -> Batch:
        try:
            item = self._pipeline.get_item()
        except EOFError:
            raise ExecutionError(
                f"the loader ended before step {step}.\nDo: look for the error before this one"
            ) from None
        if isinstance(item, Exception):
            raise item
        slot, staged = item
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
        """End the threads when Python's main thread ends, if nobody closed the loader."""
        while not self.closed.wait(0.2):
            if not threading.main_thread().is_alive():
                self.close()


class GpuStagedLoader(StagedLoader):
    """`StagedLoader` with photos decoded on the GPU."""

    on_gpu = True
