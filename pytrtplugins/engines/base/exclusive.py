"""Objects that one thread uses at a time and that are closed once; runs may be queued now and waited for later."""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ClassVar, Generic, ParamSpec, Self, TypeVar

from ...errors import EngineError
from ...utils.forks import call_after_fork, fail_future_in_child, keep_until_exit
from ...utils.not_copyable import NotCopyable
from .run_future import RunFuture
from .types import OwningEngine

__all__ = ["ActiveRun", "Exclusive"]

Given = ParamSpec("Given")
Result = TypeVar("Result")
Value = TypeVar("Value")

_LONGEST_WAIT = 300.0
_ALL: weakref.WeakSet[Exclusive[Any]] = weakref.WeakSet()


class _Runs(threading.local):
    """Contexts and engines that the calling thread is running, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[object] = []


_RUNS = _Runs()


class ActiveRun:
    """A ``with`` block around the work of a thread for a run.

    Args:
        owner: The context whose run it is; or the engine, where a library calls a plugin and does not say for which context.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        _RUNS.stack.append(self._owner)

    def __exit__(self, *raised: object) -> None:
        _RUNS.stack.pop()


class _Run(ActiveRun):
    """A ``with`` block around a run: excludes other threads, and records that the calling thread is inside it."""

    __slots__ = ()
    _owner: Exclusive[Any]

    def __enter__(self) -> None:
        self._owner._take()
        super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__()
        self._owner._busy.release()


