"""Steps outside of the fast paths: functions of arrays where no kernel of the engine's fits, and what no CUDA graph holds."""

from __future__ import annotations

from collections.abc import Sequence

from .plan import Plan, Step

__all__ = ["ARRAYS", "UNCAPTURED", "fallback", "fallbacks"]

ARRAYS, UNCAPTURED = "run array by array", "run outside of the CUDA graph"
_NAMED = 5


def fallback(step: Step) -> str:
    """How a step falls back, `ARRAYS` or `UNCAPTURED`; empty for one that does not."""
    if not step.capturable:
        return UNCAPTURED
    return ARRAYS if step.kind == "generic" else ""


def fallbacks(plan: Plan) -> dict[str, str]:
    """How steps fall back → how many do, and the first of them by name and operator."""
    found: dict[str, list[Step]] = {}
    for step in plan.steps:
        if how := fallback(step):
            found.setdefault(how, []).append(step)
    return {how: _listed(steps, len(plan.steps)) for how, steps in found.items()}


def _listed(steps: Sequence[Step], of: int) -> str:
    names = [f"{step.name!r} ({step.op})" for step in steps[:_NAMED]]
    more = [f"and {len(steps) - _NAMED} more"] if steps[_NAMED:] else []
    return f"{len(steps)} of {of} steps: {', '.join([*names, *more])}"
