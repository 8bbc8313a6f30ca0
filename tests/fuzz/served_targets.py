"""Targets for what clients of a server send, and what its processes say to each other."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.model.model import Arrays
from pytrtplugins.serving.model.signature import Signature
from pytrtplugins.serving.model.spec import Limits
from pytrtplugins.serving.model.tensors import TensorSpec
from pytrtplugins.serving.protocol.call import InferenceRequest
from pytrtplugins.serving.protocol.grpc_infer import read_message
from pytrtplugins.serving.protocol.grpc_wire import Parts, take_apart
from pytrtplugins.serving.protocol.infer import Codec
from pytrtplugins.serving.protocol.memory import Memory, read_place
from pytrtplugins.serving.protocol.routes import read_json
from pytrtplugins.serving.shared.packing import pack, packed_bytes, unpack
from pytrtplugins.serving.shared.records import Reader
from pytrtplugins.serving.shared.settings import SharedSettings
from tests.fuzz.registry import TARGETS, target


@functools.cache
def codec() -> Codec:
    """Of a model of numbers, which takes files too."""
    inputs = TensorSpec("x", "FP32", (-1, 2)), TensorSpec("n", "UINT8", (-1, -1))
    outputs = (TensorSpec("y", "FP32", (-1, 2)),)
    return Codec(Signature(inputs, outputs, True, 8, file_input="f"), "net", "1", Memory(Limits()))


@functools.cache
def string_codec() -> Codec:
    """Of a model of strings."""
    of_strings = (TensorSpec("s", "BYTES", (-1, -1)),)
    return Codec(Signature(of_strings, of_strings, True, 8), "net", "1", Memory(Limits(shared_memory_regions=1)))


def read_request(data: bytes, codec: Codec) -> tuple[InferenceRequest, Arrays]:
    """A request; behind ``b`` and two bytes of the length of its JSON with tensors as bytes."""
    if data[:1] == b"b":
        return codec.read(data[3:], str(int.from_bytes(data[1:3], "little")))
    return codec.read(data, None)


@target
def inference(data: bytes) -> object:
    """A request of the Open Inference Protocol."""
    call, arrays = read_request(data, codec())
    rows = arrays["x"] if "x" in arrays else np.ones((2, 2), np.float32)
    assert rows.shape[1:] == (2,)
    return codec().write(call, {"y": rows})


@target
def inference_strings(data: bytes) -> object:
    """The same for a model that takes and gives strings; they go through shared memory between processes too."""
    call, arrays = read_request(data, string_codec())
    memory = bytearray(packed_bytes(arrays))
    pack(arrays, memoryview(memory))
    again = unpack(memoryview(memory))
    assert again["s"].tolist() == arrays["s"].tolist()
    return string_codec().write(call, again)


@target
def inference_message(data: bytes) -> object:
    """A request over gRPC, which says the same whether protobuf reads all of it or its head alone."""
    from google.protobuf.message import DecodeError
    from tritonclient.grpc import service_pb2

    found = []
    for parts in (take_apart(data), Parts(data, "", [])):
        try:
            request = service_pb2.ModelInferRequest.FromString(parts.head)
            call, arrays = read_message(codec(), request, parts)
            found.append(
                (parts.id or request.id, call.outputs, {name: each.tobytes() for name, each in arrays.items()})
            )
        except (RequestError, DecodeError) as error:
            found.append(error)
    one, other = found
    if isinstance(other, Exception):
        assert isinstance(one, Exception), (
            one
        )  # of any kind: protobuf may find a text that is no UTF-8 before a wrong number of inputs
        raise RequestError(str(other)[:200])
    assert one == other
    return codec().chosen(call, {"y": arrays["x"]} if "x" in arrays else {})


@target
def shared_region(data: bytes) -> object:
    """A request to register memory, and a place in it; ``OBJECT`` is the name of 64 bytes."""
    board, path = SharedSettings(), Path("/dev/shm") / f"pytrt-fuzz-{os.getpid()}"
    memory = Memory(Limits(shared_memory_regions=1), board)
    path.write_bytes(bytes(64))
    try:
        said = read_json(data.replace(b"OBJECT", path.name.encode()))
        memory.register("r", said.get("key"), said.get("offset", 0), said.get("byte_size"))
        place = read_place(said, "x")
        return None if place is None else len(memory.read(place))
    finally:
        path.unlink()
        board.close()


@target
def records(data: bytes) -> object:
    """A stream between processes of a server."""
    reader = Reader()
    return [list(reader.feed(part)) for part in (data[:50], data[50:])]


TARGETS["packed"] = lambda data: sum(array.nbytes for array in unpack(memoryview(data)).values())
