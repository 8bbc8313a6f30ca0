"""The routes, without a network."""

import asyncio
import gzip
import json
import re
import time

import pytest

from pytrtplugins.serving import Limits
from tests.serving.conftest import INFER, JSON, Client, spec, until
from tests.serving.served import Slow


def test_health_and_metadata(client):
    assert [client.get(f"/v2/health/{kind}").status for kind in ("live", "ready")] == [200, 200]
    assert client.get("/v2").json["name"] == "pytrtplugins"
    for path in ("/v2/models/double", "/v2/models/double/versions/1"):
        assert client.get(path).json == {
            "name": "double",
            "versions": ["1"],
            "platform": "python",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
        }
        assert client.get(f"{path}/ready").status == 200


def test_the_configuration_has_dims_without_the_batch(client):
    config = client.get("/v2/models/double/config").json
    assert config["max_batch_size"] == 32
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}]
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 2000
    assert client.get("/v2/models/lists/config").json["max_batch_size"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/nothing", 404),
        ("GET", "/v2/models/double/versions/9/ready", 404),
        ("POST", "/v2/models/nothing/infer", 404),
        ("POST", "/v2/repository/models/nothing/load", 404),
        ("GET", "/nothing", 404),
        ("GET", INFER, 405),
        ("POST", "/v2", 405),
        ("POST", "/v1/models/nothing:predict", 404),
        ("POST", "/v1/detect", 404),
    ],
)
def test_what_is_not_there_is_an_error_in_json(client, method, path, status):
    answer = client.ask(method, path)
    assert answer.status == status
    assert answer.json["error"]


def test_statistics_count_requests_rows_and_batches(client):
    def counts():
        (found,) = client.get("/v2/models/double/stats").json["model_stats"]
        stats = found["inference_stats"]
        return stats["success"]["count"], stats["fail"]["count"], found["inference_count"], found["execution_count"]

    before = counts()
    body = {"inputs": [{**JSON["inputs"][0], "shape": [3, 2], "data": [1] * 6}]}
    assert client.post(INFER, body).status == 200
    assert client.post(INFER, {"inputs": [{**JSON["inputs"][0], "data": [-1, 0]}]}).status == 500
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 1, 3, 1]
    names = [each["name"] for each in client.get("/v2/models/stats").json["model_stats"]]
    assert names == ["double", "lists", "later", "wrong", "shout", "files"]


def test_the_list_of_addresses_names_every_model(client):
    paths = client.get("/openapi.json").json["paths"]
    assert INFER in paths
    assert "/v1/detect" not in paths  # none of these models takes images
    assert b"<code>/v2/models/lists/infer</code>" in client.get("/docs").body


def test_a_request_goes_through_preprocess_predict_and_postprocess(client):
    answer = client.post("/v1/models/double:predict", b"1 2", headers={"X-Request-Id": "mine"})
    assert answer.json == {"rows": [[2.0, 4.0]], "names": ["left", "right"], "id": "mine"}
    assert answer.headers["x-request-id"] == "mine"


def test_an_answer_says_the_milliseconds_of_each_stage(client):
    said = client.post("/v1/models/double:predict", b"1 2").headers["server-timing"]
    stages = {name: float(duration) for name, duration in re.findall(r"(\w+);dur=([0-9.]+)", said)}
    assert list(stages) == ["upload", "preprocess", "queue", "compute", "postprocess", "total"]
    assert 0 < stages["compute"] <= stages["total"] < 20_000


def test_an_answer_may_be_bytes(client):
    answer = client.post("/v1/models/double:predict?as=bytes", b"1 2")
    assert (answer.headers["content-type"], len(answer.body)) == ("application/x-rows", 8)


@pytest.mark.parametrize(
    ("body", "query", "status", "text"),
    [
        (b"teapot", "", 418, "no coffee"),
        (b"words", "", 500, "Double.preprocess: ValueError: could not convert"),
        (b"-1 2", "", 500, "Double.predict: ValueError: poison"),
        (b"1 2", "?as=nothing", 500, "Double.postprocess: KeyError: 'answer'"),
    ],
)
def test_an_exception_in_a_method_is_one_line_that_names_it(client, body, query, status, text):
    answer = client.post(f"/v1/models/double:predict{query}", body)
    assert answer.status == status
    assert answer.json["error"].startswith(text)


