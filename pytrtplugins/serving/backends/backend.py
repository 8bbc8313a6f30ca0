"""Interface between the network code and the models: load, unload, start, stop."""

from __future__ import annotations

from typing import Protocol

from ..model.registered import Source
from ..shared.statistics import Processes
from .versions import Services

__all__ = ["Backend", "VersionedBackend"]


class Backend(Protocol):
    """Loads models and computes requests: in this process, or in others."""

    services: Services
    processes: Processes

    async def start(self) -> None:
        """Load all models."""

    async def load(self, name: str) -> None:
        """Load the versions of a model anew; those that served until now answer what they took.

        Raises:
            RequestError: one cannot be loaded; what served until now stays.
        """

    async def unload(self, name: str) -> None:
        """Answer what waits for a model, then release all its versions."""

    async def stop(self) -> None:
        """Answer what waits, and release all models."""


class VersionedBackend(Backend, Protocol):
    """A backend whose models may change while it serves.

    Attributes:
        leads: Whether this process, of all that share engine processes, sees to it that these have the versions that a registry names.
    """

    leads: bool

    async def load_version(self, number: int) -> None:
        """Load one version, by its number in `services`."""

    def sources(self, number: int) -> set[Source | None]:
        """Loaded registry versions of a served version: several while one replaces another."""
