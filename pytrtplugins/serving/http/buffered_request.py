"""ASGI extension: read a buffered body without awaiting, and send head and body with one write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from typing import Any

__all__ = ["WHOLE", "BufferedRequest", "in_messages"]

WHOLE = "pytrtplugins.whole"
"""Name of the extension in the scope: a `BufferedRequest`."""

_LARGEST = 64 << 10  # bytes; a larger body is not copied to stand behind its head


def in_messages(scope: Mapping[str, Any]) -> dict[str, Any]:
    """A scope without this extension, for applications whose answers another application reads."""
    others = {name: extension for name, extension in scope.get("extensions", {}).items() if name != WHOLE}
    return {**scope, "extensions": others}


class BufferedRequest:
    """A request whose body may already be in memory, and whose answer is one write.

    Args:
        cycle: Uvicorn's state of the request.
        begin: Runs a coroutine as a task that the server waits for when it ends.
    """

    __slots__ = ("_cycle", "begin")

    def __init__(self, cycle: Any, begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._cycle, self.begin = cycle, begin

    @property
    def receive(self) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
        """Return the next ASGI message of the request."""
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]] = self._cycle.receive
        return receive

    @property
    def send(self) -> Callable[[MutableMapping[str, Any]], Awaitable[None]]:
        """Send an ASGI message of the answer."""
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]] = self._cycle.send
        return send

    def body(self) -> bytes | None:
        """The body, without waiting; None where it is not all there, and must be received."""
        cycle = self._cycle
        if cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
            return None
        return bytes(cycle.body)

    def answer(self, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Answer the request with status 200.

        Returns:
            False where nothing was done, and the messages of ASGI must be sent: the body is large, the client does not take what it was
            sent, or the connection is to be closed.
        """
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or not cycle.keep_alive or len(body) > _LARGEST:
            return False
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (lines, len(body), body))
        cycle.message_event.set()
        cycle.on_response()
        cycle.on_response = _no_op  # it leads to the connection, which leads to the cycle
        return True


def _no_op() -> None:
    pass
