"""Models in a replica, where the cluster decides what is loaded."""

from __future__ import annotations

from ...errors import RequestError
from ..backends.local import LocalBackend

__all__ = ["Fixed", "ReplicaBackend"]


class Fixed:
    """A backend whose models clients cannot change: their request would reach one replica of several."""

    async def load(self, name: str) -> None:
        """Refuse.

        Raises:
            RequestError: always.
        """
        raise _refused(name)

    async def unload(self, name: str) -> None:
        """Refuse.

        Raises:
            RequestError: always.
        """
        raise _refused(name)


class ReplicaBackend(Fixed, LocalBackend):
    """Models in this process, which is a replica of several."""

    async def start(self) -> None:
        """Load all models; those that are loaded stay."""
        if not any(service.ready for service in self.services.every):
            await super().start()


def _refused(name: str) -> RequestError:
    return RequestError(
        f"model {name!r}: the cluster decides what is loaded, since this request reaches one replica of several; "
        "deploy the application again",
        status=400,
    )
