"""Exceptions of plugins inside OpenVINO, stored for the caller, since OpenVINO turns exceptions into text."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["PluginErrors", "PluginFailedError", "none_dropped", "remembered"]

_KEPT, _KEPT_S = 64, 60.0
_MARK = re.compile(r"\[plugin error (\d+)\]")


class PluginFailedError(Exception):
    """What OpenVINO sees instead of the plugin's own exception; its text carries a number."""


class PluginErrors:
    """Numbered exceptions. The number goes through OpenVINO as text, so each of several threads finds its own.

    OpenVINO swallows some. An exception that nobody has taken for a minute goes when 64 newer ones are there.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._errors: dict[int, tuple[float, BaseException]] = {}

    def keep(self, error: BaseException) -> PluginFailedError:
        """Keep an exception, and give the one to raise in its place."""
        number, now = next(self._numbers), time.monotonic()
        self._errors[number] = (now, error)
        for old, (kept, _) in list(self._errors.items()):  # the oldest first
            if old > number - _KEPT or now - kept < _KEPT_S:
                break
            self._errors.pop(old, None)
        return PluginFailedError(f"[plugin error {number}] {type(error).__name__}: {error}")

    def take(self, text: str) -> BaseException | None:
        """The exception behind OpenVINO's text; None where it came from elsewhere."""
        found = _MARK.search(text)
        return self._errors.pop(int(found[1]), (0.0, None))[1] if found else None


class _Last(threading.local):
    error: BaseException | None = None


_LAST = _Last()


@contextmanager
def remembered() -> Iterator[None]:
    """A block of an operator: what it raises is raised by `none_dropped` too, if OpenVINO does not."""
    try:
        yield
    except BaseException as error:
        _LAST.error = error
        raise


@contextmanager
def none_dropped() -> Iterator[None]:
    """A block in which OpenVINO runs: raise what an operator raised in this thread, if OpenVINO returns all the same.

    OpenVINO 2026.4 does so where it has one thread: a plugin's exception is lost, and the output is what the memory held.
    """
    before, _LAST.error = _LAST.error, None
    try:
        yield
        dropped = _LAST.error
    finally:
        _LAST.error = before
    if dropped is not None:
        raise dropped
