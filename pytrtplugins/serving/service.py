"""A version of a model as the network code sees it: whether it is ready, what it takes, and how a request is answered."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import RequestError, UsageError
from .batcher import failure
from .exchange import CURRENT
from .model import Arrays, Model, Request
from .queue import Item
from .replica import front_model
from .signature import Signature
from .spec import Limits, ModelSpec
from .statistics import Statistics

__all__ = ["Answer", "Service", "Submit"]


class Submit(Protocol):
    """What takes a request to where it is computed; the future in its ``token`` is set once that is done."""

    def __call__(self, item: Item, /) -> None:
        """Take it.

        Raises:
            RequestError: there is no room, or nobody to compute it.
        """


@dataclass(frozen=True)
class Answer:
    """The answer to a request over plain HTTP.

    Attributes:
        value: What `Model.postprocess` returned.
        stages: Seconds of each stage that the request went through, in their order.
    """

    value: Any
    stages: dict[str, float]


class Service:
    """A version of a model as the network code sees it.

    Args:
        spec: What is served.
        submit: Takes requests to where they are computed.
        threads: Where `Model.preprocess` and `Model.postprocess` run.
        limits: Of requests.
        statistics: Where requests are counted.

    Attributes:
        versions: Of its model, the oldest first; its own is among them.
        state: ``READY``, ``LOADING`` or ``UNAVAILABLE``.
        reason: Why it is not ready.
    """

    def __init__(
        self, spec: ModelSpec, submit: Submit, threads: Executor, limits: Limits, statistics: Statistics
    ) -> None:
        self.spec, self.limits, self.statistics = spec, limits, statistics
        self.versions: tuple[str, ...] = (spec.version,)
        self.state, self.reason = "LOADING", ""
        self._submit, self._threads = submit, threads
        self._signature: Signature | None = None
        self._front: Model | None = None

    @property
    def name(self) -> str:
        """In addresses."""
        return self.spec.name

    @property
    def ready(self) -> bool:
        """Whether it takes requests."""
        return self.state == "READY"

    @property
    def signature(self) -> Signature:
        """What it takes and gives.

        Raises:
            RequestError: the model is not ready (503 while it loads, 404 once it is unloaded).
        """
        if self._signature is None or self.state != "READY":
            loading = self.state == "LOADING"
            raise RequestError(
                f"model {self.name!r} is not ready: {self.reason or self.state.lower()}",
                status=503 if loading else 404,
                retry_after=1 if loading else None,
            )
        return self._signature

    def opened(self, signature: Signature) -> None:
        """Take requests from now on."""
        self._front = front_model(self.spec, signature)
        self._signature, self.state, self.reason = signature, "READY", ""

    def closed(self, state: str, reason: str) -> None:
        """Take no requests from now on."""
        self.state, self.reason = state, reason

    async def infer(self, arrays: Arrays, priority: int = 0, timeout_s: float | None = None) -> Item:
        """Compute outputs for inputs that fit the signature, or for files that stand for them.

        Raises:
            RequestError: they do not fit together, the server is too busy, the time is over, or the model failed.
        """
        signature, started = self.signature, time.monotonic()
        if signature.file is not None and arrays.keys() == {signature.file.name}:
            arrays = await self._from_files(arrays)
        self.statistics.began()
        try:
            rows = signature.rows(arrays)
            future = asyncio.get_running_loop().create_future()
            deadline = None if timeout_s is None else started + timeout_s
            item = Item(arrays, rows, signature.key(arrays), priority or self.spec.priority, deadline, future)
            self._submit(item)
            await future
            if item.error is not None:
                raise item.error
        except UsageError as error:
            self.statistics.failed(400)
            raise RequestError(str(error), status=400) from None
        except RequestError as error:
            self.statistics.failed(error.status)
            raise
        finally:
            self.statistics.ended()
        exchange = CURRENT.get()
        if exchange is not None:
            exchange.computed(item, started)
        batch_rows = item.batch_rows if item.leads else 0
        self.statistics.succeeded(rows, batch_rows, time.monotonic() - started, item.queued_s, item.computed_s)
        return item

    async def answer(self, request: Request) -> Answer:
        """Answer a request over plain HTTP: preprocess, predict, postprocess.

        Raises:
            RequestError: one of them failed.
        """
        _, loop = self.signature, asyncio.get_running_loop()
        front = self._front
        assert front is not None
        times = [time.monotonic()]
        arrays = await loop.run_in_executor(self._threads, self._run, front, "preprocess", request)
        times.append(time.monotonic())
        item = await self.infer(arrays)
        times.append(time.monotonic())
        value = await loop.run_in_executor(self._threads, self._run, front, "postprocess", item.outputs, request)
        times.append(time.monotonic())
        preprocess_s, postprocess_s = times[1] - times[0], times[3] - times[2]
        exchange = CURRENT.get()
        if exchange is not None:
            exchange.did("preprocess", *times[:2])
            exchange.did("postprocess", *times[2:])
        self.statistics.answered(preprocess_s, postprocess_s)
        stages = {
            "preprocess": preprocess_s,
            "queue": item.queued_s,
            "compute": item.computed_s,
            "postprocess": postprocess_s,
        }
        return Answer(value, stages)

    async def _from_files(self, arrays: Arrays) -> Arrays:
        """Preprocess files, if they are some."""
        (files,) = arrays.values()
        if files.dtype.kind != "O":
            return arrays
        if (len(files) != 1 and not self.signature.joined) or not len(files):
            raise RequestError(f"expected {'files' if self.signature.joined else 'one file'}, found {len(files)}")
        loop, front, started = asyncio.get_running_loop(), self._front, time.perf_counter()
        assert front is not None
        parts = await asyncio.gather(
            *(
                loop.run_in_executor(
                    self._threads,
                    self._run,
                    front,
                    "preprocess",
                    Request(data, max_image_bytes=self.limits.image_bytes),
                )
                for data in files.tolist()
            )
        )
        self.statistics.answered(time.perf_counter() - started, 0.0)
        return (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        )

    def _run(self, front: Model, method: str, *arguments: Any) -> Any:
        try:
            return getattr(front, method)(*arguments)
        except Exception as error:  # whatever the user's model does
            told = failure(front, method, error)
            self.statistics.failed(told.status)
            raise told from None
