"""Photos through servers on a GPU: which rows are measured, what each says, and whether answers agree."""

import json
import sys
from argparse import Namespace
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("skimage")

from benchmarks.serving import gpu
from benchmarks.serving.gpu import _measured, _short, _wanted, agrees
from benchmarks.serving.load import Exchange, Outcome
from benchmarks.serving.rows import Row
from benchmarks.serving.servers import Command


def test_single_rows_can_be_asked_for():
    titles = ["Flask, HTTP", "4 engine, decode gpu, HTTP", "4 engine, decode gpu, gRPC streams"]
    for only, wanted in (
        (None, titles),
        (["GPU, grpc"], titles[2:]),
        (["flask", "gpu, http"], titles[:2]),
        (["x"], []),
    ):
        assert [title for title in titles if _wanted(title, Namespace(only=only))] == wanted


def test_the_option_for_rows_may_be_repeated(monkeypatch):
    for words, only in (
        (["-k", "one"], ["one"]),
        (["-k", "one", "--only", "two words"], ["one", "two words"]),
        ([], None),
    ):
        monkeypatch.setattr(sys, "argv", ["gpu", *words])
        assert gpu._arguments().only == only


def test_words_that_no_row_has_are_an_error_that_names_them(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu", "-k", "one", "-k", "two"])
    for name in ("_rows", "_nvidia", "end_servers_on_sigterm"):
        monkeypatch.setattr(gpu, name, lambda *_: ())
    with pytest.raises(SystemExit, match="no row has one or two in its name"):
        gpu.main()


class FakeServer:
    """A server that is ready."""

    port, cold_s = 1234, 0.5

    def __init__(self, command=None, first=None):
        if command is not None:
            FakeServer.started.append(command.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, exchange):
        return exchange.body


@pytest.mark.parametrize(
    ("only", "rows"),
    [
        (
            ["grpc streams"],
            [
                "a, gRPC streams, 4 clients, 1 connection each",
                "a, gRPC streams, 8 clients, 1 connection each",
                "a, gRPC streams, 4 clients, 2 connections each",
                "a, gRPC streams, 8 clients, 2 connections each",
            ],
        ),
        (
            ["HTTP, 8", "streams, 4 clients, 2"],
            ["a, HTTP, 8 clients", "a, gRPC streams, 4 clients, 2 connections each"],
        ),
        (["flask"], []),
    ],
)
def test_a_server_is_started_for_the_rows_that_are_wanted(only, rows, monkeypatch):
    monkeypatch.setattr(FakeServer, "started", [], raising=False)
    monkeypatch.setattr(gpu, "Server", FakeServer)
    monkeypatch.setattr(gpu, "_measured", lambda server, title, *_: Row(title, gpu.KIND))
    given = Namespace(only=only, clients=[4, 8], connections=[1, 2], load_seconds=1.0)
    answer = b'{"width": 1, "height": 1, "detections": []}'
    found = list(gpu._server(Command("a", lambda port: []), [Exchange(b"", answer)], 1, given, None, []))
    assert [row.server for row in found] == rows
    assert FakeServer.started == (["a"] if rows else [])


def test_a_load_has_the_clients_and_connections_that_its_row_says(monkeypatch):
    loads, calls = [], []

    def measured(server, title, load, *_):
        loads.append(load)
        return Row(title, gpu.KIND)

    def done(*given):
        calls.append(given)
        return SimpleNamespace(result=Outcome)

    monkeypatch.setattr(FakeServer, "started", [], raising=False)
    monkeypatch.setattr(gpu, "Server", FakeServer)
    monkeypatch.setattr(gpu, "_measured", measured)
    given = Namespace(only=None, clients=[2], connections=[4], load_seconds=1.0)
    clients = SimpleNamespace(begin=done, call=done)
    answer = b'{"width": 1, "height": 1, "detections": []}'
    rows = list(gpu._server(Command("a", lambda port: []), [Exchange(b"", answer)], 5, given, clients, [b"jpeg"]))
    assert [row.server for row in rows] == ["a, HTTP", "a, gRPC streams"]
    http, streams = loads
    http(1.0, 100.0)
    assert [(load.port, load.connections, load.rate, load.seed) for (load,) in calls] == [
        (1234, 16, 50.0, 0),
        (1234, 16, 50.0, 1),
    ]
    calls.clear()
    for rate, ahead in (None, 64), (100.0, 8):
        streams(1.0, rate)
        assert calls == 2 * [(gpu.stream, 5, [b"jpeg"], 1.0, ahead, "animals", 4)]
        calls.clear()


SUPERVISOR, ENGINES, CPU = 10, [11, 12], [13, 14, 15]
TAKEN_S = {10: 0.02, 11: 1.5, 12: 0.5, 13: 0.2, 14: 1.9, 15: 0.0}


@pytest.fixture
def server(monkeypatch):
    """One whose processes have taken these seconds of CPU time after its second load, of two seconds."""
    made = FakeServer()
    made.process = SimpleNamespace(pid=SUPERVISOR)
    made.loads = 0
    made.pids = lambda: [SUPERVISOR, *ENGINES, *CPU]
    made.pss_bytes = lambda: 6 << 20
    monkeypatch.setattr(gpu, "cpu_s", lambda pid: 100 + pid + (TAKEN_S[pid] if made.loads > 1 else 0))
    monkeypatch.setattr(gpu, "pss_bytes", lambda pid: 1 << 20)
    monkeypatch.setattr(gpu, "engine_pids", lambda server: ENGINES)
    monkeypatch.setattr(gpu, "_nvidia", lambda fields, what="gpu": f"{what}: {fields}")
    return made


def measured(server, way="HTTP", wrong=0):
    rates = []

    def load(seconds, rate):
        server.loads += 1
        rates.append(rate)
        return [
            Outcome(np.full(1000, 0.01), 2.0, 1000, Counter({500: wrong} if wrong else {}), cpu_s=0.25) for _ in "ab"
        ]

    return _measured(server, "a server", load, 0.01, way), rates


def test_a_row_says_how_busy_each_process_was_by_role_the_busiest_first(server):
    row, rates = measured(server)
    assert row.reason == ""
    assert rates == [None, None, 800.0]
    assert row.cores == {"engine": [0.75, 0.25], "CPU": [0.95, 0.1, 0.0]}  # the supervisor carries nothing
    assert (row.rate, row.cpu_us, row.engine_us, row.client_us) == pytest.approx((1000, 2060, 1000, 250))
    assert row.plain()["cores"] == row.cores


def test_a_row_says_how_busy_the_gpu_was_meanwhile(server):
    row, _ = measured(server)
    assert row.open[0]["gpu_busy"] == "gpu: utilization.gpu,utilization.jpeg"
    assert row.open[0]["gpu_processes"] == "compute-apps: pid,used_memory"
    assert row.open[0]["engine_pss_mib"] == {"11": 1.0, "12": 1.0}


def test_a_server_in_one_process_has_that_one(server, monkeypatch):
    server.pids = lambda: [SUPERVISOR]
    monkeypatch.setattr(gpu, "engine_pids", lambda server: [])
    row, _ = measured(server)
    assert row.cores == {"engine": [], "CPU": [0.01]}
    assert row.engine_us == 0
    assert "of the busiest CPU process" in _short(row)
    assert "engine process" not in _short(row)


def test_a_line_has_the_busiest_process_of_each_role(server):
    said = _short(measured(server)[0])
    assert "0.75 of the busiest engine process, 2 of 2 busy, 0.95 of the busiest CPU process, 2 of 3 busy" in said
    assert "utilization.jpeg" in said


def test_a_row_with_wrong_answers_has_a_reason_and_no_figures(server):
    row, _ = measured(server, wrong=3)
    assert row.reason == "ValueError: 0 requests lost, errors by status: {500: 6}"
    assert (row.rate, row.cores, row.open) == (0.0, {}, [])


def test_latencies_on_streams_are_those_of_the_rate_that_was_reached(server):
    row, _ = measured(server, way="gRPC streams")
    assert row.open[0]["planned"] == row.open[0]["rate"] == 1000
    row, _ = measured(server)
    assert row.open[0]["planned"] == 800


@pytest.mark.parametrize(
    ("found", "equal"),
    [
        ([("cat", 0.9, 10)], True),
        ([("cat", 0.8, 13), ("dog", 0.5, 0)], True),
        ([("cat", 0.9, 20)], False),
        ([("dog", 0.9, 10)], False),
        ([], False),
    ],
)
def test_answers_of_another_decoder_agree_where_sure_boxes_are_nearly_the_same(found, equal):
    def answer(boxes):
        said = [{"label": label, "score": score, "box": [x, x, x + 50, x + 50]} for label, score, x in boxes]
        return json.dumps({"width": 100, "height": 80, "detections": said}).encode()

    assert agrees(answer(found), answer([("cat", 0.9, 10), ("dog", 0.55, 0)])) == equal
