"""Run a pipeline on this machine: steps in order, with cached outputs, records and a report."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import FormatError, StepError
from .approval import APPROVED
from .dvc_store import DvcStore
from .figures import read_figures
from .folder import PipelineFolder
from .full_disk import is_disk_full, tell_full_disk
from .machine import check_machine
from .pipeline import Pipeline
from .placeholders import as_recorded
from .process import end_abandoned
from .published import Published
from .record import RunRecord, RunState, StepRecord, new_run_id
from .report import write_report
from .run_gate import verdict_text
from .run_step import RUN
from .scratch import remove_tree
from .selection import Selection
from .step import Step
from .store import Store

__all__ = ["Opener", "report_path", "run_pipeline", "step_figures"]

Opener = Callable[[Pipeline, PipelineFolder], AbstractContextManager[Store]]
_STATE = "PYTRT_PIPELINE_STATE"


def run_pipeline(
    pipeline: Pipeline,
    selection: Selection = Selection(),  # noqa: B008  frozen
    *,
    force: bool = False,
    approved: Collection[str] = (),
    command: Collection[str] = (),
    machine: Mapping[str, str] | None = None,
    say: Callable[[StepRecord], None] = lambda record: None,
    store: Opener = DvcStore.opened,
) -> RunRecord:
    """Run steps whose inputs, code or parameters have changed, up to the first that fails or waits for a person.

    Args:
        pipeline: The steps.
        selection: Which of them.
        force: Run them whether something has changed or not.
        approved: Names of steps that a person has approved; ``*``: all.
        command: The words with which the run was started, for its record.
        machine: Facts on this machine, for its record.
        say: Is called with each step's record, when it begins and when it has ended.
        store: Opens the engine that remembers steps.

    Returns:
        What was done; it is also in ``runs/`` of the pipeline's folder.

    Raises:
        StepError: the pipeline runs already, the machine lacks something, an input is missing, or a file of the user is in the way.
            Nothing was run.
    """
    steps = selection.of(pipeline)
    folder = PipelineFolder.of(pipeline)
    try:
        folder.make()
        folder.check()
        with folder.locked():
            _sweep(folder)
            published = Published(folder)
            _check(pipeline, steps, folder, published)
            folder.write_plan(pipeline)
            graph, now = pipeline.graph(), time.time()
            records = {step.name: StepRecord(step.name, after=graph[step.name]) for step in pipeline.steps}
            run = RunRecord(
                new_run_id(),
                pipeline.name,
                "running",
                now,
                steps=tuple(records.values()),
                parameters=as_recorded(pipeline.parameters),
                machine=dict(machine or {}),
                command=tuple(command),
            )
            with store(pipeline, folder) as opened:
                environment = {RUN: run.id, APPROVED: ",".join(approved)}
                state = _Run(pipeline, folder, opened, published, run, records, environment, say)
                return state.go(steps, force)
    except OSError as error:
        if not is_disk_full(error, folder.base):
            raise
        raise StepError(tell_full_disk(f"pipeline {pipeline.name}", folder.base), path=folder.path) from error


@dataclass
class _Run:
    """The state of a run."""

    pipeline: Pipeline
    folder: PipelineFolder
    store: Store
    published: Published
    run: RunRecord
    records: dict[str, StepRecord]
    environment: dict[str, str]
    say: Callable[[StepRecord], None]

    def go(self, steps: tuple[Step, ...], force: bool) -> RunRecord:
        try:
            return self._go(steps, force)
        except OSError as error:  # where not even the record could be written
            if not is_disk_full(error, self.folder.path):
                raise
            step = next((record.name for record in self.records.values() if record.state in ("running", "failed")), "")
            what = f"step {step}" if step else f"pipeline {self.pipeline.name}"
            raise StepError(tell_full_disk(what, self.folder.path), step=step, path=self.folder.path) from error

    def _go(self, steps: tuple[Step, ...], force: bool) -> RunRecord:
        state: RunState = "failed"
        try:
            state = self._steps(steps, force)
        finally:
            self.run = replace(self.run, state=state, end=time.time(), steps=tuple(self.records.values()))
            self.run.save(self.folder.path)
            write_report(self.run, self.folder.path, report_path(self.run, self.folder.path))
            if self.pipeline.on_exit is not None:
                self._at_exit(self.pipeline.on_exit)
        return self.run

    def _steps(self, steps: tuple[Step, ...], force: bool) -> RunState:
        for step in steps:
            self._note(step, state="running", begin=time.time())
            try:
                outcome = self.store.bring(step, force=force, environment=self.environment)
                if outcome != "failed":
                    self.published.put(step)
            except (StepError, OSError) as error:
                self._note(step, state="failed", end=time.time(), message=_failure_text(step, error, self.folder))
                return "failed"
            attempt = self.folder.attempt(step.name)
            if outcome == "failed":
                assert attempt is not None
                waits = attempt.state == "waiting for approval"
                self._note(
                    step,
                    state="waiting for approval" if waits else "failed",
                    end=time.time(),
                    seconds=attempt.end - attempt.begin,
                    attempts=attempt.attempts,
                    log=attempt.log,
                    message=attempt.message,
                )
                if "SIGINT" in attempt.message:
                    raise KeyboardInterrupt
                return "waiting for approval" if waits else "failed"
            self._note(
                step,
                state="done",
                end=time.time(),
                reused=outcome != "ran",
                seconds=attempt.end - attempt.begin if attempt else 0.0,
                attempts=attempt.attempts if attempt and outcome == "ran" else 0,
                log=attempt.log if attempt else "",
                digest=self.store.digest(step),
                figures=step_figures(step, self.folder),
                message=verdict_text(self.folder.stored(step.outputs[0]), within=self.folder.root) if step.gate else "",
            )
        return "done"

    def _note(self, step: Step, **values: object) -> None:
        record = replace(self.records[step.name], **values)  # type: ignore[arg-type]
        self.records[step.name] = record
        self.run = replace(self.run, steps=tuple(self.records.values()))
        self.run.save(self.folder.path)
        self.say(record)

    def _at_exit(self, step: Step) -> None:
        environment = {**os.environ, **self.environment, _STATE: self.run.state}
        words = [sys.executable, "-m", "pytrtplugins.mlops.pipeline.run_step", step.name]
        code = subprocess.run(words, cwd=self.folder.path, env=environment, check=False).returncode
        attempt = self.folder.attempt(step.name)
        self.say(
            StepRecord(
                step.name,
                "failed" if code else "done",
                message=attempt.message if attempt else "",
                log=attempt.log if attempt else "",
            )
        )


def report_path(run: RunRecord, folder: Path) -> Path:
    """The page on a run, in the pipeline's folder."""
    return run.path(folder).with_suffix(".html")


