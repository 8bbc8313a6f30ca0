"""Send answers as ASGI messages."""

from __future__ import annotations

import json

from ...errors import RequestError
from ..model.registered import Source
from .body import Send, UnreadError

__all__ = ["JSON", "send_answer", "send_error", "source_headers"]

JSON = (b"content-type", b"application/json")
"""The header of an answer in JSON."""


def source_headers(source: Source) -> list[tuple[bytes, bytes]]:
    """Headers that name the registry version of an answer."""
    return [(b"x-model-version", source.version.encode()), (b"x-model-digest", source.digest.encode())]


async def send_error(send: Send, error: RequestError) -> None:
    """Answer with an error in the protocol's form."""
    headers = [JSON]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, UnreadError):
        headers.append((b"connection", b"close"))
    await send_answer(send, error.status, headers, json.dumps({"error": str(error)}).encode())


async def send_answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """Answer with this body."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
