"""Memory that the host fills and kernels read: photos of any size, and the numbers that change from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...vision import Placement, place_photo
from ...vision.kernels import resize_rule
from ...vision.letterbox import thin_out
from ..detection import Photo
from .device import Device

__all__ = ["Staging"]

_UNIT = 16
_LEAST = 1 << 20


class Staging:
    """A header and photos behind it, in pinned memory and, once it was fetched, in the device's own.

    The header: how many units of 16 bytes are in use (int32), 4 bytes unused, the score's and the overlap's threshold
    (float32); then for each photo the eight int32 of letterbox.cu. Photos begin at multiples of 16 bytes. Since all that
    changes lies in memory, one captured graph serves every run until the memory grows.

    Args:
        device: Where kernels run.
        photos: Most photos of a run.

    Attributes:
        reachable: The pinned memory as kernels see it, uint8.
        fetched: The device's memory, as large.
        places: In it: (photos, 8) int32.
        score_threshold: In it: one float32.
        iou_threshold: In it: one float32.
    """

    def __init__(self, device: Device, photos: int) -> None:
        self._device, self._photos = device, photos
        self._header = _UNIT + 32 * photos
        self._grow(_LEAST)

    def fill(
        self,
        photos: Sequence[Photo],
        size: tuple[int, int],
        mode: str,
        score_threshold: float,
        iou_threshold: float,
    ) -> tuple[list[Placement], bool]:
        """Write the header and the photos.

        Args:
            photos: Each (H, W, 3) uint8; as many as there is room for, or less.
            size: (width, height) of the network's input.
            mode: How photos are fitted.
            score_threshold: 0..1.
            iou_threshold: 0..1.

        Returns:
            Where each photo will stand, and whether the memory is another than before, for which a graph must be captured.
        """
        placements = [place_photo((photo.shape[1], photo.shape[0]), size, mode) for photo in photos]
        if mode != "darknet":
            photos = [thin_out(photo) for photo in photos]
        ends = self._header + np.cumsum([_rounded(photo.size) for photo in photos])
        grows = int(ends[-1]) > len(self._host)
        if grows:
            self._grow(int(ends[-1]))
        self._host[:4].view(np.int32)[0] = ends[-1] // _UNIT
        self._host[8:16].view(np.float32)[:] = score_threshold, iou_threshold
        rows = self._host[_UNIT : self._header].view(np.int32).reshape(-1, 8)
        rows[len(photos) :] = 0
        for row, photo, placement, end in zip(rows, photos, placements, ends.tolist(), strict=False):
            height, width = photo.shape[:2]
            begin = end - _rounded(photo.size)
            row[:] = begin // _UNIT, width, height, *placement.inner, *placement.corner, resize_rule(mode)
            np.copyto(self._host[begin : begin + photo.size].reshape(photo.shape), photo)
        return placements, grows

    def _grow(self, least: int) -> None:
        """Memory of the next power of two."""
        size = 1 << (least - 1).bit_length()
        self._host, self.reachable = self._device.pinned(size)
        self.fetched: Any = self._device.allocate(size)
        self.score_threshold = self.fetched[8:12].view(np.float32)
        self.iou_threshold = self.fetched[12:16].view(np.float32)
        self.places = self.fetched[_UNIT : self._header].view(np.int32).reshape(self._photos, 8)


def _rounded(size: int) -> int:
    return -(-size // _UNIT) * _UNIT
