"""Batch worker: takes requests from the queue, joins them, calls `Model.predict`. Has its own thread unless threaded=False."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from ...errors import PytrtpluginsError, RequestError
from ..model.model import Arrays, Model
from ..model.tensors import as_strings, is_datatype
from .queue import BatchQueue, Deliver, QueuedRequest

__all__ = ["Batcher", "client_error"]

_log = logging.getLogger(__name__)
_NAME_BYTES = 65_535  # of an output
_IN_FLIGHT = 2  # runs that a model whose `predict` gives futures may have begun


class Batcher:
    """Takes batches from a queue, calls `Model.predict`, and finishes the requests, in its own thread.

    Args:
        model: Loaded; one thread alone calls its `predict`.
        queue: Where requests wait.
        deliver: Takes requests that are done, with outputs or an error.
        lost: Called where the model is not usable any more; it need not return. None: its requests get errors.
        begin: Takes requests that are about to be computed.
        joined: Whether requests of a model that is `Model.stacked` are joined along their first axis. If not, the queue gives them one by
            one, and a request gets what `predict` gives.
        threaded: Whether there is such a thread. If not, who puts requests into the queue calls `compute`.

    Attributes:
        began: When the oldest run that is not done began (`time.monotonic`); 0: none.
    """

    def __init__(
        self,
        model: Model,
        queue: BatchQueue,
        deliver: Deliver,
        lost: Callable[[], object] | None = None,
        begin: Deliver | None = None,
        *,
        joined: bool = True,
        threaded: bool = True,
    ) -> None:
        self.model, self.queue, self.deliver, self._lost, self._taken = model, queue, deliver, lost, begin
        self._joins = model.stacked and joined
        self.began = 0.0
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name=f"batcher-{type(model).__name__}", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._thread is not None:
            self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether its thread was started and has ended."""
        return self._thread is not None and not self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until all that waited in the closed queue is answered; whether it is."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return self.ended
        return self.queue.wait_until_idle(timeout_s)

    def compute(self) -> None:
        """Compute all queued requests in this thread."""
        begun: deque[tuple[list[QueuedRequest], Future[Any], float]] = deque()
        while self.queue:
            if (batch := self.queue.take(block=False)) is not None:
                self._turn(*batch, begun)
            while begun:
                self._end(*begun.popleft())
        self.began = 0.0

    def _run(self) -> None:
        begun: deque[tuple[list[QueuedRequest], Future[Any], float]] = deque()
        while (batch := self.queue.take(block=not begun)) is not None:
            self._turn(*batch, begun)
            if begun and (not batch[0] or len(begun) >= _IN_FLIGHT):
                self._end(*begun.popleft())
            self.began = begun[0][2] if begun else 0.0
        while begun:
            self.began = begun[0][2]
            self._end(*begun.popleft())
        self.began = 0.0

    def _turn(
        self,
        batch: list[QueuedRequest],
        late: list[QueuedRequest],
        begun: deque[tuple[list[QueuedRequest], Future[Any], float]],
    ) -> None:
        if late:
            for item in late:
                item.error = RequestError(
                    "Request timeout expired: the deadline had passed before the request could be computed", status=504
                )
            self.deliver(late)
        if batch:
            self._begin(batch, begun)

    def _begin(self, batch: list[QueuedRequest], begun: deque[tuple[list[QueuedRequest], Future[Any], float]]) -> None:
        started = time.monotonic()
        self.began = begun[0][2] if begun else started
        if self._taken is not None:
            self._taken(batch)
        try:
            predicted = self.model.predict(self._joined(batch))
            if isinstance(predicted, Future):
                begun.append((batch, predicted, started))
                return
            self._part(batch, predicted)
        except (Exception, SystemExit) as error:  # whatever the user's model does
            self._failed(batch, error)
        self._done(batch, started)

    def _end(self, batch: list[QueuedRequest], future: Future[Any], started: float) -> None:
        try:
            self._part(batch, future.result())
        except (Exception, SystemExit) as error:  # whatever the user's model does
            self._failed(batch, error)
        self._done(batch, started)

    def _done(self, batch: list[QueuedRequest], started: float) -> None:
        self.queue.done()
        seconds, rows = time.monotonic() - started, sum(item.rows for item in batch)
        for item in batch:
            item.computed_s, item.batch_rows = seconds, rows
        batch[0].leads = True
        self.deliver(batch)

    def _failed(self, batch: list[QueuedRequest], error: BaseException) -> None:
        """Run the requests of a failed batch one by one, so that one cannot make others fail."""
        if self._lost is not None and not self.model.usable():
            _log.error("%s cannot compute any more: %s", type(self.model).__name__, error)
            self._lost()
        if len(batch) == 1:
            batch[0].error = client_error(self.model, "predict", error)
            return
        for item in batch:
            self.began = time.monotonic()
            try:
                predicted = self.model.predict(self._joined([item]))
                self._part([item], predicted.result() if isinstance(predicted, Future) else predicted)
            except (Exception, SystemExit) as alone:  # whatever the user's model does
                item.error = client_error(self.model, "predict", alone)

    def _joined(self, batch: list[QueuedRequest]) -> Arrays | list[Arrays]:
        if not self.model.stacked:
            return [item.arrays for item in batch]
        missing = self._padding(batch)
        if len(batch) == 1 and not missing:
            return batch[0].arrays
        joined = {}
        for name, first in batch[0].arrays.items():
            parts = [item.arrays[name] for item in batch]
            if missing:
                nothing = b"" if first.dtype.kind == "O" else 0
                parts.append(np.full((missing, *first.shape[1:]), nothing, first.dtype))
            joined[name] = np.concatenate(parts)
        return joined

    def _padding(self, batch: list[QueuedRequest]) -> int:
        """The number of rows to add, so that a batch has one of the engine's sizes."""
        rows = sum(item.rows for item in batch)
        return next((size - rows for size in self.queue.sizes if size >= rows), 0) if self._joins else 0

    def _part(self, batch: list[QueuedRequest], predicted: Any) -> None:
        """Split a batch's outputs among its requests."""
        if not self.model.stacked:
            if not isinstance(predicted, Sequence) or len(predicted) != len(batch):
                raise _bad_output_error(self.model, f"a list of {len(batch)}, as many as it was given", predicted)
            for item, outputs in zip(batch, predicted, strict=True):
                item.outputs = self._checked(outputs)
            return
        outputs = self._checked(predicted)
        missing = self._padding(batch)
        rows = sum(item.rows for item in batch) + missing
        for name, array in outputs.items() if self._joins else ():
            if not array.ndim or len(array) != rows:
                raise _bad_output_error(self.model, f"{rows} rows of {name!r}, as many as it was given", array)
        if len(batch) == 1 and not missing:
            batch[0].outputs = outputs
            return
        start = 0
        for item in batch:
            end = start + item.rows
            item.outputs = {name: array[start:end] for name, array in outputs.items()}
            start = end

    def _checked(self, outputs: Any) -> Arrays:
        if not isinstance(outputs, dict):
            raise _bad_output_error(self.model, "arrays by name", outputs)
        arrays: Arrays = {}
        for name, value in outputs.items():
            array = value if type(value) is np.ndarray else np.asarray(value)
            array = as_strings(array) if array.dtype.kind in "OSU" else array
            if not _is_name(name):
                raise _bad_output_error(self.model, f"names of outputs as text, {_NAME_BYTES:,} bytes at most", name)
            if not is_datatype(array.dtype):
                expected = f"a type of the Open Inference Protocol for {name!r}, such as float32,"
                raise RequestError(
                    f"{type(self.model).__name__}.predict: expected {expected} found {array.dtype}", status=500
                )
            arrays[name] = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return arrays


