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
    """Images, detections and times of a run, from when it is made.

    Attributes:
        images: How many there were.
        detections: What was found on all of them.

    Example:
        >>> str(Summary())
        'no images'
    """

    def __init__(self) -> None:
        self.images = self.detections = 0
        self._times, self._started = array("d"), time.perf_counter()

    def add(self, found: Detections, timings: Timings) -> None:
        """Count an image, whose run took so long."""
        self.images += 1
        self.detections += len(found)
        self._times.append(timings.total_ms)

    def __str__(self) -> str:
        """Images, detections, images a second from files to results, and the time of a run of the detector."""
        if not self.images:
            return "no images"
        seconds = time.perf_counter() - self._started
        median, late = np.percentile(self._times, [50, 99])
        return (
            f"{count_text(self.images, 'image')}, {count_text(self.detections, 'detection')}: "
            f"{self.images / seconds:.1f} images/s; a run: median {median:.1f} ms, p99 {late:.1f} ms"
        )
