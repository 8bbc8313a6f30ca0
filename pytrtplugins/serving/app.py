"""The application behind HTTP (ASGI): inference by a short way, all else through Starlette."""

from __future__ import annotations

import json
import logging
from typing import Any

from ..errors import RequestError
from . import page
from .backend import Backend
from .board import Board
from .body import Receive, Scope, Send, read_body
from .exchange import CURRENT
from .protocol import extensions, plain, v2
from .protocol.infer import Codec
from .protocol.memory import Memory
from .service import Service
from .spec import Limits
from .versions import Choice
from .whole import WHOLE, Whole

__all__ = ["App"]

_log = logging.getLogger(__name__)
_NONE: dict[str, Any] = {}
_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")


class App:
    """The application: give it to any ASGI server.

    Args:
        backend: Loads models and computes requests; the application starts and stops it where the server speaks ASGI's lifespan.
        limits: Of requests.
        board: What clients set, where several processes serve one address.
    """

    def __init__(self, backend: Backend, limits: Limits, board: Board | None = None) -> None:
        self.backend, self.limits = backend, limits
        self.memory = Memory(limits, board)
        self._short = {f"/v2/models/{name}/infer": choice for name, choice in backend.services.choices().items()}
        for service in backend.services.every:
            self._short[f"/v2/models/{service.name}/versions/{service.spec.version}/infer"] = Choice(service)
        self._codecs: dict[Service, Codec] = {}
        others = [*extensions.routes(self.memory, limits), *plain.routes(backend, limits), *page.routes()]
        self._others = v2.with_routes(backend, limits, others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            choice = self._short.get(scope["path"])
            if choice is not None and scope["method"] == "POST":
                await self._infer(choice(), scope, receive, send)
            else:
                await self._others(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _infer(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        whole: Whole | None = scope.get("extensions", _NONE).get(WHOLE)
        try:
            exchange = CURRENT.get()
            if exchange is not None:
                exchange.enter(service.name)
            body = await read_body(receive, headers, self.limits, None if whole is None else whole.body())
            length = headers.get(b"inference-header-content-length")
            codec = self.codec(service)
            call, arrays = codec.read(body, None if length is None else length.decode("latin-1"))
            item = await service.infer(arrays, call.priority, call.timeout_s)
            answer, head = codec.write(call, item.outputs)
        except RequestError as error:
            await send_error(send, error)
            return
        except Exception as error:
            _log.exception("request failed")
            await send_error(send, RequestError(f"{type(error).__name__}: {error}", status=500))
            return
        said = [_JSON] if head is None else [_BINARY, (b"inference-header-content-length", b"%d" % head)]
        if whole is None or not whole.answer(said, answer):
            await _send(send, 200, said, answer)

    def codec(self, service: Service) -> Codec:
        """What reads requests for a model, and writes answers.

        Raises:
            RequestError: the model is not ready.
        """
        found = self._codecs.get(service)
        if found is None or found.signature is not service.signature:
            found = self._codecs[service] = Codec(service.signature, service.name, service.spec.version, self.memory)
        return found

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop with the server."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.backend.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.backend.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def send_error(send: Send, error: RequestError) -> None:
    """Answer with an error as clients of the protocol expect it."""
    said = [_JSON]
    if error.retry_after is not None:
        said.append((b"retry-after", b"%d" % error.retry_after))
    if error.status == 401:
        said.append((b"www-authenticate", b"Bearer"))
    if error.status in (408, 413):  # the rest of the body may still come
        said.append((b"connection", b"close"))
    await _send(send, error.status, said, json.dumps({"error": str(error)}).encode())


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
