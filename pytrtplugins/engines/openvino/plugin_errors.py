"""Exceptions of plugins inside OpenVINO, stored for the caller, since OpenVINO turns exceptions into text."""

from __future__ import annotations

import itertools
import re
import time

__all__ = ["PluginErrors", "PluginFailedError"]

_KEPT, _KEPT_S = 64, 60.0
_MARK = re.compile(r"\[plugin error (\d+)\]")


class PluginFailedError(Exception):
    """The exception that OpenVINO gets instead of the plugin's own; its text carries a number."""


class PluginErrors:
    """Stores exceptions by number. The number passes through OpenVINO as text, so that each thread finds its own.

    OpenVINO swallows some. An exception that nobody has taken for a minute goes when 64 newer ones are there.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._errors: dict[int, tuple[float, BaseException]] = {}

    def keep(self, error: BaseException) -> PluginFailedError:
        """Store an exception, and return the one to raise instead."""
        number, now = next(self._numbers), time.monotonic()
        self._errors[number] = (now, error)
        for old, (stored_at, _) in list(self._errors.items()):  # the oldest first
            if old > number - _KEPT or now - stored_at < _KEPT_S:
                break
            self._errors.pop(old, None)
        return PluginFailedError(f"[plugin error {number}] {type(error).__name__}: {error}")

    def take(self, text: str) -> BaseException | None:
        """The exception that OpenVINO's text refers to; None if it has another origin."""
        match = _MARK.search(text)
        return self._errors.pop(int(match[1]), (0.0, None))[1] if match else None
