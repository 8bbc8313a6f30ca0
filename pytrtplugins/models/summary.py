"""The summary at the end of a run on many images."""

from __future__ import annotations

import time
from array import array

import numpy as np

from ..engines.base.detection import Timings
from ..utils.listing import count_text
from ..vision import Detections

__all__ = ["Summary"]


class Summary:
    """Counts of images and detections, and times of a run, from the creation of the object.

    Attributes:
        images: Number of images.
        detections: Number of detections on all images.

    Example:
        >>> str(Summary())
        'no images'
    """

    def __init__(self) -> None:
        self.images = self.detections = 0
        self._times, self._started = array("d"), time.perf_counter()

    def add(self, found: Detections, timings: Timings) -> None:
        """Add an image with its detections and times."""
        self.images += 1
        self.detections += len(found)
        self._times.append(timings.total_ms)

    def __str__(self) -> str:
        """Return images, detections, images a second from files to results, and the times of a run, as text."""
        if not self.images:
            return "no images"
        seconds = time.perf_counter() - self._started
        median, p99 = np.percentile(self._times, [50, 99])
        return (
            f"{count_text(self.images, 'image')}, {count_text(self.detections, 'detection')}: "
            f"{self.images / seconds:.1f} images/s; a run: median {median:.1f} ms, p99 {p99:.1f} ms"
        )
