"""Run the HTTP server in one process: sockets, connection limits, graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ...errors import MissingExtraError, UsageError
from ...utils.heap import collect_and_freeze, reuse_memory
from ...utils.optional import require
from ..access.access import Access
from ..access.access_check import is_loopback
from ..access.cors import allow_origins
from ..access.gate import Gate
from ..access.keys import Keyring
from ..access.tls import Tls
from ..access.watch import watch
from ..backends.backend import Backend, VersionedBackend
from ..backends.follow import follow_registry
from ..backends.read_only import ReadOnlyBackend
from ..http.body import Scope
from ..http.buffered_request import BufferedRequest
from ..http.connection import connection_class
from ..model.spec import Limits
from ..protocol.app import App
from ..protocol.grpc import start_grpc
from ..shared.rate_limiter import RateLimiter
from ..shared.settings import SharedSettings

if TYPE_CHECKING:
    import uvicorn

__all__ = ["BACKLOG", "bind", "make_server", "run_server", "serve_app"]

BACKLOG = 2048
"""Connections that may wait to be accepted."""
_DRAIN_S = 30


def bind(host: str, port: int, *, shared: bool = False, option: str = "--port") -> socket.socket:
    """A bound socket for clients.

    Args:
        host: Address to listen on.
        port: To listen on.
        shared: Whether others may be bound to the same port (SO_REUSEPORT).
        option: Where users give the port.

    Raises:
        UsageError: the port is taken, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(address)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} of {host} is taken by another program.\nDo: pytrt serve ... {option} {port + 1}",
                port=port,
            ) from None
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}", port=port) from None
    sock.setblocking(False)
    return sock


def make_server(
    app: Any, limits: Limits, tls: Tls | None = None, at_once: Callable[[Scope, BufferedRequest], bool] | None = None
) -> uvicorn.Server:
    """A uvicorn server with these limits on connections; ``at_once`` is passed to `connection_class`."""
    library = require("uvicorn", extra="serve", feature="pytrt serve")

    class Server(library.Server):  # type: ignore[misc, name-defined]
        """Uvicorn's server without its signal handlers, which raise the signal again at the end."""

        def capture_signals(self) -> AbstractContextManager[None]:
            return nullcontext()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Listen, with a time limit on TLS handshakes, which uvicorn lacks."""
            if tls is None:
                await super().startup(sockets)
                return
            await super().startup([])
            loop = asyncio.get_running_loop()
            for sock in sockets or ():
                server = await loop.create_server(
                    lambda: config.http_protocol_class(
                        config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
                    ),
                    sock=sock,
                    ssl=tls.context,
                    ssl_handshake_timeout=limits.head_seconds,
                    backlog=BACKLOG,
                )
                self.servers.append(server)

    config = library.Config(
        app,
        http=connection_class(limits, at_once),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    uvicorn_server: uvicorn.Server = Server(config)
    return uvicorn_server


def serve_app(
    backend: VersionedBackend,
    limits: Limits,
    sockets: Sequence[socket.socket],
    started: Callable[[], object],
    grpc_address: str | None = None,
    access: Access | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted until then is answered.

    Raises:
        PytrtpluginsError: a model cannot be loaded.
    """

    async def begin(server: uvicorn.Server) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # Windows has no such handlers
                asyncio.get_running_loop().add_signal_handler(number, _stop, server)
        if access is not None and access.has_files:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _go_on)
        collect_and_freeze()
        reuse_memory()
        for sock in sockets:  # who connects from now on is not refused
            sock.listen(BACKLOG)
        started()

    run_server(backend, limits, sockets, begin, grpc_address, access)


def run_server(
    backend: VersionedBackend,
    limits: Limits,
    sockets: Sequence[socket.socket],
    begin: Callable[[uvicorn.Server], Awaitable[object]],
    grpc_address: str | None = None,
    access: Access | None = None,
    board: SharedSettings | None = None,
    meter: RateLimiter | None = None,
) -> None:
    """Serve until somebody sets the server's ``should_exit``; ``begin`` is called once the models are there.

    With ``grpc_address``, as host:port, over gRPC too. ``board`` has what clients set, where there are other processes.

    Raises:
        PytrtpluginsError: a model cannot be loaded.
    """
    access = access or Access()
    tls, gate = Tls.of(access), Gate.of(access, meter)
    served: Backend = backend
    if not (access.keys or access.allow_control or all(map(is_loopback, sockets))):
        served = ReadOnlyBackend(backend)
    app = App(served, limits, board)
    outermost: Any = app if gate is None else gate.before(app)
    if access.cors:
        outermost = allow_origins(outermost, access.cors)
    server = make_server(outermost, limits, tls, app.at_once if outermost is app else None)

    async def run() -> None:
        await backend.start()
        grpc = None
        watching = [asyncio.ensure_future(watch(source.files, source.reload)) for source in _reloadable(tls, gate)]
        if backend.leads:
            watching.append(asyncio.ensure_future(follow_registry(backend)))
        try:
            if grpc_address is not None:
                grpc = await start_grpc(served, app.codec, app.memory, limits, grpc_address, tls, gate)
            await begin(server)
            await server.serve(sockets=list(sockets))
        finally:
            for source in watching:
                source.cancel()
            if grpc is not None:
                await grpc.stop(_DRAIN_S)
            if gate is not None:
                gate.close()
            await backend.stop()

    loop = _new_loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def _reloadable(tls: Tls | None, gate: Gate | None) -> list[Tls | Keyring]:
    """Objects whose files may change while the server runs."""
    return [source for source in (tls, None if gate is None else gate.keys) if source is not None]


def _go_on() -> None:
    pass


def _stop(server: uvicorn.Server) -> None:
    server.should_exit = True


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's, which needs half the time, if it is installed."""
    try:
        uvloop = require("uvloop", extra="serve")
    except MissingExtraError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
