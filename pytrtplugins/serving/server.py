"""The server in one process: sockets, limits on connections, and the way down."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError, UsageError
from ..utils.optional import require
from .app import App
from .protocol.grpc import start_grpc
from .service import Backend
from .spec import Limits

if TYPE_CHECKING:
    import uvicorn

__all__ = ["BACKLOG", "bind", "make_server", "run_server", "serve_app"]

BACKLOG = 2048
"""Connections that may wait to be accepted."""
_DRAIN_S = 30


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that clients may connect to; ``shared``: others may be bound to the same port (SO_REUSEPORT).

    Raises:
        UsageError: the port is taken, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind(address)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} of {host} is taken by another program.\nDo: pytrt serve ... --port {port + 1}", port=port
            ) from None
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}", port=port) from None
    made.setblocking(False)
    return made


def make_server(app: Any, limits: Limits) -> uvicorn.Server:
    """A server of uvicorn's with these limits on connections."""
    library = require("uvicorn", extra="serve", feature="pytrt serve")

    class Server(library.Server):  # type: ignore[misc, name-defined]
        """Without signal handlers of its own, which raise the signal again at the end."""

        def capture_signals(self) -> AbstractContextManager[None]:
            return nullcontext()

    config = library.Config(
        app,
        http=_protocol(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    made: uvicorn.Server = Server(config)
    return made


def serve_app(
    backend: Backend,
    limits: Limits,
    sockets: Sequence[socket.socket],
    started: Callable[[], object],
    grpc_address: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted until then is answered.

    Raises:
        PytrtpluginsError: a model cannot be loaded.
    """

    async def begin(server: uvicorn.Server) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # Windows has no such handlers
                asyncio.get_running_loop().add_signal_handler(number, _stop, server)
        for each in sockets:  # who connects from now on is not refused
            each.listen(BACKLOG)
        started()

    run_server(backend, limits, sockets, begin, grpc_address)


def run_server(
    backend: Backend,
    limits: Limits,
    sockets: Sequence[socket.socket],
    begin: Callable[[uvicorn.Server], Awaitable[object]],
    grpc_address: str | None = None,
) -> None:
    """Serve until somebody sets the server's ``should_exit``; ``begin`` is called once the models are there.

    With ``grpc_address``, as host:port, over gRPC too.

    Raises:
        PytrtpluginsError: a model cannot be loaded.
    """
    app = App(backend, limits)
    server = make_server(app, limits)

    async def run() -> None:
        await backend.start()
        grpc = None
        try:
            if grpc_address is not None:
                grpc = await start_grpc(backend, app.codec, limits, grpc_address)
            await begin(server)
            await server.serve(sockets=list(sockets))
        finally:
            if grpc is not None:
                await grpc.stop(_DRAIN_S)
            await backend.stop()

    loop = _new_loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def _stop(server: uvicorn.Server) -> None:
    server.should_exit = True


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make uvloop's where it is installed: it takes half the time."""
    try:
        uvloop = require("uvloop", extra="serve")
    except MissingExtraError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


def _protocol(limits: Limits) -> type[Any]:
    """Take uvicorn's protocol on httptools, with limits on how long a request's head may be, and may take."""
    base = require("uvicorn.protocols.http.httptools_impl", extra="serve", package="httptools").HttpToolsProtocol

    class Protocol(base):  # type: ignore[misc, valid-type]
        """A connection."""

        _timer: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _in_head = True

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(limits.head_seconds, self._too_slow)

        def connection_lost(self, error: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(error)

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if self._in_head and self._head_bytes:
                if self._head_bytes > limits.head_bytes:
                    self.send_400_response(f"The head of a request may have {limits.head_bytes} bytes.")
                elif self._timer is None:
                    self._timer = self.loop.call_later(limits.head_seconds, self._too_slow)

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_timer()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._in_head, self._head_bytes = True, 0
            super().on_message_complete()

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            self._timer = None
            self.transport.close()

    return Protocol
