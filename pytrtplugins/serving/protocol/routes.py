"""Starlette's application for the endpoints: reads bodies, and writes values and errors as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import RequestError
from ...utils.optional import require
from ...utils.text_formats import shorten
from ..access.exchange import CURRENT
from ..http.body import UnreadError, read_body
from ..model.tensors import TOO_DEEP
from .endpoint import AppState, Endpoint

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["empty_answer", "json_answer", "make_application", "read_json"]


def make_application(state: AppState) -> Starlette:
    """An application of the state's endpoints; the first whose path matches answers. All errors are JSON."""
    routing = require("starlette.routing", extra="serve", package="starlette", feature="pytrt serve")
    application = require("starlette.applications", extra="serve", package="starlette")
    exceptions = require("starlette.exceptions", extra="serve", package="starlette")
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in state.endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [routing.Route(path, _dispatch(state, methods), methods=[*methods]) for path, methods in paths.items()]
    handlers = {RequestError: _on_error, exceptions.HTTPException: _on_http_error, Exception: _on_error}
    app: Starlette = application.Starlette(routes=routes, exception_handlers=handlers)
    return app


def _dispatch(state: AppState, methods: Mapping[str, Endpoint]) -> Callable[[Request], Any]:
    """A handler of one path that calls the endpoint of the request's method."""

    async def answer(request: Request) -> Response:
        endpoint, arguments = methods["GET" if request.method == "HEAD" else request.method], [state, request]
        if endpoint.reads_body:
            if request.method == "POST":
                _refuse_other_origins(request)
            body: Any = await read_body(request.receive, dict(request.scope["headers"]), state.limits)
            arguments += [body] if request.method == "POST" else []
        result = endpoint.handler(*arguments)
        if hasattr(result, "__await__"):
            result = await result
        return result if hasattr(result, "status_code") else json_answer(result)

    return answer


def _refuse_other_origins(request: Request) -> None:
    """Refuse what a page of another origin lets a browser send unasked: it would come from this machine, or from within its network."""
    origin, exchange = request.headers.get("origin"), CURRENT.get()
    keyed = exchange is not None and exchange.key is not None
    if origin is not None and not keyed and urlsplit(origin).netloc != request.headers.get("host"):
        raise RequestError("pages of other origins change nothing here without a key", status=403)


async def _on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestError):
        return json_answer({"error": str(error)}, 500)
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    if isinstance(error, UnreadError):
        headers["connection"] = "close"
    return json_answer({"error": str(error)}, error.status, headers)


async def _on_http_error(request: Request, error: Any) -> Response:
    text = f"{error.detail}: {request.method} {request.url.path[:200]}"
    return json_answer({"error": text}, error.status_code, error.headers)


def json_answer(value: Any, status: int = 200, headers: Any = None) -> Response:
    """An answer of JSON."""
    responses = require("starlette.responses", extra="serve", package="starlette")
    response: Response = responses.JSONResponse(value, status, headers)
    return response


def empty_answer(status: int) -> Response:
    """An answer without a body."""
    responses = require("starlette.responses", extra="serve", package="starlette")
    response: Response = responses.Response(status_code=status)
    return response


def read_json(body: bytes) -> dict[str, Any]:
    """The object in the body of a request; no body is an empty one."""
    try:
        value = json.loads(body or b"{}")
    except RecursionError:
        raise RequestError(TOO_DEEP) from None
    except ValueError as error:
        raise RequestError(f"failed to parse the request JSON buffer: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise RequestError(f"the request must be a JSON object; it is {shorten(value)}")
    return value