def step_figures(step: Step, folder: PipelineFolder) -> dict[str, float]:
    """The numbers in a step's metrics, where they are there."""
    numbers: dict[str, float] = {}
    for path in step.metrics:
        try:
            figures = read_figures(folder.stored(path), path, within=folder.root)
        except (FormatError, OSError):
            continue
        numbers |= (
            figures
            if len(step.metrics) == 1
            else {f"{Path(path).stem}.{name}": value for name, value in figures.items()}
        )
    return numbers


def _sweep(folder: PipelineFolder) -> None:
    """Remove leftovers of a killed run: processes and folders of its steps."""
    folder.work.mkdir(exist_ok=True)
    left = list(folder.work.iterdir())
    if left:
        end_abandoned(folder.work)
    for folder_left in left:
        remove_tree(folder_left)


def _check(pipeline: Pipeline, steps: tuple[Step, ...], folder: PipelineFolder, published: Published) -> None:
    """Refuse, before anything runs, what cannot end well."""
    chosen = {step.name for step in steps}
    for step in steps:
        check_machine(step)
        for path in step.inputs:
            maker = pipeline.maker(path)
            if maker is None and not (folder.base / path).exists():
                raise StepError(
                    f"step {step.name}: the input {path} does not exist, and no step makes it.\n"
                    f"Do: put it at {folder.base / path}, or correct `inputs`",
                    step=step.name,
                    path=folder.base / path,
                )
            if maker is not None and maker.name not in chosen and not folder.stored(path).exists():
                raise StepError(
                    f"step {step.name} needs {path}, which step {maker.name} has not made yet.\n"
                    f"Do: run it too, such as with --until {step.name}",
                    step=step.name,
                    path=path,
                )
    published.check(steps)


def _failure_text(step: Step, error: StepError | OSError, folder: PipelineFolder) -> str:
    if is_disk_full(error, folder.path):
        return tell_full_disk(f"step {step.name}", folder.path)
    if isinstance(error, StepError):
        return str(error)
    what = f"{error.filename or 'output'}: {error.strerror or error}"
    return f"step {step.name}: {what}\nDo: correct the folder's rights, and run the pipeline again"
