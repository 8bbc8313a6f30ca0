"""The queue of a model, which forms batches of requests."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import RequestError
from ..model.model import Arrays
from ..model.registered import Source

__all__ = ["BatchQueue", "QueuedRequest"]


class QueuedRequest:
    """A request on its way to a model and back.

    Args:
        arrays: Inputs by name.
        rows: How much of a batch it takes.
        key: Requests with equal keys fit into one batch.
        priority: Lower numbers go first.
        deadline: Time (`time.monotonic`) after which it is answered without being computed; None: never.
        token: The host's own, such as what is called once it is done.

    Attributes:
        outputs: By name, once it is done.
        error: Instead of outputs.
        queued_s: Seconds in the queue.
        computed_s: Seconds that its batch took; 0 if it was not computed.
        batch_rows: Rows of its batch.
        leads: Whether it is the first of its batch, so that batches can be counted.
        source: The version of a registry that computed it; None: it is of none.
    """

    __slots__ = (
        "arrays",
        "arrived",
        "batch_rows",
        "computed_s",
        "deadline",
        "error",
        "key",
        "leads",
        "outputs",
        "priority",
        "queued_s",
        "rows",
        "source",
        "token",
    )

    def __init__(
        self,
        arrays: Arrays,
        rows: int,
        key: object = None,
        priority: int = 0,
        deadline: float | None = None,
        token: Any = None,
    ) -> None:
        self.arrays, self.rows, self.key, self.priority, self.deadline, self.token = (
            arrays,
            rows,
            key,
            priority,
            deadline,
            token,
        )
        self.arrived = time.monotonic()
        self.outputs: Arrays = {}
        self.error: Exception | None = None
        self.source: Source | None = None
        self.queued_s, self.computed_s, self.batch_rows, self.leads = 0.0, 0.0, 0, False


class BatchQueue:
    """A bounded queue of requests, from which one or several threads take batches.

    Args:
        max_batch: Most rows of a batch.
        sizes: Batches that the engine has; empty: any.
        max_delay_s: How long the first request of a batch that is not full may wait while another batch is computed.
        capacity: Most requests that wait.
        watch: Takes the number of waiting requests whenever it changes.
        model: Name of the model, for errors.
    """

    def __init__(
        self,
        max_batch: int,
        sizes: Sequence[int] = (),
        max_delay_s: float = 0.002,
        capacity: int = 256,
        watch: Callable[[int], object] | None = None,
        model: str = "",
    ) -> None:
        self._model = model
        self.max_batch, self.max_delay_s, self.capacity = max_batch, max_delay_s, capacity
        self.sizes = tuple(sorted(size for size in sizes if size <= max_batch))
        self._groups: dict[object, list[tuple[int, int, QueuedRequest]]] = {}
        self._rows: dict[object, int] = {}
        self._waiting = self._arrivals = self._running = self._takers = 0
        self._closed = False
        self._watch = watch or _ignore
        lock = threading.Lock()
        self._changed, self._idle = threading.Condition(lock), threading.Condition(lock)

    def __len__(self) -> int:
        return self._waiting

    def put(self, item: QueuedRequest, *, wake: bool = True) -> None:
        """Add a request to the queue, and wake a thread that waits for it; without ``wake``, `wake` must follow.

        Raises:
            RequestError: the queue is full or closed (503), or the request is larger than a batch (400).
        """
        if item.rows > self.max_batch:
            raise RequestError(
                f"inference request batch-size must be <= {self.max_batch} for {self._model!r}: the request has {item.rows} rows. "
                "The server's --max-batch allows more.",
                status=400,
            )
        with self._changed:
            if self._closed:
                raise RequestError("the model is being unloaded", status=503, retry_after=1)
            if self._waiting >= self.capacity:
                raise RequestError(
                    f"Exceeds maximum queue size: {self._waiting} requests wait already", status=503, retry_after=1
                )
            self._arrivals += 1
            group = self._groups.get(item.key)
            if group is None:
                group = self._groups[item.key] = []
                self._rows[item.key] = 0
            heapq.heappush(group, (item.priority, self._arrivals, item))
            self._rows[item.key] += item.rows
            self._waiting += 1
            self._watch(self._waiting)
            if wake and self._takers:
                self._changed.notify()

    def wake(self) -> None:
        """Wake threads that wait for requests, as many as there are requests."""
        with self._changed:
            if self._waiting and self._takers:
                self._changed.notify(self._waiting)

    def take(self, *, block: bool = True) -> tuple[list[QueuedRequest], list[QueuedRequest]] | None:
        """The next batch, and requests whose deadline has passed; `done` must follow for a batch that is not empty.

        Where nothing is computed, what waits is given at once. Otherwise a batch that is not full waits for more, or until the other one
        is done, but not longer than the delay.

        Args:
            block: Wait until there is something; else both lists may be empty.

        Returns:
            None once the queue is closed and empty.
        """
        with self._changed:
            while True:
                if not self._waiting:
                    if self._closed:
                        return None
                    if not block:
                        return [], []
                    self._wait()
                    continue
                key, group = self._first()
                if self._running and self._rows[key] < self.max_batch and not self._closed:
                    left = min(item.arrived for _, _, item in group) + self.max_delay_s - time.monotonic()
                    if left > 0:
                        self._wait(left)
                        continue
                return self._pop(key, group)

    def done(self) -> None:
        """Report that a batch is finished."""
        with self._changed:
            self._running -= 1
            self._changed.notify()
            self._check_idle()

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing waits and nothing is computed; whether that is so."""
        with self._idle:
            return self._idle.wait_for(lambda: not (self._waiting or self._running), timeout_s)

    def close(self) -> None:
        """Accept no more requests; queued ones are still taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, seconds: float | None = None) -> None:
        self._takers += 1
        self._changed.wait(seconds)
        self._takers -= 1

    def _first(self) -> tuple[object, list[tuple[int, int, QueuedRequest]]]:
        """The group of compatible requests whose first request is due first."""
        if len(self._groups) == 1:
            return next(iter(self._groups.items()))
        return min(self._groups.items(), key=lambda entry: entry[1][0][:2])

    def _pop(
        self, key: object, group: list[tuple[int, int, QueuedRequest]]
    ) -> tuple[list[QueuedRequest], list[QueuedRequest]]:
        now, waiting = time.monotonic(), self._rows[key]
        limit = self.max_batch
        if self.sizes:  # the largest that is filled; what is left over makes the next batch
            limit = max((size for size in self.sizes if size <= waiting), default=self.sizes[0])
        batch: list[QueuedRequest] = []
        late: list[QueuedRequest] = []
        rows = 0
        while group:
            item = group[0][2]
            if item.deadline is not None and now > item.deadline:
                late.append(heapq.heappop(group)[2])
                waiting -= item.rows
                continue
            if batch and rows + item.rows > limit:
                break
            batch.append(heapq.heappop(group)[2])
            item.queued_s = now - item.arrived
            rows += item.rows
        self._waiting -= len(batch) + len(late)
        self._watch(self._waiting)
        if group:
            self._rows[key] = waiting - rows
        else:
            del self._groups[key], self._rows[key]
        self._running += bool(batch)
        self._check_idle()  # all requests may be late, and `done` does not follow then
        return batch, late

    def _check_idle(self) -> None:
        """Wake those that wait until the queue is idle; they have a condition of their own, since `notify` wakes one thread of its."""
        if not (self._waiting or self._running):
            self._idle.notify_all()


def _ignore(waiting: int) -> None:
    """Do nothing."""


Deliver = Callable[[list[QueuedRequest]], None]
"""Takes requests that are done; called in the thread of a batcher."""
