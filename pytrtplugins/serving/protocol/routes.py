"""Routes whose answers are JSON or empty, and JSON in their requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import RequestError
from ...utils.optional import require
from ...utils.text_formats import shorten
from ..access.exchange import CURRENT
from ..http.body import read_body
from ..model.spec import Limits
from ..model.tensors import TOO_DEEP

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

__all__ = ["empty_answer", "json_answer", "make_route", "read_json"]


def make_route(limits: Limits, path: str, answer: Callable[..., Any], *methods: str) -> Route:
    """A route.

    Args:
        limits: Of requests.
        path: As Starlette has it.
        answer: Takes the request, and its body where the method is POST; gives a response, or what JSON can say. May be a coroutine.
        methods: GET, POST, or both; GET if there are none.
    """
    routing = require("starlette.routing", extra="serve", package="starlette", feature="pytrt serve")

    async def endpoint(request: Request) -> Response:
        if request.method == "POST":
            _refuse_other_origins(request)
        body = await read_body(request.receive, dict(request.scope["headers"]), limits)
        found = answer(request, body) if request.method == "POST" else answer(request)
        if hasattr(found, "__await__"):
            found = await found
        return found if hasattr(found, "status_code") else json_answer(found)

    made: Route = routing.Route(path, endpoint, methods=methods or ["GET"])
    return made


def _refuse_other_origins(request: Request) -> None:
    """Refuse what a page of another origin lets a browser send unasked: it would come from this machine, or from within its network.

    Raises:
        RequestError: it is from another origin, and has no key, which such a page does not know (403).
    """
    origin, exchange = request.headers.get("origin"), CURRENT.get()
    keyed = exchange is not None and exchange.key is not None
    if origin is not None and not keyed and urlsplit(origin).netloc != request.headers.get("host"):
        raise RequestError("pages of other origins change nothing here without a key", status=403)


def json_answer(value: Any, status: int = 200, headers: Any = None) -> Response:
    """An answer of JSON."""
    responses = require("starlette.responses", extra="serve", package="starlette")
    made: Response = responses.JSONResponse(value, status, headers)
    return made


def empty_answer(status: int) -> Response:
    """An answer without a body."""
    responses = require("starlette.responses", extra="serve", package="starlette")
    made: Response = responses.Response(status_code=status)
    return made


def read_json(body: bytes) -> dict[str, Any]:
    """The object in the body of a request; no body is an empty one.

    Raises:
        RequestError: it is something else.
    """
    try:
        found = json.loads(body or b"{}")
    except RecursionError:
        raise RequestError(TOO_DEEP) from None
    except ValueError as error:
        raise RequestError(f"failed to parse the request JSON buffer: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise RequestError(f"the request must be a JSON object; it is {shorten(found)}")
    return found
