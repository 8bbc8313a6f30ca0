"""Exceptions of overrides, which TensorRT turns into return codes, stored for the caller of build and run."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["ErrorLog", "collecting", "guarded"]

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
_thread = threading.local()


class ErrorLog:
    """The first exception of the overrides that belong together: one build, one engine or one run."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Keep an exception if it is the first."""
        if self.first is None:
            self.first = error

    def check(self) -> None:
        """Raise the first exception, as it was raised, and forget it."""
        error, self.first = self.first, None
        if error is not None:
            raise error


@contextmanager
def collecting(log: ErrorLog | None = None) -> Iterator[ErrorLog]:
    """Collect the exceptions of overrides that run in this thread, and raise the first at the end of the block.

    It replaces what TensorRT makes of it, such as an exception of its own or None. Plugins made inside keep the log, so that
    their errors in other threads arrive there too.
    """
    log = ErrorLog() if log is None else log
    outer = getattr(_thread, "log", None)
    _thread.log = log
    try:
        yield log
    except Exception:
        log.check()
        raise
    finally:
        _thread.log = outer
    log.check()


def current() -> ErrorLog | None:
    """The log that collects in this thread; None outside `collecting`."""
    return getattr(_thread, "log", None)


def guarded(override: F) -> F:
    """Keep what an override raises, and raise it again for TensorRT to see.

    It goes to the log that collects in this thread, else to the plugin's own, else to the program's log.
    """

    @functools.wraps(override)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return override(self, *args, **named)
        except BaseException as error:
            log = current() or getattr(self, "errors", None)
            if log is None:
                _log.exception("%s.%s failed", type(self).__name__, override.__name__)
            else:
                log.keep(error)
            raise

    return call  # type: ignore[return-value]
