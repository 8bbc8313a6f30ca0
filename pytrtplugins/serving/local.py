"""Models in the process of the network code: for few cores, and for breakpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ..errors import PytrtpluginsError, RequestError
from .queue import Item
from .replica import Replica
from .service import Service
from .spec import Limits, ModelSpec
from .statistics import Counts

__all__ = ["LocalBackend"]


class LocalBackend:
    """Models in this process, each with a thread.

    Args:
        specs: What is served.
        limits: Of requests.
    """

    def __init__(self, specs: Sequence[ModelSpec], limits: Limits) -> None:
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "request")
        self._replicas: dict[str, Replica] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        counts = Counts(len(specs))
        self.processes = counts.processes
        self.services = {
            spec.name: Service(spec, self._submit, self._threads, limits, statistics)
            for spec, statistics in zip(specs, counts.statistics, strict=True)
        }

    async def start(self) -> None:
        """Load all models.

        Raises:
            PytrtpluginsError: one cannot be loaded.
        """
        self._loop = asyncio.get_running_loop()
        for service in self.services.values():
            await self._open(service)

    async def load(self, name: str) -> None:
        """Load a model anew; the one that served until now answers what it took.

        Raises:
            RequestError: it cannot be loaded; what served until now stays.
        """
        try:
            await self._open(self.services[name])
        except PytrtpluginsError as error:
            raise RequestError(f"model {name!r}: {error}", status=400) from None

    async def unload(self, name: str) -> None:
        """Answer what waits for a model, then release it."""
        self.services[name].closed("UNAVAILABLE", "unloaded")
        replica = self._replicas.pop(name, None)
        if replica is not None:
            await asyncio.to_thread(replica.close)

    async def stop(self) -> None:
        """Answer what waits, and release all models."""
        for name in self.services:
            await self.unload(name)
        self._threads.shutdown(wait=False)

    async def _open(self, service: Service) -> None:
        replica = await asyncio.to_thread(Replica, service.spec, self._deliver, service.statistics.waits)
        old = self._replicas.get(service.name)
        self._replicas[service.name] = replica
        service.opened(replica.signature)
        if old is not None:
            await asyncio.to_thread(old.close)

    def _submit(self, name: str, item: Item) -> None:
        self._replicas[name].queue.put(item)

    def _deliver(self, items: list[Item]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, items)


def _resolve(items: list[Item]) -> None:
    for item in items:
        if not item.token.done():
            item.token.set_result(None)
