"""A version of a model for the network code: readiness, signature, and answering requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...errors import RequestError, UsageError
from ..access.exchange import CURRENT
from ..batching.batcher import client_error
from ..batching.queue import QueuedRequest
from ..batching.replica import front_model
from ..model.model import Arrays, Model, Request
from ..model.registered import Source
from ..model.signature import Signature
from ..model.spec import Limits, ModelSpec
from ..shared.statistics import Statistics

__all__ = ["Answer", "Service", "Submit"]


class Submit(Protocol):
    """Type of functions that queue a request; its ``token`` is called with it when it is finished."""

    def __call__(self, item: QueuedRequest, /) -> None:
        """Take it."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request over plain HTTP.

    Attributes:
        value: What `Model.postprocess` returned.
        stages: Seconds of each stage that the request went through, in their order.
        source: The version of a registry that computed it; None: it is of none.
    """

    value: Any
    stages: dict[str, float]
    source: Source | None = None


class Service:
    """A version of a model for the network code.

    Args:
        spec: What is served.
        submit: Takes requests to where they are computed.
        threads: Where `Model.preprocess` and `Model.postprocess` run.
        workers: How many threads these are.
        limits: Of requests.
        statistics: Where requests are counted.

    Attributes:
        siblings: The versions of its model, the oldest first; it is among them.
        shadows: Versions of its model that get a copy of each request.
        state: ``READY``, ``LOADING`` or ``UNAVAILABLE``.
        reason: Why it is not ready.
        source: The version of a registry that is loaded; None: it is of none.
    """

    def __init__(
        self,
        spec: ModelSpec,
        submit: Submit,
        threads: Executor,
        workers: int,
        limits: Limits,
        statistics: Statistics,
    ) -> None:
        self.spec, self.limits, self.statistics = spec, limits, statistics
        self.siblings: tuple[Service, ...] = (self,)
        self.shadows: tuple[Service, ...] = ()
        self.source: Source | None = None
        self._copies = 0
        self.state, self.reason = "LOADING", ""
        self._submit, self._threads, self._workers = submit, threads, workers
        self._decoding = 0  # requests in `preprocess` whose files the CPU decodes
        self._turns = asyncio.Semaphore(
            workers
        )  # so that a flood of requests leaves the threads to other models in turn
        self._signature: Signature | None = None
        self._front: Model | None = None

    @property
    def name(self) -> str:
        """The model's name in paths."""
        return self.spec.name

    @property
    def version(self) -> str:
        """The version in paths and answers: the registry's if it comes from one."""
        return self.spec.version if self.source is None else self.source.version

    @property
    def ready(self) -> bool:
        """Whether it accepts requests."""
        return self.state == "READY"

    @property
    def signature(self) -> Signature:
        """Its inputs and outputs.

        Raises:
            RequestError: the model is not ready (503 while it loads, 404 once it is unloaded).
        """
        if self._signature is None or self.state != "READY":
            loading = self.state == "LOADING"
            raise RequestError(
                f"Request for unknown model: {self.name!r} has no available versions: it is not ready: {self.reason or self.state.lower()}",
                status=503 if loading else 404,
                retry_after=1 if loading else None,
            )
        return self._signature

    @property
    def takes_files(self) -> bool:
        """Whether requests may have files, which become tensors in other threads first."""
        return self._signature is not None and self._signature.file_input is not None

    def set_ready(self, signature: Signature) -> None:
        """Accept requests from now on."""
        self._front = front_model(self.spec, signature)
        self._signature, self.state, self.reason = signature, "READY", ""

    def set_not_ready(self, state: str, reason: str) -> None:
        """Accept no requests from now on."""
        self.state, self.reason = state, reason

    async def infer(self, arrays: Arrays, priority: int = 0, timeout_s: float | None = None) -> QueuedRequest:
        """Compute outputs for inputs that fit the signature, or for files in place of them.

        Raises:
            RequestError: they do not fit together, the server is too busy, the time is over, or the model failed.
        """
        deadline, file = None if timeout_s is None else time.monotonic() + timeout_s, self.signature.file
        if file is not None and arrays.keys() == {file.name} and arrays[file.name].dtype.kind == "O":
            return await self._infer_files(arrays[file.name].tolist(), priority, deadline)
        return await self._infer(arrays, priority, deadline)

    async def answer(self, request: Request) -> Answer:
        """Answer a request over plain HTTP: preprocess, predict, postprocess.

        Raises:
            RequestError: one of them failed.
        """
        stages = dict.fromkeys(("preprocess", "queue", "compute", "postprocess"), 0.0)
        item, on_device = await self._compute(request, stages)
        started = time.monotonic()
        if self._run("quick", request):
            value = self._run("postprocess", item.outputs, request)
            _record_stage("postprocess", started)
        else:
            value = await self._in_thread("postprocess", item.outputs, request)
        stages["postprocess"] = time.monotonic() - started
        self.statistics.answered(stages["preprocess"], stages["postprocess"], on_device)
        return Answer(value, stages, item.source)

    def begin(
        self, arrays: Arrays, priority: int, timeout_s: float | None, then: Callable[[QueuedRequest], object]
    ) -> None:
        """Start to compute outputs for inputs that fit the signature; ``then`` is called at the end, and must call `end`.

        Raises:
            RequestError: they do not fit together, or the server is too busy.
        """
        self._begin(arrays, priority, None if timeout_s is None else time.monotonic() + timeout_s, then)

    def _begin(
        self, arrays: Arrays, priority: int, deadline: float | None, then: Callable[[QueuedRequest], object]
    ) -> None:
        signature = self.signature
        self._hand_over(arrays, signature, priority, deadline, then)
        for shadow in self.shadows:
            shadow.run_shadow(arrays, signature)

    async def _infer(self, arrays: Arrays, priority: int = 0, deadline: float | None = None) -> QueuedRequest:
        started = time.monotonic()
        future: asyncio.Future[QueuedRequest] = asyncio.get_running_loop().create_future()

        def told(item: QueuedRequest) -> None:
            if not future.done():
                future.set_result(item)

        self._begin(arrays, priority, deadline, told)
        try:
            item = await future
        except asyncio.CancelledError:
            self.statistics.ended()
            raise
        self.end(item)
        exchange = CURRENT.get()
        if exchange is not None:
            exchange.add_computation(item, started)
        return item

    def run_shadow(self, arrays: Arrays, signature: Signature) -> None:
        """Run a copy of another version's request on this shadow version; its answer is dropped."""
        own = self._signature
        if not self.ready or own is None:
            self.statistics.failed(503)
        elif (signature.inputs, signature.decodes) != (own.inputs, own.decodes):
            self.statistics.failed(400)
        elif self._copies >= self.spec.queue:
            self.statistics.failed(503)
        else:
            self._copies += 1
            try:
                self._hand_over(arrays, own, 0, None, self._end_shadow)
            except RequestError:  # it is counted
                self._copies -= 1

    def _end_shadow(self, item: QueuedRequest) -> None:
        self._copies -= 1
        with suppress(RequestError):  # it is counted
            self.end(item)

    def _hand_over(
        self,
        arrays: Arrays,
        signature: Signature,
        priority: int,
        deadline: float | None,
        then: Callable[[QueuedRequest], object],
    ) -> None:
        """Queue a request; ``then`` must call `end`."""
        self.statistics.began()
        try:
            rows = signature.rows(arrays)
            self._submit(
                QueuedRequest(arrays, rows, signature.key(arrays), priority or self.spec.priority, deadline, then)
            )
            return
        except UsageError as error:
            refusal = RequestError(str(error), status=400)
        except RequestError as error:
            refusal = error
        self.statistics.ended()
        self.statistics.failed(refusal.status)
        raise refusal

    def end(self, item: QueuedRequest) -> None:
        """Count a request that is done.

        Raises:
            RequestError: it failed.
        """
        self.statistics.ended()
        if item.error is not None:
            self.statistics.failed(item.error.status if isinstance(item.error, RequestError) else 500)
            raise item.error
        batch_rows = item.batch_rows if item.leads else 0
        self.statistics.succeeded(
            item.rows, batch_rows, time.monotonic() - item.arrived, item.queued_s, item.computed_s
        )

    async def _infer_files(self, files: list[bytes], priority: int, deadline: float | None) -> QueuedRequest:
        """Preprocess files, and compute outputs for them together."""
        joined, started, on_device = self.signature.joined, time.perf_counter(), False
        if (len(files) != 1 and not joined) or not files:
            raise RequestError(
                f"the request has {len(files)} files; the model takes {'one or more' if joined else 'one'}"
            )
        requests = [Request(data, max_image_bytes=self.limits.image_bytes) for data in files]
        stages = dict.fromkeys(("preprocess", "queue", "compute"), 0.0)
        if len(requests) == 1:
            item, on_device = await self._compute(requests[0], stages, priority, deadline)
        else:
            parts = await asyncio.gather(*map(self._preprocess, requests))
            stages["preprocess"] = time.perf_counter() - started
            item = await self._infer(
                {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, priority, deadline
            )
        self.statistics.answered(stages["preprocess"], 0.0, on_device)
        return item

    async def _compute(
        self, request: Request, stages: dict[str, float], priority: int = 0, deadline: float | None = None
    ) -> tuple[QueuedRequest, bool]:
        """Preprocess and predict; returns whether the engine's device decoded the file. Adds to the seconds of the stages."""
        on_device = self.signature.decodes and (self.spec.decode == "gpu" or self._decoding >= self._workers)
        if on_device:
            started = time.monotonic()
            arrays = self._run("encoded", request)
            stages["preprocess"] = _record_stage("preprocess", started)
            if arrays is not None:
                item = await self._predict(arrays, stages, priority, deadline)
                if item.outputs:
                    return item, True
        started = time.perf_counter()
        arrays = await self._preprocess(request)
        stages["preprocess"] += time.perf_counter() - started
        return await self._predict(arrays, stages, priority, deadline), False

    async def _predict(
        self, arrays: Arrays, stages: dict[str, float], priority: int, deadline: float | None
    ) -> QueuedRequest:
        item = await self._infer(arrays, priority, deadline)
        stages["queue"] += item.queued_s
        stages["compute"] += item.computed_s
        return item

    async def _preprocess(self, request: Request) -> Arrays:
        if self._decoding >= self._workers + self.spec.queue:
            self.statistics.failed(503)
            text = f"Exceeds maximum queue size: {self.spec.queue} requests wait for preprocess already"
            raise RequestError(text, status=503, retry_after=1)
        self._decoding += 1
        try:
            async with self._turns:
                arrays: Arrays = await self._in_thread("preprocess", request)
        finally:
            self._decoding -= 1
        return arrays

    async def _in_thread(self, method: str, *arguments: Any) -> Any:
        loop, started = asyncio.get_running_loop(), time.monotonic()
        result = await loop.run_in_executor(self._threads, self._run, method, *arguments)
        _record_stage(method, started)
        return result

    def _run(self, method: str, *arguments: Any) -> Any:
        front = self._front
        assert front is not None  # a model that has a signature has one
        try:
            return getattr(front, method)(*arguments)
        except (Exception, SystemExit) as error:  # whatever the user's model does
            refusal = client_error(front, method, error)
            self.statistics.failed(refusal.status)
            raise refusal from None


def _record_stage(stage: str, began: float) -> float:
    """Seconds since a stage began; also recorded in the task's exchange."""
    exchange, ended = CURRENT.get(), time.monotonic()
    if exchange is not None:
        exchange.add_stage(stage, began, ended)
    return ended - began
