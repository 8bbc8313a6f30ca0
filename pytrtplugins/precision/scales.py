"""Collect the scales of several calibrators in one run over the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from ..calibration import CALIBRATORS, CalibrationTable, Calibrator
from ..engines import calibrate
from ..errors import UsageError
from ..utils.optional import onnx

__all__ = ["make_tables"]


class _Several(Calibrator):
    """A calibrator that passes every tensor to several calibrators."""

    algorithm = "MinMaxCalibration"

    def __init__(self, parts: Sequence[Calibrator], batches: Iterable[Any]) -> None:
        self.parts = parts
        super().__init__(batches)

    def bind(self, inputs: Mapping[str, Sequence[Any]]) -> None:
        super().bind(inputs)
        for part in self.parts:
            part.bind(inputs)

    def reset(self) -> None:
        for part in self.parts:
            part.reset()

    def observed(self) -> tuple[str, ...]:
        return self.parts[0].observed()

    def amax_of(self, name: str) -> float:
        return self.parts[0].amax_of(name)

    def _observe(self, name: str, array: npt.NDArray[Any]) -> None:
        for part in self.parts:
            part.observe(name, array)


def make_tables(
    model: onnx.ModelProto,
    batches: Iterable[Any],
    algorithms: Sequence[str] = tuple(CALIBRATORS),
    *,
    engine: str = "auto",
    threads: int | None = None,
    plugins: Mapping[str, str] | None = None,
    progress: bool = True,
) -> dict[str, CalibrationTable]:
    """Calibrate a model without Q/DQ once, with several algorithms; their order is that of the result.

    Raises:
        UsageError: an algorithm is unknown.
        NoDataError: there are no batches.
    """
    unknown = [name for name in algorithms if name not in CALIBRATORS]
    if unknown or not algorithms:
        raise UsageError(f"algorithms: expected some of {', '.join(CALIBRATORS)}, found {list(algorithms)}")
    parts = [CALIBRATORS[name]() for name in algorithms]
    several = _Several(parts, batches)
    calibrate(model, several, engine=engine, threads=threads, plugins=plugins, progress=progress)
    # the base's own compute_table: what clips too much is not news to the search, which tries every algorithm
    return {name: Calibrator.compute_table(part) for name, part in zip(algorithms, parts, strict=True)}
