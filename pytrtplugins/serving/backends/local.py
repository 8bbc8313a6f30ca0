"""Backend with the models in the process of the network code: for few cores, and for debugging."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ...errors import PytrtpluginsError, RequestError
from ...utils.heap import refreeze
from ...utils.prefetch import threads_for_files
from ..batching.queue import QueuedRequest
from ..batching.replica import Replica
from ..model.registered import Source
from ..model.spec import Limits, ModelSpec
from ..shared.statistics import Counts
from .service import Service
from .versions import Services

__all__ = ["LocalBackend"]

_LOST = "it cannot compute any more until the server is started again; with pytrt serve --cpu 1 that happens by itself"


class LocalBackend:
    """Models in this process, each with a thread.

    Args:
        specs: What is served.
        limits: Of requests.
        device: The engine's own name for a device; None: its default.
        counts: Of the server, where other processes have the models, too; None: of this process alone.
        processes: How many have them: they share the cores.
        lost: Called where a model cannot compute any more: what starts processes replaces this one. None: the model is not ready.
    """

    leads = True

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        limits: Limits,
        device: str | None = None,
        *,
        counts: Counts | None = None,
        processes: int = 1,
        lost: Callable[[], object] | None = None,
    ) -> None:
        self._device, self._end = device, lost
        workers = max(1, -(-threads_for_files() // processes))
        self._threads = ThreadPoolExecutor(workers, "request")
        self._replicas: list[Replica | None] = [None] * len(specs)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._to_wake: list[Replica] = []
        self._thread = 0  # of the loop
        counts = counts or Counts(len(specs))
        self.processes = counts.processes
        self.services = Services(
            Service(spec, partial(self._submit, number), self._threads, workers, limits, counts.statistics[number])
            for number, spec in enumerate(specs)
        )

    async def start(self) -> None:
        """Load all models."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        for number in range(len(self._replicas)):
            await self.load_version(number)

    async def load(self, name: str) -> None:
        """Load the versions of a model anew; those that served until now answer what they took.

        Raises:
            RequestError: one cannot be loaded; what served until now stays.
        """
        try:
            for number in self.services.numbers(name):
                await self.load_version(number)
        except PytrtpluginsError as error:
            raise RequestError(f"model {name!r}: {error}", status=400) from None

    def sources(self, number: int) -> set[Source | None]:
        """The version of a registry that is loaded of a version."""
        replica = self._replicas[number]
        return set() if replica is None else {replica.source}

    async def unload(self, name: str) -> None:
        """Answer what waits for a model, then release all its versions."""
        await self._close(name)

    def stopped(self) -> list[str]:
        """Names of models whose thread has ended although they should serve, or that cannot compute any more."""
        return [
            service.name
            for service, replica in zip(self.services.every, self._replicas, strict=True)
            if replica is not None and (service.reason == _LOST or replica.batcher.ended)
        ]

    async def _close(self, name: str) -> None:
        for number in self.services.numbers(name):
            self.services.every[number].set_not_ready("UNAVAILABLE", "unloaded")
            replica, self._replicas[number] = self._replicas[number], None
            if replica is not None:
                await asyncio.to_thread(replica.close)
                del replica
                await asyncio.to_thread(refreeze)

    async def stop(self) -> None:
        """Answer what waits, and release all models."""
        for name in self.services:
            await self._close(name)
        self._threads.shutdown(wait=False)

    async def load_version(self, number: int) -> None:
        """Load a version; it takes new requests, and the previous one finishes those that it has.

        Raises:
            PytrtpluginsError: it cannot be loaded, or must not replace what served until now, which stays.
        """
        service = self.services.every[number]
        watch, lost = service.statistics.waits, self._end or partial(self._lost, service)
        replica = await asyncio.to_thread(
            Replica, service.spec, self._device, self._deliver, watch, lost, immediate=True
        )
        old = self._replicas[number]
        await asyncio.to_thread(replica.check_replaces, old)
        self._replicas[number] = replica
        service.source = replica.source
        service.set_ready(replica.signature)
        if old is not None:
            await asyncio.to_thread(old.close)
            del old
            await asyncio.to_thread(refreeze)

    def _lost(self, service: Service) -> None:
        """Take no more requests for a model that cannot compute any more: only another process could."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(service.set_not_ready, "UNAVAILABLE", _LOST)

    def _submit(self, number: int, item: QueuedRequest) -> None:
        replica = self._replicas[number]
        assert replica is not None  # else the service is closed
        item.source = replica.source
        replica.queue.put(item, wake=False)
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake)
        if replica not in self._to_wake:
            self._to_wake.append(replica)

    def _wake(self) -> None:
        """Wake the models' threads once for all requests of one turn of the event loop, which holds the GIL until then."""
        replicas, self._to_wake = self._to_wake, []
        for replica in replicas:
            if replica.immediate:
                replica.batcher.compute()
            else:
                replica.queue.wake()

    def _deliver(self, items: list[QueuedRequest]) -> None:
        if threading.get_ident() == self._thread:
            _resolve(items)
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, items)


def _resolve(items: list[QueuedRequest]) -> None:
    for item in items:
        item.token(item)
