"""Triton's extensions over REST that concern no single model: shared memory, trace and log settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..access.roles import ADMIN
from .endpoint import AppState, Endpoint
from .openapi import TEXT, list_of, object_of
from .routes import empty_answer, read_json
from .settings import log_settings, trace_settings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["ENDPOINTS"]


def _region(request: Request) -> str:
    return str(request.path_params.get("region", ""))


def _system_status(state: AppState, request: Request) -> Any:
    return [
        {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.byte_size}
        for region in state.memory.regions(_region(request))
    ]


def _register_system(state: AppState, request: Request, body: bytes) -> Response:
    fields = read_json(body)
    state.memory.register(_region(request), fields.get("key"), fields.get("offset", 0), fields.get("byte_size"))
    return empty_answer(200)


def _unregister_system(state: AppState, request: Request, body: bytes) -> Response:
    state.memory.unregister(_region(request))
    return empty_answer(200)


def _cuda_status(state: AppState, request: Request) -> Any:
    return [
        {"name": region.name, "device_id": region.device_id, "byte_size": region.byte_size}
        for region in state.memory.cuda_regions(_region(request))
    ]


def _register_cuda(state: AppState, request: Request, body: bytes) -> Response:
    fields = read_json(body)
    handle = fields.get("raw_handle")
    handle = handle.get("b64") if isinstance(handle, dict) else handle
    state.memory.register_cuda(_region(request), handle, fields.get("device_id"), fields.get("byte_size"))
    return empty_answer(200)


def _unregister_cuda(state: AppState, request: Request, body: bytes) -> Response:
    state.memory.unregister(_region(request), "cuda")
    return empty_answer(200)


def _trace(state: AppState, request: Request, body: bytes = b"") -> Any:
    return trace_settings(read_json(body))


def _logging(state: AppState, request: Request, body: bytes = b"") -> Any:
    return log_settings(read_json(body))


_SYSTEM, _CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
_TRACE_SUMMARY, _LOG_SUMMARY = "Whether traces are written, as Triton says it", "What is logged, as Triton says it"
_TRACE_ANSWER, _LOG_ANSWER = {"trace_level": list_of(TEXT)}, {"log_error": {"type": "boolean"}}
ENDPOINTS = (
    Endpoint(
        f"{_SYSTEM}/status",
        "GET",
        ADMIN,
        "Regions of shared memory",
        _system_status,
        list_of(object_of(name=TEXT, key=TEXT)),
    ),
    Endpoint(f"{_SYSTEM}/region/{{region}}/status", "GET", ADMIN, "", _system_status),
    Endpoint(f"{_SYSTEM}/region/{{region}}/register", "POST", ADMIN, "", _register_system),
    Endpoint(f"{_SYSTEM}/region/{{region}}/unregister", "POST", ADMIN, "", _unregister_system),
    Endpoint(f"{_SYSTEM}/unregister", "POST", ADMIN, "", _unregister_system),
    Endpoint(f"{_CUDA}/status", "GET", ADMIN, "", _cuda_status),
    Endpoint(f"{_CUDA}/region/{{region}}/status", "GET", ADMIN, "", _cuda_status),
    Endpoint(f"{_CUDA}/region/{{region}}/register", "POST", ADMIN, "", _register_cuda),
    Endpoint(f"{_CUDA}/region/{{region}}/unregister", "POST", ADMIN, "", _unregister_cuda),
    Endpoint(f"{_CUDA}/unregister", "POST", ADMIN, "", _unregister_cuda),
    Endpoint("/v2/trace/setting", "GET", ADMIN, _TRACE_SUMMARY, _trace, _TRACE_ANSWER),
    Endpoint("/v2/trace/setting", "POST", ADMIN, _TRACE_SUMMARY, _trace, _TRACE_ANSWER),
    Endpoint("/v2/logging", "GET", ADMIN, _LOG_SUMMARY, _logging, _LOG_ANSWER),
    Endpoint("/v2/logging", "POST", ADMIN, _LOG_SUMMARY, _logging, _LOG_ANSWER),
)
"""The addresses of shared memory, traces and logs."""
