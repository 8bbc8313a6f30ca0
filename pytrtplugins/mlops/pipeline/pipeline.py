"""A pipeline: steps in the order in which they can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import cast

from ...errors import PipelineError, UsageError
from ...utils.declared import nearest
from ...utils.text_formats import shorten
from ...utils.user_module import import_user_module
from .cron import schedule_problems
from .description import Problem
from .reader import read_description
from .record import Scalar
from .step import NAME, Step, folders_of

__all__ = ["Pipeline"]

_MOST_STEPS = 1000


@dataclass(frozen=True)
class Pipeline:
    """Steps with declared inputs and outputs, sorted so that each comes after those whose outputs it reads.

    Attributes:
        name: Lower-case letters, digits and dashes.
        steps: In the order in which they run.
        parameters: What `Pipeline.load` has put into the steps.
        schedule: When a cluster runs it, as five fields of cron. None: when it is started.
        on_exit: What runs at the end, whether steps failed or not; the variable ``PYTRT_PIPELINE_STATE`` says which.
        remote: Where results are shared, such as ``s3://bucket/folder``; empty: nowhere.
        folder: What the paths of steps are relative to.
    """

    name: str
    steps: tuple[Step, ...]
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    schedule: str | None = None
    on_exit: Step | None = None
    remote: str = ""
    folder: Path = Path()

    def __post_init__(self) -> None:
        if problems := tuple(_problems(self)):
            text = "\n".join(f"  {'.'.join(map(str, where))}: {what}" for where, what in problems)
            raise PipelineError(f"pipeline {shorten(self.name)}:\n{text}", problems=problems)
        object.__setattr__(self, "steps", _sort_steps(self.steps))

    @classmethod
    def load(cls, source: str | Path, values: Mapping[str, str] | None = None) -> Pipeline:
        """Read ``pipeline.yaml``, or import the object ``module:pipeline``.

        Args:
            source: A file .yaml or .yml; or a module, or a Python file, and a name in it, which may also be a function of the parameters.
            values: Parameters as a user typed them, by name.

        Raises:
            PipelineError: something is wrong with it; ``.problems`` has everything that is.
            FormatError: it is not YAML.
            UsageError: there is no such module, object or parameter.
            OSError: it cannot be read.
        """
        text = str(source)
        if text.endswith((".yaml", ".yml")):
            return cls._read(Path(source), values or {})
        module, _, name = text.rpartition(":")
        if not module or not name:
            raise UsageError(
                f"pipeline {shorten(text)}: expected a file .yaml, or module:pipeline.\nDo: pytrt pipeline check pipeline.yaml"
            )
        attribute = getattr(import_user_module(module), name, None)
        pipeline = attribute(**(values or {})) if callable(attribute) and not isinstance(attribute, type) else attribute
        if not isinstance(pipeline, cls):
            raise UsageError(f"{text}: expected a Pipeline, or a function that gives one, found {shorten(pipeline)}")
        if values and pipeline is attribute:
            raise UsageError(
                f"{text} is an object and takes no parameters.\nDo: write a function of them that gives the pipeline"
            )
        return pipeline

    @classmethod
    def _read(cls, path: Path, values: Mapping[str, str]) -> Pipeline:
        description = read_description(path, values)
        try:
            pipeline = cls(
                description.name,
                description.steps,
                description.parameters,
                description.schedule,
                description.on_exit,
                description.remote,
                description.folder,
            )
        except PipelineError as error:
            raise description.error(cast("tuple[Problem, ...]", error.problems)) from None
        if description.problems:
            raise description.error(())
        return pipeline

    def step(self, name: str) -> Step:
        """The step with this name.

        Raises:
            UsageError: there is none.
        """
        for candidate in self.steps:
            if candidate.name == name:
                return candidate
        raise UsageError(
            f"pipeline {self.name} has no step {shorten(name)}.{nearest(name, [candidate.name for candidate in self.steps])}"
        )

    def graph(self) -> dict[str, tuple[str, ...]]:
        """For each step, in the order of `steps`, the names of the steps whose outputs it reads."""
        return {name: tuple(sorted(needed)) for name, needed in _predecessors(self.steps).items()}

    def maker(self, path: str) -> Step | None:
        """The step that makes a file or a folder, or a folder around it; None if it is the user's."""
        return next((self._makers[place] for place in (path, *folders_of(path)) if place in self._makers), None)

    @cached_property
    def _makers(self) -> dict[str, Step]:
        return {output: step for step in self.steps for output in step.outputs}


def _predecessors(steps: Iterable[Step]) -> dict[str, set[str]]:
    makers = {output: step.name for step in steps for output in step.outputs}
    return {
        step.name: {makers[place] for path in step.inputs for place in (path, *folders_of(path)) if place in makers}
        for step in steps
    }


def _problems(pipeline: Pipeline) -> Iterator[Problem]:
    if not isinstance(pipeline.name, str) or not NAME.fullmatch(pipeline.name):
        yield ("name",), f"expected lower-case letters, digits and dashes, at most 63, found {shorten(pipeline.name)}"
    if not pipeline.steps or len(pipeline.steps) > _MOST_STEPS:
        yield ("steps",), f"expected 1 to {_MOST_STEPS:,} steps, found {len(pipeline.steps):,}"
        return
    if pipeline.schedule is not None:
        yield from ((("schedule",), problem) for problem in schedule_problems(pipeline.schedule))
    names = [step.name for step in pipeline.steps]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield ("steps", name), "two steps have this name"
        return
    for step in pipeline.steps:
        if not step.outputs:
            yield ("steps", step.name, "outputs"), "expected at least one: a step without outputs cannot be remembered"
    yield from _path_problems(pipeline.steps)
    try:
        TopologicalSorter(_predecessors(pipeline.steps)).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        yield ("steps", circle[0], "inputs"), f"the steps need each other in a circle: {' needs '.join(circle)}"


def _path_problems(steps: Iterable[Step]) -> Iterator[Problem]:
    """Problems of paths: two steps make one path, or one inside the other's; an input contains outputs."""
    makers: dict[str, str] = {}
    holding: dict[str, str] = {}  # folders, and the first output in each
    for step in steps:
        for path in step.outputs:
            folders = folders_of(path)
            other = next((folder for folder in (path, *folders) if folder in makers), holding.get(path))
            if other is not None:
                also = f"{path} is also made by step {makers[other]}"
                within = f"{path} and {other} of step {makers[other]} are in one another"
                yield ("steps", step.name, "outputs"), also if path == other else within
            makers.setdefault(path, step.name)
            for folder in folders:
                holding.setdefault(folder, path)
    for step in steps:
        for path in step.inputs:
            if (output := holding.get(path)) is not None:
                what = f"{path} holds {output}, which step {makers[output]} makes: name that"
                yield ("steps", step.name, "inputs"), what


def _sort_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Sort steps so that each comes after its predecessors, otherwise stable."""
    place = {step.name: number for number, step in enumerate(steps)}
    sorter: TopologicalSorter[str] = TopologicalSorter(_predecessors(steps))
    free, ordered = list[int](), list[Step]()
    sorter.prepare()
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(free, place[name])
        ordered.append(steps[heapq.heappop(free)])
        sorter.done(ordered[-1].name)
    return tuple(ordered)
