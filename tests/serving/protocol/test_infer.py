"""Requests and answers of the Open Inference Protocol."""

from __future__ import annotations

import json

import numpy as np
import pytest

X = {"name": "x", "shape": [1, 2], "datatype": "FP32"}
SHARED = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
JSON = {"inputs": [{**X, "data": [1, 2]}]}
INFER = "/v2/models/double/infer"


def binary(said, *arrays):
    head = json.dumps(said).encode()
    return b"".join([head, *(np.float32(array).tobytes() for array in arrays)]), {
        "Inference-Header-Content-Length": len(head)
    }


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


def test_an_output_may_be_wanted_once(client):
    answer = client.post(INFER, {**JSON, "outputs": [{"name": "y"}, {"name": "y"}]})
    assert (answer.status, answer.json) == (400, {"error": "outputs: 'y' is there twice"})


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
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "expected an object"),
        ({}, "inputs: expected a list"),
        ({"inputs": []}, "missing: x"),
        ({"inputs": [7]}, "expected each of x once"),
        ({"inputs": [{**X, "name": "z"}]}, "expected each of x once, found 'z'"),
        ({"inputs": [{**X, "name": ["x"]}]}, "expected each of x once"),
        ({"inputs": [{**X, "data": [1, 2]}] * 2}, "expected each of x once"),
        ({"inputs": [X]}, "data: expected a list"),
        ({"inputs": [{**X, "shape": [33, 2], "data": [0] * 66}]}, "32 rows, found 33"),
        ({"inputs": [{**X, "shape": [0, 2], "data": []}]}, "at least 1"),
        (
            {"inputs": [{**X, "parameters": SHARED}]},
            "shares no memory",
        ),
        ({"inputs": [{**X, "parameters": {"binary_data_size": -1}}]}, "binary_data_size"),
        ({"inputs": [{**X, "parameters": {"binary_data_size": 8}}]}, "expected 8 bytes|found 0"),
        ({"inputs": [{**X, "parameters": 3}]}, "parameters: expected an object"),
        ({**JSON, "id": 7}, "id: expected text"),
        ({**JSON, "outputs": [{"name": "z"}]}, "outputs: expected names of y"),
        ({**JSON, "outputs": 7}, "outputs: expected a list"),
        ({**JSON, "outputs": [{"name": "y", "parameters": {"classification": "3"}}]}, "classification"),
        (
            {
                **JSON,
                "outputs": [{"name": "y", "parameters": SHARED}],
            },
            "shares no memory",
        ),
        ({**JSON, "parameters": {"priority": -1}}, "priority"),
        ({**JSON, "parameters": {"timeout": "1s"}}, "timeout: expected microseconds"),
        ({**JSON, "parameters": {"sequence_id": 7}}, "leave out sequence_id"),
        ({**JSON, "parameters": {"mine": [1]}}, "expected text, a number, true or false"),
        ({**JSON, "parameters": {"triton_x": 1}}, "names that begin with triton_ are reserved"),
        ({**JSON, "id": "\ud800"}, "id: expected text"),
        ({"inputs": [{**X, "data": [*["x" * 90_000, *[""] * 90_000]]}]}, "expected numbers for FP32"),  # 8 GB in NumPy
    ],
)
def test_a_broken_request_is_refused_in_one_line(client, body, text):
    answer = client.post(INFER, body)
    assert answer.status == 400
    assert any(part in answer.json["error"] for part in text.split("|"))
    assert "\n" not in answer.json["error"]


@pytest.mark.parametrize("length", ["-1", "9999", "x", "²", "", 13 * "0", 5000 * "0"])
def test_a_wrong_length_of_the_json_is_refused(client, length):
    answer = client.post(INFER, JSON, headers={"Inference-Header-Content-Length": length})
    assert answer.status == 400


def test_bytes_that_belong_to_no_input_are_refused(client):
    body, headers = binary({"inputs": [sized()]}, [1, 3, 5])
    assert "expected" in client.post(INFER, body, headers=headers).json["error"]


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


def test_strings_go_in_and_out_as_json(client):
    outputs = client.post("/v2/models/shout/infer", text(["ab", "ä"])).json["outputs"]
    assert [(each["datatype"], each["data"]) for each in outputs] == [("BYTES", ["AB", "ä"]), ("INT64", [2, 2])]


def test_strings_go_in_and_out_as_bytes(client):
    given = b"\2\0\0\0ab" + b"\1\0\0\0\xff"
    head = json.dumps(
        {
            "inputs": [
                {"name": "text", "shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(given)}}
            ],
            "outputs": [{"name": "loud", "parameters": {"binary_data": True}}],
        }
    ).encode()
    answer = client.post("/v2/models/shout/infer", head + given, headers={"Inference-Header-Content-Length": len(head)})
    assert answer.body.endswith(b"}" + given.replace(b"ab", b"AB"))
    alone = client.post("/v2/models/shout/infer", b"as it is", headers={"Inference-Header-Content-Length": 0})
    assert b"\x08\0\0\0AS IT IS" in alone.body


@pytest.mark.parametrize("data", [["a", 7], ["a"], [["a"], ["b", "c"]], ["\ud800", "b"]])
def test_strings_that_do_not_fit_are_refused(client, data):
    found = client.post("/v2/models/shout/infer", text(data) | {"inputs": [text(data, shape=[2, 1])["inputs"][0]]})
    assert found.status == 400


def test_bytes_that_are_no_text_are_not_said_in_json(client):
    head = json.dumps(
        {"inputs": [{"name": "text", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]}
    )
    body = head.encode() + b"\1\0\0\0\xff"
    answer = client.post("/v2/models/shout/infer", body, headers={"Inference-Header-Content-Length": len(head)})
    assert (answer.status, answer.json["error"]) == (400, "output 'loud' is not text: ask for it with binary_data")


def test_files_go_through_preprocess_and_make_rows_of_a_batch(client):
    given = {"name": "rows", "shape": [2], "datatype": "BYTES", "data": ["1 2", "3 4"]}
    assert client.post("/v2/models/files/infer", {"inputs": [given]}).json["outputs"][0]["data"] == [2, 4, 6, 8]
    assert client.post("/v2/models/files/infer", JSON).json["outputs"][0]["data"] == [2, 4]
    for inputs in ([given, JSON["inputs"][0]], [given, given], [{**given, "datatype": "FP32"}]):
        assert client.post("/v2/models/files/infer", {"inputs": inputs}).status == 400
    failed = {**given, "shape": [1], "data": ["teapot"]}
    assert client.post("/v2/models/files/infer", {"inputs": [failed]}).status == 418
