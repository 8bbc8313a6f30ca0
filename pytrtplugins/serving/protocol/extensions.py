"""Triton's extensions over REST that are not about one model: memory that clients share, trace and log settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..spec import Limits
from .memory import Memory
from .routes import empty_answer, make_route, read_json
from .settings import log_settings, trace_settings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

__all__ = ["routes"]


def routes(memory: Memory, limits: Limits) -> list[Route]:
    """``/v2/systemsharedmemory``, ``/v2/cudasharedmemory``, ``/v2/trace/setting``, ``/v2/logging``."""
    route = partial(make_route, limits)

    def region(request: Request) -> str:
        return str(request.path_params.get("region", ""))

    def status(request: Request) -> Any:
        return [
            {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.byte_size}
            for each in memory.regions(region(request))
        ]

    def register(request: Request, body: bytes) -> Response:
        said = read_json(body)
        memory.register(region(request), said.get("key"), said.get("offset", 0), said.get("byte_size"))
        return empty_answer(200)

    def unregister(request: Request, body: bytes) -> Response:
        memory.unregister(region(request))
        return empty_answer(200)

    def trace(request: Request, body: bytes = b"") -> Any:
        return trace_settings(read_json(body))

    def logging(request: Request, body: bytes = b"") -> Any:
        return log_settings(read_json(body))

    system = "/v2/systemsharedmemory"
    return [
        route(f"{system}/status", status),
        route(f"{system}/region/{{region}}/status", status),
        route(f"{system}/region/{{region}}/register", register, "POST"),
        route(f"{system}/region/{{region}}/unregister", unregister, "POST"),
        route(f"{system}/unregister", unregister, "POST"),
        route("/v2/trace/setting", trace, "GET", "POST"),
        route("/v2/logging", logging, "GET", "POST"),
    ]
