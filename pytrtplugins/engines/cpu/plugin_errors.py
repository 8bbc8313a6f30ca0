"""What plugins raise inside OpenVINO, kept for the caller: OpenVINO turns exceptions into text."""

from __future__ import annotations

import itertools
import re

__all__ = ["PluginErrors", "PluginFailedError"]

_KEPT = 64
_MARK = re.compile(r"\[plugin error (\d+)\]")


class PluginFailedError(Exception):
    """What OpenVINO sees instead of the plugin's own exception; its text carries a number."""


class PluginErrors:
    """Numbered exceptions. The number goes through OpenVINO as text, so each of several threads finds its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._errors: dict[int, BaseException] = {}

    def keep(self, error: BaseException) -> PluginFailedError:
        """Keep an exception, and give the one to raise in its place."""
        number = next(self._numbers)
        self._errors[number] = error
        self._errors.pop(number - _KEPT, None)  # one that OpenVINO swallowed
        return PluginFailedError(f"[plugin error {number}] {type(error).__name__}: {error}")

    def take(self, text: str) -> BaseException | None:
        """The exception behind OpenVINO's text; None where it came from elsewhere."""
        found = _MARK.search(text)
        return self._errors.pop(int(found[1]), None) if found else None
