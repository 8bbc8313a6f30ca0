"""The Open Inference Protocol over gRPC, with the messages of NVIDIA's client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import numpy as np

from ...errors import RequestError
from ...utils.optional import require
from ...version import __version__
from ..access.gate import Gate
from ..access.tls import Tls
from ..backends.backend import Backend
from ..backends.service import Service
from ..model.model import Arrays
from ..model.spec import Limits
from ..model.tensors import TensorSpec, datatype_of, to_bytes
from .call import Call
from .grpc_codes import status_code
from .grpc_extensions import extension_methods
from .grpc_gate import gate_interceptor
from .infer import DIGEST, Codec
from .memory import Memory, read_place
from .v2 import extensions, model_config, model_metadata, model_statistics

__all__ = ["read_message", "start_grpc"]

_log = logging.getLogger(__name__)
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
    backend: Backend,
    codec: Callable[[Service], Codec],
    memory: Memory,
    limits: Limits,
    address: str,
    tls: Tls | None = None,
    gate: Gate | None = None,
) -> Any:
    """Serve at ``host:port`` too; gives the server, whose ``stop(seconds)`` ends it.

    Args:
        backend: Computes requests.
        codec: Gives what a model takes and gives.
        memory: That clients share with the server.
        limits: Of requests.
        address: Where to listen; other processes may listen there too.
        tls: Certificate and key; None: connections are not encrypted.
        gate: What requests pass first; None: nothing.
    """
    aio = require("grpc.aio", extra="grpc", package="grpcio", feature="--grpc-port")
    services = require("tritonclient.grpc.service_pb2_grpc", extra="grpc", package="tritonclient")
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
    services.add_GRPCInferenceServiceServicer_to_server(_servicer(backend, codec, memory, limits), server)
    if tls is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, tls.grpc_credentials())
    await server.start()
    return server


def _servicer(backend: Backend, codec: Callable[[Service], Codec], memory: Memory, limits: Limits) -> Any:
    messages = require("tritonclient.grpc.service_pb2", extra="grpc", package="tritonclient")
    base = require("tritonclient.grpc.service_pb2_grpc", extra="grpc", package="tritonclient")
    parse = require("google.protobuf.json_format", extra="grpc", package="protobuf").ParseDict

    service = backend.services.find

    async def infer(request: Any, left_s: float | None) -> Any:
        model = backend.services.pick(request.model_name, request.model_version)
        reader = codec(model)
        call, arrays = read_message(reader, request)
        waits = [each for each in (call.timeout_s, left_s) if each is not None]
        item = await model.infer(arrays, call.priority, min(waits, default=None))
        version = model.version if item.source is None else item.source.version
        answer = messages.ModelInferResponse(model_name=model.name, model_version=version, id=request.id)
        if item.source is not None:
            answer.parameters[DIGEST].string_param = item.source.digest
        for name, array in zip(call.outputs, reader.chosen(call, item.outputs), strict=True):
            answer.outputs.add(name=name, datatype=datatype_of(array), shape=array.shape)
            answer.raw_output_contents.append(b"" if name in call.places else to_bytes(array))
        return answer

    async def server_metadata(request: Any) -> Any:
        return messages.ServerMetadataResponse(name="pytrtplugins", version=__version__, extensions=extensions(limits))

    async def server_live(request: Any) -> Any:
        return messages.ServerLiveResponse(live=True)

    async def server_ready(request: Any) -> Any:
        return messages.ServerReadyResponse(ready=all(each.ready for each in backend.services.values()))

    async def model_ready(request: Any) -> Any:
        try:
            return messages.ModelReadyResponse(ready=service(request.name, request.version).ready)
        except RequestError:
            return messages.ModelReadyResponse(ready=False)

    async def metadata(request: Any) -> Any:
        return parse(model_metadata(service(request.name, request.version)), messages.ModelMetadataResponse())

    async def config(request: Any) -> Any:
        found = {"config": model_config(service(request.name, request.version))}
        return parse(found, messages.ModelConfigResponse())

    async def statistics(request: Any) -> Any:
        asked = backend.services.asked(request.name, request.version)
        found = {"model_stats": [model_statistics(each) for each in asked]}
        return parse(found, messages.ModelStatisticsResponse())

    async def index(request: Any) -> Any:
        answer = messages.RepositoryIndexResponse()
        for each in backend.services.every:
            if each.ready or not request.ready:
                answer.models.add(name=each.name, version=each.version, state=each.state, reason=each.reason)
        return answer

    async def load(request: Any) -> Any:
        if request.parameters:
            raise RequestError(
                "load: this server takes no configuration and no files from clients: leave out parameters"
            )
        await backend.load(service(_named(request)).name)
        return messages.RepositoryModelLoadResponse()

    async def unload(request: Any) -> Any:
        await backend.unload(service(_named(request)).name)
        return messages.RepositoryModelUnloadResponse()

    def method(answer: Callable[[Any], Any]) -> Any:
        async def called(self: Any, request: Any, context: Any) -> Any:
            try:
                return await answer(request)
            except RequestError as error:
                await context.abort(status_code(error), str(error))

        return called

    async def model_infer(self: Any, request: Any, context: Any) -> Any:
        try:
            return await infer(request, context.time_remaining())
        except RequestError as error:
            await context.abort(status_code(error), str(error))

    async def streamed(request: Any) -> Any:
        """An answer within a stream, where an error is a message that ends nothing."""
        text = ""
        try:
            answer = await infer(request, None)
        except Exception as error:
            text = str(error) if isinstance(error, RequestError) else f"{type(error).__name__}: {error}"
            if not isinstance(error, RequestError):
                _log.exception("request failed")
            answer = messages.ModelInferResponse(model_name=request.model_name, id=request.id)
        answer.parameters["triton_final_response"].bool_param = True  # each request has one answer
        return messages.ModelStreamInferResponse(error_message=text, infer_response=answer)

    async def model_stream(self: Any, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answers in the order of the requests, of which several are computed at a time."""
        begun: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()
        free = asyncio.Semaphore(_STREAMED)

        async def begin() -> None:
            try:
                async for request in requests:
                    await free.acquire()
                    begun.put_nowait(asyncio.ensure_future(streamed(request)))
            finally:
                begun.put_nowait(None)

        reading = asyncio.ensure_future(begin())
        try:
            while (task := await begun.get()) is not None:
                answer = await task
                free.release()
                yield answer
        finally:  # where the client is gone, nobody waits for the rest
            reading.cancel()
            while not begun.empty():
                left = begun.get_nowait()
                if left is not None:
                    left.cancel()

    others = extension_methods(memory, service)
    methods: dict[str, Any] = {
        **{name: method(answer) for name, answer in others.items()},
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


def read_message(codec: Codec, request: Any) -> tuple[Call, Arrays]:
    """A request's call and inputs.

    Raises:
        RequestError: it does not fit the model.
    """
    arrays: Arrays = {}
    specs: dict[str, TensorSpec] = {}
    raw = list(request.raw_input_contents)
    places = [read_place(_parameters(each.parameters), f"input {each.name[:80]!r}") for each in request.inputs]
    expected = places.count(None)
    if raw and len(raw) != expected:
        raise RequestError(
            f"raw_input_contents: expected {expected}, one for each input that is not in shared memory, found {len(raw)}"
        )
    rest = iter(raw)
    for given, place in zip(request.inputs, places, strict=True):
        spec = codec.input_spec(given.name, given.datatype, specs)
        shape = spec.check(given.datatype, list(given.shape))
        if given.HasField("contents") and (raw or place is not None):
            raise RequestError(f"input {given.name!r}: contents beside raw_input_contents, or beside shared memory")
        if place is not None:
            arrays[spec.name] = spec.from_bytes(codec.memory.read(place), shape)
        elif raw:
            arrays[spec.name] = spec.from_bytes(memoryview(next(rest)), shape)
        elif given.datatype == "BYTES":
            arrays[spec.name] = spec.from_items(list(given.contents.bytes_contents), shape)
        elif given.datatype not in _CONTENTS:
            raise RequestError(f"input {given.name!r}: {given.datatype} goes into raw_input_contents")
        else:
            values = getattr(given.contents, _CONTENTS[given.datatype])
            arrays[spec.name] = spec.from_list(np.asarray(values).tolist() if len(values) else [], shape)
    codec.check_whole(specs)
    wanted = [{"name": each.name, "parameters": _parameters(each.parameters)} for each in request.outputs]
    return codec.call((), request.id, wanted, _parameters(request.parameters)), arrays


def _named(request: Any) -> str:
    """The model to load or unload, which KServe's messages have where NVIDIA's have the repository."""
    return request.model_name or request.repository_name or ""


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("parameter_choice") or "bool_param") for name, value in given.items()}
