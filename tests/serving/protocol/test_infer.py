"""Requests and answers of the Open Inference Protocol."""

import json
import re

import numpy as np
import pytest

from pytrtplugins import SymbolicDim, TensorDesc
from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Limits, Model, TensorSpec
from pytrtplugins.serving.model.signature import Signature
from pytrtplugins.serving.protocol.classes import classify
from pytrtplugins.serving.protocol.infer import Codec
from pytrtplugins.serving.protocol.memory import Memory
from tests.serving.conftest import INFER, JSON
from tests.serving.served import Double, N

X = {"name": "x", "shape": [1, 2], "datatype": "FP32"}
SHARED = {"shared_memory_region": "r", "shared_memory_byte_size": 8}


def binary(said, data):
    head = json.dumps(said).encode()
    data = data if isinstance(data, bytes) else np.float32(data).tobytes()
    return head + data, {"Inference-Header-Content-Length": len(head)}


def sized(size=8):
    return {**X, "parameters": {"binary_data_size": size}}


def test_json_in_and_json_out(client):
    answer = client.post(INFER, {**JSON, "id": "seven"})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "model_name": "double",
        "model_version": "1",
        "id": "seven",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [2.0, 4.0]}],
    }


@pytest.mark.parametrize("times", [1, 2])  # the second time the head is known
@pytest.mark.parametrize(
    "asked",
    [{"parameters": {"binary_data_output": True}}, {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}],
)
def test_bytes_in_and_bytes_out(client, asked, times):
    for number in range(1, times + 1):
        body, headers = binary({"inputs": [sized()], **asked}, [number, 3])
        answer = client.post(INFER, body, headers=headers)
        head = int(answer.headers["inference-header-content-length"])
        assert json.loads(answer.body[:head])["outputs"][0]["parameters"] == {"binary_data_size": 8}
        assert np.frombuffer(answer.body[head:], np.float32).tolist() == [2 * number, 6]


def test_bytes_in_and_json_out(client):
    body, headers = binary({"inputs": [sized()]}, [1, 3])
    assert client.post(INFER, body, headers=headers).json["outputs"][0]["data"] == [2, 6]


def test_a_body_may_be_the_tensor_alone(client):
    answer = client.post(INFER, np.float32([[1, 2], [3, 4]]).tobytes(), headers={"Inference-Header-Content-Length": 0})
    head = int(answer.headers["inference-header-content-length"])
    assert np.frombuffer(answer.body[head:], np.float32).tolist() == [2, 4, 6, 8]


TWO_FREE = "The shape of the raw input 'x' can not be deduced because there are more than one variable-sized dimension"
RAW = [
    ("double", 16, (2, 2)),
    ("double", 12, "input byte size mismatch for input 'x' for model 'double'. Expected 8, got 12"),
    ("row", 12, (1, 3)),
    ("row", 0, (1, 0)),
    ("row", 13, "Expected 12, got 13"),
    ("column", 24, (3, 2)),
    ("column", 16, "Expected 12, got 16"),
    ("matrix", 24, TWO_FREE),
    ("images", 24, TWO_FREE),
    ("number", 4, ()),
    ("number", 8, "Expected 4, got 8"),
    (
        "pair",
        8,
        "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'pair' model configuration",
    ),
    ("string", 5, (1,)),
    ("strings", 5, (1, 1)),
    ("two strings", 5, "For BYTE datatype raw input 'x', the model must have input shape [1]"),
    ("rows of strings", 5, "For BYTE datatype raw input 'x', the model must have input shape [1]"),
]
A, M = SymbolicDim("A"), SymbolicDim("M")
DIMS = {
    "double": (N, 2),
    "row": (N, M),
    "column": (3, M),
    "matrix": (A, M),
    "images": (N, 3, M, A),
    "number": (),
    "string": (-1,),
    "strings": (-1, 1),
    "two strings": (2,),
    "rows of strings": (-1, -1),
}


@pytest.mark.parametrize(("name", "size", "expected"), RAW)
def test_the_dims_of_a_body_that_is_the_tensor_follow_from_its_length_or_are_refused(name, size, expected):
    """One dim may be free behind the batch, which is 1 then."""
    model = Model()
    if name == "pair":
        model.inputs = TensorDesc("x", (N, 2)), TensorDesc("z", (N, 2))
    else:
        kind = TensorSpec("x", "BYTES", DIMS[name]) if "string" in name else TensorDesc("x", DIMS[name])
        model.inputs = (kind,)
    model.outputs = (TensorDesc("y", (5,)),) if name == "matrix" else model.inputs
    codec = Codec(Signature.of(model, None), name, "1", Memory(Limits()))
    if isinstance(expected, str):
        with pytest.raises(RequestError, match=re.escape(expected)):
            codec.read(bytes(size), "0")
    else:
        assert codec.read(bytes(size), "0")[1]["x"].shape == expected


