"""Plain HTTP for people: an image in, boxes out; metrics; pages."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...utils.optional import require
from ...version import __version__
from .. import page
from ..access.exchange import CURRENT, enter
from ..access.roles import ADMIN, INFER
from ..backends.service import Answer, Service
from ..http.answers import source_headers
from ..http.body import read_body
from ..model.model import Request as ModelRequest
from . import metrics, openapi
from .endpoint import AppState, Endpoint, with_versions
from .photos import File, answer_all, read_form, read_urls
from .routes import json_answer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["ENDPOINTS"]


async def _read(state: AppState, request: Request, body: bytes, urls: bool) -> list[File | RequestError]:
    kind = request.headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        return list(await read_form(request, body))
    if urls and kind.startswith("application/json"):
        return await read_urls(body, state.fetcher, state.limits.body_bytes)
    return [(body, kind)]


async def _answer(state: AppState, service: Service, request: Request, urls: bool = False) -> Response:
    responses = require("starlette.responses", extra="serve", package="starlette")
    enter(service.name)
    headers, started = dict(request.scope["headers"]), time.perf_counter()
    body = await read_body(request.receive, headers, state.limits)
    upload_s = time.perf_counter() - started
    files = await _read(state, request, body, urls)
    exchange, query = CURRENT.get(), dict(request.query_params)
    identifier = request.headers.get("x-request-id", "")[:128] if exchange is None else exchange.id
    image_bytes = state.limits.image_bytes
    model_requests = [
        file if isinstance(file, RequestError) else ModelRequest(*file, query, identifier, image_bytes)
        for file in files
    ]
    single = model_requests[0] if len(model_requests) == 1 else None
    if isinstance(single, ModelRequest):
        answered = await service.answer(single)
    else:
        answered = Answer(await answer_all(service, model_requests), {})
    result = answered.value
    stages = {"upload": upload_s, **answered.stages, "total": time.perf_counter() - started}
    response_headers = {
        "server-timing": ", ".join(f"{name};dur={1000 * seconds:.3f}" for name, seconds in stages.items())
    }
    if identifier:
        response_headers["x-request-id"] = identifier
    if answered.source is not None:
        response_headers |= {name.decode(): value.decode() for name, value in source_headers(answered.source)}
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], bytes):
        response: Response = responses.Response(result[0], 200, response_headers, str(result[1]))
    elif isinstance(result, bytes):
        response = responses.Response(result, 200, response_headers, "application/octet-stream")
    else:
        response = responses.JSONResponse(result, 200, response_headers)
    return response


async def _detect(state: AppState, request: Request) -> Response:
    services = state.backend.services
    detectors = {
        name: candidate for name, candidate in services.items() if not candidate.ready or candidate.signature.detects
    }
    name = request.query_params.get("model") or next(iter(detectors), "")
    if name not in detectors:
        raise RequestError(
            f"no detector {name!r} is served" if name else "no model that is served is a detector", status=404
        )
    return await _answer(state, services.pick(name), request, urls=True)


async def _predict(state: AppState, request: Request) -> Response:
    path = request.path_params
    return await _answer(state, state.backend.services.pick(path["model"], path.get("version", "")), request)


async def _show_metrics(state: AppState, request: Request) -> Response:
    responses = require("starlette.responses", extra="serve", package="starlette")
    written = await asyncio.to_thread(metrics.text, state.backend)
    response: Response = responses.Response(written, headers={"content-type": metrics.CONTENT_TYPE})
    return response


def _document(state: AppState) -> dict[str, Any]:
    return openapi.document(state.endpoints, state.backend.services.values(), __version__)


def _show_openapi(state: AppState, request: Request) -> Response:
    return json_answer(_document(state))


def _show_docs(state: AppState, request: Request) -> Response:
    responses = require("starlette.responses", extra="serve", package="starlette")
    response: Response = responses.HTMLResponse(openapi.page(_document(state)))
    return response


def _show_page(state: AppState, request: Request) -> Response:
    return page.show_file(state.page, request)


_PHOTOS: dict[str, Any] = {"answer": "*/*", "reads_body": False}  # how long a body takes is told; pages may send photos
ENDPOINTS = (
    Endpoint(
        "/v1/detect", "POST", INFER, "Find objects on an image", _detect, describe=openapi.describe_detect, **_PHOTOS
    ),
    *with_versions(
        Endpoint(
            "/v1/models/{model}:predict",
            "POST",
            INFER,
            "Infer from what the model's preprocess takes",
            _predict,
            describe=openapi.describe_predict,
            **_PHOTOS,
        )
    ),
    Endpoint("/metrics", "GET", ADMIN, "Metrics for Prometheus", _show_metrics, "text/plain", reads_body=False),
    Endpoint("/openapi.json", "GET", INFER, "", _show_openapi, reads_body=False),
    Endpoint("/docs", "GET", INFER, "", _show_docs, reads_body=False),
    Endpoint("/", "GET", None, "", _show_page, reads_body=False),
    Endpoint("/page/{name}", "GET", None, "", _show_page, reads_body=False),
)
"""The addresses for people; the files of the page are the same for everybody, and need no key."""
