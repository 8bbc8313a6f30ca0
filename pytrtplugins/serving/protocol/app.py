"""The ASGI application: inference bypasses Starlette, everything else goes through it."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from ...errors import RequestError
from .. import page
from ..access.exchange import CURRENT
from ..access.roles import http_role
from ..backends.backend import Backend
from ..backends.service import Service
from ..backends.versions import VersionPicker
from ..batching.queue import QueuedRequest
from ..http.answers import JSON, send_answer, send_error, source_headers
from ..http.body import Receive, Scope, Send, read_body
from ..http.buffered_request import WHOLE, BufferedRequest
from ..model.model import Arrays
from ..model.registered import is_registered
from ..model.spec import Limits
from ..shared.settings import SharedSettings
from ..urls import UrlFetcher
from . import extensions, plain, v2
from .call import InferenceRequest
from .endpoint import AppState
from .infer import Codec
from .memory import Memory
from .routes import make_application

__all__ = ["ENDPOINTS", "App"]

ENDPOINTS = (*plain.ENDPOINTS, *extensions.ENDPOINTS, *v2.ENDPOINTS)
"""All addresses; the first that fits answers, and photos are asked about most."""

_log = logging.getLogger(__name__)
_NONE: dict[str, Any] = {}
_BINARY = (b"content-type", b"application/octet-stream")


class App:
    """The ASGI application of a server.

    Args:
        backend: Loads models and computes requests; the application starts and stops it where the server speaks ASGI's lifespan.
        limits: Of requests.
        board: What clients set, where several processes serve one address.

    Attributes:
        role: Gives the role that a key needs for an address; None: the address is open to everybody.
    """

    def __init__(self, backend: Backend, limits: Limits, board: SharedSettings | None = None) -> None:
        self.backend, self.limits = backend, limits
        self.memory = Memory(limits, board)
        self._short = {f"/v2/models/{name}/infer": choice for name, choice in backend.services.choices().items()}
        for service in backend.services.every:
            if is_registered(service.spec.target):
                continue  # its version is another one tomorrow
            self._short[f"/v2/models/{service.name}/versions/{service.spec.version}/infer"] = VersionPicker(service)
        self._codecs: dict[Service, Codec] = {}
        fetcher = UrlFetcher(limits.urls) if limits.urls else None
        self._others = make_application(AppState(backend, limits, self.memory, fetcher, page.read_files(), ENDPOINTS))
        self.role = http_role({endpoint.path: endpoint.role for endpoint in ENDPOINTS})

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

    def at_once(self, scope: Scope, buffered: BufferedRequest) -> bool:
        """Start to answer an inference request whose body has arrived, without a task; False, without effect, if a task is needed."""
        choice, headers = self._short.get(scope["path"]), dict(scope["headers"])
        body = buffered.body()
        if (
            choice is None
            or scope["method"] != "POST"
            or body is None
            or len(body) > self.limits.body_bytes
            or b"content-encoding" in headers
        ):
            return False
        service = choice()
        if service.takes_files:
            buffered.begin(self._infer(service, scope, buffered.receive, buffered.send))
            return True
        try:
            codec = self.codec(service)
            length = headers.get(b"inference-header-content-length")
            call, arrays = codec.read(body, None if length is None else length.decode("latin-1"))
            if call.regions:
                buffered.begin(self._answer(service, codec, call, arrays, buffered.send, buffered))
                return True
            service.begin(arrays, call.priority, call.timeout_s, partial(self._end, buffered, codec, call, service))
        except Exception as error:
            buffered.begin(send_error(buffered.send, _client_error(error)))
        return True

    def _end(
        self, buffered: BufferedRequest, codec: Codec, call: InferenceRequest, service: Service, item: QueuedRequest
    ) -> None:
        try:
            service.end(item)
            answer, head = codec.write(call, item.outputs, item.source)
            headers = _answer_headers(head, item)
            if buffered.answer(headers, answer):
                return
            rest = send_answer(buffered.send, 200, headers, answer)
        except Exception as error:
            rest = send_error(buffered.send, _client_error(error))
        buffered.begin(rest)

    async def _infer(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        buffered: BufferedRequest | None = scope.get("extensions", _NONE).get(WHOLE)
        try:
            exchange = CURRENT.get()
            if exchange is not None:
                exchange.enter(service.name)
            body = await read_body(receive, headers, self.limits, None if buffered is None else buffered.body())
            length = headers.get(b"inference-header-content-length")
            codec = self.codec(service)
            call, arrays = codec.read(body, None if length is None else length.decode("latin-1"))
        except Exception as error:
            await send_error(send, _client_error(error))
            return
        await self._answer(service, codec, call, arrays, send, buffered)

    async def _answer(
        self,
        service: Service,
        codec: Codec,
        call: InferenceRequest,
        arrays: Arrays,
        send: Send,
        buffered: BufferedRequest | None,
    ) -> None:
        try:
            with self.memory.using(call.regions):
                item = await service.infer(arrays, call.priority, call.timeout_s)
                answer, head = codec.write(call, item.outputs, item.source)
        except Exception as error:
            await send_error(send, _client_error(error))
            return
        headers = _answer_headers(head, item)
        if buffered is None or not buffered.answer(headers, answer):
            await send_answer(send, 200, headers, answer)

    def codec(self, service: Service) -> Codec:
        """The codec of a model, which reads requests and writes answers.

        Raises:
            RequestError: the model is not ready.
        """
        cached_codec = self._codecs.get(service)
        if cached_codec is None or cached_codec.signature is not service.signature:
            cached_codec = self._codecs[service] = Codec(service.signature, service.name, service.version, self.memory)
        return cached_codec

    async def _live(self, receive: Receive, send: Send) -> None:
        """Handle ASGI's lifespan messages."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.backend.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.backend.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _answer_headers(head: int | None, item: QueuedRequest) -> list[tuple[bytes, bytes]]:
    """HTTP headers of an answer."""
    headers = [JSON] if head is None else [_BINARY, (b"inference-header-content-length", b"%d" % head)]
    return headers if item.source is None else headers + source_headers(item.source)


def _client_error(error: Exception) -> RequestError:
    """The error that a client gets for an exception."""
    if isinstance(error, RequestError):
        return error
    _log.error("request failed", exc_info=error)
    return RequestError(f"{type(error).__name__}: {error}", status=500)
