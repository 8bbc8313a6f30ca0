"""Replicas without a GPU that only decode, before replicas that compute: a request crosses Ray twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ...errors import RequestError, UsageError
from ...utils.optional import require
from ...utils.prefetch import threads_for_files
from ..backends.service import Service
from ..backends.versions import Services
from ..batching.queue import QueuedRequest
from ..model.model import Arrays
from ..model.registered import is_registered
from ..model.signature import Signature
from ..model.spec import Limits, ModelSpec
from ..shared.statistics import Counts
from .replica import FixedBackend, ReplicaBackend

__all__ = ["ChainBackend", "Engines", "check_chain"]

_TRIES = 3  # inference is pure: a request whose replica died is computed by another


def check_chain(specs: Sequence[ModelSpec]) -> None:
    """Refuse models that cannot be served by a chain.

    Raises:
        UsageError: a canary or a shadow: each link of the chain would choose, or copy; or a model of a registry.
    """
    for spec in specs:
        if spec.share or spec.shadow:
            raise UsageError(
                f"{spec.name}, version {spec.version}: a canary or a shadow cannot be served with cpu_replicas.\n"
                "Do: leave out share and shadow, or cpu_replicas"
            )
        if is_registered(spec.target):
            raise UsageError(
                f"{spec.target}: a model of a registry cannot be served with cpu_replicas: answers do not carry its version.\n"
                "Do: leave out cpu_replicas"
            )


class Engines:
    """The models, in a replica that computes."""

    def __init__(self, specs: Sequence[ModelSpec], limits: Limits) -> None:
        self.backend = ReplicaBackend(specs, limits)

    def signatures(self) -> list[dict[str, Any]]:
        """Signature of each model, in JSON types."""
        return [service.signature.to_json() for service in self.backend.services.every]

    async def infer(self, number: int, arrays: Arrays, priority: int, timeout_s: float | None) -> dict[str, Any]:
        """Compute outputs; an error is data too, as Ray would wrap an exception."""
        try:
            item = await self.backend.services.every[number].infer(arrays, priority, timeout_s)
        except RequestError as error:
            return {"error": str(error), "status": error.status, "retry_after": error.retry_after}
        return {name: getattr(item, name) for name in ("outputs", "queued_s", "computed_s", "batch_rows", "leads")}


class ChainBackend(FixedBackend):
    """Backend of a replica that decodes: sends requests to computing replicas."""

    def __init__(self, specs: Sequence[ModelSpec], limits: Limits, engines: Any) -> None:
        workers, counts = threads_for_files(), Counts(len(specs))
        self._threads = ThreadPoolExecutor(workers, "request")
        self._engines = engines
        self._tasks: set[asyncio.Task[None]] = set()
        self.processes = counts.processes
        self.services = Services(
            Service(spec, partial(self._submit, number), self._threads, workers, limits, counts.statistics[number])
            for number, spec in enumerate(specs)
        )

    async def start(self) -> None:
        """Get the models' signatures, once."""
        if any(service.ready for service in self.services.every):
            return
        for service, signature in zip(self.services.every, await self._engines.signatures.remote(), strict=True):
            service.set_ready(Signature.from_json(signature))

    async def stop(self) -> None:
        """Answer what waits."""
        await asyncio.gather(*self._tasks)
        self._threads.shutdown(wait=False)

    def _submit(self, number: int, item: QueuedRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._compute(number, item))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compute(self, number: int, item: QueuedRequest) -> None:
        try:
            answer = await self._ask(number, item)
            if "error" in answer:
                item.error = RequestError(answer["error"], status=answer["status"], retry_after=answer["retry_after"])
            else:
                for name, value in answer.items():
                    setattr(item, name, value)
        except Exception as error:  # whatever Ray raises
            item.error = RequestError(f"no replica computed the request: {type(error).__name__}", status=500)
        item.token(item)

    async def _ask(self, number: int, item: QueuedRequest) -> dict[str, Any]:
        died = require("ray.exceptions", extra="serve-ray", package="ray").RayActorError
        timeout_s = None if item.deadline is None else item.deadline - item.arrived
        for tries_left in reversed(range(_TRIES)):
            try:
                answer: dict[str, Any] = await self._engines.infer.remote(number, item.arrays, item.priority, timeout_s)
                return answer
            except died:
                if not tries_left:
                    raise
        raise AssertionError
