"""The future of a run on a device: the caller who needs the result waits, and no thread is started."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import RUNNING
from functools import partial
from typing import Any, Generic, TypeVar

from ...utils.forks import fail_future_in_child

__all__ = ["RunFuture"]

Result = TypeVar("Result")


class _Waiters(list[Any]):
    """The waiter list of a future, to which `concurrent.futures.wait` and `as_completed` append; they never ask for the result."""

    __slots__ = ("future",)
    future: RunFuture[Any]

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        self.future.finish_in_thread()


class RunFuture(Future[Result], Generic[Result]):
    """The result of work queued on a device.

    The first thread that calls `result` or `exception` waits for the device. A thread is started only where nobody may ask: for
    a callback, a timeout, `concurrent.futures.wait` or `as_completed`. Until somebody asks, ``done()`` is False. What is queued
    cannot be cancelled.

    Args:
        wait: Waits for the device and gives the result; called once.
    """

    def __init__(self, wait: Callable[[], Result]) -> None:
        super().__init__()
        self._wait: Callable[[], Result] | None = wait
        self._waiting = threading.Lock()
        self._waiters = _Waiters()
        self._waiters.future = self
        self._state = RUNNING  # what `set_running_or_notify_cancel` sets, under a lock that nobody else can hold yet
        fail_future_in_child(self)

    def finish(self) -> None:
        """Wait for the device, where no other thread has done so."""
        if self.done():  # in a child too, where a thread of the parent would hold the lock for ever
            return
        with self._waiting:
            wait, self._wait = self._wait, None
            if wait is None:
                return
            try:
                resolve = partial(self.set_result, wait())
            except BaseException as error:  # an interrupt too is given to whoever asks
                resolve = partial(self.set_exception, error)
        resolve()

    def finish_in_thread(self) -> None:
        """Wait for the device in a new thread, unless another thread already waits."""
        if self._wait is not None:
            threading.Thread(target=self.finish, name="pytrtplugins-run", daemon=True).start()

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the run, and give its result or raise its error."""
        self._ask(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the run, and give its error; None where it went well."""
        self._ask(timeout)
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call a function with this future when the run has ended; in a new thread if nobody asks for the result first."""
        super().add_done_callback(fn)
        self.finish_in_thread()

    def _ask(self, timeout: float | None) -> None:
        if timeout is None:
            self.finish()
        else:
            self.finish_in_thread()
