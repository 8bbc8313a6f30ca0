"""Models that clients cannot load or unload."""

from __future__ import annotations

from typing import Any

from ...errors import RequestError
from .backend import Backend

__all__ = ["Fixed"]


class Fixed:
    """A backend whose models clients can neither load nor unload.

    Args:
        backend: Does all else.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def load(self, name: str) -> None:
        """Refuse.

        Raises:
            RequestError: always (403).
        """
        raise _refused()

    async def unload(self, name: str) -> None:
        """Refuse.

        Raises:
            RequestError: always (403).
        """
        raise _refused()


def _refused() -> RequestError:
    return RequestError(
        "clients from other machines may load and unload models only with a key of the role admin (pytrt serve --keys), "
        "or where the server was started with --allow-control",
        status=403,
    )
