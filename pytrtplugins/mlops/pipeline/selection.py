"""Select the steps of a pipeline that a run includes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import UsageError
from ...utils.declared import nearest
from .pipeline import Pipeline
from .step import Step

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """The user's selection; a name may be that of one step, or of all steps of a matrix.

    Attributes:
        begin: This step and all that need its outputs; what is before it is taken as it is.
        until: This step and all that it needs.
        only: This step alone.
    """

    begin: str | None = None
    until: str | None = None
    only: str | None = None

    def of(self, pipeline: Pipeline) -> tuple[Step, ...]:
        """The selected steps, in the order in which they run.

        Raises:
            UsageError: there is no such step, or no step is left.
        """
        graph = pipeline.graph()
        followers: dict[str, list[str]] = {name: [] for name in graph}
        for name, needed in graph.items():
            for predecessor in needed:
                followers[predecessor].append(name)
        selected = set(graph)
        if self.only is not None:
            selected &= _steps_named(pipeline, self.only, "--only")
        if self.begin is not None:
            selected &= _reachable(_steps_named(pipeline, self.begin, "--from"), followers)
        if self.until is not None:
            selected &= _reachable(_steps_named(pipeline, self.until, "--until"), graph)
        if not selected:
            raise UsageError(
                f"pipeline {pipeline.name}: no step is both after {self.begin or self.only} and before {self.until}"
            )
        return tuple(step for step in pipeline.steps if step.name in selected)


def _steps_named(pipeline: Pipeline, name: str, option: str) -> set[str]:
    names = {step.name for step in pipeline.steps if name in (step.name, step.family)}
    if not names:
        known_names = dict.fromkeys(known_name for step in pipeline.steps for known_name in (step.family, step.name))
        raise UsageError(f"{option} {name}: pipeline {pipeline.name} has no such step.{nearest(name, known_names)}")
    return names


def _reachable(names: set[str], edges: Mapping[str, tuple[str, ...] | list[str]]) -> set[str]:
    reached, waiting = set(names), list(names)
    while waiting:
        new = set(edges[waiting.pop()]) - reached
        reached |= new
        waiting += new
    return reached
