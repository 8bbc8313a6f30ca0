"""A connection over HTTP, with limits on how long a request's head may be, and may take."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from ..utils.optional import require
from .spec import Limits
from .whole import WHOLE, write_whole

__all__ = ["connection_class"]


def connection_class(limits: Limits) -> type[Any]:
    """Uvicorn's protocol on httptools, with these limits.

    Where there are too many connections, a new one takes the place of the one that has been silent longest since it was made; where all
    others have asked something, the new one is closed. So clients that only connect cannot keep others out.
    """
    base = require("uvicorn.protocols.http.httptools_impl", extra="serve", package="httptools").HttpToolsProtocol

    silent: dict[Any, None] = {}  # connections on which nothing was asked yet, the oldest first

    class Connection(base):  # type: ignore[misc, valid-type]
        """A connection."""

        _timer: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _in_head = True

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(limits.head_seconds, self._too_slow)
            silent[self] = None
            if len(self.connections) > limits.connections:
                oldest = next(iter(silent))
                del silent[oldest]
                oldest.transport.abort()

        def connection_lost(self, error: Exception | None) -> None:
            silent.pop(self, None)
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
            silent.pop(self, None)
            self._stop_timer()
            super().on_headers_complete()
            self.scope["extensions"] = {WHOLE: partial(write_whole, self.cycle)}

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

    return Connection
