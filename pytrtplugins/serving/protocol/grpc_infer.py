"""Inference over gRPC: single requests and streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import RequestError
from ...utils.optional import require
from ..backends.service import Service
from ..backends.versions import Services
from ..batching.queue import QueuedRequest
from ..model.model import Arrays
from ..model.registered import Source
from ..model.tensors import TensorSpec, datatype_of, to_bytes
from .call import InferenceRequest, RequestInput, cache_head
from .grpc_codes import status_code
from .grpc_wire import Parts, answer_message, take_apart, within_stream
from .infer import DIGEST, Codec
from .memory import read_place

__all__ = ["Inference", "read_message"]

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


class Inference:
    """Answers inference requests over gRPC."""

    def __init__(self, services: Services, codec: Callable[[Service], Codec]) -> None:
        self._services, self._codec = services, codec
        self._messages: Any = require("tritonclient.grpc.service_pb2", extra="grpc", package="tritonclient")
        self._decode_error = require("google.protobuf.message", extra="grpc", package="protobuf").DecodeError
        self._requests: dict[bytes, Any] = {}  # by their bytes
        final = self._messages.ModelInferResponse()
        final.parameters["triton_final_response"].bool_param = True  # each request has one answer
        self._final: bytes = final.SerializeToString()

    async def infer(self, message: bytes, context: Any) -> bytes:
        """The answer to a request."""
        try:
            parts = take_apart(message)
            return await self._answer(parts, self._request(parts.head), context.time_remaining())
        except RequestError as error:
            await context.abort(status_code(error), str(error))
            raise  # not reached: it raises another

    async def stream(self, messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Answers in the order of the requests, of which several are computed at a time."""
        begun: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        free = asyncio.Semaphore(_STREAMED)

        async def begin() -> None:
            try:
                async for message in messages:
                    await free.acquire()
                    begun.put_nowait(asyncio.ensure_future(self._streamed(message)))
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

    async def _streamed(self, message: bytes) -> bytes:
        """An answer in a stream, where an error is a message and does not end the stream."""
        parts, request = take_apart(message), None
        try:
            request = self._request(parts.head)
            return within_stream(self._final + await self._answer(parts, request, None))
        except Exception as error:
            text = str(error) if isinstance(error, RequestError) else f"{type(error).__name__}: {error}"
            if not isinstance(error, RequestError):
                _log.exception("request failed")
        answer = self._messages.ModelInferResponse()
        answer.MergeFromString(self._final)
        if request is not None:
            answer.model_name, answer.id = request.model_name, parts.id or request.id
        message_out = self._messages.ModelStreamInferResponse(error_message=text, infer_response=answer)
        data: bytes = message_out.SerializeToString()
        return data

    async def _answer(self, parts: Parts, request: Any, left_s: float | None) -> bytes:
        model = self._services.pick(request.model_name, request.model_version)
        codec = self._codec(model)
        call, arrays = read_message(codec, request, parts)
        waits = [limit for limit in (call.timeout_s, left_s) if limit is not None]
        with codec.memory.using(call.regions):
            item = await model.infer(arrays, call.priority, min(waits, default=None))
            return self._write_answer(codec, call, item, parts.id or request.id)

    def _request(self, head: bytes) -> Any:
        """Parse a request's message."""
        parsed = self._requests.get(head)
        if parsed is None:
            try:
                parsed = self._messages.ModelInferRequest.FromString(head)
            except self._decode_error as error:
                raise RequestError(f"the message is not a ModelInferRequest: {str(error)[:200]}") from None
            cache_head(self._requests, head, parsed)
        return parsed

    def _write_answer(self, codec: Codec, call: InferenceRequest, item: QueuedRequest, identifier: str) -> bytes:
        arrays = codec.chosen(call, item.outputs)
        head = codec.head(call, arrays, item.source, partial(self._head, codec))
        raw = (b"" if name in call.places else to_bytes(array) for name, array in arrays.items())
        return answer_message(head, identifier, raw)

    def _head(self, codec: Codec, call: InferenceRequest, arrays: Arrays, source: Source | None) -> bytes:
        answer = self._messages.ModelInferResponse(**codec.about(source))
        if source is not None:
            answer.parameters[DIGEST].string_param = source.digest
        for name, array in arrays.items():
            answer.outputs.add(name=name, datatype=datatype_of(array), shape=array.shape)
        data: bytes = answer.SerializeToString()
        return data


