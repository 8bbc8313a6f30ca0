"""Seeds of the corpus for what a server reads."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from pytrtplugins.serving.shared.packing import pack, packed_bytes
from pytrtplugins.serving.shared.records import Kind, Record, write_record

__all__ = ["served"]


def served() -> Iterator[tuple[str, bytes | str]]:
    """What clients of a server send, and what its processes say to each other."""
    x, n = {"name": "x", "shape": [1, 2], "datatype": "FP32"}, {"name": "n", "shape": [1, 3], "datatype": "UINT8"}
    yield "inference/json", json.dumps({"id": "a", "inputs": [{**x, "data": [1, 2.5]}, {**n, "data": [[1, 2, 3]]}]})
    wanted = [{"name": "y", "parameters": {"classification": 1, "binary_data": True}}]
    sized = [{**x, "parameters": {"binary_data_size": 8}}, {**n, "parameters": {"binary_data_size": 3}}]
    head = json.dumps({"inputs": sized, "outputs": wanted, "parameters": {"priority": 1, "timeout": 5}}).encode()
    yield "inference/bytes", b"b" + len(head).to_bytes(2, "little") + head + bytes(range(11))
    file = {"name": "f", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}
    yield "inference/files", json.dumps({"inputs": [file], "outputs": [{"name": "y"}]})
    yield "inference/one-string-that-is-long", json.dumps({"inputs": [{**x, "data": [*["x" * 9000, *[""] * 9000]]}]})
    given_text = {"name": "s", "shape": [1, 2], "datatype": "BYTES"}
    yield "inference_strings/json", json.dumps({"inputs": [{**given_text, "data": [["a", "ä"]]}]})
    head = json.dumps({"inputs": [{**given_text, "parameters": {"binary_data_size": 11}}]}).encode()
    yield "inference_strings/bytes", b"b" + len(head).to_bytes(2, "little") + head + b"\2\0\0\0ab\1\0\0\0\xff"
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 11, "shared_memory_offset": 0}
    yield "inference_strings/shared", json.dumps({"inputs": [{**given_text, "parameters": region}]})
    yield (
        "inference_strings/half-a-character",
        json.dumps({"id": "\ud800", "inputs": [{**given_text, "data": ["\ud800", ""]}]}),
    )
    for kind, message in messages().items():
        yield f"inference_message/{kind}", message
    yield "shared_region/object", json.dumps({"key": "/OBJECT", "offset": 0, "byte_size": 64, **region})
    yield "shared_region/path", json.dumps({"key": "../etc/passwd", "offset": 0, "byte_size": 64})
    yield "shared_region/nothing", "{}"
    yield "inference/deep", '{"inputs":' + "[" * 3000
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.arange(30, dtype=np.uint8)}
    memory = bytearray(packed_bytes(given))
    pack(given, memoryview(memory))
    yield "packed/arrays", bytes(memory)
    state = write_record(Record(Kind.STATE, 1), {"signature": None, "sources": {}, "reason": "unloaded"})
    yield "records/stream", write_record(Record(Kind.REQUEST, 0, 0, 3, 1, 192, 4096, 20, 1.5)) + state


def messages() -> dict[str, bytes]:
    """Requests over gRPC."""
    from tritonclient.grpc import service_pb2

    tensor = service_pb2.ModelInferRequest.InferInputTensor
    x, n = tensor(name="x", shape=[1, 2], datatype="FP32"), tensor(name="n", shape=[1, 3], datatype="UINT8")
    raw = service_pb2.ModelInferRequest(inputs=[x, n], raw_input_contents=[bytes(8), b"abc"], id="a")
    raw.outputs.add(name="y").parameters["classification"].int64_param = 1
    raw.parameters["priority"].int64_param = 1
    x.contents.fp32_contents.extend([1, 2])
    n.contents.uint_contents.extend([1, 2, 3])
    inside = service_pb2.ModelInferRequest(inputs=[x, n])
    file = tensor(name="f", shape=[1], datatype="BYTES")
    file.parameters["shared_memory_region"].string_param = "r"
    shared = service_pb2.ModelInferRequest(inputs=[file])
    made = {"raw": raw, "inside": inside, "shared": shared}
    return {kind: bytes(each.SerializeToString()) for kind, each in made.items()}