def test_a_classification_is_of_numbers_and_not_of_millions():
    array = np.zeros((1, 1_000_001), np.float32)
    signature = Signature.of(Double(), None)
    with pytest.raises(RequestError, match="classification output tensor too large: 'y' has 1,000,001 values"):
        classify("y", array, 1, signature)
    with pytest.raises(RequestError, match="class result not available for output due to unsupported type 'BOOL'"):
        classify("y", array.astype(bool), 1, signature)


def test_an_output_may_be_wanted_once(client):
    answer = client.post(INFER, {**JSON, "outputs": [{"name": "y"}, {"name": "y"}]})
    assert (answer.status, answer.json) == (400, {"error": "output 'y' already exists in request"})


def test_the_address_may_name_the_version(client):
    assert client.post("/v2/models/double/versions/1/infer", JSON).status == 200
    assert client.post("/v2/models/double/versions/2/infer", JSON).status == 404


def test_classification_names_the_largest_values_of_each_row(client):
    body = {
        "inputs": [{**X, "shape": [2, 2], "data": [1, 2, 4, 3]}],
        "outputs": [{"name": "y", "parameters": {"classification": 5}}],
    }
    output = client.post(INFER, body).json["outputs"][0]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 2])
    assert output["data"] == ["4.000000:1:right", "2.000000:0:left", "8.000000:0:left", "6.000000:1:right"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "failed to parse the request JSON buffer: Expecting property name"),
        (b"[" * 100_000, "JSON nesting depth exceeds maximum allowed limit (100)"),
        (b"[]", "the request must be a JSON object; the request has []"),
        (
            {},
            "Unable to parse 'inputs': attempt to access non-existing object member 'inputs': the inputs must be a list",
        ),
        (
            {"inputs": []},
            "expected 1 inputs but got 0 inputs for model 'double'. Got input(s) [], but missing required input(s) ['x']. "
            "Please provide all required input(s).",
        ),
        ({"inputs": [7]}, "Unable to parse 'name': attempt to access non-existing object member 'name'"),
        ({"inputs": [{**X, "name": "z"}]}, "unexpected inference input 'z' for model 'double'"),
        ({"inputs": [{**X, "name": ["x"]}]}, "Unable to parse 'name': attempt to access JSON non-string as string"),
        ({"inputs": [{**X, "data": [1, 2]}] * 2}, "input 'x' already exists in request"),
        ({"inputs": [X]}, "But no field is set: input 'x'"),
        (
            {"inputs": [{**X, "shape": [33, 2], "data": [0] * 66}]},
            "inference request batch-size must be <= 32 for 'double': the request has 33 rows",
        ),
        ({"inputs": [{**X, "shape": [0, 2], "data": []}]}, "the inputs x have no rows: a request has at least one"),
        ({"inputs": [{**X, "parameters": SHARED}]}, "Client shared memory is disabled"),
        ({"inputs": [{**X, "parameters": {"binary_data_size": -1}}]}, "binary_data_size"),
        (
            {"inputs": [{**X, "parameters": {"binary_data_size": 8}}]},
            "unexpected size for input 'x', expecting 8 additional bytes for model 'double'",
        ),
        ({"inputs": [{**X, "parameters": 3}]}, "parameters must be a JSON object; the request has 3"),
        (
            {**JSON, "id": 7},
            "Unable to parse 'id': attempt to access JSON non-string as string: the id must be text; the request has ",
        ),
        ({**JSON, "outputs": [{"name": "z"}]}, "unexpected inference output 'z' for model 'double', which has y"),
        (
            {**JSON, "outputs": 7},
            "Unable to parse 'outputs': attempt to access JSON non-array as array: the outputs must be a list; the request has 7",
        ),
        (
            {**JSON, "outputs": [{"name": "y", "parameters": {"classification": "3"}}]},
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer: that of output 'y' must",
        ),
        ({**JSON, "outputs": [{"name": "y", "parameters": SHARED}]}, "Client shared memory is disabled"),
        ({**JSON, "parameters": {"priority": -1}}, "priority"),
        (
            {**JSON, "parameters": {"timeout": "1s"}},
            "Unable to parse 'timeout': attempt to access JSON non-unsigned-integer as unsigned-integer: the timeout must be",
        ),
        ({**JSON, "parameters": {"sequence_id": 7}}, "leave out 'sequence_id'"),
        (
            {**JSON, "parameters": {"mine": [1]}},
            "parameter 'mine' has invalid type. It should be either 'int', 'bool', or 'string'. The request has [1]",
        ),
        (
            {**JSON, "parameters": {"triton_x": 1}},
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified",
        ),
        (
            {**JSON, "id": "\ud800"},
            "Unable to parse 'id': attempt to access JSON non-string as string: the id must be text; the request has ",
        ),
        (
            {"inputs": [{**X, "data": [*["x" * 90_000, *[""] * 90_000]]}]},
            "FP32 of input 'x' takes numbers; the request has ['xx",
        ),  # 8 GB in NumPy
    ],
)
def test_a_broken_request_is_refused_in_one_line(client, body, text):
    answer = client.post(INFER, body)
    assert answer.status == (501 if "disabled" in text else 400)
    assert text in answer.json["error"]
    assert "\n" not in answer.json["error"]


