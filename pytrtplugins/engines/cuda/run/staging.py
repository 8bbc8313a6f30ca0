"""Images on the device, and the numbers that change from run to run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import UnavailableError
from ....vision import Placement, place_image
from ....vision.device_images import DeviceImage
from ....vision.jpeg import empty
from ....vision.kernels import resize_rule
from ....vision.letterbox import thin_out
from ...base.detection import Pixels
from ..device.device import Device
from .upload import Upload

__all__ = ["Staging", "image_memory"]

_UNIT = 16
_LEAST = 1 << 20
_LARGEST = (
    8 << 20
)  # bytes of an image that is decoded into page-locked memory: decoding a larger one takes far longer than a copy

_placed = functools.lru_cache(maxsize=256)(place_image)


def image_memory(device: Device, size: int) -> npt.NDArray[np.uint8]:
    """Memory for an image: page-locked, where there is enough, and used again for images of about the same size."""
    step = 1 << max(12, size.bit_length() - 3)
    try:
        return device.pinned_memory(-(-size // step) * step)[:size] if size <= _LARGEST else empty(size)
    except UnavailableError:
        return empty(size)


class Staging:
    """Memory on the device for a header and images behind it, which kernels read.

    The header: both thresholds (float32), for each image how many boxes are left (int32, 0), and from the next multiple of
    16 bytes on for each image the eight int32 of letterbox.cu. Images begin at multiples of 16 bytes. Since all that changes
    lies in memory, one captured graph serves every run until the memory grows.

    Args:
        device: Where kernels run.
        images: Most images of a run.

    Attributes:
        bytes: All of it, uint8.
        score_threshold: In it: one float32.
        iou_threshold: In it: one float32.
        counts: In it: (images,) int32.
        placements: In it: (images, 8) int32.
    """

    def __init__(self, device: Device, images: int) -> None:
        self._device, self._images = device, images
        self._rows_begin = _rounded(8 + 4 * images)
        self._header, _ = device.mapped_memory(self._rows_begin + 32 * images)
        self._thresholds = self._header[:8].view(np.float32)
        self._rows = self._header[self._rows_begin :].view(np.int32).reshape(images, 8)
        self._written: tuple[Any, ...] = ()
        self._grow(_LEAST)

    def send(
        self,
        images: Sequence[Pixels],
        size: tuple[int, int],
        mode: str,
        score_threshold: float,
        iou_threshold: float,
        stream: Any,
    ) -> tuple[list[Placement], bool]:
        """Queue copies of header and images to the device.

        Args:
            images: Each (H, W, 3) uint8; as many as there is room for, or less. Page-locked ones must not change before the copy is done.
            size: (width, height) of the network's input.
            mode: How images are fitted.
            score_threshold: 0..1.
            iou_threshold: 0..1.
            stream: Where the copies are queued; the last run must be done.

        Returns:
            Where each image will stand, and whether the memory is another than before, for which a graph must be captured.
        """
        placements = [_placed((image.shape[1], image.shape[0]), size, mode) for image in images]
        if mode != "darknet":
            images = [image if isinstance(image, DeviceImage) else thin_out(image) for image in images]
        begins, end = [], len(self._header)
        for image in images:
            begins.append(end)
            end += _rounded(image.size)
        grows = end > len(self.bytes)
        if grows:
            self._grow(end)
        facts = ([image.shape for image in images], placements, mode, score_threshold, iou_threshold)
        if facts != self._written:
            self._thresholds[:] = score_threshold, iou_threshold
            self._rows[len(images) :] = 0
            for row, image, placement, begin in zip(self._rows, images, placements, begins, strict=False):
                place = (*placement.inner, *placement.corner, resize_rule(mode))
                row[:] = (begin // _UNIT, image.shape[1], image.shape[0], *place)
            self._written = facts
        self._device.send(self._header, self.bytes, stream)
        for image, begin in zip(images, begins, strict=True):
            if isinstance(image, DeviceImage):
                image.copy_to(self.bytes[begin : begin + image.size], stream)
            else:
                self._upload.send(image, stream, begin)
        return placements, grows

    def _grow(self, least: int) -> None:
        """Memory of the next power of two."""
        self.bytes: Any = self._device.allocate(1 << (least - 1).bit_length())
        self._upload = Upload(self._device, self.bytes)
        self.score_threshold, self.iou_threshold = (self.bytes[at : at + 4].view(np.float32) for at in (0, 4))
        self.counts = self.bytes[8 : 8 + 4 * self._images].view(np.int32)
        self.placements = self.bytes[self._rows_begin : len(self._header)].view(np.int32).reshape(self._images, 8)


def _rounded(size: int) -> int:
    return -(-size // _UNIT) * _UNIT
