"""Uvicorn's HTTP connection with limits on connections, on memory before a body, and on time."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from socket import SHUT_WR
from typing import Any

from ...utils.optional import require
from ..model.spec import Limits
from .admission import Admission
from .body import Scope
from .buffered_request import WHOLE, BufferedRequest

__all__ = ["connection_class"]

_LATER = 1.25  # the application answers a body that is too slow; what it does not read is cut off after this share of the time


class _NoParser:
    """Ignores all bytes after a request to upgrade to another protocol, since they are not HTTP."""

    def feed_data(self, data: bytes) -> None:
        pass


_ONCE = (b"authorization", b"content-length", b"content-type", b"host")
"""Headers that say one thing."""


_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")
_OLD = "HTTP/0.9 is not spoken here; HTTP/1.1 is."


def _problem(method: bytes, version: str, address: bytes, headers: list[tuple[bytes, bytes]], limits: Limits) -> str:
    """The problem with the head of a request; empty if there is none.

    Source:
        RFC 9112, 2.3, 3.2 and 6.1, for versions, Host and Transfer-Encoding; RFC 9110, 5.3, for headers that are there more than once.
    """
    if len(headers) > limits.headers:
        return f"A request may have {limits.headers} headers."
    line = len(method) + len(address) + len(b"  HTTP/1.1\r\n\r\n")
    if line + sum(len(name) + len(value) + len(b": \r\n") for name, value in headers) > limits.head_bytes:
        return f"The head of a request may have {limits.head_bytes} bytes."
    if version not in ("1.0", "1.1"):
        return f"HTTP/{version} is not spoken here; HTTP/1.1 is."
    counts = Counter(name for name, _ in headers)
    twice = next((name for name in _ONCE if counts[name] > 1), None)
    if twice is not None:
        return f"The header {twice.decode()} is there {counts[twice]} times."
    if version == "1.1" and not counts[b"host"]:
        return "The header host is missing."
    if version == "1.0" and counts[b"transfer-encoding"]:  # where its body ends is a matter of opinion
        return "HTTP/1.0 has no Transfer-Encoding."
    if any(name == b"host" and not _HOST.fullmatch(value) for name, value in headers):
        return "The header host is no name of a host."
    if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in headers):
        return "The only Transfer-Encoding that is understood here is chunked."
    return ""


def connection_class(limits: Limits, at_once: Callable[[Scope, BufferedRequest], bool] | None = None) -> type[Any]:
    """Uvicorn's protocol on httptools, with these limits.

    A request whose body has come with its head is given to ``at_once``, and to the application in a task, which takes longer to make than a
    small request to answer, if that returns False. A connection is `NewConnection` until its first byte: a parser and what else a request
    needs is made then, so that clients who only connect cost little time and memory.
    """
    base = require("uvicorn.protocols.http.httptools_impl", extra="serve", package="httptools").HttpToolsProtocol
    admission = Admission(limits)
    buffered: list[tuple[Any, Any, Any]] = []  # requests that are here and were not begun yet

    def _begin_whole() -> None:
        ready = buffered.copy()
        buffered.clear()
        for connection, cycle, app in ready:
            if at_once is None or not at_once(cycle.scope, cycle.scope["extensions"][WHOLE]):
                base._start_asgi_task(connection, cycle, app)

    class Connection(base):  # type: ignore[misc, valid-type]
        """A connection on which a request has begun."""

        _timer: asyncio.TimerHandle | None = None
        """Until the body of the request that is read is there, or the head of one after the first."""
        _paused = False
        """Whether this end has not read all the time since the timer began."""
        _stalled: asyncio.TimerHandle | None = None
        """Until the client takes what it was sent."""
        _head_bytes = 0
        _without_body_bytes = 0
        _in_head = True
        _network = ""
        _unbegun: Any = None
        """The cycle of a request whose head ended in what is being received now, with the application."""
        _at_end_of_head = False
        _open = 0
        """Requests that are not answered yet."""
        _refusal = ""
        """Why the request whose head was read last is refused."""
        _last_words = ""
        """What the client is told once all requests before are answered; nothing more is read."""

        def take_over(self, transport: Any, network: str, data: bytes) -> None:
            """Go on with a connection that was silent, and has sent this."""
            self._network = network
            transport.set_protocol(self)
            self.connection_made(transport)
            self.data_received(data)

        def connection_lost(self, error: Exception | None) -> None:
            admission.leave(self.transport, self._network)
            self._stop_timer()
            self.resume_writing()
            if error is None and self.cycle is not None and self.cycle.more_body and self.cycle.response_complete:
                self._say_the_end()
            super().connection_lost(error)

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head_bytes += len(data)
                super().data_received(data)
            else:
                self._take_body(data)
            if not self._last_words:
                self._watch_time(data)
            if self._unbegun is not None:
                (cycle, app), self._unbegun = self._unbegun, None
                self._begin(cycle, app)

        def _watch_time(self, data: bytes) -> None:
            if self._timer is not None:
                self._paused = self._paused or self.flow.read_paused
            if not self._in_head:
                if self._timer is None:
                    self._begin_timer(_LATER * limits.body_seconds)
            elif self._head_bytes:
                if (
                    self.url and data.endswith(b"\n") and self.parser.get_http_version() == "0.0"
                ):  # a line without a version is all
                    self.send_400_response(_OLD)
                elif self._head_bytes > limits.head_bytes:
                    self.send_400_response(f"The head of a request may have {limits.head_bytes} bytes.")
                elif self._timer is None and not admission.is_silent(self.transport):
                    self._begin_timer(limits.head_seconds)

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_timer()
            if self.cycle is None:
                admission.head_received(self.transport)
            self._refusal = _problem(
                self.parser.get_method(), self.parser.get_http_version(), self.url, self.headers, limits
            )
            if not self._refusal and len(self.pipeline) >= limits.pipelined:
                self._refusal = f"A client may send {limits.pipelined} requests ahead of their answers."
            if self._refusal:
                raise ValueError(self._refusal)  # the parser stops, and the answer is 400
            self._open += 1
            self._at_end_of_head = True
            super().on_headers_complete()
            self._at_end_of_head = False
            self.scope["extensions"] = {WHOLE: BufferedRequest(self.cycle, self._begin_task)}

        def on_message_complete(self) -> None:
            self._in_head, self._head_bytes = True, 0
            if self._timer is not None:
                self._stop_timer()
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._open -= 1
            super().on_response_complete()
            if self._last_words and not self._open and not self.transport.is_closing():
                super().send_400_response(self._last_words)

        def send_400_response(self, msg: str) -> None:
            """Answer a malformed request, after the answers to earlier ones."""
            if self.pipeline and not self._in_head and self.pipeline[0][0] is self.cycle and self.cycle.more_body:
                self.pipeline.popleft()  # its body is what is broken
                self._open -= 1
            elif self._open and not self._in_head and not self._refusal:
                super().send_400_response(msg)
                return
            if not self._open:
                super().send_400_response(self._refusal or msg)
                return
            self._last_words = self._refusal or msg
            self._read_no_more()
            self._stop_timer()

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            if self._at_end_of_head:  # the body may be there too
                self._unbegun = cycle, app
            else:
                self._begin(cycle, app)

        def _begin(self, cycle: Any, app: Any) -> None:
            if cycle.more_body or at_once is None:
                super()._start_asgi_task(cycle, app)
                return
            if not buffered:  # those of all connections that are read now come together, and so into one batch
                self.loop.call_soon(_begin_whole)
            buffered.append((self, cycle, app))

        def _begin_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
            task = self.loop.create_task(coroutine)
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self.loop.call_later(limits.body_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None
            super().resume_writing()

        def _unsupported_upgrade_warning(self) -> None:
            """Answer a request for another protocol as plain HTTP, and read nothing after it: it could be mistaken for a request."""
            self.cycle.keep_alive = False
            self._read_no_more()

        def _read_no_more(self) -> None:
            self.parser: Any = _NoParser()

        def _take_body(self, data: bytes) -> None:
            """Read part of a body. Extensions and trailers of chunks are limited like heads."""
            cycle = self.cycle
            before = len(cycle.body)
            super().data_received(data)
            self._without_body_bytes = 0 if len(cycle.body) > before else self._without_body_bytes + len(data)
            most = limits.body_bytes if cycle.response_complete else limits.head_bytes
            if self._without_body_bytes > most:
                self.transport.abort()

        def _say_the_end(self) -> None:
            """Tell a client that still sends that this end is closed, so that it looks at its answer.

            The kernel would only say that the connection broke, since something was not read.
            """
            if self.scheme == "http":  # TLS has closed its socket, and says the end itself
                with suppress(OSError), self.transport.get_extra_info("socket").dup() as sock:
                    sock.shutdown(SHUT_WR)

        def _begin_timer(self, seconds: float) -> None:
            self._paused = self.flow.read_paused
            self._timer = self.loop.call_later(seconds, self._too_slow)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            self._timer = None
            if self._paused:  # by this end: the client could not have sent more
                self._begin_timer(limits.body_seconds)
            else:
                self.transport.abort()

    class NewConnection(asyncio.Protocol):
        """A connection without any request yet."""

        __slots__ = ("_arguments", "_network", "_others", "_transport")

        def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
            self._arguments, self._others = (config, server_state, app_state, _loop), server_state.connections

        def connection_made(self, transport: Any) -> None:
            self._transport, self._network = transport, admission.enter(transport, len(self._others))
            self._others.add(self)

        def data_received(self, data: bytes) -> None:
            self._others.discard(self)
            Connection(*self._arguments).take_over(self._transport, self._network, data)

        def connection_lost(self, error: Exception | None) -> None:
            self._others.discard(self)
            admission.leave(self._transport, self._network)

        def shutdown(self) -> None:
            """Close it, as the server ends."""
            self._transport.close()

    return NewConnection
