"""Tolerances: how far a network in low precision may differ from float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..utils.text_formats import shorten

__all__ = ["CosineTolerance", "ElementTolerance", "MapTolerance", "Tolerance", "parse_tolerance"]

Array = npt.NDArray[Any]
_LARGEST = 1_000_000.0
_EXPECTED = (
    "atol=1e-3,rtol=1e-2,stat=median, cosine=0.999, or map50=0.005, "
    f"with atol and rtol from 0 to {_LARGEST:,.0f} and not both 0, cosine from -1 to below 1, map50 above 0 and below 1"
)
_STATS = ("max", "median")


@dataclass(frozen=True)
class ElementTolerance:
    """|found - expected| <= atol + rtol * |expected|, for the worst element or for the median one.

    Attributes:
        atol: Absolute, in the tensor's unit.
        rtol: Relative to the expected element.
        stat: ``"max"`` or ``"median"``.
    """

    atol: float = 1e-3
    rtol: float = 1e-2
    stat: str = "max"

    def error(self, found: Array, expected: Array) -> float:
        """Error of a tensor in units of the tolerance; 1 is just tolerated."""
        a, b = _comparable(found, expected)
        if not np.isfinite(a).all():
            return float("inf")
        if not b.size:
            return 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.where(a == b, 0.0, np.abs(a - b) / (self.atol + self.rtol * np.abs(b)))
        return float(excess.max() if self.stat == "max" else np.median(excess))

    def __str__(self) -> str:
        return f"atol={self.atol!r},rtol={self.rtol!r},stat={self.stat}"


@dataclass(frozen=True)
class CosineTolerance:
    """Limit on the cosine of the angle between found and expected tensor, image by image.

    Attributes:
        cosine: The smallest that is tolerated, below 1.
    """

    cosine: float = 0.999

    def error(self, found: Array, expected: Array) -> float:
        """1 - cosine in units of its limit; 1 is just tolerated."""
        a, b = _comparable(found, expected)
        if not np.isfinite(a).all():
            return float("inf")
        lengths = np.linalg.norm(a), np.linalg.norm(b)
        if min(lengths) == 0:
            return 0.0 if max(lengths) == 0 else float(1 / (1 - self.cosine))
        angle = np.linalg.norm(a / lengths[0] - b / lengths[1])  # no cancellation: 1 - cos = angle² / 2
        return float(angle**2 / 2 / (1 - self.cosine))

    def __str__(self) -> str:
        return f"cosine={self.cosine!r}"


@dataclass(frozen=True)
class MapTolerance:
    """Loss of mean average precision at IoU 0.5 on labelled images; single tensors are compared by their cosine.

    Attributes:
        drop: The largest that is tolerated, such as 0.005.
        tensors: For the tensors inside the network.
    """

    drop: float = 0.005
    tensors: CosineTolerance = CosineTolerance()

    def error(self, found: Array, expected: Array) -> float:
        """Error of a single tensor, by its cosine."""
        return self.tensors.error(found, expected)

    def __str__(self) -> str:
        return f"map50={self.drop!r}"


Tolerance = ElementTolerance | CosineTolerance | MapTolerance


def parse_tolerance(text: str) -> Tolerance:
    """Read a tolerance as it is typed.

    Raises:
        UsageError: it has another form, or numbers that make no sense.

    Example:
        >>> parse_tolerance("rtol=0.1,stat=median")
        ElementTolerance(atol=0.001, rtol=0.1, stat='median')
        >>> str(parse_tolerance("map50=0.005"))
        'map50=0.005'
    """
    expected = f"tolerance {shorten(text)}: expected {_EXPECTED}"
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name in values:
            raise UsageError(expected)
        values[name] = value
    stat = values.pop("stat", "max")
    try:
        numbers = {name: float(value) for name, value in values.items()}
    except ValueError as error:
        raise UsageError(expected) from error
    keys = numbers.keys()
    if keys == {"cosine"} and -1 <= numbers["cosine"] < 1:
        return CosineTolerance(numbers["cosine"])
    if keys == {"map50"} and 0 < numbers["map50"] < 1:
        return MapTolerance(numbers["map50"])
    good = bool(keys) and keys <= {"atol", "rtol"} and all(0 <= value <= _LARGEST for value in numbers.values())
    if not good or sum(numbers.values()) == 0 or stat not in _STATS:
        raise UsageError(expected)
    return ElementTolerance(**numbers, stat=stat)


def _comparable(actual: Array, expected: Array) -> tuple[Array, Array]:
    """Both as float64 where the expected elements are numbers."""
    a, b = (np.asarray(value, np.float64).ravel() for value in (actual, expected))
    usable = np.isfinite(b)
    return (a, b) if usable.all() else (a[usable], b[usable])
