"""How many boxes of a photo, and of a training image, are learned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from training.augment import MAX_BOXES, TILES
from training.data import Records

from .network import ANCHORS

__all__ = ["BoxLimits"]

_SHARE = 0.999  # of the photos, and of the mosaics, all of whose boxes are learned
_MOSAICS = 10_000  # that are drawn to count the boxes of four photos
_BYTES = 40  # of the assignment of a box to a prediction, at its peak


@dataclass(frozen=True)
class BoxLimits:
    """How many boxes are learned; the largest are, where there are more.

    Attributes:
        photo: Of a photo.
        image: Of a training image before it is blended: a photo, or a mosaic of four.
        over: How many photos have more than ``photo``.
        left_out: How many boxes of these photos are never learned.
    """

    photo: int
    image: int
    over: int
    left_out: int

    @classmethod
    def of(cls, data: Records, photo: int = 0) -> BoxLimits:
        """The limits that fit a set: 99.9 % of its photos, and of mosaics of four of them, have no more boxes.

        Args:
            data: The set.
            photo: Boxes of a photo, where they are given; 0: as many as 99.9 % of the photos have.
        """
        counts = np.array([len(data.boxes(number)) for number in range(len(data))])
        photo = photo or max(1, int(np.quantile(counts, _SHARE, method="higher")))
        learned = counts.clip(max=photo)
        mosaics = np.random.default_rng(0).choice(learned, (_MOSAICS, TILES)).sum(1)
        image = max(MAX_BOXES, int(learned.max()), int(np.quantile(mosaics, _SHARE, method="higher")))
        return cls(photo, image, int((counts > photo).sum()), int((counts - learned).sum()))

    def text(self, images: int, size: int) -> str:
        """What is learned, and the memory that it takes.

        Args:
            images: Of a step, on a device at the same time.
            size: Their width and height in pixels.
        """
        predictions = ANCHORS * (size // 32) ** 2
        needed = images * predictions * 2 * self.image * _BYTES  # twice: of an image and of the one blended with it
        text = (
            f"boxes: up to {self.photo:,} of a photo and {self.image:,} of a training image are learned, for which a step needs "
            f"some {math.ceil(needed / 1e6):,} MB"
        )
        if self.over:
            text += f"; {self.over:,} photos have more, and {self.left_out:,} boxes, the smallest, are learned as background: --boxes N"
        return text
