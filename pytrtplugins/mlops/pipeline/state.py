"""The state of a step between runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["State", "StepState"]

State = Literal["done", "stale", "never run", "failed", "waiting for approval", "running", "to come"]
"""``stale``: something that its outputs depend on has changed since they were made. The last two are of a run that goes on."""


@dataclass(frozen=True)
class StepState:
    """The state of a step.

    Attributes:
        step: Its name.
        state: How far it is.
        reason: Why it is stale, failed or waits.
        seconds: How long it took when it ran last.
        digest: Of its outputs; empty where there are none.
        figures: The numbers in its metrics.
        log: Its log file; empty where there is none.
    """

    step: str
    state: State
    reason: str = ""
    seconds: float = 0.0
    digest: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    log: str = ""