class Exclusive(NotCopyable, ABC, Generic[Result]):
    """The state of one thread's runs of an engine. Close it, or use it in a ``with`` block.

    Attributes:
        engine: The engine of the runs.
        made_by: The call that makes another one, for messages.
    """

    made_by: ClassVar[str]
    instead: ClassVar[str] = "make another context where it is needed: engine.create_context()"

    def __init__(self, engine: OwningEngine) -> None:
        self.engine = engine
        self._busy = threading.Lock()
        self._pending: RunFuture[Result] | None = None
        self._order = threading.RLock()  # of runs that are queued on a device; a callback of one may queue another
        self._starting = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._queued: set[Future[Any]] = set()
        self._worker = 0
        self._holds = True  # what `_close` releases; a child process whose GPU is the parent's holds nothing
        self._closed = False
        _ALL.add(self)

    def _close(self) -> None:
        """Release the object's resources."""

    def close(self, timeout: float = _LONGEST_WAIT) -> None:
        """Wait for queued runs and for one in another thread, and release all; more calls do nothing.

        Inside a run, as in a plugin's `compute`, and in a callback of a run's future it does not wait, since what it would wait
        for may wait for it.

        Raises:
            EngineError: there is something to wait for where it does not wait, or the time is over; the context stays open.
        """
        if self._closed:
            return
        inside = bool(_RUNS.stack)
        if inside or threading.get_ident() == self._worker:
            if self._queued or self._pending is not None:
                raise self._unclosed_reason(inside)
            timeout = 0
        deadline = time.monotonic() + timeout
        if wait(list(self._queued), timeout).not_done:
            raise self._waited_for_long(timeout)
        if not self._order.acquire(timeout=max(0, deadline - time.monotonic())):  # a run is just being queued
            raise self._waited_for_long(timeout) if timeout else self._unclosed_reason(inside)
        try:
            pending = self._pending
            if pending is not None:
                pending.finish()  # its result stays in the future
            if not self._busy.acquire(timeout=max(0, deadline - time.monotonic())):
                raise self._waited_for_long(timeout) if timeout else self._unclosed_reason(inside)
            try:
                if not self._closed:
                    self._closed = True
                    if self._holds:
                        self._close()
            finally:
                self._busy.release()
        finally:
            self._order.release()
        with self._starting:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=threading.get_ident() != self._worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError(f"{self.engine!r}: the context is closed.\nDo: {self.made_by}")

    def _running(self) -> _Run:
        """A ``with`` block around one run."""
        return _Run(self)

    def _take(self) -> None:
        """Keep other threads away, until ``_busy`` is released."""
        self._check_caller()
        if not self._busy.acquire(False):  # by its name it takes twice as long
            self._check_open()
            raise EngineError(
                f"{self.engine!r}: another thread is running this context, or a run that it queued is not finished.\n"
                "Do: make one context per thread."
            )
        if self._closed:
            self._busy.release()
            self._check_open()

    def _check_caller(self) -> None:
        """Refuse a run in a forked process without a device, and one inside a run that would deadlock."""
        self.engine.check_process()
        around = _RUNS.stack
        if not around:
            return
        if self in around:
            raise EngineError(
                f"{self.engine!r}: a run was begun from inside a run of the same context, such as from a plugin's compute.\n"
                f"Do: {self.made_by}, and run that"
            )
        if not self.engine.nests and self.engine in around:
            raise EngineError(
                f"{self.engine!r}: a run was begun from inside a run of the same engine, such as from a plugin's compute; with"
                f" engine {self.engine.name!r} it would deadlock.\n"
                "Do: build another engine for it"
            )

    def _unclosed_reason(self, inside: bool) -> EngineError:
        """Why `close` has no effect where it must not wait."""
        if self in _RUNS.stack:
            where = "from inside a run of this context, such as from a plugin's compute"
        else:
            place = "inside a run, such as from a plugin's compute" if inside else "a callback of a run"
            where = f"from {place}, and this context has runs that are not finished"
        return EngineError(
            f"{self.engine!r}: close() was called {where}: it would wait for ever.\nDo: close it when its runs have ended"
        )

    def _waited_for_long(self, timeout: float) -> EngineError:
        return EngineError(
            f"{self.engine!r}: close() has waited {timeout:g} seconds for a run in another thread.\n"
            "Causes: (1) the run takes longer; (2) the run waits for the thread that closes.\n"
            "Do: close the context when the run has ended, or with a longer timeout",
            timeout=timeout,
        )

    def _know_worker(self) -> None:
        self._worker = threading.get_ident()

    def _leave_parent(self) -> None:
        """In a forked child: drop the parent's runs and threads, which do not exist here."""
        self._holds = getattr(self.engine, "survives_fork", True)
        if not self._holds:
            keep_until_exit(self)
        if self._pending is not None or (self._busy.locked() and self not in _RUNS.stack):
            self._closed = True
        self._pending, self._executor, self._worker = None, None, 0
        self._queued, self._starting, self._order = set(), threading.Lock(), threading.RLock()

    def _start(
        self, begin: Callable[Given, Callable[[], Result]], *args: Given.args, **named: Given.kwargs
    ) -> Future[Result]:
        """Queue a run on a device in this thread, when the one before is finished; other threads are kept away until it ends.

        ``begin`` queues the work, and gives what waits for its result.
        """
        with self._order:
            while (pending := self._pending) is not None:
                pending.finish()
            self._take()
            try:
                with ActiveRun(self):
                    wait = begin(*args, **named)
            except BaseException:
                self._busy.release()
                raise
            self._pending = future = RunFuture(lambda: self._wait_for_run(wait))
        return future

    def _wait_for_run(self, wait: Callable[[], Result]) -> Result:
        """Wait for the result of the current run, and admit the next one."""
        try:
            return wait()
        finally:
            self._pending = None
            self._busy.release()

    def _submit(self, function: Callable[Given, Value], *args: Given.args, **named: Given.kwargs) -> Future[Value]:
        """Call a function in this context's own thread, after earlier submissions."""
        with self._starting:
            self._check_open()
            if self._executor is None:
                name = f"{self.engine.name}-context"
                self._executor = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=self._know_worker)
            future = self._executor.submit(function, *args, **named)
            self._queued.add(future)
        fail_future_in_child(future)
        future.add_done_callback(self._queued.discard)
        return future


def _leave_parents() -> None:
    """In a forked child: leave the parent's state in all contexts."""
    for context in list(_ALL):
        context._leave_parent()


call_after_fork(_leave_parents)
