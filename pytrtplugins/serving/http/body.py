"""Bodies of requests, read within limits."""

from __future__ import annotations

import asyncio
import io
import os
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...errors import RequestError
from ..model.spec import Limits

__all__ = ["Receive", "Scope", "Send", "read_body"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
_AT_ONCE = 1024  # bytes; what is longer may become large, and is decompressed while other requests are answered
_READ, _WRITTEN = 16 << 10, 128 << 10
_THREADS = ThreadPoolExecutor(
    min(2, max(1, (os.cpu_count() or 1) // 2)), "decompress"
)  # not more: each may take as much memory as a body may have, and half of few cores is left to the others


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limits: Limits, body: bytes | None = None
) -> bytes:
    """The body of a request, decompressed.

    Args:
        receive: Gives its parts.
        headers: Of the request.
        limits: Of the body.
        body: Where it is there already; nothing is received then.

    Raises:
        RequestError: it is too large (413) or too slow (408), others take the memory (503), its form of compression is unknown (415), or
            the client is gone (400).
    """
    length = headers.get(b"content-length")
    if length is not None and (
        len(length) > 15 or not (length.isdigit() or length.strip().isdigit()) or int(length) > limits.body_bytes
    ):
        raise _too_large(limits)
    if body is None:
        body = await _received(receive, limits)
    if len(body) > limits.body_bytes:
        raise _too_large(limits)
    coding = headers.get(b"content-encoding")
    if not coding or coding == b"identity":
        return body
    if len(body) <= _AT_ONCE:
        return _decompressed(body, coding, limits)
    whole: bytes = await asyncio.get_running_loop().run_in_executor(_THREADS, _decompressed, body, coding, limits)
    return whole


async def _received(receive: Receive, limits: Limits) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        try:
            body = await asyncio.wait_for(_rest(body, receive, limits), limits.body_seconds)
        except asyncio.TimeoutError:
            raise RequestError(f"the body was not there within {limits.body_seconds:g} s", status=408) from None
    elif message["type"] == "http.disconnect":
        raise RequestError("the client is gone")
    return body


class _UnderWay:
    """Bytes of bodies that are not whole yet, of all connections of this process."""

    held = 0


async def _rest(first: bytes, receive: Receive, limits: Limits) -> bytes:
    most = max(limits.bodies_bytes, limits.body_bytes)
    size, more = len(first), True
    _UnderWay.held += size
    try:
        with io.BytesIO() as whole:  # it grows in place: to join 60 MiB at once takes 40 ms, and all others wait
            whole.write(first)
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestError("the client is gone")
                part = message.get("body", b"")
                whole.write(part)
                size += len(part)
                _UnderWay.held += len(part)
                if size > limits.body_bytes:
                    raise _too_large(limits)
                if _UnderWay.held > most:
                    raise RequestError("too many large requests arrive at a time", status=503, retry_after=1)
                more = message.get("more_body", False)
            return whole.getvalue()
    finally:
        _UnderWay.held -= size


def _decompressed(body: bytes, coding: bytes, limits: Limits) -> bytes:
    bits = _WINDOW_BITS.get(coding.lower())
    if bits is None:
        raise RequestError(f"Content-Encoding: expected gzip or deflate, found {coding[:40]!r}", status=415)
    stream = zlib.decompressobj(bits)
    try:
        with io.BytesIO() as whole:
            for start in range(0, len(body), _READ):  # piece by piece: zlib lets other threads run while it works
                rest, part = body[start : start + _READ], b""
                while rest or len(part) == _WRITTEN:
                    part = stream.decompress(rest, _WRITTEN)
                    rest = stream.unconsumed_tail
                    if whole.tell() + len(part) > limits.body_bytes:
                        raise _too_large(limits)
                    whole.write(part)
                if stream.eof:
                    if stream.unused_data or start + _READ < len(
                        body
                    ):  # zlib would copy all of it for each further piece
                        raise RequestError(f"the body has something behind the end of its {coding.decode()} data")
                    return whole.getvalue()
    except zlib.error as error:
        raise RequestError(f"the body is not valid {coding.decode()} data: {error}") from None
    raise RequestError(f"the body is incomplete {coding.decode()} data")


def _too_large(limits: Limits) -> RequestError:
    return RequestError(f"the body may have {limits.body_bytes:,} bytes", status=413)
