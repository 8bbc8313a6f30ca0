"""A window that shows frames, where OpenCV has windows."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from ..errors import MissingExtraError, UsageError
from ..utils.optional import require
from .image import Image

__all__ = ["Window"]

_TITLE = "pytrt"
_ENDING = (ord("q"), 27)  # and Esc


class Window:
    """A window that shows frames.

    Args:
        wait: Wait for a key after each frame.

    Attributes:
        stopped: Whether the user has pressed q or Esc, or closed the window.

    Raises:
        MissingExtraError: this OpenCV has no windows.
        UsageError: there is no display.
    """

    def __init__(self, wait: bool = False) -> None:
        self._cv2: Any = require("cv2", extra="vision", package="opencv-python", feature="showing frames")
        if not _has_windows(self._cv2):
            raise MissingExtraError(
                f"showing frames needs OpenCV with windows; this is opencv-python-headless {self._cv2.__version__}, which has none.\n"
                'Do: pip uninstall -y opencv-python-headless && pip install "opencv-python>=4.11,<6"',
                package="opencv-python",
                extra="",
            )
        if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise UsageError(
                "showing frames needs a display: neither DISPLAY nor WAYLAND_DISPLAY is set.\nDo: --output FILE writes them instead"
            )
        self._wait = wait
        self.stopped = False

    def show(self, image: Image, title: str) -> None:
        """Show a frame: (H, W, 3) uint8, RGB."""
        cv2 = self._cv2
        cv2.namedWindow(_TITLE, cv2.WINDOW_NORMAL | cv2.WINDOW_KEEPRATIO)
        cv2.setWindowTitle(_TITLE, title)
        cv2.imshow(_TITLE, np.ascontiguousarray(image[:, :, ::-1]))
        key = cv2.waitKey(0 if self._wait else 1)
        closed = cv2.getWindowProperty(_TITLE, cv2.WND_PROP_VISIBLE) < 1
        self.stopped = self.stopped or closed or (key & 0xFF in _ENDING and key >= 0)

    def close(self) -> None:
        """Close the window."""
        self._cv2.destroyAllWindows()


def _has_windows(cv2: Any) -> bool:
    lines = [
        line.split(":", 1)[1] for line in cv2.getBuildInformation().splitlines() if line.strip().startswith("GUI:")
    ]
    return not any(line.strip() in ("NONE", "NO") for line in lines)
