"""Where a run's time goes: step by step, as a table, a trace for Chrome and a bar chart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...tensor import Array
from ...utils.atomic import write_atomic
from ...utils.figures import PALETTE, drawing, save
from .conv.problem import ConvProblem
from .conv.step import conv_problem
from .operators import computed
from .plan.fallbacks import fallback
from .plan.plan import Plan, Step
from .run.context import CudaContext

__all__ = ["Profile", "StepTime", "profile"]


@dataclass(frozen=True)
class StepTime:
    """One step.

    Attributes:
        name: The node's.
        kind: ``"conv"``, ``"pool"``, ``"plugin"`` ….
        kernel: Which kernel runs a convolution; of steps that wait for the host what they do there; empty for others.
        microseconds: How long it takes, alone, its data in the cache.
        operations: Floating-point or integer operations of a convolution.
        bytes: Of tensors and weights that it reads and writes.
        stream: Which stream it runs on.
        fallback: How it falls back (`pytrtplugins.engines.cuda.plan.fallbacks`); empty where a kernel of the engine's runs it.
    """

    name: str
    kind: str
    kernel: str
    microseconds: float
    operations: int
    bytes: int
    stream: int
    fallback: str = ""


@dataclass(frozen=True)
class Profile:
    """A network's steps, and the whole.

    Attributes:
        steps: In order.
        microseconds: Of the whole run on the GPU, as one graph.
    """

    steps: tuple[StepTime, ...]
    microseconds: float

    @property
    def table(self) -> str:
        """One line a step, the sum, and the share of steps that fall back."""
        width = max([len(step.name) for step in self.steps] + [4])
        total = sum(step.microseconds for step in self.steps)
        lines = [f"{'step':<{width}}  {'kind':<8}  {'µs':>8}  {'%':>5}  {'TOP/s':>6}  {'GB/s':>6}  kernel"]
        for step in self.steps:
            rate = step.operations / step.microseconds / 1e6 if step.microseconds else 0.0
            bandwidth = step.bytes / step.microseconds / 1e3 if step.microseconds else 0.0
            lines.append(
                f"{step.name:<{width}}  {step.kind:<8}  {step.microseconds:8.2f}  {100 * step.microseconds / total:5.1f}  "
                f"{f'{rate:.1f}' if step.operations else '':>6}  {bandwidth:6.0f}  {step.kernel}".rstrip()
            )
        lines.append(f"{'sum':<{width}}  {'':<8}  {total:8.2f}")
        lines.append(f"{'one graph':<{width}}  {'':<8}  {self.microseconds:8.2f}")
        for how in dict.fromkeys(step.fallback for step in self.steps if step.fallback):
            times = [step.microseconds for step in self.steps if step.fallback == how]
            share = 100 * sum(times) / total if total else 0.0
            lines.append(f"{how}: {len(times)} steps, {sum(times):.2f} µs, {share:.1f} % of the sum")
        return "\n".join(lines)

    def write_trace(self, path: str | Path) -> None:
        """Write the steps as a trace that chrome://tracing and Perfetto open, end to end on their streams."""
        events: list[dict[str, Any]] = []
        begin = 0.0
        for step in self.steps:
            events.append(
                {"name": step.name, "cat": step.kind, "ph": "X", "ts": begin, "dur": step.microseconds, "pid": 0,
                 "tid": step.stream, "args": {"kernel": step.kernel, "operations": step.operations, "bytes": step.bytes}}
            )  # fmt: skip
            begin += step.microseconds
        write_atomic(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, indent=1).encode())

    def draw(self, path: str | Path, title: str = "") -> None:
        """Draw a bar for each step, coloured by its kind."""
        with drawing(8, max(2.0, 0.22 * len(self.steps) + 1)) as figure:
            axes = figure.add_subplot()
            kinds = list(dict.fromkeys(step.kind for step in self.steps))
            for number, kind in enumerate(kinds):
                rows = [(row, step.microseconds) for row, step in enumerate(self.steps) if step.kind == kind]
                hatch = ("", "///", "...")[number // len(PALETTE) % 3]
                axes.barh(
                    [row for row, _ in rows], [time for _, time in rows], color=f"C{number}", hatch=hatch, label=kind
                )
            axes.set_yticks(range(len(self.steps)), [step.name for step in self.steps], fontsize=7)
            axes.invert_yaxis()
            axes.set_xlabel("µs")
            axes.set_title(title or f"{self.microseconds:.0f} µs as one graph")
            figure.legend(loc="outside right upper")
            save(figure, Path(path))


def profile(context: CudaContext, inputs: Mapping[str, Array], runs: int = 20) -> Profile:
    """Time a network's steps.

    Args:
        context: Of an engine ``cuda``.
        inputs: As for a run.
        runs: How often each step is repeated.
    """
    whole, times, plan = context.step_times(inputs, runs)
    steps = [
        step_time(step, plan, microseconds, _kernel(context, step, plan), stream)
        for step, microseconds, stream in zip(plan.steps, times, plan.schedule.streams, strict=True)
    ]
    return Profile(tuple(steps), whole)


def step_time(step: Step, plan: Plan, microseconds: float, kernel: str, stream: int) -> StepTime:
    """A step with what it does."""
    problem = _problem(step, plan)
    weights = "" if problem is None else step.inputs[1]
    moved = sum(_bytes(plan, name) for name in (*step.inputs, *step.outputs) if name not in ("", weights))
    if problem is not None:  # weights are packed in the type that is multiplied
        moved += plan.constants[weights].size * (problem.element or problem.x.dtype).itemsize
    return StepTime(
        step.name,
        step.kind,
        kernel,
        microseconds,
        0 if problem is None else problem.flops,
        moved,
        stream,
        fallback(step),
    )


def _bytes(plan: Plan, name: str) -> int:
    if name in plan.tensors:
        form = plan.tensors[name].format
        count = 1
        for side in form.dims:
            count *= side
        return count * form.dtype.itemsize
    array = plan.constants.get(name)
    return 0 if array is None else int(array.nbytes)


def _problem(step: Step, plan: Plan) -> ConvProblem | None:
    return conv_problem(step, plan, True) if step.kind == "conv" else None


def _kernel(context: CudaContext, step: Step, plan: Plan) -> str:
    if step.kind == "tail":
        return f"{step.attributes['nodes']} nodes, run one by one from the host"
    if step.kind == "generic" and computed(step.op, step.inputs, plan.constants):
        return "waits for values on the host"
    if step.kind != "conv":
        return ""
    selector = context.engine.selector
    problem = conv_problem(step, plan, selector.tf32)
    return ": ".join(choice.title for _, choice in selector.chosen(problem))
