"""Write videos by OpenCV, atomically."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..utils.atomic import atomic_path, check_target
from ..utils.optional import require
from .image import Image

__all__ = ["CODECS", "VideoFile", "check_video_path"]

CODECS = {".mp4": "mp4v", ".avi": "MJPG", ".mkv": "mp4v", ".mov": "mp4v", ".m4v": "mp4v", ".webm": "VP80"}
"""Suffixes of videos that can be written, with the codec, which every build of OpenCV's package has."""


def check_video_path(path: str | Path) -> Path:
    """Check that a video can be written to a path, and return the path.

    Raises:
        UsageError: the suffix is unknown, the folder does not exist, or this OpenCV cannot write such a file.
    """
    path = check_target(path, "video", CODECS)
    if not _can_write(path.suffix.lower()):
        raise UsageError(
            f"video {str(path)!r}: this OpenCV cannot write {path.suffix} files.\n"
            "Do: give another suffix, .avi, or pip install opencv-python-headless",
            path=path,
        )
    return path


class VideoFile:
    """Writer of a video. The file gets its name when it is closed.

    Args:
        path: Where it goes; its suffix chooses the format.
        size: (width, height) of the frames; others are resized to it.
        rate: Frames a second.

    Raises:
        UsageError: OpenCV cannot write it.
    """

    def __init__(self, path: Path, size: tuple[int, int], rate: float) -> None:
        self.path, self.size = path, size
        self._cv2: Any = require("cv2", extra="vision", package="opencv-python-headless", feature="writing videos")
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(atomic_path(path))
            self._writer = _open_writer(self._cv2, temporary, size, rate)
            if not self._writer.isOpened():
                raise UsageError(f"video {str(path)!r}: OpenCV cannot write it ({size[0]}x{size[1]}).", path=path)
            self._file = stack.pop_all()

    def write(self, image: Image) -> None:
        """Add a frame: (H, W, 3) uint8, RGB."""
        frame = np.ascontiguousarray(image[:, :, ::-1])
        if (image.shape[1], image.shape[0]) != self.size:
            frame = self._cv2.resize(frame, self.size)
        self._writer.write(frame)

    def close(self) -> None:
        """Finish the file."""
        self._writer.release()
        self._file.close()


@functools.cache
def _can_write(suffix: str) -> bool:
    cv2: Any = require("cv2", extra="vision", package="opencv-python-headless", feature="writing videos")
    with tempfile.TemporaryDirectory() as folder:
        writer = _open_writer(cv2, Path(folder) / f"video{suffix}", (64, 48), 25.0)
        is_open = bool(writer.isOpened())
        writer.release()
    return is_open


def _open_writer(cv2: Any, path: Path, size: tuple[int, int], rate: float) -> Any:
    return cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*CODECS[path.suffix.lower()]), rate, size)
