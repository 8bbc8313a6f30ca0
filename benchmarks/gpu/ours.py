"""Engine ``cuda``, ready to run."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.plan.fallbacks import ARRAYS, UNCAPTURED, fallback
from pytrtplugins.engines.cuda.plan.plan import Plan
from pytrtplugins.passes import CODES

from .ceilings import kernels
from .clock import Clock
from .running import Running, pinned_copy
from .subject import Subject


def build(subject: Subject, precision: str, batch: int, disable: tuple[str, ...] = ()) -> ptp.Engine:
    """The engine, perhaps without some of its steps, which is no reason to compute in float; kernels are timed where they were not."""
    return ptp.build(
        subject.model,
        engine="cuda",
        precision=precision,
        calibration=subject.table if precision in CODES else None,
        settings={"batch": [batch], "disable": list(disable), **({"int8": "always"} if disable else {})},
        progress=False,
    )


@functools.cache
def whole(subject: Subject, precision: str, batch: int) -> ptp.Engine:
    """The engine with all of its steps, built once for all rows."""
    return build(subject, precision, batch)


def network(
    engine: Any, batch: int, clock: Clock, head: np.ndarray | None = None, x: np.ndarray | None = None
) -> Running:
    """An engine whose network has one input, one output and a free batch; the caller may give memory for the output.

    Where the images ``x`` are given, runs that are queued read them, as a peer's graph reads its own. Without them they read what
    the run before left in the input's memory, which other tensors share.

    Its facts are how many steps it has, and which operators become functions of arrays or run outside of CUDA graphs.
    """
    context, (given,), (found,) = engine.create_context(), engine.inputs, engine.outputs
    images = {} if x is None else {given.name: engine.device.upload(np.ascontiguousarray(x))}
    execution = engine.execution(
        {dim.name: batch for dim in given.dims if not isinstance(dim, int)}, outside=lambda plan: images
    )
    if "graph" not in engine.disabled:
        execution.capture(clock.stream)

    def close() -> None:
        execution.close()
        context.close()

    graphs = [segment.graph for segment in execution.segments]
    return Running(
        lambda x: context.run({given.name: x}, {} if head is None else {found.name: head})[found.name],
        lambda: execution.queue(clock.stream),
        None if None in graphs else sum(kernels(graph.graph) for graph in graphs),
        execution.plan.memory.bytes,
        facts=step_facts(execution.plan),
        close=close,
    )


def step_facts(plan: Plan) -> dict[str, Any]:
    """How many steps a plan has, and the operators that run array by array or outside of the CUDA graph, with their numbers."""
    arrays = Counter(step.op for step in plan.steps if fallback(step) == ARRAYS)
    outside = Counter(step.op for step in plan.steps if fallback(step) == UNCAPTURED)
    return {"steps": len(plan.steps), "arrays": dict(arrays), "outside": dict(outside)}


def ours(precision: str, disable: tuple[str, ...] = ()) -> Callable[[Subject, Clock, int], Running]:
    """This package."""

    def make(subject: Subject, clock: Clock, batch: int) -> Running:
        engine = build(subject, precision, batch, disable) if disable else whole(subject, precision, batch)
        return network(engine, batch, clock)

    return make


def ours_pinned(precision: str) -> Callable[[Subject, Clock, int], Running]:
    """This package, called with arrays in pinned memory."""

    def make(subject: Subject, clock: Clock, batch: int) -> Running:
        head = pinned_copy(np.full_like(subject.head[:batch], np.nan))
        return replace(network(whole(subject, precision, batch), batch, clock, head), queue=None, place=pinned_copy)

    return make
