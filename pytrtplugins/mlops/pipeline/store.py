"""What a pipeline's runs need of the engine that remembers steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

from .step import Step

__all__ = ["Outcome", "Store"]

Outcome = Literal["ran", "unchanged", "restored", "failed"]
"""What became of a step: it ran; its outputs fit what they depend on; they were taken from an earlier run; it failed."""


class Store(ABC):
    """Remembers what steps made of what."""

    @abstractmethod
    def changes(self, step: Step) -> list[str] | None:
        """What has changed since the outputs of a step were made, in words; None: they never were."""

    @abstractmethod
    def bring(self, step: Step, *, force: bool, environment: Mapping[str, str]) -> Outcome:
        """Let the outputs of a step fit its inputs, by running it where that is needed.

        Args:
            step: Of the pipeline.
            force: Run it in any case.
            environment: Variables for the program that runs it.
        """

    @abstractmethod
    def digest(self, step: Step) -> str:
        """Of the outputs of a step, as they were when it was done; empty where they never were."""
