"""Find the states of a pipeline's steps without running anything."""

from __future__ import annotations

import contextlib
import os

from ...errors import StepError
from .dvc_store import DvcStore
from .folder import PipelineFolder
from .pipeline import Pipeline
from .record import RunRecord, StepRecord, run_ids, run_path
from .run import Opener, step_figures
from .state import State, StepState
from .store import Store

__all__ = ["step_states"]


def step_states(pipeline: Pipeline, *, store: Opener = DvcStore.opened) -> tuple[StepState, ...]:
    """The state of each step, in the order in which they run; while the pipeline runs, as its run has it."""
    folder = PipelineFolder.of(pipeline)
    if not os.path.lexists(folder.path):
        return tuple(StepState(step.name, "never run") for step in pipeline.steps)
    folder.check()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder.locked())
        except StepError:
            return _running(pipeline, folder)
        folder.write_plan(pipeline)
        return _states(pipeline, folder, stack.enter_context(store(pipeline, folder)))


def _running(pipeline: Pipeline, folder: PipelineFolder) -> tuple[StepState, ...]:
    """States from the record of the current run."""
    ids = run_ids(folder.path)
    records = (
        {step.name: step for step in RunRecord.load(run_path(folder.path, ids[-1]), within=folder.path).steps}
        if ids
        else {}
    )
    states = []
    for step in pipeline.steps:
        record = records.get(step.name, StepRecord(step.name))
        states.append(
            StepState(
                step.name,
                "to come" if record.state == "not run" else record.state,
                record.message,
                seconds=record.seconds,
                digest=record.digest,
                figures=record.figures,
                log=str(folder.path / record.log) if record.log else "",
            )
        )
    return tuple(states)


def _states(pipeline: Pipeline, folder: PipelineFolder, store: Store) -> tuple[StepState, ...]:
    states: dict[str, StepState] = {}
    graph = pipeline.graph()
    for step in pipeline.steps:
        changes, attempt = store.changes(step), folder.attempt(step.name)
        before = [name for name in graph[step.name] if states[name].state != "done"]
        state: State
        reason = ", ".join([*(changes or ()), *(f"step {name}" for name in before)]) if changes is not None else ""
        if (changes is None or changes) and attempt is not None and attempt.state in ("failed", "waiting for approval"):
            state, reason = ("failed" if attempt.state == "failed" else "waiting for approval"), attempt.message
        elif changes is None:
            state = "never run"
        else:
            state = "stale" if reason else "done"
        states[step.name] = StepState(
            step.name,
            state,
            reason,
            seconds=attempt.end - attempt.begin if attempt and attempt.state == "done" else 0.0,
            digest=store.digest(step),
            figures=step_figures(step, folder) if state in ("done", "stale") else {},
            log=str(folder.path / attempt.log) if attempt and attempt.log else "",
        )
    return tuple(states.values())
