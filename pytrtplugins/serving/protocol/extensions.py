"""Triton's extensions over REST that are not about one model: memory that clients share, trace and log settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..model.spec import Limits
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

    def cuda_status(request: Request) -> Any:
        return [
            {"name": each.name, "device_id": each.device_id, "byte_size": each.byte_size}
            for each in memory.cuda_regions(region(request))
        ]

    def cuda_register(request: Request, body: bytes) -> Response:
        said = read_json(body)
        handle = said.get("raw_handle")
        handle = handle.get("b64") if isinstance(handle, dict) else handle
        memory.register_cuda(region(request), handle, said.get("device_id"), said.get("byte_size"))
        return empty_answer(200)

    def cuda_unregister(request: Request, body: bytes) -> Response:
        memory.unregister(region(request), "cuda")
        return empty_answer(200)

    def trace(request: Request, body: bytes = b"") -> Any:
        return trace_settings(read_json(body))

    def logging(request: Request, body: bytes = b"") -> Any:
        return log_settings(read_json(body))

    kinds = (("system", status, register, unregister), ("cuda", cuda_status, cuda_register, cuda_unregister))
    shared = [
        made
        for kind, of_status, of_register, of_unregister in kinds
        for made in (
            route(f"/v2/{kind}sharedmemory/status", of_status),
            route(f"/v2/{kind}sharedmemory/region/{{region}}/status", of_status),
            route(f"/v2/{kind}sharedmemory/region/{{region}}/register", of_register, "POST"),
            route(f"/v2/{kind}sharedmemory/region/{{region}}/unregister", of_unregister, "POST"),
            route(f"/v2/{kind}sharedmemory/unregister", of_unregister, "POST"),
        )
    ]
    return [
        *shared,
        route("/v2/trace/setting", trace, "GET", "POST"),
        route("/v2/logging", logging, "GET", "POST"),
    ]
