"""A server of several processes, which are killed."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.processes import supervisor
from pytrtplugins.serving.processes.placement import Place
from pytrtplugins.serving.processes.server import bind
from pytrtplugins.serving.processes.supervisor import Supervisor
from tests.clock import Clock
from tests.serving.conftest import spec
from tests.serving.server_process import server_process

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")

SPECS = [spec("double", "Double")]


def ask(address, row):
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": row}]}
    request = urllib.request.Request(f"{address}/v2/models/double/infer", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["outputs"][0]["data"]


def counted(address):
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


def test_a_process_that_ends_again_and_again_is_started_later_each_time(monkeypatch):
    """Twice as late up to 10 s, and at once where it ran for 5 s; each process and each role for itself."""
    clock, restarted = Clock(), list[str]()
    monkeypatch.setattr(supervisor, "time", clock)
    host = SimpleNamespace(_again={}, _waits={}, _draining=False, _forget=id, _count=lambda: None)
    host._counts = SimpleNamespace(processes=SimpleNamespace(restarted=restarted.append))
    gone = SimpleNamespace(receive=lambda: None)

    def ended(lived, role="engine", index=0):
        """Seconds until a process is started again that lived so long."""
        process = SimpleNamespace(wait=lambda: -9)
        child = supervisor._Child(role, index, process, gone, clock.now)
        clock.now += lived
        Supervisor._hear(host, child, False)
        return host._again[role, index] - clock.now

    assert [ended(lived) for lived in (0.5, 0.5, 4.5, 0, 0, 0, 0)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4])
    assert [ended(0.5) for _ in range(3)] == pytest.approx([10, 10, 10])
    assert (ended(0.5, index=1), ended(0.5, "cpu")) == pytest.approx((0.1, 0.1))
    assert [ended(5.0), ended(0.5)] == pytest.approx([0, 0.1])
    assert restarted == ["engine"] * 11 + ["cpu"] + ["engine"] * 2


def test_killed_processes_are_replaced_without_a_lost_request_and_the_end_is_in_order():
    with server_process(SPECS, cpu=1) as server:
        assert "in 1 CPU process and 1 engine process" in server.line
        address, first = server.address, server.children()
        assert ask(address, [1, 2]) == [2, 4]
        os.kill(first["engine"][0], signal.SIGKILL)
        assert ask(address, [3, 4]) == [6, 8]  # it waits for the next engine process
        os.kill(first["cpu"][0], signal.SIGKILL)
        time.sleep(0.05)  # until its connections are gone
        assert ask(address, [5, 6]) == [10, 12]  # it waits in the socket, which the supervisor keeps open
        metrics, second = counted(address), server.children()
        for role, others in second.items():
            assert not {*first[role]} & {*others}
        counts = server.stop()["double"]["1"]
    assert (counts["succeeded"], counts["failed"]) == (3, 0)
    assert not any(Path(f"/proc/{pid}").exists() for pids in second.values() for pid in pids)
    assert metrics['pytrt_processes{role="engine"}'] == 1
    assert metrics['pytrt_process_restarts_total{role="engine"}'] == 1
    assert metrics['pytrt_process_restarts_total{role="cpu"}'] == 1
    assert metrics['pytrt_requests_in_flight{model="double",version="1"}'] == 0


@pytest.mark.slow
def test_a_request_that_ends_what_a_model_computes_with_ends_three_processes_and_no_other_request():
    with server_process([spec("double", "Lost")], cpu=1, engines=2) as server:
        with ThreadPoolExecutor(4) as threads:
            good = [threads.submit(ask, server.address, [number, 0]) for number in range(20)]
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(server.address, [-1, 0])
        assert [each.result() for each in good] == [[2 * number, 0] for number in range(20)]
        assert caught.value.code == 500
        assert "died 3 times" in json.loads(caught.value.read())["error"]
        assert ask(server.address, [3, 4]) == [6, 8]
        assert counted(server.address)['pytrt_process_restarts_total{role="engine"}'] >= 2
        server.stop()


@pytest.mark.slow
def test_a_model_is_loaded_anew_under_load_without_a_lost_request():
    with server_process(SPECS, cpu=2, engines=2) as server:
        done, wrong, answered = threading.Event(), [], [0] * 4

        def client(number):
            while not done.is_set():
                row = [number, answered[number]]
                if ask(server.address, row) != [2 * value for value in row]:
                    wrong.append(row)
                answered[number] += 1

        with ThreadPoolExecutor(len(answered)) as threads:
            clients = [threads.submit(client, number) for number in range(len(answered))]
            for _ in range(10):
                load = urllib.request.Request(f"{server.address}/v2/repository/models/double/load", b"{}")
                with urllib.request.urlopen(load, timeout=60) as answer:
                    assert answer.status == 200
            done.set()
            for each in clients:
                each.result()
        counts = server.stop()["double"]["1"]
    assert wrong == []
    assert min(answered) > 0
    assert (counts["succeeded"], counts["failed"]) == (sum(answered), 0)


def test_a_model_that_cannot_be_loaded_ends_the_start_with_its_line():
    with bind("127.0.0.1", 0) as sock, pytest.raises(UsageError, match="Broken: load raised OSError: no weights"):
        Supervisor([spec("broken", "Broken")], Limits(), [sock], [Place(None, (0,))]).run(
            lambda: pytest.fail("it was started")
        )
