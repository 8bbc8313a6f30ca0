"""The private folder of a pipeline, ``.pytrt/pipelines/NAME``, below the folder that its paths are relative to."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import FormatError, PipelineError, StepError
from ...utils.atomic import write_atomic
from ...utils.file_lock import held_lock
from ...utils.files import read_regular
from ...utils.inside import check_inside, holder, open_inside
from ...utils.text_formats import MAX_BYTES, read_json
from ...version import __version__
from .pipeline import Pipeline
from .step import Resources, Retry, Step

__all__ = ["Attempt", "PipelineFolder", "changed_keys", "step_key"]

_PARENTS = Path(".pytrt", "pipelines")
_WORK, _PYCACHE = "work", "pycache"
_LOCK, _PLAN, _KEYS = "lock", "plan.json", "params.json"


@dataclass(frozen=True)
class Attempt:
    """The outcome of a step's last start.

    Attributes:
        run: The run that started it.
        state: ``done``, ``failed`` or ``waiting for approval``.
        begin: In seconds since 1970.
        end: In seconds since 1970.
        attempts: How often it was started.
        log: Its log file, relative to the pipeline's folder.
        message: Why it failed, or what it waits for.
    """

    run: str
    state: str
    begin: float
    end: float
    attempts: int = 0
    log: str = ""
    message: str = ""


@dataclass(frozen=True)
class PipelineFolder:
    """The folder of a pipeline's outputs, logs and records.

    Attributes:
        path: The folder.
        base: What the paths of steps are relative to.
    """

    path: Path
    base: Path

    @classmethod
    def of(cls, pipeline: Pipeline) -> PipelineFolder:
        """The folder of a pipeline; it need not exist."""
        base = Path(os.path.abspath(pipeline.folder))
        return cls(base / _PARENTS / pipeline.name, base)

    @classmethod
    def at(cls, path: Path) -> PipelineFolder:
        """The folder at a path."""
        return cls(path, path.parents[len(_PARENTS.parts)])

    @property
    def root(self) -> Path:
        """``.pytrt``, which may be a link; below it nothing is reached through one."""
        return self.path.parents[len(_PARENTS.parts) - 1]

    def make(self) -> None:
        """Make the folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        with holder(self.path / _LOCK, self.root, error=StepError, make=True):
            pass
        ignore = self.root / ".gitignore"
        if not os.path.lexists(ignore):
            write_atomic(ignore, b"*\n", within=self.root)

    def check(self) -> None:
        """Require that the folder has only folders and regular files, before DVC opens them and leftovers are removed.

        Raises:
            StepError: there is a link, a FIFO, a device or a socket; ``.path`` says which.
        """
        with holder(self.path / _LOCK, self.root, error=StepError):
            check_inside(self.path, error=StepError, skip=(_WORK, _PYCACHE))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other runs of this pipeline during the block; the system frees the lock of a killed process.

        Raises:
            StepError: another process runs the pipeline.
        """
        handle = open_inside(self.path / _LOCK, os.O_RDWR | os.O_CREAT, within=self.root, error=StepError)
        with held_lock(handle, wait=False) as is_held:
            if not is_held:
                holder = os.read(handle, 32).decode("ascii", "replace").strip() or "another"
                raise StepError(
                    f"pipeline {self.path.name}: process {holder} runs it already.\n"
                    "Do: wait until it has ended; pytrt pipeline show says how far it is",
                    path=self.path,
                )
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield

    # --- paths ---------------------------------------------------------------------------------------------------------

    def stored(self, path: str) -> Path:
        """Path at which an output is stored."""
        return self.path / "files" / path

    def log(self, run: str, step: str) -> Path:
        """The log file of a step, relative to the folder."""
        return Path("logs", run, f"{step}.log")

    @property
    def work(self) -> Path:
        """Parent of the folders in which steps run."""
        return self.path / _WORK

    @property
    def pycache(self) -> Path:
        """Folder of Python's bytecode: not next to sources, which are inputs."""
        return self.path / _PYCACHE

    # --- what the wrapper reads ----------------------------------------------------------------------------------------

    def write_plan(self, pipeline: Pipeline) -> None:
        """Write the steps for `read_step`, and the key of each, on which its outputs depend besides inputs.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        steps = [*pipeline.steps, *([pipeline.on_exit] if pipeline.on_exit else [])]
        made_inputs = {step.name: [path for path in step.inputs if pipeline.maker(path)] for step in steps}
        self._write(_PLAN, {step.name: {"step": asdict(step), "made": made_inputs[step.name]} for step in steps})
        self._write(_KEYS, {step.name: step_key(step) for step in pipeline.steps})

    def read_step(self, name: str) -> tuple[Step, dict[str, Path]]:
        """A step, and the path of each of its inputs.

        Raises:
            PipelineError: the plan is of another version.
        """
        try:
            entry = self._read(_PLAN)[name]
            raw = entry["step"]
            for key, value in raw.items():
                raw[key] = tuple(value) if isinstance(value, list) else value
            step = Step(**{**raw, "resources": Resources(**raw["resources"]), "retry": Retry(**raw["retry"])})
        except (KeyError, TypeError) as error:
            raise PipelineError(f"{self.path / _PLAN}: no such step as {name}.\nDo: run the pipeline again") from error
        return step, {path: self.stored(path) if path in entry["made"] else self.base / path for path in step.inputs}

    # --- attempts ------------------------------------------------------------------------------------------------------

    def note(self, step: str, attempt: Attempt) -> None:
        """Store what a start of a step came to.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        self._write(f"attempts/{step}.json", asdict(attempt))

    def attempt(self, step: str) -> Attempt | None:
        """The outcome of a step's last start; None if it never started, or its record is damaged."""
        with contextlib.suppress(OSError, FormatError, TypeError):
            return Attempt(**self._read(f"attempts/{step}.json"))
        return None

    # --- files ---------------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> Any:
        return read_json(self.path / name, within=self.root)

    def _write(self, name: str, data: Any) -> None:
        text = json.dumps(data, indent=1, sort_keys=True).encode()
        self.put(self.path / name, text)

    def put(self, path: Path, text: bytes) -> None:
        """Write a file of the folder, unless its contents are already these: then its time stays."""
        with contextlib.suppress(FileNotFoundError, FormatError):
            if read_regular(path, MAX_BYTES, within=self.root) == text:
                return
        write_atomic(path, text, within=self.root)


def step_key(step: Step) -> dict[str, Any]:
    """The key that outputs depend on besides inputs; it excludes values of secrets."""
    return {
        "argv": list(step.argv()),
        "stdout": step.stdout,
        "parameters": dict(step.parameters),
        "environment": {name: os.environ.get(name) for name in step.environment},
        "pytrtplugins": __version__,
    }


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between two keys of a step, in words."""
    if before.get("pytrtplugins") != now["pytrtplugins"]:
        yield f"pytrtplugins {before.get('pytrtplugins')}, now {now['pytrtplugins']}"
    has_changes = False
    for kind, word in (("parameters", "parameter"), ("environment", "variable")):
        old = before.get(kind)
        old = old if isinstance(old, dict) else {}
        for name in sorted(old.keys() | now[kind].keys()):
            if old.get(name) != now[kind].get(name):
                has_changes = True
                yield f"{word} {name}"
    if not has_changes and (before.get("argv"), before.get("stdout")) != (now["argv"], now["stdout"]):
        yield "what it runs"
