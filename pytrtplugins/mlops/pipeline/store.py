"""Interface of the cache that runs of a pipeline use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

from .step import Step

__all__ = ["Outcome", "Store"]

Outcome = Literal["ran", "unchanged", "restored", "failed"]
"""What became of a step: it ran; its outputs fit what they depend on; they were taken from an earlier run; it failed."""


class Store(ABC):
    """Stores outputs of steps by their inputs."""

    @abstractmethod
    def changes(self, step: Step) -> list[str] | None:
        """What has changed since a step's outputs were made, in words; None if they were never made."""

    @abstractmethod
    def bring(self, step: Step, *, force: bool, environment: Mapping[str, str]) -> Outcome:
        """Bring a step's outputs up to date: run it if needed, or in any case (``force``), with these environment variables."""

    @abstractmethod
    def digest(self, step: Step) -> str:
        """Digest of a step's outputs when it finished; empty if it never did."""
