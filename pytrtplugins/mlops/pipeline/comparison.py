"""Compare two runs of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ...errors import FormatError
from .record import RunRecord, Scalar, run_ids, run_path

__all__ = ["Change", "RunComparison", "compare", "earlier_runs"]

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Change(Generic[_Value]):
    """A value in two runs.

    Attributes:
        name: Of the value.
        before: In the earlier run; None: it did not have it.
        now: In the later run; None: it does not have it.
    """

    name: str
    before: _Value | None
    now: _Value | None

    @property
    def changed(self) -> bool:
        """Whether the two values differ."""
        return type(self.before) is not type(self.now) or self.before != self.now


@dataclass(frozen=True)
class RunComparison:
    """The differences between a run and an earlier one.

    Attributes:
        before: Id of the earlier run; None: there is none.
        figures: All figures of both, ``STEP.NAME``.
        parameters: All parameters of both.
        machine: Versions and hardware of both.
    """

    before: str | None
    figures: tuple[Change[float], ...]
    parameters: tuple[Change[Scalar], ...]
    machine: tuple[Change[str], ...]


def compare(run: RunRecord, before: RunRecord | None) -> RunComparison:
    """Compare a run with an earlier one, or with none."""
    return RunComparison(
        None if before is None else before.id,
        _changes({} if before is None else before.figures, run.figures),
        _changes({} if before is None else before.parameters, run.parameters),
        _changes({} if before is None else before.machine, run.machine),
    )


def earlier_runs(run: RunRecord, folder: Path, most: int = 30) -> list[RunRecord]:
    """The latest finished runs before one, oldest first; damaged records are left out."""
    records: list[RunRecord] = []
    for name in reversed([record for record in run_ids(folder) if record < run.id]):
        try:
            record = RunRecord.load(run_path(folder, name), within=folder)
        except (FormatError, OSError):
            continue
        if record.state == "done":
            records.append(record)
        if len(records) == most:
            break
    return records[::-1]


def _changes(before: Mapping[str, _Value], now: Mapping[str, _Value]) -> tuple[Change[_Value], ...]:
    names = dict.fromkeys((*now, *before))
    return tuple(Change(name, before.get(name), now.get(name)) for name in names)
