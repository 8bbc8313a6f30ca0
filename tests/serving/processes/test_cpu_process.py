"""CPU processes that have the models themselves."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import ModelSpec, serve
from pytrtplugins.serving.processes import cpu_process
from pytrtplugins.serving.run import check
from tests.serving.conftest import spec
from tests.serving.processes.test_supervisor import ask, counted
from tests.serving.server_process import server_process

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")


@contextmanager
def served(cls):
    """A server of two processes with a model in each."""
    with server_process([spec("double", cls)], cpu=2, engines=0) as server:
        assert "in 2 processes with the models in each" in server.line
        yield server


def restarts(address):
    with suppress(OSError):
        return counted(address)['pytrt_process_restarts_total{role="cpu"}']


def asked_again(address, row, seconds=30):
    """An answer, though connections break meanwhile."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask(address, row)
        except (OSError, urllib.error.HTTPError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def test_a_process_runs_the_server_with_all_that_it_is_given(monkeypatch):
    calls = []
    monkeypatch.setattr(cpu_process, "run_server", lambda *given: calls.append(given))
    arguments = ("backend", "limits", "socket", "control", "grpc", "access", "board", "meter")
    assert cpu_process.run_cpu_process(*arguments) == 0
    ((backend, limits, sockets, _, *others),) = calls
    assert (backend, limits, sockets, others) == ("backend", "limits", ["socket"], ["grpc", "access", "board", "meter"])


def test_each_process_answers_and_one_that_is_killed_is_replaced():
    with served("Double") as server:
        address, first = server.address, server.children()["cpu"]
        assert len(first) == 2
        assert [ask(address, [number, 1]) for number in range(12)] == [[2 * number, 2] for number in range(12)]
        metrics = counted(address)
        assert (metrics['pytrt_processes{role="cpu"}'], metrics['pytrt_processes{role="engine"}']) == (2, 0)
        assert metrics['pytrt_requests_total{model="double",outcome="succeeded",version="1"}'] == 12
        assert metrics['pytrt_requests_in_flight{model="double",version="1"}'] == 0
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert asked_again(address, [5, 6]) == [10, 12]
        assert not {*first} & {*server.children()["cpu"]}
        assert restarts(address) == 2
        counts = server.stop()
    assert counts["double"]["1"]["succeeded"] == 13


def test_models_are_loaded_and_unloaded_by_nobody_since_the_others_would_not_know():
    with served("Double") as server:
        for what in ("load", "unload"):
            request = urllib.request.Request(f"{server.address}/v2/repository/models/double/{what}", b"{}")
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=60)
            assert caught.value.code == 403
            assert "start the server again" in json.loads(caught.value.read())["error"]
        assert ask(server.address, [1, 2]) == [2, 4]


@pytest.mark.slow
def test_a_process_whose_model_cannot_compute_any_more_is_replaced():
    with served("Lost") as server:
        with pytest.raises(OSError, match=r"."):  # its connection breaks, or it is told
            ask(server.address, [-1, 0])
        assert asked_again(server.address, [3, 4]) == [6, 8]
        assert restarts(server.address) == 1


def test_a_model_that_cannot_be_loaded_ends_the_start_with_a_line():
    with pytest.raises(UsageError, match="served:Broken: load raised OSError: no weights"):
        serve([ModelSpec("broken", "tests.serving.served:Broken")], port=0, cpu=2, engines=0)


def test_models_on_several_devices_need_engine_processes():
    specs = [ModelSpec("double", "tests.serving.served:Double", devices=("0", "1"))]
    for begin in (partial(serve, specs, port=0, cpu=2, engines=0), partial(check, specs, 0)):
        with pytest.raises(UsageError, match="--gpu 0: all processes compute on one device") as caught:
            begin()
        assert "Do: --gpu 2" in str(caught.value)