def client_error(model: Model, method: str, error: BaseException) -> RequestError:
    """The client's error for an exception in a user's method; the log gets the traceback's place."""
    if isinstance(error, RequestError):
        return error
    frame = next(
        (
            frame
            for frame in reversed(traceback.extract_tb(error.__traceback__))
            if "/pytrtplugins/" not in frame.filename
        ),
        None,
    )
    name, place = type(model).__name__, f" ({frame.filename}, line {frame.lineno})" if frame else ""
    text = f"{name}.{method}: {type(error).__name__}: {error}"
    if method == "preprocess" and isinstance(error, PytrtpluginsError):  # such as an image that cannot be decoded
        return RequestError(str(error).partition("\nDo:")[0], status=400)
    _log.error("%s%s", text, place)
    _log.debug("%s", "".join(traceback.format_exception(error)))
    return RequestError(text.partition("\n")[0], status=500)


def _is_name(name: object) -> bool:
    """Whether answers and messages between processes can have this name of an output."""
    if not isinstance(name, str):
        return False
    try:
        return len(name.encode()) <= _NAME_BYTES
    except UnicodeEncodeError:
        return False


def _bad_output_error(model: Model, expected: str, result: object) -> RequestError:
    shown = f"an array of {result.shape}" if isinstance(result, np.ndarray) else type(result).__name__
    return RequestError(f"{type(model).__name__}.predict: expected {expected}, found {shown}", status=500)