def test_a_model_that_cannot_compute_any_more_is_not_ready():
    with Client([spec("lost", "Lost"), spec("double", "Double")]) as client:
        infer = "/v2/models/lost/infer"
        wrong = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [-1, 2]}]}
        assert client.post(infer, JSON).status == 200
        assert client.get("/v2/health/ready").status == 200
        assert client.post(infer, wrong).status == 500
        assert "--cpu 1" in client.post(infer, JSON).json["error"]
        assert client.backend.stopped() == ["lost"]
        assert client.get("/v2/health/ready").status != 200
        assert client.post(INFER, JSON).status == 200


def test_a_compressed_body_is_read(client):
    body = gzip.compress(json.dumps(JSON).encode())
    assert client.post(INFER, body, headers={"Content-Encoding": "gzip"}).status == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (gzip.compress(bytes(2 << 20), mtime=0), {"Content-Encoding": "gzip"}, 413),
        (gzip.compress(b"{}", mtime=0)[:-5], {"Content-Encoding": "gzip"}, 400),
        (b"no gzip", {"Content-Encoding": "gzip"}, 400),
        (b"{}", {"Content-Encoding": "br"}, 415),
        (b"{}", {"Content-Length": 2 << 20}, 413),
        (b"{}", {"Content-Length": "many"}, 413),
    ],
)
@pytest.mark.parametrize("path", [INFER, "/v1/models/double:predict", "/v2/repository/index"])
def test_a_body_beyond_the_limits_is_refused(client, path, body, headers, status):
    assert client.post(path, body, headers=headers).status == status


def test_a_body_that_grows_beyond_the_limit_is_not_read_on(client):
    taken, sent = [], []

    async def receive():
        taken.append(1)
        return {"type": "http.request", "body": bytes(256 << 10), "more_body": True}

    async def send(message):
        sent.append(message)

    client.loop.run_until_complete(
        client.app({"type": "http", "path": INFER, "method": "POST", "headers": []}, receive, send)
    )
    assert (sent[0]["status"], len(taken)) == (413, 5)


def test_a_slow_body_is_given_up_and_a_client_that_is_gone_too():
    with Client([spec("double", "Double")], Limits(body_seconds=0.01)) as slow:
        start = {"type": "http.request", "body": b"{", "more_body": True}
        assert slow.post(INFER, parts=[start]).status == 408
        assert slow.post(INFER, parts=[start, {"type": "http.disconnect"}]).status == 400


def test_a_model_is_unloaded_and_loaded_anew(client):
    assert client.post("/v2/repository/models/lists/unload").status == 200
    assert client.get("/v2/models/lists/ready").status == 503
    assert client.get("/v2/health/ready").status == 503
    answer = client.post("/v2/models/lists/infer", JSON)
    assert (answer.status, answer.json["error"]) == (
        404,
        "Request for unknown model: 'lists' has no available versions: it is not ready: unloaded",
    )
    index = {each["name"]: each["state"] for each in client.post("/v2/repository/index").json}
    assert index["lists"] == "UNAVAILABLE"
    assert len(client.post("/v2/repository/index", {"ready": True}).json) == len(index) - 1
    assert client.post("/v2/repository/models/lists/load").status == 200
    assert client.get("/v2/models/lists/ready").status == 200


def test_clients_bring_no_configuration_and_no_files(client):
    body = {"parameters": {"file:1/model.onnx": "AAAA"}}
    answer = client.post("/v2/repository/models/double/load", body)
    assert answer.status == 400
    assert "no files from clients" in answer.json["error"]


def test_a_full_queue_is_503_and_a_late_request_504_while_others_are_answered(held):
    with Client([spec("slow", "Slow", queue=2)]) as busy:
        path = "/v2/models/slow/infer"

        async def run():
            first = asyncio.create_task(busy.call("POST", path, json.dumps(JSON).encode()))
            await until(Slow.entered.is_set)
            late_body = json.dumps({**JSON, "parameters": {"timeout": 1}}).encode()
            late, waiting = (
                asyncio.create_task(busy.call("POST", path, body)) for body in (late_body, json.dumps(JSON).encode())
            )
            while len(busy.backend._replicas[0].queue) < 2:
                await asyncio.sleep(0.001)
            refused = await busy.call("POST", path, json.dumps(JSON).encode())
            time.sleep(0.001)  # beyond the deadline of the late one
            Slow.go.set()
            return [await first, await late, await waiting, refused]

        first, late, waiting, refused = busy.loop.run_until_complete(run())
        assert [each.status for each in (first, late, waiting, refused)] == [200, 504, 200, 503]
        assert refused.headers["retry-after"] == "1"
        stats = busy.backend.services["slow"].statistics.total()
        assert (stats["succeeded"], stats["late"], stats["refused"], stats["rows"]) == (2, 1, 1, 2)
