"""Time several forms of a network while it is built."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...tensor import AnyDims, DType
from ..base.context import Arrays
from ..base.engine import Engine

__all__ = ["run_seconds", "sample_inputs"]

_ROUNDS = 3
_MAX_RUNS = 7
_SECONDS = 0.2  # of one form's runs in one round
_FLOATS = (DType.FLOAT32, DType.FLOAT16)


def run_seconds(runs: Mapping[str, Callable[[], Any]], clock: Callable[[], float] | None = None) -> dict[str, float]:
    """Seconds per run of each form, by name: the lowest of three medians, measured interleaved.

    What else the machine does slows runs down and never speeds them up; in turns, because it comes and goes. One run of
    each turn is not counted: threads of the other form may still be spinning.
    """
    clock = clock or time.perf_counter
    best = {name: float("inf") for name in runs}
    for run in runs.values():
        run()  # what is done once: memory, kernels
    for _ in range(_ROUNDS):
        for name, run in runs.items():
            count = min(max(int(_SECONDS / max(_seconds_of_run(run, clock), 1e-6)), 1), _MAX_RUNS)
            best[name] = min(best[name], float(np.median([_seconds_of_run(run, clock) for _ in range(count)])))
    return best


def sample_inputs(engine: Engine) -> Arrays | None:
    """Inputs of one sample for timing: noise in 0..1, zeros for integers; None if dims other than the batch are free."""
    if any(isinstance(desc.dims, AnyDims) for desc in engine.inputs):
        return None
    random = np.random.default_rng(0)
    inputs: Arrays = {}
    for desc in engine.inputs:
        dims = [1 if axis == 0 and not isinstance(dim, int) else dim for axis, dim in enumerate(desc.dims)]
        if not all(isinstance(dim, int) for dim in dims):
            return None
        values = random.random(dims, np.float32) if desc.dtype in _FLOATS else np.zeros(dims)
        inputs[desc.name] = np.asarray(values).astype(desc.dtype.numpy)
    return inputs


def _seconds_of_run(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    begin = clock()
    run()
    return clock() - begin
