"""Backend of a replica, whose models the cluster chooses."""

from __future__ import annotations

from ...errors import RequestError
from ..backends.local import LocalBackend

__all__ = ["FixedBackend", "ReplicaBackend"]


class FixedBackend:
    """A backend whose models clients cannot change: their request would reach only one of several replicas."""

    async def load(self, name: str) -> None:
        """Refuse."""
        raise _refusal(name)

    async def unload(self, name: str) -> None:
        """Refuse."""
        raise _refusal(name)


class ReplicaBackend(FixedBackend, LocalBackend):
    """Models in this process, which is one of several replicas."""

    async def start(self) -> None:
        """Load all models; those that are loaded stay."""
        if not any(service.ready for service in self.services.every):
            await super().start()


def _refusal(name: str) -> RequestError:
    return RequestError(
        f"model {name!r}: the cluster decides what is loaded, since this request reaches one replica of several; "
        "deploy the application again",
        status=400,
    )
