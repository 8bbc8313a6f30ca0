"""TensorRT's messages → Python's logging; errors are kept for exceptions."""

from __future__ import annotations

import functools
import logging
from collections import deque
from typing import Any

from ...errors import UnavailableError
from ..base.failures import shorten_message
from ._api import Api

__all__ = ["Messages", "make", "the_logger"]

_log = logging.getLogger(__name__)
_LEVELS = {
    "INTERNAL_ERROR": logging.ERROR,
    "ERROR": logging.ERROR,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "VERBOSE": logging.DEBUG,
}
_KEPT = 100
_SHOWN = 20


@functools.cache
def the_logger(api: Api) -> Any:
    """The logger of every builder, parser and runtime.

    There is one a process: TensorRT's registry and parser write to the first that it is given, whichever object is at
    work, and hold no reference to it.
    """
    base = api.trt.ILogger

    class Logger(base):  # type: ignore[misc, valid-type]
        """Passes TensorRT's messages on, and keeps the last errors."""

        def __init__(self) -> None:
            base.__init__(self)
            self.count = 0
            self.errors: deque[tuple[int, str]] = deque(maxlen=_KEPT)

        def log(self, severity: Any, msg: str) -> None:
            level = _LEVELS.get(severity.name, logging.INFO)
            if level == logging.ERROR:
                self.count += 1
                self.errors.append((self.count, msg))
            _log.log(level, "TensorRT: %s", msg)

    return Logger()


class Messages:
    """The errors that TensorRT writes from now on.

    TensorRT does not say to what a message belongs: those of another build in the same process are among them.
    """

    def __init__(self, api: Api) -> None:
        self._logger = the_logger(api)
        self._start = self._logger.count

    def text(self) -> str:
        """The last of them, one a line."""
        found = dict.fromkeys(text for number, text in tuple(self._logger.errors) if number > self._start)
        return shorten_message("\n".join([*found][-_SHOWN:])) or "TensorRT gave no reason"


def make(api: Api, name: str, *args: Any) -> Any:
    """One of the objects that TensorRT makes for a logger: ``"Builder"``, ``"OnnxParser"`` or ``"Runtime"``.

    Raises:
        UnavailableError: it cannot be made; the message holds what TensorRT logged.
    """
    messages = Messages(api)
    try:
        return getattr(api.trt, name)(*args, the_logger(api))
    except TypeError as error:  # the bindings' answer to a null pointer
        raise UnavailableError(
            f"{api.name} {api.version} cannot make its {name}: {messages.text()}\n"
            "Causes: (1) the driver is older than this TensorRT's CUDA needs; (2) this TensorRT does not support the GPU.\n"
            "Do: nvidia-smi, and compare driver, CUDA version and GPU with TensorRT's support matrix"
        ) from error
