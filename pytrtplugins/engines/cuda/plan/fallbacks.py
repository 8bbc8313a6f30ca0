"""List the steps without a fast path: array functions instead of the engine's kernels, and steps outside of CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from ....utils.listing import first_texts
from .plan import Plan, Step

__all__ = ["ARRAYS", "UNCAPTURED", "fallback", "fallbacks"]

ARRAYS, UNCAPTURED = "run array by array", "run outside of the CUDA graph"
_MAX_NAMES = 5


def fallback(step: Step) -> str:
    """The fallback of a step: `ARRAYS`, `UNCAPTURED`, or empty for none."""
    if not step.capturable:
        return UNCAPTURED
    return ARRAYS if step.kind == "generic" else ""


def fallbacks(plan: Plan) -> dict[str, str]:
    """Kind of fallback → a text: the number of steps, and the first ones by name and operator."""
    by_kind: dict[str, list[Step]] = {}
    for step in plan.steps:
        if how := fallback(step):
            by_kind.setdefault(how, []).append(step)
    return {how: _count_and_names(steps, len(plan.steps)) for how, steps in by_kind.items()}


def _count_and_names(steps: Sequence[Step], of: int) -> str:
    names = first_texts([f"{step.name!r} ({step.op})" for step in steps], _MAX_NAMES, last=", and ")
    return f"{len(steps)} of {of} steps: {names}"
