"""Keys of a terminal, as they are pressed."""

from __future__ import annotations

import select
import sys
import time
from types import TracebackType
from typing import Any

__all__ = ["KeyPresses"]


class KeyPresses:
    """Keys that come without Enter, while this is entered; none where standard input is no terminal."""

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

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """The next key; empty where none came in this time."""
        if self._before is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return sys.stdin.read(1) if ready else ""
