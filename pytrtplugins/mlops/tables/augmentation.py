"""Augment calibration images by mirroring and by shifting a few pixels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["VIEWS", "augmented_copy"]

_MOVES = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))  # down, to the right
_SHARE = 50  # of a side, at least a pixel

VIEWS = 2 * len(_MOVES)
"""How many there are of an image."""


def augmented_copy(image: npt.NDArray[np.uint8], number: int) -> npt.NDArray[np.uint8]:
    """The ``number``-th mirrored or shifted copy of an image.

    Args:
        image: (H, W, C).
        number: 0 is the image itself, and odd ones are mirrored; then follow those that are moved by 2 % of a side to the left, to the
            right, up and down, each as it is and mirrored. What comes in repeats the border.
    """
    down, right = _MOVES[number // 2]
    height, width = image.shape[:2]
    rows = np.clip(np.arange(height) - down * max(1, height // _SHARE), 0, height - 1)
    columns = np.clip(np.arange(width) - right * max(1, width // _SHARE), 0, width - 1)
    copy: npt.NDArray[np.uint8] = image[rows][:, columns[::-1] if number % 2 else columns]
    return copy
