"""The log of requests: what a line says, and what cannot get into it."""

import json
import re
from contextlib import ExitStack

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Access, Limits
from pytrtplugins.serving.access.access_log import AccessLog, _text_line
from pytrtplugins.serving.access.exchange import Exchange
from pytrtplugins.serving.access.gate import Gate
from pytrtplugins.serving.access.keys import add_key
from tests.serving.conftest import INFER, JSON, Client, spec
from tests.serving.running import running, triton_row


@pytest.fixture
def logged(tmp_path):
    """Gives a client whose requests are logged, and the lines."""
    path = tmp_path / "access.log"
    with ExitStack() as stack:

        def start(**settings):
            made = stack.enter_context(Client([spec("double", "Double")]))
            gate = Gate.of(Access(access_log=str(path), **settings))
            stack.callback(gate.close)
            made.app = gate.before(made.app)
            return made, lambda: path.read_text("ascii").splitlines()

        yield start


def test_a_line_has_what_happened_to_a_request(logged, tmp_path):
    keys = str(tmp_path / "keys.toml")
    key = add_key(keys, "camera-1")
    client, lines = logged(keys=keys)
    headers = {"X-API-Key": key, "X-Request-Id": "mine"}
    answer = client.post(INFER, JSON, headers=headers)
    client.post(f"/v1/models/double:predict?token={key}", b"1 2", headers=headers)
    client.get("/nothing", headers=headers)
    client.post(INFER, JSON, headers={"X-API-Key": "wrong"})
    client.post(INFER, b"junk", headers=headers)
    found = [json.loads(line) for line in lines()]
    assert [(each["status"], each.get("key"), each.get("model")) for each in found] == [
        (200, "camera-1", "double"),
        (200, "camera-1", "double"),
        (403, "camera-1", None),
        (401, None, None),
        (400, "camera-1", "double"),
    ]
    first, second = found[:2]
    assert (first["id"], first["client"], first["method"], first["path"]) == ("mine", "test", "POST", INFER)
    assert (first["received"], first["sent"]) == (len(json.dumps(JSON)), len(answer.body))
    assert 0 <= first["queue_ms"] + first["compute_ms"] <= first["total_ms"]
    assert {"preprocess_ms", "queue_ms", "compute_ms", "postprocess_ms"} <= set(second)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["time"])
    assert key not in "".join(lines())
    assert "wrong" not in "".join(lines())


def test_a_line_for_people(logged):
    client, lines = logged(access_log_form="plain")
    client.post(INFER, JSON, headers={"X-Request-Id": "mine"})
    (line,) = lines()
    form = (
        r'\S+Z test - "POST /v2/models/double/infer" 200 received=\d+ sent=\d+ total=[\d.]+ms model=double .* id=mine'
    )
    assert re.fullmatch(form, line)


EVIL = 'a\r\n{"status":200}\x1b[2J\u2028\u0085" id=x'


@pytest.mark.parametrize("form", ["json", "plain"])
def test_a_client_writes_no_lines_and_no_fields(logged, form):
    client, lines = logged(access_log_form=form)
    client.get(f"/v2/models/{EVIL}", headers={"X-Request-Id": EVIL, "X-API-Key": EVIL})
    client.get("/" + 5000 * "a")
    first, second = lines()
    assert first.isascii()
    assert first.isprintable()
    assert len(second) < 1500
    if form == "json":
        assert json.loads(first)["path"] == f"/v2/models/{EVIL}"
        assert re.fullmatch("[0-9a-f]{32}", json.loads(first)["id"])
    else:
        assert re.fullmatch("id=[0-9a-f]{32}", first.split()[-1])


def test_a_renamed_file_is_opened_anew(logged, tmp_path):
    client, lines = logged()
    client.get("/v2")
    (tmp_path / "access.log").rename(tmp_path / "access.log.1")
    client.get("/docs")
    assert [json.loads(line)["path"] for line in lines()] == ["/docs"]


def test_a_file_that_cannot_be_written_is_one_line():
    with pytest.raises(UsageError, match=r"/nowhere/a\.log: cannot be written: no such file"):
        AccessLog("/nowhere/a.log")


def test_a_full_disk_is_said_once_and_fails_no_request(caplog):
    try:
        log = AccessLog("/dev/full")
    except UsageError:
        pytest.skip("needs /dev/full")
    for _ in range(3):
        log.record(Exchange("http", "GET", "/", {}, "test"))
    log.close()
    assert len(caplog.records) == 1


def test_a_log_that_cannot_be_opened_anew_is_said_once_and_fails_no_request(tmp_path, caplog):
    folder = tmp_path / "logs"
    folder.mkdir()
    with running([spec("double", "Double")], Limits(), Access(access_log=str(folder / "access.log"))) as server:
        live = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n"
        assert b" 200 " in server.sent(live + b"Connection: close\r\n\r\n")
        folder.rename(tmp_path / "moved")
        sent = server.sent(3 * (live + b"\r\n") + live + b"Connection: close\r\n\r\n")
        assert sent.count(b" 200 ") == 4  # on one connection
        folder.mkdir()
        assert b" 200 " in server.sent(live + b"Connection: close\r\n\r\n")
    assert [record.getMessage() for record in caplog.records if "access log" in record.getMessage()] == [
        "the access log cannot be written; requests are answered all the same"
    ]
    assert len((tmp_path / "moved" / "access.log").read_text().splitlines()) == 1
    assert len((folder / "access.log").read_text().splitlines()) == 1


def test_both_protocols_of_a_server_are_logged(tmp_path):
    pytest.importorskip("grpc", reason="pip install grpcio")
    library = pytest.importorskip("tritonclient.grpc")
    path = tmp_path / "access.log"
    with running([spec("double", "Double")], Limits(), Access(access_log=str(path)), grpc=True) as server:
        server.sent(b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        with library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            tensor = triton_row(library)
            client.infer("double", [tensor], headers={"x-request-id": "mine"})
            with pytest.raises(library.InferenceServerException):
                client.infer("nothing", [tensor])
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["protocol"], each["method"], each["status"]) for each in found] == [
        ("http", "GET", 200),
        ("grpc", "ModelInfer", "OK"),
        ("grpc", "ModelInfer", "NOT_FOUND"),
    ]
    assert (found[1]["id"], found[1]["model"], found[1]["requests"], found[1]["client"]) == (
        "mine",
        "double",
        1,
        "127.0.0.1",
    )
    assert found[1]["received"] > 8 < found[1]["sent"]


def test_a_line_of_text_has_all_that_is_known_in_this_order():
    fields = {
        **{
            "time": "T",
            "id": "7",
            "client": "1.2.3.4",
            "protocol": "http",
            "method": "GET",
            "path": "/a b",
            "status": 200,
        },
        **{
            "received": 1,
            "sent": 2,
            "total_ms": 3.5,
            "key": "k",
            "model": "m",
            "version": "1",
            "digest": "d",
            "requests": 4,
        },
        **{"preprocess_ms": 5, "queue_ms": 6, "compute_ms": 7, "postprocess_ms": 8, "trace": "t"},
    }
    assert _text_line(fields) == (
        'T 1.2.3.4 k "GET /a b" 200 received=1 sent=2 total=3.5ms model=m version=1 digest=d requests=4 '
        "preprocess=5ms queue=6ms compute=7ms postprocess=8ms trace=t id=7"
    )
    bare = {key: fields[key] for key in ("time", "method", "path", "status", "id")} | {"client": ""}
    assert _text_line(bare) == 'T - - "GET /a b" 200 id=7'
