"""What belongs to one thread at a time: kept from others, closed once, with runs that are begun now and finished later."""

from __future__ import annotations

import threading
from abc import ABC
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from ..errors import EngineError

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Self

    from .base import Engine

    Given = ParamSpec("Given")

__all__ = ["Exclusive"]

Result = TypeVar("Result")
Value = TypeVar("Value")


class Exclusive(ABC, Generic[Result]):
    """The state of one thread's runs of an engine. Close it, or use it in a ``with`` block.

    Attributes:
        engine: Whose runs.
        made_by: How another one is made, for messages.
    """

    made_by: ClassVar[str]

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._busy = threading.Lock()
        self._finish: Callable[[], Result] | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    def _close(self) -> None:
        """Release what this holds."""

    def close(self) -> None:
        """Wait for queued runs, for one that was begun and for one in another thread, and release all; more calls do nothing."""
        finish = self._finish
        if finish is not None:
            with suppress(Exception):  # nobody asks for its result any more
                finish()
        if self._executor is not None:
            self._executor.shutdown()
        with self._busy:
            if not self._closed:
                self._closed = True
                self._close()

    def __enter__(self) -> Self:
        """The context itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError(f"{self.engine!r}: the context is closed.\nDo: {self.made_by}")

    def _take(self) -> None:
        """Keep other threads away, until ``_busy`` is released."""
        if not self._busy.acquire(blocking=False):
            raise EngineError(
                f"{self.engine!r}: another thread is running this context, or a run that it began is not finished.\n"
                "Do: make one context per thread."
            )
        if self._closed:
            self._busy.release()
            self._check_open()

    def _started(
        self, begin: Callable[Given, Callable[[], Result]], *args: Given.args, **named: Given.kwargs
    ) -> Callable[[], Result]:
        """Begin a run, keep others away, and give what waits for its result and lets the next one in."""
        self._take()
        try:
            wait = begin(*args, **named)
        except BaseException:
            self._busy.release()
            raise

        def finish() -> Result:
            if self._finish is not finish:
                raise EngineError(
                    f"{self.engine!r}: this run is finished already, or its context was closed.\nDo: begin another"
                )
            try:
                return wait()
            finally:
                self._finish = None
                self._busy.release()

        self._finish = finish
        return finish

    def _submit(self, function: Callable[Given, Value], *args: Given.args, **named: Given.kwargs) -> Future[Value]:
        """Call something in this context's own thread, behind what was submitted before."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"{self.engine.name}-context")
        return self._executor.submit(function, *args, **named)
