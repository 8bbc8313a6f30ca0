"""The result class `Detection`: one object on an image."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Detection"]


@dataclass(frozen=True)
class Detection:
    """One object on an image.

    Fields:
        label: The class's name.
        class_id: Its number, from 0.
        score: Objectness times class probability, 0..1.
        xyxy: Left, top, right, bottom in pixels of the image, inside it.
        track_id: Number of the object in a video, from 0, where it is tracked.

    Example:
        >>> str(Detection("dog", 1, 0.82, (10.0, 20.0, 110.0, 220.0)))
        'dog: 82%'
    """

    label: str
    class_id: int
    score: float
    xyxy: tuple[float, float, float, float]
    track_id: int | None = None

    @property
    def name(self) -> str:
        """The label, with the track number if there is one: ``dog #3``."""
        return self.label if self.track_id is None else f"{self.label} #{self.track_id}"

    def __str__(self) -> str:
        """Return darknet's output line: ``dog: 82%``."""
        return f"{self.name}: {100 * self.score:.0f}%"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, without the track if there is none."""
        fields = {**asdict(self), "xyxy": list(self.xyxy)}
        if self.track_id is None:
            del fields["track_id"]
        return fields
