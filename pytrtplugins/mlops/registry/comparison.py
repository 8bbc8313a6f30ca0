"""Compare two versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...calibration import CalibrationTable
from .manifest import ModelVersion
from .registry import ModelRegistry

__all__ = ["Comparison", "TensorChange", "compare"]


@dataclass(frozen=True)
class TensorChange:
    """A tensor whose largest magnitude differs.

    Attributes:
        tensor: Its name.
        a: Its amax in the first version; None: its table does not have it.
        b: The same in the second.
    """

    tensor: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float:
        """The second over the first; 0 where one is missing or 0."""
        return self.b / self.a if self.a and self.b else 0.0


@dataclass(frozen=True)
class Comparison:
    """The differences between two versions.

    Attributes:
        a: The first, such as ``animals:2``.
        b: The second.
        facts: By what it is, such as ``precision``, ``networks.built`` or ``data.calibration``: what the two say, where that differs.
        figures: By name what was measured of the two; None where it was not.
        sizes: By the role of a file its bytes in the two; 0 where there is none.
        tensors: How many tensors the calibration tables have in common; None: one of the two has no table.
        calibration: Tensors whose amax differs, those that changed most first.
    """

    a: str
    b: str
    facts: Mapping[str, tuple[str, str]]
    figures: Mapping[str, tuple[float | None, float | None]]
    sizes: Mapping[str, tuple[int, int]]
    tensors: int | None
    calibration: tuple[TensorChange, ...]


def compare(registry: ModelRegistry, a: ModelVersion, b: ModelVersion) -> Comparison:
    """Compare two versions, of one model or of two.

    Raises:
        ModelRegistryError: a calibration table is damaged.
    """
    tables = [_table(registry, version) for version in (a, b)]
    first, second = tables
    both = None if first is None or second is None else len(first.keys() & second.keys())
    roles, names = dict.fromkeys([*a.files, *b.files]), dict.fromkeys([*a.figures, *b.figures])
    return Comparison(
        str(a),
        str(b),
        {key: pair for key, pair in _pairs(a, b).items() if pair[0] != pair[1]},
        {name: (a.figures.get(name), b.figures.get(name)) for name in names},
        {role: (_bytes(a, role), _bytes(b, role)) for role in roles},
        both,
        () if first is None or second is None else _changes(first, second),
    )


def _pairs(a: ModelVersion, b: ModelVersion) -> dict[str, tuple[str, str]]:
    facts = {name: (str(getattr(a, name)), str(getattr(b, name))) for name in ("engine", "precision", "licence", "run")}
    for name in ("networks", "data", "hardware", "packages"):
        first, second = getattr(a, name), getattr(b, name)
        facts |= {
            f"{name}.{key}": (first.get(key, ""), second.get(key, "")) for key in dict.fromkeys([*first, *second])
        }
    return facts


def _bytes(version: ModelVersion, role: str) -> int:
    return version.files[role].bytes if role in version.files else 0


def _table(registry: ModelRegistry, version: ModelVersion) -> CalibrationTable | None:
    return CalibrationTable.read(registry.file(version, "calibration")) if "calibration" in version.files else None


def _changes(a: CalibrationTable, b: CalibrationTable) -> tuple[TensorChange, ...]:
    changes = [
        TensorChange(name, a.amax(name) if name in a else None, b.amax(name) if name in b else None)
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    ]
    return tuple(
        sorted(
            changes,
            key=lambda change: (0.0 if not change.ratio else min(change.ratio, 1 / change.ratio), change.tensor),
        )
    )
