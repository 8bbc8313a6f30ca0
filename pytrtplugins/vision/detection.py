"""What a detector found."""

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

    Example:
        >>> str(Detection("dog", 1, 0.82, (10.0, 20.0, 110.0, 220.0)))
        'dog: 82%'
    """

    label: str
    class_id: int
    score: float
    xyxy: tuple[float, float, float, float]

    def __str__(self) -> str:
        """Darknet's line: ``dog: 82%``."""
        return f"{self.label}: {100 * self.score:.0f}%"

    def to_dict(self) -> dict[str, Any]:
        """The fields as values for JSON."""
        return {**asdict(self), "xyxy": list(self.xyxy)}
