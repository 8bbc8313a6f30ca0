"""The Open Inference Protocol over gRPC, with the messages of NVIDIA's client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import RequestError
from ...utils.optional import require
from ...version import __version__
from ..access.gate import Gate
from ..access.tls import Tls
from ..backends.backend import Backend
from ..backends.service import Service
from ..model.spec import Limits
from .grpc_codes import status_code
from .grpc_extensions import extension_methods
from .grpc_gate import gate_interceptor
from .grpc_infer import Inference
from .infer import Codec
from .memory import Memory
from .v2 import LOADS_NO_FILES, extensions, model_config, model_metadata, model_statistics

__all__ = ["start_grpc"]

_SMALL = 1 << 20  # bytes of a message that has no tensors


async def start_grpc(
    backend: Backend,
    codec: Callable[[Service], Codec],
    memory: Memory,
    limits: Limits,
    address: str,
    tls: Tls | None = None,
    gate: Gate | None = None,
) -> Any:
    """Serve at ``host:port`` too, where other processes may listen; gives the server, whose ``stop(seconds)`` ends it."""
    aio = require("grpc.aio", extra="grpc", package="grpcio", feature="--grpc-port")
    options = [
        ("grpc.max_receive_message_length", limits.body_bytes + _SMALL),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 1),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_concurrent_streams", limits.connections),
        ("grpc.server_handshake_timeout_ms", int(1000 * limits.head_seconds)),
    ]
    interceptors = [] if gate is None else [gate_interceptor(gate)]
    server = aio.server(options=options, maximum_concurrent_rpcs=limits.connections, interceptors=interceptors)
    server.add_generic_rpc_handlers((_handlers(backend, Inference(backend.services, codec), memory, limits),))
    if tls is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, tls.grpc_credentials())
    await server.start()
    return server


def _handlers(backend: Backend, inference: Inference, memory: Memory, limits: Limits) -> Any:
    messages = require("tritonclient.grpc.service_pb2", extra="grpc", package="tritonclient")
    grpc = require("grpc", extra="grpc", package="grpcio")
    parse = require("google.protobuf.json_format", extra="grpc", package="protobuf").ParseDict

    service = backend.services.find

    async def server_metadata(request: Any) -> Any:
        return messages.ServerMetadataResponse(name="pytrtplugins", version=__version__, extensions=extensions(limits))

    async def server_live(request: Any) -> Any:
        return messages.ServerLiveResponse(live=True)

    async def server_ready(request: Any) -> Any:
        return messages.ServerReadyResponse(ready=all(entry.ready for entry in backend.services.values()))

    async def model_ready(request: Any) -> Any:
        try:
            return messages.ModelReadyResponse(ready=service(request.name, request.version).ready)
        except RequestError:
            return messages.ModelReadyResponse(ready=False)

    async def metadata(request: Any) -> Any:
        return parse(model_metadata(service(request.name, request.version)), messages.ModelMetadataResponse())

    async def config(request: Any) -> Any:
        answer = {"config": model_config(service(request.name, request.version))}
        return parse(answer, messages.ModelConfigResponse())

    async def statistics(request: Any) -> Any:
        services = backend.services.select(request.name, request.version)
        answer = {"model_stats": [model_statistics(entry) for entry in services]}
        return parse(answer, messages.ModelStatisticsResponse())

    async def index(request: Any) -> Any:
        answer = messages.RepositoryIndexResponse()
        for entry in backend.services.every:
            if entry.ready or not request.ready:
                answer.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)
        return answer

    async def load(request: Any) -> Any:
        if request.parameters:
            raise RequestError(LOADS_NO_FILES)
        await backend.load(backend.services.find_to_load(_model_name(request)).name)
        return messages.RepositoryModelLoadResponse()

    async def unload(request: Any) -> Any:
        await backend.unload(service(_model_name(request)).name)
        return messages.RepositoryModelUnloadResponse()

    (described,) = messages.DESCRIPTOR.services_by_name.values()

    def method(name: str, answer: Callable[[Any], Any]) -> Any:
        async def called(request: Any, context: Any) -> Any:
            try:
                return await answer(request)
            except RequestError as error:
                await context.abort(status_code(error), str(error))

        types = described.methods_by_name[name]
        read, written = getattr(messages, types.input_type.name), getattr(messages, types.output_type.name)
        return grpc.unary_unary_rpc_method_handler(called, read.FromString, written.SerializeToString)

    others = {
        **extension_methods(memory, service),
        "ServerLive": server_live,
        "ServerReady": server_ready,
        "ServerMetadata": server_metadata,
        "ModelReady": model_ready,
        "ModelMetadata": metadata,
        "ModelConfig": config,
        "ModelStatistics": statistics,
        "RepositoryIndex": index,
        "RepositoryModelLoad": load,
        "RepositoryModelUnload": unload,
    }
    handlers = {
        **{name: method(name, answer) for name, answer in others.items()},
        "ModelInfer": grpc.unary_unary_rpc_method_handler(inference.infer),  # which read and write bytes
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(inference.stream),
    }
    return grpc.method_handlers_generic_handler(described.full_name, handlers)


def _model_name(request: Any) -> str:
    """The model to load or unload: KServe's messages have it in another field than NVIDIA's."""
    return request.model_name or request.repository_name or ""
