"""The record of a pipeline run in a file, for `pytrt pipeline show` and the report."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

from ...errors import FormatError
from ...utils.atomic import write_atomic
from ...utils.declared import field_types, mismatch
from ...utils.inside import list_inside
from ...utils.text_formats import read_json, shorten

__all__ = ["RunRecord", "RunState", "Scalar", "StepOutcome", "StepRecord", "new_run_id", "run_ids", "run_path"]

RunState = Literal["running", "done", "failed", "waiting for approval"]
"""How far a run came; one that was killed still says ``running``."""
StepOutcome = Literal["not run", "running", "done", "failed", "waiting for approval"]
"""How far a step came in a run."""
Scalar: TypeAlias = bool | int | float | str
"""A parameter's value."""

_FORMAT = 1
_FOLDER = "runs"
_ID = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{6}")


@dataclass(frozen=True)
class StepRecord:
    """The record of one step in a run.

    Attributes:
        name: Of the step.
        state: How far it came.
        reused: Whether the outputs of an earlier run were taken, since nothing that they depend on has changed.
        begin: When it was begun, in seconds since 1970; None: it was not.
        end: When it ended; None: it did not.
        seconds: How long it took when it ran: in this run, or in the one whose outputs were taken.
        attempts: How often it was started.
        digest: Of its outputs; empty where there are none.
        figures: The numbers in its metrics, by their names; nested ones have dots, such as ``val.mAP50``.
        log: Its log file, in the pipeline's folder, as a relative path; empty where there is none.
        message: Why it failed, what it waits for, or what its gate found.
        after: Names of the steps whose outputs it takes.
    """

    name: str
    state: StepOutcome = "not run"
    reused: bool = False
    begin: float | None = None
    end: float | None = None
    seconds: float = 0.0
    attempts: int = 0
    digest: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    log: str = ""
    message: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRecord:
    """The record of one run of a pipeline.

    Attributes:
        id: Of the run; later runs come later in the order of the alphabet.
        pipeline: Name of the pipeline.
        state: How far the run came.
        begin: When it was begun, in seconds since 1970.
        end: When it ended; None: it runs, or was killed.
        steps: In the order in which they run.
        parameters: The pipeline's, as they were for this run.
        machine: Versions, processor, GPU and driver, by what they are called (`pytrtplugins.doctor.machine`).
        command: The words with which it was started.
    """

    id: str
    pipeline: str
    state: RunState
    begin: float
    end: float | None = None
    steps: tuple[StepRecord, ...] = ()
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, float]:
        """The numbers of all steps: ``STEP.NAME``."""
        return {f"{step.name}.{name}": value for step in self.steps for name, value in step.figures.items()}

    def path(self, folder: Path) -> Path:
        """Path of the record in a pipeline's folder."""
        return run_path(folder, self.id)

    def save(self, folder: Path) -> Path:
        """Write it to a pipeline's folder, such as ``.pytrt/pipelines/NAME``; whole or not at all. The folder is made if it is missing.

        Raises:
            OSError: it cannot be written.
        """
        path = self.path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode(), within=folder)
        return path

    @classmethod
    def load(cls, path: str | Path, *, within: str | Path | None = None) -> RunRecord:
        """Read the record of a run; with ``within``, the pipeline's folder, links below it are refused.

        Raises:
            FormatError: the file is damaged, or was written by a later version; ``.path`` says which.
            OSError: it cannot be read.
        """
        path = Path(path)
        data = read_json(path, allow_nan=True, within=within)
        version = data.pop("format", None) if isinstance(data, dict) else None
        if version != _FORMAT:
            raise FormatError(
                f"{path}: expected the record of a run, of format {_FORMAT}; found format {shorten(version)}.\n"
                "Do: install the version of pytrtplugins that wrote it, or run the pipeline again",
                path=path,
            )
        steps = data.get("steps")
        if not isinstance(steps, list):
            raise FormatError(f"{path}: steps: expected a list, found {shorten(steps)}.", path=path)
        step_records = tuple(_read(StepRecord, step, f"steps[{number}].", path) for number, step in enumerate(steps))
        record = _read(cls, {**data, "steps": ()}, "", path)
        if not _ID.fullmatch(record.id):
            raise FormatError(f"{path}: id: expected the id of a run, found {shorten(record.id)}.", path=path)
        return replace(record, steps=step_records)


def new_run_id() -> str:
    """An id for a run that begins now."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03}Z-{secrets.token_hex(3)}"


def run_path(folder: Path, run_id: str) -> Path:
    """The file of a run's record in a pipeline's folder."""
    return folder / _FOLDER / f"{run_id}.json"


def run_ids(folder: Path) -> list[str]:
    """The runs whose records are in a pipeline's folder, from the first to the last."""
    try:
        names = list_inside(folder / _FOLDER, within=folder)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [stem for stem in stems if _ID.fullmatch(stem)]


_Record = TypeVar("_Record", RunRecord, StepRecord)


def _read(cls: type[_Record], data: object, where: str, path: Path) -> _Record:
    """Read a record from a JSON object, whose keys and types are checked against the class's fields."""
    if not isinstance(data, dict):
        raise FormatError(f"{path}: {where}: expected an object, found {shorten(data)}.", path=path)
    types: Mapping[str, Any] = field_types(cls)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    needed = {item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING}
    for name in (needed - set(data)) | (set(data) - set(types)):
        problem = "is missing" if name in needed else "is not known"
        raise FormatError(f"{path}: {where}{shorten(name)} {problem}.", path=path)
    for name, value in data.items():
        if (expected := _mismatch(value, types[name])) is not None:
            raise FormatError(f"{path}: {where}{name}: expected {expected}, found {shorten(value)}.", path=path)
        values[name] = tuple(value) if isinstance(value, list) else value
    return cls(**values)


def _mismatch(value: Any, hint: Any) -> str | None:
    """The expected type of a field in words, if a value does not have it; else None."""
    if get_origin(hint) is not Mapping:
        return None if value is None and type(None) in get_args(hint) else mismatch(value, hint)
    if not isinstance(value, dict):
        return "an object"
    several: Any = tuple[get_args(hint)[1], ...]  # type: ignore[misc]
    wrong = mismatch(list(value.values()), several)
    return wrong and wrong.replace("a list", "an object", 1)
