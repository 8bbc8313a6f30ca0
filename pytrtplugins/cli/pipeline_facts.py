"""What ``pytrt pipeline`` says, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass

from ..pipeline.record import Scalar
from .tables import escape, print_table

__all__ = ["PipelineFacts", "StepFacts", "print_pipeline"]


@dataclass(frozen=True)
class StepFacts:
    """A step of a pipeline.

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
    """A pipeline without errors.

    Attributes:
        name: Of the pipeline.
        parameters: With the user's values.
        steps: In the order in which they run.
    """

    name: str
    parameters: dict[str, Scalar]
    steps: tuple[StepFacts, ...]


def print_pipeline(found: PipelineFacts) -> None:
    """One row per step."""
    rows = [(step.name, *map(", ".join, (step.after, step.inputs, step.outputs))) for step in found.steps]
    print_table(("step", "after", "inputs", "outputs"), [tuple(map(escape, row)) for row in rows])
