"""Plain HTTP for people: an image in, boxes out; metrics; a page that lists the addresses."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...utils.optional import require
from ...version import __version__
from ..access.exchange import CURRENT, enter
from ..backends.backend import Backend
from ..backends.service import Answer, Service
from ..http.answers import source_headers
from ..http.body import read_body
from ..model.model import Request as ModelRequest
from ..model.spec import Limits
from ..urls import UrlFetcher
from . import metrics, openapi
from .photos import File, answer_all, read_form, read_urls

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

__all__ = ["routes"]


def routes(backend: Backend, limits: Limits) -> list[Route]:
    """``/v1/detect``, ``/v1/models/NAME:predict``, ``/metrics``, ``/openapi.json``, ``/docs``."""
    routing = require("starlette.routing", extra="serve", package="starlette", feature="pytrt serve")
    responses = require("starlette.responses", extra="serve", package="starlette")
    services = backend.services

    fetcher = UrlFetcher(limits.urls) if limits.urls else None

    async def read(request: Request, body: bytes, urls: bool) -> list[File | RequestError]:
        kind = request.headers.get("content-type", "")
        if kind.startswith("multipart/form-data"):
            return list(await read_form(request, body))
        if urls and kind.startswith("application/json"):
            return await read_urls(body, fetcher, limits.body_bytes)
        return [(body, kind)]

    async def answer(service: Service, request: Request, urls: bool = False) -> Response:
        enter(service.name)
        headers, started = dict(request.scope["headers"]), time.perf_counter()
        body = await read_body(request.receive, headers, limits)
        upload_s = time.perf_counter() - started
        files = await read(request, body, urls)
        exchange, query = CURRENT.get(), dict(request.query_params)
        identifier = request.headers.get("x-request-id", "")[:128] if exchange is None else exchange.id
        told = [
            file if isinstance(file, RequestError) else ModelRequest(*file, query, identifier, limits.image_bytes)
            for file in files
        ]
        single = told[0] if len(told) == 1 else None
        if isinstance(single, ModelRequest):
            answered = await service.answer(single)
        else:
            answered = Answer(await answer_all(service, told), {})
        found = answered.value
        stages = {"upload": upload_s, **answered.stages, "total": time.perf_counter() - started}
        said = {"server-timing": ", ".join(f"{name};dur={1000 * seconds:.3f}" for name, seconds in stages.items())}
        if identifier:
            said["x-request-id"] = identifier
        if answered.source is not None:
            said |= {name.decode(): value.decode() for name, value in source_headers(answered.source)}
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], bytes):
            return _made(responses.Response(found[0], 200, said, str(found[1])))
        if isinstance(found, bytes):
            return _made(responses.Response(found, 200, said, "application/octet-stream"))
        return _made(responses.JSONResponse(found, 200, said))

    async def detect(request: Request) -> Response:
        detectors = {name: each for name, each in services.items() if not each.ready or each.signature.detects}
        name = request.query_params.get("model") or next(iter(detectors), "")
        if name not in detectors:
            raise RequestError(
                f"no detector {name!r} is served" if name else "no model that is served is a detector", status=404
            )
        return await answer(services.pick(name), request, urls=True)

    async def predict(request: Request) -> Response:
        path = request.path_params
        return await answer(services.pick(path["model"], path.get("version", "")), request)

    async def show_metrics(request: Request) -> Response:
        written = await asyncio.to_thread(metrics.text, backend)
        return _made(responses.Response(written, headers={"content-type": metrics.CONTENT_TYPE}))

    async def show_openapi(request: Request) -> Response:
        return _made(responses.JSONResponse(openapi.document(services.values(), __version__)))

    async def show_docs(request: Request) -> Response:
        return _made(responses.HTMLResponse(openapi.page(openapi.document(services.values(), __version__))))

    return [
        routing.Route("/v1/detect", detect, methods=["POST"]),
        routing.Route("/v1/models/{model}:predict", predict, methods=["POST"]),
        routing.Route("/v1/models/{model}/versions/{version}:predict", predict, methods=["POST"]),
        routing.Route("/metrics", show_metrics),
        routing.Route("/openapi.json", show_openapi),
        routing.Route("/docs", show_docs),
    ]


def _made(response: Any) -> Response:
    made: Response = response
    return made
