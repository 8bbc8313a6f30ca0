"""The same over gRPC, as messages of NVIDIA's client."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.serving.protocol.asked import STRINGS, floats, shared

messages = pytest.importorskip("tritonclient.grpc.service_pb2")

ONE_ROW = floats(1, 2)
KINDS = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}


class AskedOverGrpc(NamedTuple):
    """A request."""

    name: str
    method: str
    message: Any


def fill(parameters, said):
    for name, value in said.items():
        setattr(parameters[name], KINDS[type(value)], value)


def infer(
    name,
    model="double",
    tensor="x",
    datatype="FP32",
    shape=(1, 2),
    raw=(ONE_ROW,),
    inside=None,
    outputs=(),
    place=None,
    **parameters,
):
    """A request to infer."""
    request = messages.ModelInferRequest(model_name=model)
    given = request.inputs.add(name=tensor, datatype=datatype, shape=shape)
    fill(given.parameters, place or {})
    if inside:
        getattr(given.contents, inside[0]).extend(inside[1])
    for output, said in outputs:
        fill(request.outputs.add(name=output).parameters, said)
    fill(request.parameters, parameters)
    request.raw_input_contents.extend(raw)
    return AskedOverGrpc(name, "ModelInfer", request)


def changed(name, **changes):
    """A request to infer, with other fields."""
    made = infer(name)
    for field, value in changes.items():
        setattr(made.message, field, value)
    return made


def strings(name, raw=(STRINGS,), **options):
    return infer(name, "shout", "text", "BYTES", (2, 1), raw, **options)


def other(title, method, /, **fields):
    return AskedOverGrpc(title, method, getattr(messages, f"{method}Request")(**fields))


REQUESTS = [
    infer("bytes"),
    changed("an id", id="seven"),
    changed("the version", model_version="1"),
    changed("an unknown version", model_version="2"),
    infer("an unknown model", "nothing"),
    AskedOverGrpc("no inputs", "ModelInfer", messages.ModelInferRequest(model_name="double")),
    infer("an unknown input", tensor="z"),
    infer("another type", datatype="FP64"),
    infer("another shape", shape=(1, 3)),
    infer("another rank", shape=(2,)),
    infer("a shape below 0", shape=(-1, 2)),
    infer("too few bytes", raw=[floats(1)]),
    infer("too many bytes", raw=[floats(1, 2, 3)]),
    infer("bytes of two inputs", raw=[floats(1, 2)] * 2),
    infer("numbers", raw=(), inside=("fp32_contents", [1, 2])),
    infer("too few numbers", raw=(), inside=("fp32_contents", [1])),
    infer("numbers and bytes", inside=("fp32_contents", [1, 2])),
    infer("numbers of another type", raw=(), inside=("int_contents", [1, 2])),
    infer("no data", raw=()),
    infer("the largest", outputs=[("y", {"classification": 1})]),
    infer("the largest five of two", outputs=[("y", {"classification": 5})]),
    infer("the largest, as text", outputs=[("y", {"classification": "1"})]),
    infer("an unknown output", outputs=[("z", {})]),
    infer("an output twice", outputs=[("y", {}), ("y", {})]),
    infer("parameters", priority=1, mine="x", number=1.5, flag=True),
    infer("a reserved parameter", triton_x="x"),
    infer("a sequence", sequence_id=7),
    infer("priority as text", priority="1"),
    infer("a model that fails", raw=[floats(-1, 2)]),
    infer("too many rows", shape=(33, 2), raw=[floats(*[0] * 66)]),
    infer("no rows", shape=(0, 2), raw=[b""]),
    strings("strings"),
    strings("strings one by one", (), inside=("bytes_contents", [b"ab", b"c"])),
    strings("half of the strings", (STRINGS[:6],)),
    infer("half precision", "half", datatype="FP16", raw=[np.float16([1, 2]).tobytes()]),
    infer("half precision as numbers", "half", datatype="FP16", raw=(), inside=("fp32_contents", [1, 2])),
    infer("whole numbers", "total", datatype="INT64", shape=(3,), raw=[np.int64([1, 2, 3]).tobytes()]),
    infer("no numbers", "total", datatype="INT64", shape=(0,), raw=[b""]),
    other("live", "ServerLive"),
    other("ready", "ServerReady"),
    other("a model is ready", "ModelReady", name="double"),
    other("an unknown model is ready", "ModelReady", name="nothing"),
    other("metadata", "ModelMetadata", name="double"),
    other("metadata of an unknown model", "ModelMetadata", name="nothing"),
    other("configuration of an unknown model", "ModelConfig", name="nothing"),
    other("trace", "TraceSetting"),
    changed("a version that is no number", model_version="x"),
    infer("the largest none", outputs=[("y", {"classification": 0})]),
    other("statistics of an unknown model", "ModelStatistics", name="nothing"),
    other("trace of an unknown model", "TraceSetting", model_name="nothing"),
    other("load an unknown model", "RepositoryModelLoad", model_name="nothing"),
    other("unload an unknown model", "RepositoryModelUnload", model_name="nothing"),
]


def in_memory(key):
    """Requests about 64 bytes of shared memory, which begin with two floats."""
    at_32 = [("y", shared(offset=32))]
    return [
        other("a region", "SystemSharedMemoryRegister", name="r", key=f"/{key}", byte_size=64),
        other("a region again", "SystemSharedMemoryRegister", name="r", key=f"/{key}", byte_size=64),
        other("no such object", "SystemSharedMemoryRegister", name="q", key=f"/{key}-none", byte_size=64),
        other("all regions", "SystemSharedMemoryStatus"),
        other("an unknown region", "SystemSharedMemoryStatus", name="x"),
        infer("an input in memory", raw=(), place=shared()),
        infer("both in memory", raw=(), place=shared(), outputs=at_32),
        strings("one of two outputs in memory", outputs=[("loud", shared(size=32)), ("length", {})]),
        strings("the other of two outputs in memory", outputs=[("loud", {}), ("length", shared(size=16))]),
        infer("less room than the output needs", outputs=[("y", shared(size=4))]),
        infer("an input in an unknown region", raw=(), place=shared("z")),
        infer("an input in memory and as bytes", place=shared()),
        infer("the largest, in memory", outputs=[("y", {**shared(), "classification": 1})]),
        other("unregister", "SystemSharedMemoryUnregister", name="r"),
        other("unregister again", "SystemSharedMemoryUnregister", name="r"),
        other("memory of no GPU", "CudaSharedMemoryRegister", name="g", raw_handle=b"x", device_id=0, byte_size=8),
        other("all memory of GPUs", "CudaSharedMemoryStatus"),
        other("unknown memory of a GPU", "CudaSharedMemoryStatus", name="g"),
    ]


STREAM = [
    changed("1", id="1").message,
    infer("2", "nothing").message,
    infer("3", raw=[floats(-1, 2)]).message,
    infer("4", triton_enable_empty_final_response=True).message,
    changed("5", id="5").message,
]