def read_message(codec: Codec, request: Any, parts: Parts) -> tuple[InferenceRequest, Arrays]:
    """Read a request's head and inputs.

    Raises:
        RequestError: it does not fit the model.
    """
    call = codec.messages.get(parts.head)
    if call is None or len(parts.raw) != len(call.inputs):
        return _read_whole(codec, request, parts)
    pairs = zip(call.inputs, parts.raw, strict=True)
    return call, {
        request_input.spec.name: request_input.spec.from_bytes(data, request_input.shape, codec.name)
        for request_input, data in pairs
    }


def _read_whole(codec: Codec, request: Any, parts: Parts) -> tuple[InferenceRequest, Arrays]:
    arrays: Arrays = {}
    specs: dict[str, TensorSpec] = {}
    inputs: list[RequestInput] = []
    raw = parts.raw or [memoryview(item) for item in request.raw_input_contents]
    places = [read_place(_parameters(item.parameters), f"input {item.name[:80]!r}") for item in request.inputs]
    expected = places.count(None)
    if raw and len(raw) != expected:
        raise RequestError(
            f"expected number of raw_input_contents {expected}, got {len(raw)}: there must be one for each input that is not in shared "
            "memory"
        )
    rest = iter(raw)
    for tensor, place in zip(request.inputs, places, strict=True):
        spec = codec.input_spec(tensor.name, tensor.datatype, specs)
        shape = spec.check(tensor.datatype, list(tensor.shape), codec.name)
        inputs.append(RequestInput(spec, shape, place=place))
        if tensor.HasField("contents") and (raw or place is not None):
            raise RequestError(
                f"contents field must not be specified when using raw_input_contents for {tensor.name!r} "
                f"for model {codec.name!r}, and not with shared memory"
            )
        if place is not None:
            arrays[spec.name] = spec.from_bytes(codec.memory.read(place), shape, codec.name)
        elif raw:
            arrays[spec.name] = spec.from_bytes(next(rest), shape, codec.name)
        else:
            arrays[spec.name] = _explicit(tensor, spec, shape, codec.name)
    codec.check_complete(specs)
    output_entries = [{"name": item.name, "parameters": _parameters(item.parameters)} for item in request.outputs]
    call = codec.call(tuple(inputs), request.id, output_entries, _parameters(request.parameters))
    if parts.raw and expected == len(inputs):
        cache_head(codec.messages, parts.head, call)
    return call, arrays


def _explicit(tensor: Any, spec: TensorSpec, shape: tuple[int, ...], model: str) -> npt.NDArray[Any]:
    """The values that an input has in its message, one by one."""
    where = f"input tensor {spec.name!r} for model {model!r}"
    if not tensor.HasField("contents"):
        raise RequestError(f"unable to find data for {where} in request.")
    expected = "bytes_contents" if spec.datatype == "BYTES" else _CONTENTS.get(spec.datatype, "")
    others = [other_field.name for other_field, _ in tensor.contents.ListFields() if other_field.name != expected]
    if others or not expected:
        raise RequestError(
            f"unexpected explicit tensor data for {where}: {spec.datatype} goes into {expected or 'raw_input_contents'}"
            + f", the request has {', '.join(others)}" * bool(others)
        )
    values = getattr(tensor.contents, expected)
    if spec.datatype == "BYTES":
        return spec.from_items(list(values), shape)
    return spec.from_list(np.asarray(values).tolist() if len(values) else [], shape)


def _parameters(messages: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: getattr(value, value.WhichOneof("parameter_choice") or "bool_param") for name, value in messages.items()
    }
