"""Fit images into a network's input (letterbox), and map boxes back to the image."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..utils.optional import require
from .image import Image, check_image

__all__ = ["MODES", "Letterboxed", "Placement", "letterbox", "place_image", "resize_darknet", "thin_out"]

Floats = npt.NDArray[np.float32]

Mode = Literal["letterbox", "darknet", "stretch"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""Ways to fit an image into a network's input."""
_UNIT: Floats = (np.arange(256) / 255).astype(np.float32)
_GREY = 0.5
_SMOOTHED_FROM = 32767


@dataclass(frozen=True)
class Placement:
    """The position of an image in a network's input, with the inverse mapping of boxes.

    Fields:
        size: (width, height) of the input, in network pixels.
        original_size: (width, height) of the image, in its own pixels.
        inner: (width, height) of the image in the input.
        corner: The image's upper left corner in the input, (x, y), in network pixels.
        offset: The corner used to map boxes back, (x, y), in network pixels.
    """

    size: tuple[int, int]
    original_size: tuple[int, int]
    inner: tuple[int, int]
    corner: tuple[int, int]
    offset: tuple[float, float]

    @property
    def scale(self) -> tuple[float, float]:
        """Network pixels per image pixel, (x, y)."""
        return self.inner[0] / self.original_size[0], self.inner[1] / self.original_size[1]

    def to_image(self, boxes: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Map boxes of the network's input to the image.

        Args:
            boxes: (B, 4) centre x, centre y, width, height in 0..1 of the network's input.

        Returns:
            (B, 4) x1, y1, x2, y2 in pixels of the image, clipped to it.
        """
        size, scale, offset, largest = self._inverse_mapping
        values = np.asarray(boxes, np.float64).reshape(-1, 4)
        centre = (values[:, :2] * size - offset) / scale
        half = values[:, 2:] * size / scale / 2
        corners: npt.NDArray[np.float64] = np.concatenate([centre - half, centre + half], 1)
        np.maximum(corners, 0, out=corners)
        np.minimum(corners, largest, out=corners)
        return corners

    @functools.cached_property
    def _inverse_mapping(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Size of the input, scale and offset as arrays, and the largest corner of a box."""
        return tuple(
            np.array(pair, np.float64) for pair in (self.size, self.scale, self.offset, 2 * self.original_size)
        )


@dataclass(frozen=True, eq=False)
class Letterboxed:
    """An image fitted into a network's input.

    Fields:
        data: (3, H, W) float32, RGB, 0..1; 0.5 where the image does not reach.
        placement: Where the image stands in it.
    """

    data: Floats
    placement: Placement

    @property
    def scale(self) -> tuple[float, float]:
        """Network pixels per image pixel, (x, y)."""
        return self.placement.scale

    @property
    def offset(self) -> tuple[float, float]:
        """The image's upper left corner in the input, (x, y), in network pixels."""
        return self.placement.offset

    @property
    def original_size(self) -> tuple[int, int]:
        """(width, height) of the image in pixels."""
        return self.placement.original_size

    def to_image(self, boxes: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Map boxes of the network's input to the image; see `Placement.to_image`."""
        return self.placement.to_image(boxes)


def letterbox(image: Image, size: tuple[int, int], mode: str = "letterbox") -> Letterboxed:
    """Fit an image into a network's input.

    Args:
        image: (H, W, 3) uint8, RGB, as :func:`load_image` gives it.
        size: (width, height) of the input in pixels.
        mode: How:

            - ``"letterbox"``: keep the aspect, 0.5 around; OpenCV resizes, with area averages where the image shrinks.
            - ``"darknet"``: the same geometry with darknet's own bilinear rule, equal to its ``letterbox_image`` to the
              bit, and its half-pixel rule for the way back: for comparisons. Slower, and images that shrink a lot alias.
            - ``"stretch"``: fill the whole input, as AlexeyAB's darknet does.

    Raises:
        ImageError: the array is not an image.
        UsageError: the size or the mode make no sense.
    """
    image = check_image(image)
    placement = place_image((image.shape[1], image.shape[0]), size, mode)
    (x, y), (new_width, new_height) = placement.corner, placement.inner
    data = np.full((3, size[1], size[0]), _GREY, np.float32)
    resize: Callable[[Image, int, int], Floats] = resize_darknet if mode == "darknet" else _resize_opencv
    data[:, y : y + new_height, x : x + new_width] = resize(image, new_width, new_height)
    return Letterboxed(data, placement)


def place_image(old: tuple[int, int], size: tuple[int, int], mode: str = "letterbox") -> Placement:
    """Return the position of an image in a network's input; both sizes are (width, height).

    Raises:
        UsageError: the size or the mode make no sense.
    """
    if mode not in MODES:
        raise UsageError(f"letterbox: mode: expected one of {', '.join(MODES)}, found {mode!r}.", mode=mode)
    if len(size) != 2 or min(size) < 1:
        raise UsageError(f"letterbox: size: expected (width, height), both at least 1, found {size}.", size=size)
    width, height = size
    inner = size if mode == "stretch" else _inner_size(old, size)
    x, y = (width - inner[0]) // 2, (height - inner[1]) // 2
    # darknet draws at whole pixels but maps boxes back by halves (correct_region_boxes in its src/region_layer.c)
    exact_corner = ((width - inner[0]) / 2, (height - inner[1]) / 2)
    return Placement(size, old, inner, (x, y), exact_corner if mode == "darknet" else (float(x), float(y)))


def thin_out(image: Image) -> Image:
    """Return every n-th row and column of an image with sides of 2^15 or more, which OpenCV's resize does not accept."""
    height, width = image.shape[:2]
    return image[:: -(-height // _SMOOTHED_FROM), :: -(-width // _SMOOTHED_FROM)]


def resize_darknet(image: Image, width: int, height: int) -> Floats:
    """Resize as darknet does: bilinear, corner pixel to corner pixel, rows first, in float32.

    Returns:
        (3, height, width) float32 in 0..1.

    Source:
        pjreddie/darknet f6afaabc, src/image.c resize_image, whose rounding is kept: the last output column is the last
        input column, while the last output row may miss the share of the row below when its position rounds down.
    """
    old_height, old_width = image.shape[:2]
    left, right, right_share = _corner_weights(old_width, width)
    if old_width == 1 or width == 1:
        left, right, right_share = (
            np.full(width, old_width - 1),
            np.full(width, old_width - 1),
            np.zeros(width, np.float32),
        )
    else:
        left[-1], right[-1], right_share[-1] = old_width - 1, old_width - 1, 0
    top, below, share_below = _corner_weights(old_height, height)
    needed_rows = np.unique(np.concatenate([top, below]))  # the rows that matter, so that huge images stay cheap
    planes = _UNIT[image[needed_rows]].transpose(2, 0, 1)
    resized_rows = (np.float32(1) - right_share) * planes[:, :, left] + right_share * planes[:, :, right]
    upper, lower = np.searchsorted(needed_rows, top), np.searchsorted(needed_rows, below)
    added_share = share_below.copy()
    added_share[-1] = 0
    share_below, added_share = share_below[:, None], added_share[:, None]
    result: Floats = (np.float32(1) - share_below) * resized_rows[:, upper] + added_share * resized_rows[:, lower]
    return result


def _corner_weights(old: int, new: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    """Return first and second source index of each target index, and the weight of the second."""
    step = np.float32(old - 1) / np.float32(new - 1) if new > 1 else np.float32(0)
    position = np.arange(new, dtype=np.float32) * step
    first = np.minimum(position.astype(np.int64), old - 1)
    return first, np.minimum(first + 1, old - 1), position - first.astype(np.float32)


def _resize_opencv(image: Image, width: int, height: int) -> Floats:
    cv2 = require("cv2", extra="vision", package="opencv-python-headless", feature="letterbox")
    image = thin_out(image)
    shrinks = width < image.shape[1] or height < image.shape[0]
    resized = cv2.resize(
        np.ascontiguousarray(image), (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    )
    result: Floats = cv2.LUT(resized, _UNIT).transpose(2, 0, 1)
    return result


def _inner_size(old: tuple[int, int], new: tuple[int, int]) -> tuple[int, int]:
    """Return the size of the image in the input by darknet's rule, at least one pixel each way."""
    (old_width, old_height), (width, height) = old, new
    if np.float32(width) / np.float32(old_width) < np.float32(height) / np.float32(old_height):
        return width, max(1, old_height * width // old_width)
    return max(1, old_width * height // old_height), height
