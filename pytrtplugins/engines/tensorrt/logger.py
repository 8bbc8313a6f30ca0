"""TensorRT's messages → Python's logging; errors are kept for exceptions."""

from __future__ import annotations

import functools
import logging
from typing import Any

from ._api import Api

__all__ = ["make_logger"]

_log = logging.getLogger(__name__)
_LEVELS = {
    "INTERNAL_ERROR": logging.ERROR,
    "ERROR": logging.ERROR,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "VERBOSE": logging.DEBUG,
}
_KEPT = 20


@functools.cache
def _logger_class(api: Api) -> type:
    base = api.trt.ILogger

    class Logger(base):  # type: ignore[misc, valid-type]
        """Passes TensorRT's messages on, and keeps the last errors."""

        def __init__(self) -> None:
            base.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            level = _LEVELS.get(severity.name, logging.INFO)
            if level == logging.ERROR:
                self.errors = [*self.errors, msg][-_KEPT:]
            _log.log(level, "TensorRT: %s", msg)

        def text(self) -> str:
            """The errors, one a line."""
            return "\n".join(dict.fromkeys(self.errors)) or "TensorRT gave no reason"

    return Logger


def make_logger(api: Api) -> Any:
    """A logger for a builder or a runtime; keep it as long as they live."""
    return _logger_class(api)()
