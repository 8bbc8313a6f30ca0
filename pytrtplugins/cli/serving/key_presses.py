"""Read single key presses from a terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any

__all__ = ["KeyPresses"]

_MOST_BYTES = 1024


class KeyPresses:
    """Key presses without Enter, inside a ``with`` block; none if standard input is no terminal."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> KeyPresses:
        try:
            import termios
            import tty
        except ImportError:  # Windows
            return self
        try:
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        except (OSError, ValueError, termios.error):  # no terminal, or closed
            self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            import termios

            with suppress(OSError, termios.error):  # the terminal is gone
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Wait for keys; gives those that were pressed until then, none where none came in this time.

        Raises:
            EOFError: the terminal is gone.
        """
        if self._before is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if not ready:
            return ""
        keys = b""
        with suppress(OSError):  # as Linux says where the terminal is gone
            keys = os.read(sys.stdin.fileno(), _MOST_BYTES)  # `sys.stdin` would keep keys that `select` does not see
        if not keys:
            raise EOFError
        return keys.decode("utf-8", "replace")
