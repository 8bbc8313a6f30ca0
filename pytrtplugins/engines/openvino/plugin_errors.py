"""Exceptions of plugins inside OpenVINO, stored for the caller, since OpenVINO turns exceptions into text."""

from __future__ import annotations

import itertools
import re
import time

__all__ = ["PluginErrors", "PluginFailedError"]

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
