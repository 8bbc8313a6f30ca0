"""Results of the commands ``pytrt pipeline``, and how they are printed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...cli.shared.tables import escape, print_table
from ...utils.terminal import is_quiet
from ..pipeline import RunRecord, StepRecord, StepState
from ..pipeline.record import Scalar

__all__ = [
    "PipelineFacts",
    "RunFacts",
    "StateFacts",
    "StepFacts",
    "print_pipeline",
    "print_run",
    "print_states",
    "say_step",
]

_DIGEST, _MOST_FIGURES = 8, 4


@dataclass(frozen=True)
class StepFacts:
    """One step of a pipeline.

    Attributes:
        name: Of the step.
        after: The steps whose outputs it takes.
        inputs: Files and folders.
        outputs: Files and folders.
    """

    name: str
    after: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class PipelineFacts:
    """A pipeline that has passed all checks.

    Attributes:
        name: Of the pipeline.
        parameters: With the user's values.
        steps: In the order in which they run.
    """

    name: str
    parameters: dict[str, Scalar]
    steps: tuple[StepFacts, ...]


def print_pipeline(facts: PipelineFacts) -> None:
    """Print one row per step."""
    rows = [(step.name, *map(", ".join, (step.after, step.inputs, step.outputs))) for step in facts.steps]
    print_table(("step", "after", "inputs", "outputs"), [tuple(map(escape, row)) for row in rows])


@dataclass(frozen=True)
class RunFacts:
    """The result of a run.

    Attributes:
        run: Its record, which is also in the pipeline's folder.
        report: The page on it.
    """

    run: RunRecord
    report: str


@dataclass(frozen=True)
class StateFacts:
    """The state of a pipeline's steps.

    Attributes:
        name: Of the pipeline.
        steps: Their states.
        picture: The file that it was drawn to.
    """

    name: str
    steps: tuple[StepState, ...]
    picture: str = ""


def say_step(record: StepRecord) -> None:
    """A line for a step that begins or has ended, on standard error."""
    if is_quiet():
        return
    if record.state == "running":
        text = "..." if sys.stderr.isatty() else ""
    elif record.state == "done":
        outcome = "unchanged" if record.reused else f"done in {record.seconds:.1f} s"
        text = "; ".join(filter(None, (outcome, _figures(record.figures), record.message)))
        text += f" (attempt {record.attempts})" if record.attempts > 1 else ""
    else:
        text = f"{record.state}: {record.message}" if record.message else record.state
    if text:
        print(f"{record.name}: {text}", file=sys.stderr, flush=True)


def print_run(facts: RunFacts) -> None:
    """Print the result of a run in one or two lines."""
    steps = facts.run.steps
    ran = sum(step.state == "done" and not step.reused for step in steps)
    reused = sum(step.reused for step in steps)
    seconds = (facts.run.end or facts.run.begin) - facts.run.begin
    print(
        f"pipeline {facts.run.pipeline}: {facts.run.state} in {seconds:.1f} s; {ran} of {len(steps)} steps ran, {reused} unchanged"
    )
    for step in steps:
        if step.state == "failed":
            print(f"failed: {step.message.splitlines()[0]}")
            if step.log:
                print(f"log: {Path(facts.report).parents[1] / step.log}")
        elif step.state == "waiting for approval":
            print(f"Do: pytrt pipeline run ... --approve {step.name}")
    print(f"report: {facts.report}")


def print_states(facts: StateFacts) -> None:
    """Print one row per step."""
    rows = []
    for step in facts.steps:
        reason = step.reason.partition("\n")[0]
        state = f"{step.state}: {reason}" if reason else step.state
        seconds = f"{step.seconds:.1f}" if step.seconds else ""
        rows.append(tuple(map(escape, (step.step, state, seconds, step.digest[:_DIGEST], _figures(step.figures)))))
    print_table(("step", "state", "seconds", "digest", "figures"), rows)
    if facts.picture:
        print(f"written: {facts.picture}")


def _figures(figures: Mapping[str, float]) -> str:
    shown = [f"{name} {value:.5g}" for name, value in list(figures.items())[:_MOST_FIGURES]]
    return ", ".join([*shown, *([f"{len(figures) - _MOST_FIGURES} more"] if len(figures) > _MOST_FIGURES else [])])
