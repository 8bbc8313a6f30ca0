"""A request with its answer, as keys, logs and traces use them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ...errors import RequestError

if TYPE_CHECKING:
    from ..batching.queue import QueuedRequest
    from ..model.registered import Source
    from .keys import Key

__all__ = ["CURRENT", "Exchange", "enter"]

_ID = re.compile(r"[\x21-\x7e]{1,128}")
_MOST_STAGES = 64  # of a stream that has many requests


class Exchange:
    """A request with its answer.

    Args:
        protocol: ``http`` or ``grpc``.
        method: Of HTTP; or the name of the gRPC method.
        path: Of the address, without the query.
        headers: By their names in lower case.
        client: The client's address.

    Attributes:
        id: The client's ``X-Request-Id``, or a new one.
        key: Whose request it is; None: keys are off, or it has none.
        admitted: Whether its key was counted.
        charge: Counts a further request of a stream, for its key; None: there are none.
        model: Which model it is for; empty: none, or it was refused before that was known.
        status: HTTP's code, or the name of gRPC's.
        received: Bytes of the body.
        sent: Bytes of the answer's body.
        stages: Name, begin (`time.monotonic`) and seconds of what was done for it.
        source: The version of a registry that computed it, of several the last; None: it is of none.
        requests: Inference requests that were computed: 1, or those of a stream.
        began: When it came, by `time.monotonic`.
        time_ns: The same by `time.time_ns`.
        trace: The trace's number, where it is traced.
    """

    __slots__ = (
        "admitted",
        "began",
        "charge",
        "client",
        "headers",
        "id",
        "key",
        "method",
        "model",
        "path",
        "protocol",
        "received",
        "requests",
        "sent",
        "source",
        "stages",
        "status",
        "time_ns",
        "trace",
    )

    def __init__(self, protocol: str, method: str, path: str, headers: Mapping[str, str], client: str) -> None:
        self.protocol, self.method, self.path, self.headers, self.client = protocol, method, path, headers, client
        client_id = headers.get("x-request-id", "")
        self.id = client_id if _ID.fullmatch(client_id) else os.urandom(16).hex()
        self.key: Key | None = None
        self.model, self.trace, self.admitted = "", "", False
        self.charge: Callable[[Key], None] | None = None
        self.source: Source | None = None
        self.status: int | str = 500
        self.received = self.sent = self.requests = 0
        self.stages: list[tuple[str, float, float]] = []
        self.began, self.time_ns = time.monotonic(), time.time_ns()

    def enter(self, model: str) -> None:
        """Note which model it is for.

        Raises:
            RequestError: its key does not allow this model (403), or so many requests in a stream (429).
        """
        further, self.model = self.model != "", model
        if self.key is not None and self.key.models and model not in self.key.models:
            raise RequestError(f"key {self.key.name!r} does not allow model {model!r}", status=403)
        if further and self.key is not None and self.charge is not None:
            self.charge(self.key)

    def add_computation(self, item: QueuedRequest, began: float) -> None:
        """Record how long a request waited and was computed."""
        self.requests += 1
        self.source = item.source
        if len(self.stages) < _MOST_STAGES:
            self.stages.append(("queue", began, item.queued_s))
            self.stages.append(("compute", began + item.queued_s, item.computed_s))

    def add_stage(self, stage: str, began: float, ended: float) -> None:
        """Record the begin and end of another stage."""
        self.stages.append((stage, began, ended - began))


CURRENT: ContextVar[Exchange | None] = ContextVar("exchange", default=None)
"""The exchange of this task; None where nobody looks at exchanges."""


def enter(model: str) -> None:
    """Note which model the request of this task is for.

    Raises:
        RequestError: its key does not allow this model (403).
    """
    exchange = CURRENT.get()
    if exchange is not None:
        exchange.enter(model)
