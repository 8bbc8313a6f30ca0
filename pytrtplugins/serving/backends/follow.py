"""Follow a registry: when another version enters the stage, load it in place of the present one."""

from __future__ import annotations

import asyncio
import logging
import time

from ...errors import PytrtpluginsError
from ..model.registered import current, is_registered, state
from .backend import VersionedBackend
from .service import Service

__all__ = ["follow_registry"]

_log = logging.getLogger(__name__)
_EVERY_S = 1.0
_AGAIN_S = 30.0  # after a version could not be loaded, or the registry could not be read


async def follow_registry(backend: VersionedBackend, every_s: float | None = None) -> None:
    """Load the version that a registry names, whenever that is another than the one that is loaded, until this task is cancelled.

    What is loaded stays where the other cannot be; that is logged, and tried again later, and as soon as the registry changes.
    """
    models = [
        _RegistryFollower(backend, number, service)
        for number, service in enumerate(backend.services.every)
        if is_registered(service.spec.target)
    ]
    while models:
        await asyncio.sleep(_EVERY_S if every_s is None else every_s)
        for model in models:
            await model.keep_up()


class _RegistryFollower:
    """A served version whose engine file comes from a registry."""

    def __init__(self, backend: VersionedBackend, number: int, service: Service) -> None:
        self._backend, self._number, self._service = backend, number, service
        self._seen: object = ()
        self._again = 0.0  # when to look again, though nothing changed

    async def keep_up(self) -> None:
        """Check whether the registry names another version, and load it."""
        spec, now = self._service.spec, time.monotonic()
        registry_state = state(spec.target, spec.registry)
        if not self._service.ready or (registry_state == self._seen and now < self._again):
            return
        try:
            target_version = await asyncio.to_thread(current, spec.target, spec.registry)
            if self._backend.sources(self._number) != {target_version}:
                await self._backend.load_version(self._number)
                _log.info(
                    "%s: version %s is served, %s", self._service.name, target_version.version, target_version.digest
                )
        except (PytrtpluginsError, OSError) as error:
            _log.error("%s: %s\n%s stays as it is", spec.target, error, self._service.name)
            self._again = now + _AGAIN_S
        else:
            self._again = float("inf") if self._backend.sources(self._number) == {target_version} else now
        self._seen = registry_state
