"""Track objects from frame to frame with ByteTrack, from the library trackers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..utils.optional import require
from .detections import Detections
from .sources import Frame

__all__ = ["Tracker"]

_LOWEST = 0.1  # scores with which a track may go on, though none begins: ByteTrack's
_USUAL_RATE = 30.0


class Tracker:
    """Assign track numbers to the detections of successive frames.

    ByteTrack predicts where each box goes, and matches boxes by their overlap; a box with a low score, such as of an object that
    is half hidden, may continue a track, and begins none. A track has a number from its second frame on.

    Args:
        score_threshold: Scores above it begin tracks.

    Attributes:
        lowest: The lowest score that is of use: the detector is asked for boxes above it.

    Raises:
        MissingExtraError: the library trackers is missing.
    """

    def __init__(self, score_threshold: float = 0.5) -> None:
        library = require("trackers", extra="track", feature="tracking", alone="trackers>=2.6")
        self._make: Any = library.ByteTrackTracker
        self._convert: Any = require("supervision", extra="track", feature="tracking").Detections
        self.score_threshold, self.lowest = score_threshold, min(_LOWEST, score_threshold)
        self._scene: int | None = None
        self._tracker: Any = None
        self._first, self._next = 0, 0

    def update(self, found: Detections, frame: Frame | None = None) -> Detections:
        """Return the detections with track numbers, without those of low scores that continue no track.

        Args:
            found: Of the next frame.
            frame: It tells where a video ends and the next begins, and its rate; None: one scene.
        """
        scene = frame.item if frame is not None and frame.number is not None else -1
        if self._tracker is None or scene != self._scene:
            self._begin_scene(scene, frame.rate if frame is not None else 0.0)
        library_detections = self._convert(
            xyxy=found.boxes_xyxy.astype(np.float32),
            confidence=found.scores.astype(np.float32),
            class_id=found.class_ids.copy(),
            data={"place": np.arange(len(found))},
        )
        tracked = self._tracker.update(library_detections)
        ids = np.full(len(found), -1)
        if len(tracked):
            ids[tracked.data["place"]] = tracked.tracker_id
        tracked_items = []
        for item, number in zip(found, ids.tolist(), strict=True):
            if number >= 0:
                tracked_items.append(replace(item, track_id=self._first + number))
                self._next = max(self._next, self._first + number + 1)
            elif item.score > self.score_threshold:
                tracked_items.append(item)
        return Detections(tracked_items, found.source)

    def _begin_scene(self, scene: int, rate: float) -> None:
        """Drop all tracks; later tracks get new numbers."""
        self._scene, self._first = scene, self._next
        self._tracker = self._make(
            frame_rate=rate or _USUAL_RATE,
            track_activation_threshold=self.score_threshold,
            high_conf_det_threshold=self.score_threshold,
        )
