"""Middleware that checks keys and records requests for logs and traces."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Protocol

from ...errors import RequestError
from ..http.answers import send_error
from ..http.body import Receive, Scope, Send
from ..http.buffered_request import in_messages
from ..shared.rate_limiter import RateLimiter
from .access import Access
from .access_log import AccessLog
from .exchange import CURRENT, Exchange
from .keys import Keyring
from .trace import Tracer

__all__ = ["Gate", "Recorder"]


class Application(Protocol):
    """An ASGI application that tells the role required for each path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def role(self, path: str) -> str | None:
        """The role that a key needs for a request at this address; None: it is open to everybody."""


class Recorder(Protocol):
    """Interface of a log or trace: it records finished exchanges."""

    def record(self, exchange: Exchange) -> None:
        """Take one."""

    def close(self) -> None:
        """Hand on what is still here."""


class Gate:
    """Checks keys, and records exchanges.

    Args:
        keys: Those that clients must have; None: none.
        recorders: Take exchanges that have ended, in this order.
    """

    def __init__(self, keys: Keyring | None, recorders: Sequence[Recorder] = ()) -> None:
        self.keys, self._recorders = keys, recorders

    @classmethod
    def of(cls, access: Access, meter: RateLimiter | None = None) -> Gate | None:
        """The gate for these settings; None if they need none.

        Raises:
            PytrtpluginsError: a file that they name is missing, or is not what it should be.
        """
        keys = Keyring(access.keys, meter) if access.keys else None
        log = AccessLog(access.access_log, access.access_log_form) if access.access_log else None
        recorders: list[Recorder] = [recorder for recorder in (Tracer.of(access), log) if recorder is not None]
        return cls(keys, recorders) if keys or recorders else None

    def enter(self, exchange: Exchange, role: str | None) -> None:
        """Admit a request; call `leave` afterwards in any case.

        Args:
            exchange: The request.
            role: What its key must have; None: it needs no key.

        Raises:
            RequestError: it has no key (401), one that does not allow this (403), or one that is used too much (429).
        """
        if self.keys is not None and role is not None:
            exchange.key = self.keys.find(exchange.headers)
            self.keys.take(exchange.key, role)
            exchange.admitted = True

    def leave(self, exchange: Exchange) -> None:
        """Record an exchange that has ended."""
        if self.keys is not None and exchange.key is not None and exchange.admitted:
            self.keys.give_back(exchange.key)
        for recorder in self._recorders:
            recorder.record(exchange)

    def close(self) -> None:
        """Flush logs and traces."""
        for recorder in self._recorders:
            recorder.close()

    def before(self, app: Application) -> Callable[[Scope, Receive, Send], Any]:
        """Wrap an ASGI application in this gate."""

        async def gated(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            exchange = _of_http(scope)
            token = CURRENT.set(exchange)
            try:
                answer = _record_answer(exchange, send)
                try:
                    self.enter(exchange, None if self.keys is None else app.role(scope["path"]))
                except RequestError as error:
                    await send_error(answer, error)
                else:
                    await app(in_messages(scope), _count_received_bytes(exchange, receive), answer)
            finally:
                CURRENT.reset(token)
                self.leave(exchange)

        return gated


def _of_http(scope: Scope) -> Exchange:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    client = scope.get("client")
    return Exchange("http", scope["method"], scope["path"], headers, client[0] if client else "")


def _count_received_bytes(exchange: Exchange, receive: Receive) -> Receive:
    async def counted() -> MutableMapping[str, Any]:
        message = await receive()
        exchange.received += len(message.get("body", b""))
        return message

    return counted


def _record_answer(exchange: Exchange, send: Send) -> Send:
    async def answering(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            others = [header for header in message.get("headers", ()) if header[0] != b"x-request-id"]
            message = {**message, "headers": [*others, (b"x-request-id", exchange.id.encode())]}
        else:
            exchange.sent += len(message.get("body", b""))
        await send(message)

    return answering
