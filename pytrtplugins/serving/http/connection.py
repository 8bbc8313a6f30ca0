"""A connection over HTTP, with limits on what a client may hold: connections, memory before a body, and time."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from ...utils.optional import require
from ..model.spec import Limits
from .body import Scope
from .whole import WHOLE, Whole

__all__ = ["connection_class", "network_of"]

_LATER = 1.25  # the application answers a body that is too slow; what it does not read is cut off after this share of the time
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 33\r\nretry-after: 1\r\n"
    b'connection: close\r\n\r\n{"error": "too many connections"}'
)


class _NoParser:
    """Takes what follows a request that asks for another protocol: it is none of HTTP's."""

    def feed_data(self, data: bytes) -> None:
        pass


def connection_class(limits: Limits, at_once: Callable[[Scope, Whole], bool] | None = None) -> type[Any]:
    """Uvicorn's protocol on httptools, with these limits.

    A request whose body has come with its head is given to ``at_once``, and to the application in a task, which takes longer to make than a
    small request to answer, if that returns False.

    Where there are too many connections, a new one takes the place of the one that has been silent longest since it was made; where all
    others have asked something, the new one is told so. So clients that only connect cannot keep others out.
    """
    base = require("uvicorn.protocols.http.httptools_impl", extra="serve", package="httptools").HttpToolsProtocol
    by_network: Counter[str] = Counter()
    silent: dict[Any, None] = {}  # connections on which nothing was asked yet, the oldest first

    whole: list[tuple[Any, Any, Any]] = []  # requests that are here and were not begun yet

    def _begin_whole() -> None:
        ready = whole.copy()
        whole.clear()
        for connection, cycle, app in ready:
            if at_once is None or not at_once(cycle.scope, cycle.scope["extensions"][WHOLE]):
                base._start_asgi_task(connection, cycle, app)

    class Connection(base):  # type: ignore[misc, valid-type]
        """A connection."""

        _timer: asyncio.TimerHandle | None = None
        """Until the head or the body of the request that is read is there; while there is none after the first, it is off."""
        _stalled: asyncio.TimerHandle | None = None
        """Until the client takes what it was sent."""
        _head_bytes = 0
        _without_body_bytes = 0
        _in_head = True
        _network = ""
        _unbegun: Any = None
        """The cycle of a request whose head ended in what is being received now, with the application."""
        _at_end_of_head = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._network = network_of(self.client[0]) if self.client else ""
            by_network[self._network] += 1
            self._timer = self.loop.call_later(limits.head_seconds, self._too_slow)
            silent[self] = None
            if (by_network[self._network] > limits.connections_per_address and not self._take_place(self._network)) or (
                len(self.connections) > limits.connections and not self._take_place()
            ):
                transport.write(_FULL)
                transport.close()

        def connection_lost(self, error: Exception | None) -> None:
            silent.pop(self, None)
            by_network[self._network] -= 1
            if not by_network[self._network]:
                del by_network[self._network]
            self._stop_timer()
            self.resume_writing()
            super().connection_lost(error)

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head_bytes += len(data)
                super().data_received(data)
            else:
                self._take_body(data)
            if not self._in_head:
                if self._timer is None:
                    self._timer = self.loop.call_later(_LATER * limits.body_seconds, self._too_slow)
            elif self._head_bytes:
                if self._head_bytes > limits.head_bytes:
                    self.send_400_response(f"The head of a request may have {limits.head_bytes} bytes.")
                elif self._timer is None:
                    self._timer = self.loop.call_later(limits.head_seconds, self._too_slow)
            if self._unbegun is not None:
                (cycle, app), self._unbegun = self._unbegun, None
                self._begin(cycle, app)

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_timer()
            if self.cycle is None:
                silent.pop(self, None)
            if len(self.headers) > limits.headers:
                raise ValueError("too many headers")  # the parser stops, and the answer is 400
            self._at_end_of_head = True
            super().on_headers_complete()
            self._at_end_of_head = False
            self.scope["extensions"] = {WHOLE: Whole(self.cycle, self._begin_task)}
            if len(self.pipeline) > limits.pipelined:
                raise ValueError("too many requests at a time")
            if self.scope["http_version"] != "1.1" and any(name == b"transfer-encoding" for name, _ in self.headers):
                self.cycle.disconnected = True  # it is not answered: where its body ends is a matter of opinion
                raise ValueError("HTTP/1.0 has no Transfer-Encoding")

        def on_message_complete(self) -> None:
            self._in_head, self._head_bytes = True, 0
            if self._timer is not None:
                self._stop_timer()
            super().on_message_complete()

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            if self._at_end_of_head:  # the body may be there too
                self._unbegun = cycle, app
            else:
                self._begin(cycle, app)

        def _begin(self, cycle: Any, app: Any) -> None:
            if cycle.more_body or at_once is None:
                super()._start_asgi_task(cycle, app)
                return
            if not whole:  # those of all connections that are read now come together, and so into one batch
                self.loop.call_soon(_begin_whole)
            whole.append((self, cycle, app))

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
            """Answer what asks for another protocol as what it is, and read nothing more: the rest could be taken for a request."""
            self.cycle.keep_alive = False
            self.parser = _NoParser()

        def _take_body(self, data: bytes) -> None:
            """Read on in a body. Chunks may have names and trailers, which nobody asks for: they are limited as heads are."""
            cycle = self.cycle
            before = len(cycle.body)
            super().data_received(data)
            self._without_body_bytes = 0 if len(cycle.body) > before else self._without_body_bytes + len(data)
            most = limits.body_bytes if cycle.response_complete else limits.head_bytes
            if self._without_body_bytes > most:
                self.transport.abort()

        def _take_place(self, network: str | None = None) -> bool:
            """Close the connection that has been silent longest, of that network if one is given; whether there is one."""
            others = (each for each in silent if each is not self and network in (None, each._network))
            oldest = next(others, None)
            if oldest is not None:
                del silent[oldest]
                oldest.transport.abort()
            return oldest is not None

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            self._timer = None
            if self.flow.read_paused:  # by this end: the client could not have sent more
                self._timer = self.loop.call_later(limits.body_seconds, self._too_slow)
            else:
                self.transport.abort()

    return Connection


def network_of(address: str) -> str:
    """What counts as one client: an address of IPv4, or the 64 bits of IPv6 that one customer has."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.exploded[:19]
