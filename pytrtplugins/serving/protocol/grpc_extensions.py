"""Triton's extensions over gRPC that concern no single model: shared memory, trace and log settings."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from ...errors import RequestError
from ...utils.optional import require
from .memory import Memory
from .settings import log_settings, trace_settings

__all__ = ["extension_methods"]


def extension_methods(memory: Memory, check_model: Callable[[str], object]) -> dict[str, Callable[[Any], Any]]:
    """Methods by name: each takes a message, and returns the answer; ``check_model`` raises an error where there is no such model."""
    messages = require("tritonclient.grpc.service_pb2", extra="grpc", package="tritonclient")

    async def system_status(request: Any) -> Any:
        answer = messages.SystemSharedMemoryStatusResponse()
        for region in memory.regions(request.name):
            entry = answer.regions[region.name]
            entry.name, entry.key, entry.offset, entry.byte_size = (
                region.name,
                region.key,
                region.offset,
                region.byte_size,
            )
        return answer

    async def system_register(request: Any) -> Any:
        memory.register(request.name, request.key, request.offset, request.byte_size)
        return messages.SystemSharedMemoryRegisterResponse()

    async def system_unregister(request: Any) -> Any:
        memory.unregister(request.name)
        return messages.SystemSharedMemoryUnregisterResponse()

    async def cuda_status(request: Any) -> Any:
        answer = messages.CudaSharedMemoryStatusResponse()
        for region in memory.cuda_regions(request.name):
            entry = answer.regions[region.name]
            entry.name, entry.device_id, entry.byte_size = region.name, region.device_id, region.byte_size
        return answer

    async def cuda_register(request: Any) -> Any:
        handle = base64.b64encode(request.raw_handle).decode()
        memory.register_cuda(request.name, handle, request.device_id, request.byte_size)
        return messages.CudaSharedMemoryRegisterResponse()

    async def cuda_unregister(request: Any) -> Any:
        memory.unregister(request.name, "cuda")
        return messages.CudaSharedMemoryUnregisterResponse()

    async def trace(request: Any) -> Any:
        if request.model_name:
            check_model(request.model_name)
        changes = {name: _one_or_more(setting.value) for name, setting in request.settings.items()}
        answer = messages.TraceSettingResponse()
        for name, value in trace_settings(changes).items():
            answer.settings[name].value.extend(value if isinstance(value, list) else [value])
        return answer

    async def log(request: Any) -> Any:
        changes = {}
        for name, setting in request.settings.items():
            kind = setting.WhichOneof("parameter_choice")
            if kind is None:
                raise RequestError(f"log settings: {name[:80]!r} has no value")
            changes[name] = getattr(setting, kind)
        answer = messages.LogSettingsResponse()
        for name, value in log_settings(changes).items():
            kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
            setattr(answer.settings[name], kind, value)
        return answer

    return {
        "SystemSharedMemoryStatus": system_status,
        "SystemSharedMemoryRegister": system_register,
        "SystemSharedMemoryUnregister": system_unregister,
        "CudaSharedMemoryStatus": cuda_status,
        "CudaSharedMemoryRegister": cuda_register,
        "CudaSharedMemoryUnregister": cuda_unregister,
        "TraceSetting": trace,
        "LogSettings": log,
    }


def _one_or_more(values: Any) -> str | list[str] | None:
    """A setting in JSON's form; an empty one means its default."""
    items = list(values)
    return items[0] if len(items) == 1 else items or None
