"""The Open Inference Protocol over gRPC, with the messages of NVIDIA's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import numpy as np

from ...errors import RequestError
from ...utils.optional import require
from ...version import __version__
from ..model import Arrays
from ..service import Backend, Service
from ..spec import Limits
from ..tensors import datatype_of, to_bytes
from ..tls import Tls
from .infer import Call, Codec, read_priority, read_timeout_s
from .v2 import EXTENSIONS, model_config, model_metadata, model_statistics

__all__ = ["start_grpc"]

_CODES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
_STREAMED = 64  # requests of one stream that are computed at a time
_SMALL = 1 << 20  # bytes of a message that has no tensors


async def start_grpc(
    backend: Backend, codec: Callable[[Service], Codec], limits: Limits, address: str, tls: Tls | None = None
) -> Any:
    """Serve at ``host:port`` too; gives the server, whose ``stop(seconds)`` ends it.

    Args:
        backend: Computes requests.
        codec: Gives what a model takes and gives.
        limits: Of requests.
        address: Where to listen; other processes may listen there too.
        tls: Certificate and key; None: connections are not encrypted.
    """
    aio = require("grpc.aio", extra="grpc", package="grpcio", feature="--grpc-port")
    services = require("tritonclient.grpc.service_pb2_grpc", extra="grpc", package="tritonclient")
    options = [
        ("grpc.max_receive_message_length", limits.body_bytes + _SMALL),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 1),
        ("grpc.max_concurrent_streams", limits.connections),
        ("grpc.server_handshake_timeout_ms", int(1000 * limits.head_seconds)),
    ]
    server = aio.server(options=options, maximum_concurrent_rpcs=limits.connections)
    services.add_GRPCInferenceServiceServicer_to_server(_servicer(backend, codec), server)
    if tls is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, tls.grpc_credentials())
    await server.start()
    return server


def _servicer(backend: Backend, codec: Callable[[Service], Codec]) -> Any:
    grpc = require("grpc", extra="grpc", package="grpcio")
    messages = require("tritonclient.grpc.service_pb2", extra="grpc", package="tritonclient")
    base = require("tritonclient.grpc.service_pb2_grpc", extra="grpc", package="tritonclient")
    parse = require("google.protobuf.json_format", extra="grpc", package="protobuf").ParseDict

    def service(name: str, version: str = "") -> Service:
        found = backend.services.get(name)
        if found is None or version not in ("", found.spec.version):
            raise RequestError(
                f"no model {name!r}{f' of version {version!r}' if version else ''} is served", status=404
            )
        return found

    async def infer(request: Any, left_s: float | None) -> Any:
        model = service(request.model_name, request.model_version)
        reader = codec(model)
        call, arrays = _read(reader, request)
        waits = [each for each in (call.timeout_s, left_s) if each is not None]
        item = await model.infer(arrays, call.priority, min(waits, default=None))
        answer = messages.ModelInferResponse(model_name=model.name, model_version=model.spec.version, id=request.id)
        for name, array in zip(call.outputs, reader.chosen(call, item.outputs), strict=True):
            answer.outputs.add(name=name, datatype=datatype_of(array), shape=array.shape)
            answer.raw_output_contents.append(to_bytes(array))
        return answer

    async def server_metadata(request: Any) -> Any:
        return messages.ServerMetadataResponse(name="pytrtplugins", version=__version__, extensions=EXTENSIONS)

    async def server_live(request: Any) -> Any:
        return messages.ServerLiveResponse(live=True)

    async def server_ready(request: Any) -> Any:
        return messages.ServerReadyResponse(ready=all(each.ready for each in backend.services.values()))

    async def model_ready(request: Any) -> Any:
        return messages.ModelReadyResponse(ready=service(request.name, request.version).ready)

    async def metadata(request: Any) -> Any:
        return parse(model_metadata(service(request.name, request.version)), messages.ModelMetadataResponse())

    async def config(request: Any) -> Any:
        found = {"config": model_config(service(request.name, request.version))}
        return parse(found, messages.ModelConfigResponse())

    async def statistics(request: Any) -> Any:
        asked = [service(request.name, request.version)] if request.name else backend.services.values()
        found = {"model_stats": [model_statistics(each) for each in asked]}
        return parse(found, messages.ModelStatisticsResponse())

    async def index(request: Any) -> Any:
        answer = messages.RepositoryIndexResponse()
        for each in backend.services.values():
            if each.ready or not request.ready:
                answer.models.add(name=each.name, version=each.spec.version, state=each.state, reason=each.reason)
        return answer

    async def load(request: Any) -> Any:
        if request.parameters:
            raise RequestError(
                "load: this server takes no configuration and no files from clients: leave out parameters"
            )
        await backend.load(service(request.model_name).name)
        return messages.RepositoryModelLoadResponse()

    async def unload(request: Any) -> Any:
        await backend.unload(service(request.model_name).name)
        return messages.RepositoryModelUnloadResponse()

    def method(answer: Callable[[Any], Any]) -> Any:
        async def called(self: Any, request: Any, context: Any) -> Any:
            try:
                return await answer(request)
            except RequestError as error:
                await context.abort(getattr(grpc.StatusCode, _CODES.get(error.status, "INTERNAL")), str(error))

        return called

    async def model_infer(self: Any, request: Any, context: Any) -> Any:
        try:
            return await infer(request, context.time_remaining())
        except RequestError as error:
            await context.abort(getattr(grpc.StatusCode, _CODES.get(error.status, "INTERNAL")), str(error))

    async def model_stream(self: Any, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answers in the order of the requests, of which several are computed at a time."""
        begun: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue(_STREAMED)

        async def begin() -> None:
            try:
                async for request in requests:
                    await begun.put(asyncio.ensure_future(infer(request, None)))
            finally:
                await begun.put(None)

        reading = asyncio.ensure_future(begin())
        try:
            while (task := await begun.get()) is not None:
                try:
                    yield messages.ModelStreamInferResponse(infer_response=await task)
                except RequestError as error:
                    yield messages.ModelStreamInferResponse(error_message=str(error))
        finally:
            reading.cancel()

    methods: dict[str, Any] = {
        "ServerLive": method(server_live),
        "ServerReady": method(server_ready),
        "ServerMetadata": method(server_metadata),
        "ModelReady": method(model_ready),
        "ModelMetadata": method(metadata),
        "ModelConfig": method(config),
        "ModelStatistics": method(statistics),
        "RepositoryIndex": method(index),
        "RepositoryModelLoad": method(load),
        "RepositoryModelUnload": method(unload),
        "ModelInfer": model_infer,
        "ModelStreamInfer": model_stream,
    }
    return type("Servicer", (base.GRPCInferenceServiceServicer,), methods)()


