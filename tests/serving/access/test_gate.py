"""Keys before an application and before gRPC; models that clients may not load."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Access, Limits
from pytrtplugins.serving.access.access_check import check_access, warn_of_access
from pytrtplugins.serving.access.gate import Gate
from pytrtplugins.serving.access.keys import add_key
from pytrtplugins.serving.backends.read_only import ReadOnlyBackend
from pytrtplugins.serving.processes.server import bind
from tests.serving.conftest import INFER, JSON, Client, spec
from tests.serving.running import running, triton_row
from tests.serving.server_process import server_process

ROOT = Path(__file__).parents[3]
SPECS = [spec("double", "Double"), spec("lists", "Lists")]


@pytest.fixture(scope="module")
def access(tmp_path_factory):
    return Access(keys=str(tmp_path_factory.mktemp("keys") / "keys.toml"))


@pytest.fixture(scope="module")
def keys(access):
    return {
        "any": add_key(access.keys, "any"),
        "admin": add_key(access.keys, "admin", roles=("admin",)),
        "lists": add_key(access.keys, "lists", models=("lists",)),
        "once": add_key(access.keys, "once", rate=0.01),
        "one": add_key(access.keys, "one", concurrent=1),
    }


@pytest.fixture(scope="module")
def guarded(access, keys):
    with Client(SPECS) as made:
        made.app = Gate.of(access).before(made.app)
        yield made


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_without_keys_there_is_no_gate():
    assert Gate.of(Access()) is None


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "wrong"}])
@pytest.mark.parametrize("path", [INFER, "/v1/models/double:predict", "/v2/repository/models/double/unload"])
def test_no_key_and_a_wrong_key_are_401(guarded, path, headers):
    answer = guarded.post(path, JSON, headers=headers)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "key" in answer.json["error"]


def test_health_needs_no_key(guarded):
    assert [guarded.get(f"/v2/health/{kind}").status for kind in ("live", "ready")] == [200, 200]


def test_a_key_infers_and_an_admin_does_everything(guarded, keys):
    assert guarded.post(INFER, JSON, headers=bearer(keys["any"])).status == 200
    assert guarded.post(INFER, JSON, headers={"X-API-Key": keys["admin"]}).status == 200
    for path in ("/v2/models/stats", "/metrics"):
        assert guarded.get(path, headers=bearer(keys["any"])).status == 403
        assert guarded.get(path, headers=bearer(keys["admin"])).status == 200
    answer = guarded.post("/v2/repository/models/lists/unload", headers=bearer(keys["any"]))
    assert answer.json == {"error": "key 'any' does not have the role 'admin'"}
    for what in ("unload", "load"):
        assert guarded.post(f"/v2/repository/models/lists/{what}", headers=bearer(keys["admin"])).status == 200


@pytest.mark.parametrize("path", [INFER, "/v1/models/double:predict"])
def test_a_key_of_one_model_is_refused_by_others(guarded, keys, path):
    answer = guarded.post(path, JSON, headers=bearer(keys["lists"]))
    assert (answer.status, answer.json) == (403, {"error": "key 'lists' does not allow model 'double'"})
    assert guarded.get("/v2/models/double", headers=bearer(keys["lists"])).status == 403
    assert guarded.get("/v2/models/lists", headers=bearer(keys["lists"])).status == 200


def test_a_rate_is_429_with_the_time_to_come_again(guarded, keys):
    assert guarded.post(INFER, JSON, headers=bearer(keys["once"])).status == 200
    answer = guarded.post(INFER, JSON, headers=bearer(keys["once"]))
    assert answer.status == 429
    assert 90 <= int(answer.headers["retry-after"]) <= 100


def test_requests_at_a_time_are_limited_until_they_end(guarded, keys):
    async def both():
        body, headers = json.dumps(JSON).encode(), bearer(keys["one"])
        return await asyncio.gather(*(guarded.call("POST", INFER, body, headers) for _ in range(2)))

    assert sorted(each.status for each in guarded.loop.run_until_complete(both())) == [200, 429]
    assert guarded.post(INFER, JSON, headers=bearer(keys["one"])).status == 200


def test_a_request_keeps_its_id_and_gets_one_where_it_has_none(guarded, keys):
    given = guarded.post(INFER, JSON, headers={**bearer(keys["any"]), "X-Request-Id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    path = "/v1/models/double:predict"
    answer = guarded.post(path, b"1 2", headers={**bearer(keys["any"]), "X-Request-Id": "has a\tspace"})
    assert answer.json["id"] == answer.headers["x-request-id"]
    assert len(answer.headers["x-request-id"]) == 32


def test_models_that_are_fixed_are_neither_loaded_nor_unloaded():
    with Client(SPECS[:1]) as fixed:
        fixed.app = type(fixed.app)(ReadOnlyBackend(fixed.backend), Limits())
        for what in ("load", "unload"):
            answer = fixed.post(f"/v2/repository/models/double/{what}")
            assert answer.status == 403
            assert "--allow-control" in answer.json["error"]
        assert fixed.post(INFER, JSON).status == 200


@pytest.fixture(scope="module")
def server(access, keys):
    pytest.importorskip("grpc", reason="pip install grpcio")
    pytest.importorskip("tritonclient.grpc")
    with running(SPECS, Limits(), access, grpc=True) as made:
        yield made


def ask(server, key, path="/v2", body=None):
    url, headers = f"http://127.0.0.1:{server.port}{path}", {"X-API-Key": key, "X-Request-Id": "mine-3"}
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.headers.get_all("x-request-id") == ["mine-3"]
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_server_reads_keys_anew_when_their_file_changes(server, access, keys):
    assert [ask(server, key) for key in (keys["any"], "wrong")] == [200, 401]
    later = add_key(access.keys, "later")
    found: list[int] = []
    while found[-1:] != [200] and len(found) < 200:
        found.append(ask(server, later))
        asyncio.run(asyncio.sleep(0.05))
    assert (found[0], found[-1]) == (401, 200)
    assert ask(server, later, INFER, json.dumps(JSON).encode()) == 200


def metadata(key):
    return {"authorization": f"Bearer {key}"}


def grpc_client(server):
    import tritonclient.grpc as library

    client = library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    return client, [triton_row(library)], library.InferenceServerException


def test_grpc_takes_the_same_keys(server, keys):
    client, given, failure = grpc_client(server)
    with client:
        assert client.is_server_live()
        assert client.infer("double", given, headers=metadata(keys["any"])).as_numpy("y").tolist() == [[2, 4]]
        assert client.infer("double", given, headers={"x-api-key": keys["admin"]}).as_numpy("y").tolist() == [[2, 4]]
        found = []
        cases: list[dict] = [
            {},
            metadata("wrong"),
            metadata(keys["lists"]),
            metadata(keys["once"]),
            metadata(keys["once"]),
        ]
        for headers in cases:
            try:
                found.append(client.infer("double", given, headers=headers).as_numpy("y").tolist())
            except failure as error:
                found.append(error.status().partition(".")[2])
        assert found[:3] == ["UNAUTHENTICATED", "UNAUTHENTICATED", "PERMISSION_DENIED"]
        assert found[3:] == [[[2, 4]], "RESOURCE_EXHAUSTED"]
        with pytest.raises(failure, match="does not have the role 'admin'"):
            client.unload_model("lists", headers=metadata(keys["any"]))
        with pytest.raises(failure, match="a key is needed"):
            client.get_inference_statistics()
        assert client.get_inference_statistics(headers=metadata(keys["admin"])).model_stats


def test_grpc_streams_take_the_same_keys(server, keys):
    answers = []
    for key in (keys["any"], "wrong"):
        client, given, _ = grpc_client(server)
        arrived = threading.Event()

        def take(result, error, arrived=arrived):
            answers.append(str(error) if error else result.as_numpy("y").tolist())
            arrived.set()

        with client:
            client.start_stream(take, headers=metadata(key))
            if key == keys["any"]:
                client.async_stream_infer("double", given)
            assert arrived.wait(20)
            client.stop_stream()
    assert answers[0] == [[2, 4]]
    assert "the key is not known" in answers[1]


def test_each_request_of_a_stream_counts(server, access):
    key = add_key(access.keys, "stream", rate=0.01, burst=3)
    while ask(server, key) != 200:  # the first of three, once the server knows the key
        time.sleep(0.05)
    client, given, _ = grpc_client(server)
    answers: queue.Queue = queue.Queue()
    with client:
        client.start_stream(lambda result, error: answers.put(error), headers=metadata(key))
        for _ in range(4):
            client.async_stream_infer("double", given)
        found = [answers.get(timeout=20) for _ in range(4)]
        client.stop_stream()
    assert [error is None for error in found] == [True, True, False, False]
    assert "allows 0.01 requests a second" in str(found[2])


def test_grpc_says_the_id_and_when_to_come_again(server, keys):
    client, _, _ = grpc_client(server)
    messages = pytest.importorskip("tritonclient.grpc.service_pb2")
    with client:
        _, call = client._client_stub.ServerLive.with_call(
            messages.ServerLiveRequest(), metadata=(("x-request-id", "mine-2"),)
        )
        assert dict(call.trailing_metadata())["x-request-id"] == "mine-2"
        once = (("x-api-key", keys["once"]),)
        while True:
            try:
                client._client_stub.ServerMetadata(messages.ServerMetadataRequest(), metadata=once)
            except Exception as error:
                trailing = dict(error.trailing_metadata())
                break
        assert int(trailing["retry-after"]) * 1000 == int(trailing["grpc-retry-pushback-ms"]) > 1000


def test_what_is_open_is_a_warning_and_on_this_machine_it_is_not(caplog, access):
    with bind("127.0.0.1", 0) as sock:
        warn_of_access(Access(), sock)
    assert not caplog.records
    with bind("0.0.0.0", 0) as sock:
        warn_of_access(access, sock)
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "what clients send, keys too, can be read on its way"
        ]
        warn_of_access(Access(), sock)
    assert "everybody who can reach this server may use it" in caplog.text


def test_settings_are_checked_before_a_server_listens(caplog, tmp_path, keys, access):
    check_access(access, ["double", "lists"])
    assert not caplog.records
    check_access(access, ["double"])
    assert "key 'lists' allows model 'lists', which is not served" in caplog.text
    empty = tmp_path / "empty.toml"
    empty.touch()
    check_access(Access(keys=str(empty)), [])
    assert "has no keys: every request is refused" in caplog.text
    for wrong in ({"keys": "none.toml"}, {"tls_cert": "none.crt"}, {"cors": ["x"]}, {"trace_endpoint": "x"}):
        with pytest.raises(UsageError):
            check_access(Access(**wrong), [])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")
def test_cpu_processes_share_rates_and_a_log(tmp_path):
    path, log = str(tmp_path / "keys.toml"), tmp_path / "access.log"
    key = add_key(path, "a", rate=0.01, burst=7)
    with server_process(SPECS[:1], cpu=2, access={"keys": path, "access_log": str(log)}) as server:
        server.process.send_signal(signal.SIGHUP)  # which ends nothing
        port = int(server.address.rpartition(":")[2])
        found = [ask(argparse.Namespace(port=port), key) for _ in range(40)]
        server.stop()
    assert (found.count(200), found.count(429)) == (7, 33)
    assert [json.loads(each)["status"] for each in log.read_text().splitlines()].count(200) == 7
