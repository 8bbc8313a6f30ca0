"""Read request bodies within limits."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...errors import RequestError
from ..model.spec import Limits
from .inflater import Inflater, too_large

__all__ = ["Receive", "Scope", "Send", "UnreadError", "read_body"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_T = TypeVar("_T")
_AT_ONCE = 1024  # bytes; what is longer may become large, and is decompressed while other requests are answered
_THREADS = ThreadPoolExecutor(
    min(2, max(1, (os.cpu_count() or 1) // 2)), "decompress"
)  # not more: each may take as much memory as a body may have, and half of few cores is left to the others


class UnreadError(RequestError):
    """The request is refused before its body has arrived; its answer is the connection's last."""


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limits: Limits, body: bytes | None = None
) -> bytes:
    """The body of a request, decompressed; where ``body`` is there already, nothing is received.

    A compressed body is decompressed while it arrives, and not read on once it is clear that it is refused.

    Raises:
        RequestError: it is too large (413) or too slow (408), others take the memory (503), its form of compression is unknown (415), it is
            damaged, or the client is gone (400). `UnreadError` where some of it may still come.
    """
    more = body is None
    try:
        length = headers.get(b"content-length")
        if length is not None and (
            len(length) > 15 or not (length.isdigit() or length.strip().isdigit()) or int(length) > limits.body_bytes
        ):
            raise too_large(limits.body_bytes)
        coding = headers.get(b"content-encoding")
        inflater = Inflater(coding, limits.body_bytes) if coding and coding != b"identity" else None
        if body is None:
            message = await receive()
            body, more = message.get("body", b""), message.get("more_body", False)
            if more:
                return await _in_time(body, receive, limits, inflater)
            if message["type"] == "http.disconnect":
                raise RequestError("the client is gone")
        if len(body) > limits.body_bytes:
            raise too_large(limits.body_bytes)
        if inflater is None:
            return body
        run = _inline if len(body) <= _AT_ONCE else _in_thread
        await run(inflater.write, body)
        return await run(inflater.end)
    except RequestError as error:
        if not more:
            raise
        raise UnreadError(str(error), status=error.status, retry_after=error.retry_after) from None


class _PendingBytes:
    """Bytes of incomplete bodies, of all connections of this process."""

    held = 0


class _PlainBody:
    """An uncompressed body that arrives in parts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._whole = io.BytesIO()  # it grows in place: to join 60 MiB at once takes 40 ms, and all others wait

    @property
    def held(self) -> int:
        return self._whole.tell()

    def write(self, data: bytes) -> None:
        self._whole.write(data)
        if self.held > self._most:
            raise too_large(self._most)

    def end(self) -> bytes:
        return self._whole.getvalue()


class _ReadTimeout:
    """Limits the total time that a client's body may take; the waiting task is cancelled then.

    What this end does with the parts, such as waiting for a thread that decompresses them, is not the client's time.
    """

    def __init__(self, seconds: float) -> None:
        self._left, self.over = seconds, False

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + self._left
        task = asyncio.current_task()
        assert task is not None
        self._timer = self._loop.call_at(self._until, self._end, task)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._left = self._until - self._loop.time()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self.over = True
        task.cancel()


async def _in_time(part: bytes, receive: Receive, limits: Limits, inflater: Inflater | None) -> bytes:
    patience = _ReadTimeout(limits.body_seconds)
    try:
        return await asyncio.ensure_future(_read_parts(part, receive, limits, inflater, patience))
    except asyncio.CancelledError:
        if not patience.over:
            raise
    raise RequestError(f"the body was not there within {limits.body_seconds:g} s", status=408)


async def _read_parts(
    part: bytes, receive: Receive, limits: Limits, inflater: Inflater | None, patience: _ReadTimeout
) -> bytes:
    most, counted_bytes, more = max(limits.bodies_bytes, limits.body_bytes), 0, True
    buffer, run = (_PlainBody(limits.body_bytes), _inline) if inflater is None else (inflater, _in_thread)
    try:
        while True:
            await run(buffer.write, part)
            _PendingBytes.held += buffer.held - counted_bytes
            counted_bytes = buffer.held
            if _PendingBytes.held > most:
                raise RequestError("too many large requests arrive at a time", status=503, retry_after=1)
            if not more:
                return await run(buffer.end)
            with patience:
                message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError("the client is gone")
            part, more = message.get("body", b""), message.get("more_body", False)
    finally:
        _PendingBytes.held -= counted_bytes


async def _inline(function: Callable[..., _T], *arguments: object) -> _T:
    return function(*arguments)


async def _in_thread(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function in a thread while other requests are answered; the connection is not read meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function, *arguments)
