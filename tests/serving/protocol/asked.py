"""Requests over REST, right and wrong: what two servers with the same models are asked."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

DOUBLE, SHOUT, SUM, HALF = (f"/v2/models/{name}/infer" for name in ("double", "shout", "total", "half"))
X = {"name": "x", "shape": [1, 2], "datatype": "FP32"}
ROW = {"inputs": [{**X, "data": [1, 2]}]}
SIZED = {**X, "parameters": {"binary_data_size": 8}}
TEXT = {"name": "text", "shape": [2, 1], "datatype": "BYTES"}
STRINGS = b"\2\0\0\0ab\1\0\0\0c"
SIZED_TEXT = {**TEXT, "parameters": {"binary_data_size": len(STRINGS)}}
NUMBERS = {"name": "x", "shape": [3], "datatype": "INT64"}
HALVES = {"name": "x", "shape": [1, 2], "datatype": "FP16", "parameters": {"binary_data_size": 4}}
BINARY = {"parameters": {"binary_data_output": True}}


class Asked(NamedTuple):
    """A request."""

    name: str
    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012  # nobody changes it


def floats(*values):
    return np.float32(values).tobytes()


def post(name, path, said=b""):
    return Asked(name, "POST", path, said if isinstance(said, bytes) else json.dumps(said).encode())


def behind(name, path, said, tail, length=None):
    """JSON with bytes behind it."""
    head = json.dumps(said).encode()
    return Asked(
        name,
        "POST",
        path,
        head + tail,
        {"Inference-Header-Content-Length": str(len(head) if length is None else length)},
    )


def x(**changes):
    return {"inputs": [{**X, "data": [1, 2], **changes}]}


def out(**parameters):
    return {**ROW, "outputs": [{"name": "y", "parameters": parameters}]}


def said(**parameters):
    return {**ROW, "parameters": parameters}


def shared(region="r", size=8, offset=0):
    return {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def there(**changes):
    return {"inputs": [{**X, "parameters": shared(**changes)}]}


GOT = [
    *("/v2/health/live", "/v2/health/ready", "/v2/nothing", "/v2/repository/index", "/v2/trace/setting"),
    *(f"/v2/models/double{rest}" for rest in ("", "/versions/1", "/ready", "/versions/1/ready", "/infer")),
    *(f"/v2/models/double{rest}" for rest in ("/versions/9", "/versions/9/ready", "/versions/x", "/trace/setting")),
    *(f"/v2/models/nothing{rest}" for rest in ("", "/ready", "/config", "/stats", "/trace/setting")),
    *(f"/v2/models/{name}" for name in ("shout", "half", "total")),
    "/v2/systemsharedmemory/status",
    "/v2/cudasharedmemory/status",
    "/v2/systemsharedmemory/region/a/status",
]
NO_REQUESTS = [
    post("no JSON", DOUBLE, b"{"),
    post("a list", DOUBLE, []),
    post("no inputs", DOUBLE, {}),
    post("inputs are a number", DOUBLE, {"inputs": 7}),
    post("input without name", DOUBLE, {"inputs": [{"shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}),
    post("input without shape", DOUBLE, {"inputs": [{"name": "x", "datatype": "FP32", "data": [1, 2]}]}),
    post("input without type", DOUBLE, {"inputs": [{"name": "x", "shape": [1, 2], "data": [1, 2]}]}),
    post("shape below 0", DOUBLE, x(shape=[-1, 2])),
    post("shape with a fraction", DOUBLE, x(shape=[1.5, 2])),
    post("shape is text", DOUBLE, x(shape="12")),
    post("too few values", DOUBLE, x(data=[1])),
    post("too many values", DOUBLE, x(data=[1, 2, 3])),
    post("values are text", DOUBLE, x(data=["1", "2"])),
    post("a value is null", DOUBLE, x(data=[None, 2])),
    post("values are true and false", DOUBLE, x(data=[True, False])),
    post("values are a number", DOUBLE, x(data=7)),
    post("id is a number", DOUBLE, {**ROW, "id": 7}),
    behind("length within the JSON", DOUBLE, {"inputs": [SIZED]}, floats(1, 2), 5),
    behind("bytes below 0", DOUBLE, {"inputs": [{**X, "parameters": {"binary_data_size": -1}}]}, floats(1, 2)),
    behind("bytes are text", DOUBLE, {"inputs": [{**X, "parameters": {"binary_data_size": "8"}}]}, floats(1, 2)),
    post("outputs are a number", DOUBLE, {**ROW, "outputs": 7}),
    post("output without name", DOUBLE, {**ROW, "outputs": [{}]}),
    post("classification is text", DOUBLE, out(classification="1")),
    post("classification below 0", DOUBLE, out(classification=-1)),
    post("parameters are a number", DOUBLE, {**ROW, "parameters": 7}),
    post("priority is text", DOUBLE, said(priority="1")),
    post("priority below 0", DOUBLE, said(priority=-1)),
    post("timeout is text", DOUBLE, said(timeout="1")),
    post("a number among strings", SHOUT, {"inputs": [{**TEXT, "data": ["ab", 7]}]}),
    post("fractions for whole numbers", SUM, {"inputs": [{**NUMBERS, "data": [1.5, 2, 3]}]}),
    post("a number too large for its type", SUM, {"inputs": [{**NUMBERS, "data": [1 << 63, 2, 3]}]}),
    post("true among numbers", SUM, {"inputs": [{**NUMBERS, "data": [True, 2, 3]}]}),
    post("something behind the JSON", DOUBLE, json.dumps(ROW).encode() + b"xx"),
    post("index: no JSON", "/v2/repository/index", b"{"),
    post("load: no JSON", "/v2/repository/models/double/load", b"{"),
    post("trace: no JSON", "/v2/trace/setting", b"{"),
    post("shared memory: no JSON", "/v2/systemsharedmemory/region/r/register", b"{"),
]
REQUESTS = [
    post("numbers in JSON", DOUBLE, ROW),
    post("an id", DOUBLE, {**ROW, "id": "seven"}),
    post("an empty id", DOUBLE, {**ROW, "id": ""}),
    post("nested lists", DOUBLE, x(shape=[2, 2], data=[[1, 2], [3, 4]])),
    post("lists nested deeper than the shape", DOUBLE, x(data=[[[1, 2]]])),
    post("lists of different lengths", DOUBLE, x(shape=[2, 2], data=[[1], [2, 3, 4]])),
    behind("bytes in, JSON out", DOUBLE, {"inputs": [SIZED]}, floats(1, 2)),
    behind(
        "bytes in, bytes out", DOUBLE, {"inputs": [SIZED], "outputs": out(binary_data=True)["outputs"]}, floats(1, 2)
    ),
    behind("all outputs as bytes", DOUBLE, {"inputs": [SIZED], **BINARY}, floats(1, 2)),
    behind("one output not as bytes", DOUBLE, {**out(binary_data=False), "inputs": [SIZED], **BINARY}, floats(1, 2)),
    post("JSON in, bytes out", DOUBLE, out(binary_data=True)),
    Asked("a tensor alone", "POST", DOUBLE, floats(1, 2), {"Inference-Header-Content-Length": "0"}),
    Asked("two rows alone", "POST", DOUBLE, floats(1, 2, 3, 4), {"Inference-Header-Content-Length": "0"}),
    Asked("too few bytes alone", "POST", DOUBLE, floats(1), {"Inference-Header-Content-Length": "0"}),
    post("the version", "/v2/models/double/versions/1/infer", ROW),
    post("an unknown version", "/v2/models/double/versions/2/infer", ROW),
    post("a version that is no number", "/v2/models/double/versions/x/infer", ROW),
    post("an unknown model", "/v2/models/nothing/infer", ROW),
    post("no body", DOUBLE),
    post("inputs are empty", DOUBLE, {"inputs": []}),
    post("an input is a number", DOUBLE, {"inputs": [7]}),
    post("an unknown input", DOUBLE, x(name="z")),
    post("an input twice", DOUBLE, {"inputs": ROW["inputs"] * 2}),
    post("an input too many", DOUBLE, {"inputs": [*ROW["inputs"], *x(name="z")["inputs"]]}),
    post("no data", DOUBLE, {"inputs": [X]}),
    post("another type", DOUBLE, x(datatype="FP64")),
    post("an unknown type", DOUBLE, x(datatype="FP99")),
    post("another shape", DOUBLE, x(shape=[1, 3], data=[1, 2, 3])),
    post("another rank", DOUBLE, x(shape=[2])),
    post("no rows", DOUBLE, x(shape=[0, 2], data=[])),
    post("too many rows", DOUBLE, x(shape=[33, 2], data=[0] * 66)),
    post("beyond float32", DOUBLE, x(data=[1e39, 2])),
    behind("length beyond the body", DOUBLE, {"inputs": [SIZED]}, floats(1, 2), 9999),
    behind("length below 0", DOUBLE, {"inputs": [SIZED]}, floats(1, 2), -1),
    behind("length is text", DOUBLE, {"inputs": [SIZED]}, floats(1, 2), "x"),
    behind("too few bytes", DOUBLE, {"inputs": [SIZED]}, floats(1)),
    behind("too many bytes", DOUBLE, {"inputs": [SIZED]}, floats(1, 2, 3)),
    behind(
        "fewer bytes than the shape needs",
        DOUBLE,
        {"inputs": [{**X, "parameters": {"binary_data_size": 4}}]},
        floats(1),
    ),
    behind("bytes and numbers", DOUBLE, {"inputs": [{**SIZED, "data": [5, 6]}]}, floats(1, 2)),
    post("an unknown output", DOUBLE, {**ROW, "outputs": [{"name": "z"}]}),
    post("outputs are empty", DOUBLE, {**ROW, "outputs": []}),
    post("an output twice", DOUBLE, {**ROW, "outputs": [{"name": "y"}] * 2}),
    post("the largest", DOUBLE, out(classification=1)),
    post("the largest five of two", DOUBLE, {**out(classification=5), **x(shape=[2, 2], data=[1, 2, 4, 3])}),
    post("the largest none", DOUBLE, out(classification=0)),
    post("the largest as bytes", DOUBLE, out(classification=2, binary_data=True)),
    post("parameters", DOUBLE, said(priority=1, timeout=10_000_000, mine="x", number=1.5, flag=True)),
    post("a parameter that is null", DOUBLE, said(mine=None)),
    post("a parameter that is a list", DOUBLE, said(mine=[1])),
    post("a reserved parameter", DOUBLE, said(triton_x=1)),
    post("a sequence", DOUBLE, said(sequence_id=7, sequence_start=True)),
    post("no sequence", DOUBLE, said(sequence_id=0)),
    post("a model that fails", DOUBLE, x(data=[-1, 2])),
    post("strings", SHOUT, {"inputs": [{**TEXT, "data": ["ab", "cd"]}]}),
    post("strings, nested", SHOUT, {"inputs": [{**TEXT, "data": [["ab"], ["ä"]]}]}),
    post("empty strings", SHOUT, {"inputs": [{**TEXT, "data": ["", ""]}]}),
    behind("strings as bytes, JSON out", SHOUT, {"inputs": [SIZED_TEXT]}, STRINGS),
    behind("strings as bytes, bytes out", SHOUT, {"inputs": [SIZED_TEXT], **BINARY}, STRINGS),
    behind("strings with a length beyond their end", SHOUT, {"inputs": [SIZED_TEXT]}, b"\xff\0\0\0ab\1\0\0\0c"),
    behind(
        "strings with a rest", SHOUT, {"inputs": [{**TEXT, "parameters": {"binary_data_size": 13}}]}, STRINGS + b"xx"
    ),
    behind("half of the strings", SHOUT, {"inputs": [{**TEXT, "parameters": {"binary_data_size": 6}}]}, STRINGS[:6]),
    behind("half precision as bytes", HALF, {"inputs": [HALVES], **BINARY}, np.float16([1, 2]).tobytes()),
    post("half precision in JSON", HALF, {"inputs": [{**HALVES, "parameters": {}, "data": [1, 2]}]}),
    post("whole numbers", SUM, {"inputs": [{**NUMBERS, "data": [1, 2, 3]}]}),
    post("no numbers", SUM, {"inputs": [{**NUMBERS, "shape": [0], "data": []}]}),
    Asked("a body that is not gzip", "POST", DOUBLE, json.dumps(ROW).encode(), {"Content-Encoding": "gzip"}),
    Asked("an unknown compression", "POST", DOUBLE, json.dumps(ROW).encode(), {"Content-Encoding": "br"}),
    post("trace as it is", "/v2/trace/setting", {"trace_level": ["OFF"]}),
    post("a log file", "/v2/logging", {"log_file": "/tmp/x"}),
    post(
        "memory of no GPU",
        "/v2/cudasharedmemory/region/g/register",
        {"raw_handle": {"b64": "A"}, "device_id": 0, "byte_size": 8},
    ),
    post("unregister memory of GPUs", "/v2/cudasharedmemory/unregister"),
    post("load an unknown model", "/v2/repository/models/nothing/load"),
    post("unload an unknown model", "/v2/repository/models/nothing/unload"),
    post("unload a model", "/v2/repository/models/half/unload"),
    post("ask an unloaded model", HALF, {"inputs": [{**HALVES, "parameters": {}, "data": [1, 2]}]}),
    Asked("what an unloaded model takes", "GET", "/v2/models/half"),
    Asked("whether an unloaded model is ready", "GET", "/v2/models/half/ready"),
    post("load a model", "/v2/repository/models/half/load"),
]


def in_memory(key):
    """Requests about 64 bytes of shared memory, which begin with two floats."""
    region = "/v2/systemsharedmemory/region"

    def register(name, of, **body):
        return post(name, f"{region}/{of}/register", {"key": f"/{key}", "offset": 0, "byte_size": 64, **body})

    def placed(**changes):
        return {**there(), "outputs": [{"name": "y", "parameters": shared(offset=32, **changes)}]}

    return [
        register("no such object", "r", key=f"/{key}-none"),
        register("a region", "r"),
        register("a region again", "r"),
        register("a region beyond its object", "q", byte_size=65536),
        Asked("all regions", "GET", "/v2/systemsharedmemory/status"),
        Asked("one region", "GET", f"{region}/r/status"),
        post("an input in memory", DOUBLE, there()),
        post("both in memory", DOUBLE, placed()),
        post("more room than the output needs", DOUBLE, placed(size=16)),
        post("less room than the output needs", DOUBLE, placed(size=4)),
        post("more bytes than the input needs", DOUBLE, there(size=12)),
        post("an input beyond its region", DOUBLE, there(offset=60)),
        post("an input in an unknown region", DOUBLE, there(region="z")),
        post("an input of no size", DOUBLE, {"inputs": [{**X, "parameters": {"shared_memory_region": "r"}}]}),
        post("an output beyond its region", DOUBLE, out(**shared(offset=60))),
        post("an output in memory and as bytes", DOUBLE, out(**shared(), binary_data=True)),
        post("the largest, in memory", DOUBLE, out(**shared(), classification=1)),
        post("unregister", f"{region}/r/unregister"),
        post("unregister again", f"{region}/r/unregister"),
        post("unregister all", "/v2/systemsharedmemory/unregister"),
    ]
