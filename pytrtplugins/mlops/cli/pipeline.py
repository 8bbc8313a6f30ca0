"""The commands ``pytrt pipeline run``, ``show`` and ``check``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from ... import doctor
from ...cli.app import app
from ...cli.shared import option_values
from ...cli.shared.option import argument, choice, option, typer
from ...cli.shared.results import Result, show
from ...utils.figures import check_figure
from ...utils.terminal import COMMAND
from ..pipeline import Pipeline
from ..pipeline.approval import EVERYTHING
from ..pipeline.folder import PipelineFolder
from ..pipeline.picture import draw_pipeline
from ..pipeline.placeholders import as_recorded
from ..pipeline.run import report_path, run_pipeline
from ..pipeline.selection import Selection
from ..pipeline.states import step_states
from .pipeline_facts import (
    PipelineFacts,
    RunFacts,
    StateFacts,
    StepFacts,
    print_pipeline,
    print_run,
    print_states,
    say_step,
)

__all__ = ["Source", "Values", "command", "open_pipeline"]

command: Any = typer.Typer(
    help="From photos to a served model with one file: steps that are remembered, here and on a cluster.",
    result_callback=show,
    **COMMAND,
)
app.add_typer(command, name="pipeline")

Source = Annotated[str, argument("FILE.yaml|MODULE:NAME", "The pipeline.")]
Values = Annotated[list[str] | None, option("NAME=VALUE", "A parameter's value; may be repeated.", "--parameter")]


def open_pipeline(source: str, values: list[str] | None) -> Pipeline:
    """The pipeline that a user named, with the parameters of ``--parameter``."""
    return Pipeline.load(source, option_values.read_pairs(values, "--parameter", "NAME=VALUE"))


@command.command("run")  # type: ignore[untyped-decorator]
def run(
    source: Source,
    begin: Annotated[
        str | None, option("STEP", "Begin with this step; outputs of earlier steps are used as they are.", "--from")
    ] = None,
    until: Annotated[str | None, option("STEP", "End with this step.")] = None,
    only: Annotated[str | None, option("STEP", "Run this step alone.")] = None,
    values: Values = None,
    force: Annotated[bool, choice("Run the steps whether something has changed or not.", "--rerun")] = False,
    yes: Annotated[bool, choice("Approve every step that needs approval.", "--yes")] = False,
    approve: Annotated[list[str] | None, option("STEP", "Approve this step; may be repeated.")] = None,
) -> Result[RunFacts]:
    """Run the steps whose inputs, code or parameters have changed, up to the first that fails.

    The exit code is 1 where a step failed or a gate stopped the run, 2 where nothing could be run, and 3 where a step waits for approval.

    Examples: pytrt pipeline run pipeline.yaml

    pytrt pipeline run pipeline.yaml --parameter size=smoke --approve deploy

    pytrt pipeline run pipeline.yaml --from evaluate --rerun
    """
    pipeline = open_pipeline(source, values)
    for name in approve or ():
        pipeline.step(name)
    record = run_pipeline(
        pipeline,
        Selection(begin, until, only),
        force=force,
        approved=[EVERYTHING] if yes else approve or (),
        command=("pytrt", *sys.argv[1:]),
        machine=doctor.machine(),
        say=say_step,
    )
    report = report_path(record, PipelineFolder.of(pipeline).path)
    problem = next((step.message for step in record.steps if step.state in ("failed", "waiting for approval")), "")
    code = 3 if record.state == "waiting for approval" else 1
    return Result(RunFacts(record, str(report)), print_run, record.state == "done", problem, code)


@command.command("show")  # type: ignore[untyped-decorator]
def show_states(
    source: Source,
    graph: Annotated[Path | None, option("FILE", "Draw the steps: .svg, .png or .pdf.")] = None,
    values: Values = None,
) -> Result[StateFacts]:
    """Show for each step whether it is done, stale, or was never run, and its time, digest and figures; nothing is run.

    Examples: pytrt pipeline show pipeline.yaml

    pytrt pipeline show pipeline.yaml --graph pipeline.svg
    """
    if graph is not None:
        check_figure(graph)
    pipeline = open_pipeline(source, values)
    states = step_states(pipeline)
    if graph is not None:
        draw_pipeline(pipeline, states, graph)
    return Result(StateFacts(pipeline.name, states, str(graph or "")), print_states)


@command.command("check")  # type: ignore[untyped-decorator]
def check(source: Source, values: Values = None) -> Result[PipelineFacts]:
    """Check a pipeline without running it, and list its steps; all errors are shown at once, with their lines.

    Examples: pytrt pipeline check pipeline.yaml

    pytrt pipeline check mypipelines:nightly --parameter size=smoke
    """
    pipeline = open_pipeline(source, values)
    graph = pipeline.graph()
    steps = tuple(StepFacts(step.name, graph[step.name], step.inputs, step.outputs) for step in pipeline.steps)
    return Result(PipelineFacts(pipeline.name, as_recorded(pipeline.parameters), steps), print_pipeline)
