"""CORS: origins whose pages may use the server from a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...errors import UsageError
from ...utils.optional import require
from ..http.body import Receive, Scope, Send
from ..http.buffered_request import in_messages

__all__ = ["allow_origins", "check_origins"]

_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_TAKEN = (
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Inference-Header-Content-Length",
    "X-API-Key",
    "X-Request-Id",
    "traceparent",
    "tracestate",
)
_SHOWN = ("Inference-Header-Content-Length", "Retry-After", "Server-Timing", "X-Request-Id")


def check_origins(origins: Sequence[str]) -> None:
    """Check origins before a server starts."""
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise UsageError(
                f"--cors: expected an origin as browsers write it, such as https://example.org or http://localhost:3000, "
                f"or *, found {origin[:80]!r}"
            )


def allow_origins(app: Any, origins: Sequence[str]) -> Any:
    """An application that lets pages of these origins (``*``: all) read its answers; browsers send no cookies to it."""
    middleware = require("starlette.middleware.cors", extra="serve", package="starlette").CORSMiddleware

    async def in_parts(scope: Scope, receive: Receive, send: Send) -> None:
        await app(in_messages(scope), receive, send)

    return middleware(
        in_parts, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=_TAKEN, expose_headers=_SHOWN
    )