def _read(codec: Codec, request: Any) -> tuple[Call, Arrays]:
    """A request's call and inputs.

    Raises:
        RequestError: it does not fit the model.
    """
    specs = {spec.name: spec for spec in codec.signature.inputs}
    arrays: Arrays = {}
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise RequestError(f"raw_input_contents: expected {len(request.inputs)}, one for each input, found {len(raw)}")
    for number, given in enumerate(request.inputs):
        spec = specs.get(given.name)
        if spec is None or given.name in arrays:
            raise RequestError(f"inputs: expected each of {', '.join(specs)} once, found {given.name[:80]!r}")
        if "shared_memory_region" in given.parameters:
            raise RequestError("this server shares no memory with clients: send the tensors")
        shape = spec.check(given.datatype, list(given.shape))
        if raw:
            arrays[spec.name] = spec.from_bytes(memoryview(raw[number]), shape)
        elif given.datatype not in _CONTENTS:
            raise RequestError(f"input {given.name!r}: {given.datatype} goes into raw_input_contents")
        else:
            values = getattr(given.contents, _CONTENTS[given.datatype])
            arrays[spec.name] = spec.from_list(np.asarray(values).tolist() if len(values) else [], shape)
    if len(arrays) != len(specs):
        raise RequestError(f"inputs: missing: {', '.join(specs.keys() - arrays.keys())}")
    parameters = _parameters(request.parameters)
    wanted = [{"name": each.name, "parameters": _parameters(each.parameters)} for each in request.outputs]
    outputs = codec.outputs(wanted, parameters)
    return Call((), request.id, outputs, read_priority(parameters), read_timeout_s(parameters)), arrays


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("parameter_choice") or "bool_param") for name, value in given.items()}
