"""The commands ``pytrt pipeline run``, ``show`` and ``check``."""

from __future__ import annotations

from typing import Annotated, Any

from ..pipeline import Pipeline
from ..utils.optional import require
from ..utils.terminal import COMMAND
from . import loading
from .app import app
from .pipeline_facts import PipelineFacts, StepFacts, print_pipeline
from .results import Result, show

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["Source", "Values", "command", "open_pipeline"]

command: Any = typer.Typer(
    help="From photos to a served model with one file: steps that are remembered, here and on a cluster.",
    result_callback=show,
    **COMMAND,
)
app.add_typer(command, name="pipeline")

Source = Annotated[str, typer.Argument(metavar="FILE.yaml|MODULE:NAME", help="The pipeline.")]
Values = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter's value; may be repeated.")
]


def open_pipeline(source: str, values: list[str] | None) -> Pipeline:
    """The pipeline that a user named, with the parameters of ``--set``."""
    return Pipeline.load(source, loading.read_pairs(values, "--set", "NAME=VALUE"))


@command.command("check")  # type: ignore[untyped-decorator]
def check(source: Source, values: Values = None) -> Result[PipelineFacts]:
    """Check a pipeline without running it, and list its steps; all errors are shown at once, with their lines.

    Examples: pytrt pipeline check pipeline.yaml

    pytrt pipeline check mypipelines:nightly --set size=smoke
    """
    found = open_pipeline(source, values)
    graph = found.graph()
    steps = tuple(StepFacts(step.name, graph[step.name], step.inputs, step.outputs) for step in found.steps)
    return Result(PipelineFacts(found.name, dict(found.parameters), steps), print_pipeline)
