"""Backend whose models clients cannot load or unload."""

from __future__ import annotations

from typing import Any

from ...errors import RequestError
from .backend import Backend

__all__ = ["OF_SEVERAL", "REMOTE_CONTROL_REFUSED", "ReadOnlyBackend"]

REMOTE_CONTROL_REFUSED = (
    "clients from other machines may load and unload models only with a key of the role admin (pytrt serve --keys), "
    "or where the server was started with --allow-control"
)
OF_SEVERAL = (
    "each process of this server has its models itself (--gpu 0): to load or unload one, start the server again"
)


class ReadOnlyBackend:
    """A backend whose models clients can neither load nor unload."""

    def __init__(self, backend: Backend, reason: str = REMOTE_CONTROL_REFUSED) -> None:
        self._backend, self._reason = backend, reason

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def load(self, name: str) -> None:
        """Refuse."""
        raise RequestError(self._reason, status=403)

    async def unload(self, name: str) -> None:
        """Refuse."""
        raise RequestError(self._reason, status=403)