@pytest.mark.parametrize("length", ["-1", "9999", "x", "²", "", 13 * "0", 5000 * "0"])
def test_a_wrong_length_of_the_json_is_refused(client, length):
    answer = client.post(INFER, JSON, headers={"Inference-Header-Content-Length": length})
    assert answer.status == 400


def test_bytes_that_belong_to_no_input_are_refused(client):
    body, headers = binary({"inputs": [sized()]}, [1, 3, 5])
    error = client.post(INFER, body, headers=headers).json["error"]
    assert error == "unexpected additional input data for model 'double': 4 bytes belong to no input"


def test_inputs_of_free_dims_are_grouped_and_not_joined(client):
    def call(size):
        body = {"inputs": [{"name": "x", "shape": [size], "datatype": "INT64", "data": list(range(size))}]}
        return client.post("/v2/models/lists/infer", body).json["outputs"][0]

    assert [call(size)["data"] for size in (3, 5)] == [[3], [10]]
    assert call(4)["shape"] == []


def test_an_output_that_the_model_did_not_give_is_the_servers_error(client):
    body = {"inputs": [{**X, "data": [2, 0]}]}
    answer = client.post("/v2/models/wrong/infer", body)
    assert (answer.status, answer.json["error"]) == (500, "the model gave no output 'y'")


def text(data, **more):
    return {"inputs": [{"name": "text", "shape": [len(data), 1], "datatype": "BYTES", "data": data, **more}]}


def strings(rows, size):
    return {
        "inputs": [{"name": "text", "shape": [rows, 1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}]
    }


def test_strings_go_in_and_out_as_json(client):
    outputs = client.post("/v2/models/shout/infer", text(["ab", "ä"])).json["outputs"]
    assert [(each["datatype"], each["data"]) for each in outputs] == [("BYTES", ["AB", "ä"]), ("INT64", [2, 2])]


def test_strings_go_in_and_out_as_bytes(client):
    given = b"\2\0\0\0ab" + b"\1\0\0\0\xff"
    wanted = {"outputs": [{"name": "loud", "parameters": {"binary_data": True}}]}
    body, headers = binary(strings(2, len(given)) | wanted, given)
    answer = client.post("/v2/models/shout/infer", body, headers=headers)
    assert answer.body.endswith(b"}" + given.replace(b"ab", b"AB"))
    alone = client.post("/v2/models/shout/infer", b"as it is", headers={"Inference-Header-Content-Length": 0})
    assert b"\x08\0\0\0AS IT IS" in alone.body


@pytest.mark.parametrize("data", [["a", 7], ["a"], [["a"], ["b", "c"]], ["\ud800", "b"]])
def test_strings_that_do_not_fit_are_refused(client, data):
    found = client.post("/v2/models/shout/infer", text(data) | {"inputs": [text(data, shape=[2, 1])["inputs"][0]]})
    assert found.status == 400


def test_bytes_that_are_no_text_are_not_said_in_json(client):
    body, headers = binary(strings(1, 5), b"\1\0\0\0\xff")
    answer = client.post("/v2/models/shout/infer", body, headers=headers)
    assert (answer.status, answer.json["error"]) == (400, "output 'loud' is not text: ask for it with binary_data")


def test_files_go_through_preprocess_and_make_rows_of_a_batch(client):
    given = {"name": "rows", "shape": [2], "datatype": "BYTES", "data": ["1 2", "3 4"]}
    assert client.post("/v2/models/files/infer", {"inputs": [given]}).json["outputs"][0]["data"] == [2, 4, 6, 8]
    assert client.post("/v2/models/files/infer", JSON).json["outputs"][0]["data"] == [2, 4]
    for inputs in ([given, JSON["inputs"][0]], [given, given], [{**given, "datatype": "FP32"}]):
        assert client.post("/v2/models/files/infer", {"inputs": inputs}).status == 400
    failed = {**given, "shape": [1], "data": ["teapot"]}
    assert client.post("/v2/models/files/infer", {"inputs": [failed]}).status == 418
