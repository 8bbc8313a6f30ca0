"""Engine processes that hang: how they are found, and what happens to the requests that they had."""

import json
import os
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.processes.placement import Place
from pytrtplugins.serving.processes.server import bind
from pytrtplugins.serving.processes.supervisor import ENGINE, Supervisor
from pytrtplugins.serving.shared.heartbeats import Heartbeats
from tests.serving.conftest import spec
from tests.serving.processes.test_supervisor import ask
from tests.serving.rig import Rig, infer, x
from tests.serving.served import Slow
from tests.serving.server_process import server_process

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")


def test_a_process_is_late_once_the_time_of_its_next_sign_has_passed():
    signs = Heartbeats([0] * 4)
    assert not signs.is_late(1, 1e6)  # it is being started
    signs.expect(1, 50.0)
    late = [signs.is_late(1, now) for now in (49.0, 50.0, 50.000001, 51.0)]
    assert (late, signs.is_late(0, 51.0)) == ([False, False, True, True], False)
    signs.end(1)
    assert (signs.is_late(1, 51.0), signs.kill_count(1), signs.kill_count(0)) == (False, 1, 0)


def test_a_run_that_takes_too_long_is_known_and_one_that_has_ended_is_not(held):
    with Rig([spec("double", "Slow", run_seconds=0.05)], engines=1) as rig:
        task = rig.loop.create_task(infer(rig, x(1)))
        rig.do(rig.until(lambda: rig.engine_counts[0].signs.is_late(0, time.monotonic())))
        assert Slow.entered.is_set()
        Slow.go.set()
        assert rig.do(task).outputs["y"][0, 0] == 2
        rig.do(rig.until(lambda: not rig.engine_counts[0].signs.is_late(0, time.monotonic() + 5)))


def test_a_model_that_was_replaced_and_still_computes_is_watched_too(held):
    with Rig([spec("double", "Slow", run_seconds=0.05)], engines=1) as rig:
        signs = rig.engine_counts[0].signs
        task = rig.loop.create_task(infer(rig, x(1)))
        rig.do(rig.until(Slow.entered.is_set))
        loading = rig.loop.create_task(rig.backend.load("double"))
        rig.do(rig.until(lambda: rig.processes[0]._leaving))
        signs.begin(0)  # from here on it counts what is said of the one that was replaced
        rig.do(rig.until(lambda: signs.is_late(0, time.monotonic())))
        assert not loading.done()
        Slow.go.set()
        rig.do(loading)
        assert rig.do(task).outputs["y"][0, 0] == 2
        assert rig.processes[0]._leaving == []


def test_the_supervisor_ends_a_late_process_once_and_no_other():
    killed = []
    with bind("127.0.0.1", 0) as sock:
        supervisor = Supervisor([spec("double", "Double")], Limits(), [sock], [Place(None, (0,))] * 2)
        for role, index in ((ENGINE, 0), (ENGINE, 1), ("cpu", 0)):
            process = SimpleNamespace(kill=lambda key=(role, index): killed.append(key))
            child = SimpleNamespace(role=role, index=index, process=process)
            supervisor._children[role, index] = cast("Any", child)
        supervisor._counts.signs.expect(0, 10.0)
        supervisor._counts.signs.expect(1, 30.0)
        for _ in range(2):
            supervisor._end_those_that_hang(20.0)
        supervisor._children.clear()
        supervisor._end()
    assert killed == [(ENGINE, 0)]


def test_what_a_process_computed_when_it_hung_is_computed_once_more_and_what_waited_is_not_counted():
    with Rig() as rig:
        ends = {0: rig.played(index=0), 1: rig.played(index=1)}
        poison = rig.loop.create_task(infer(rig, x(4)))
        innocent = None
        for time_ in range(2):
            links = {link.index: link for link in rig.backend._links}
            rig.do(rig.until(lambda links=links: any(link.calls for link in links.values())))
            index = next(index for index, link in links.items() if link.calls)
            record = rig.asked(ends[index])
            assert record.extra & 1 == (time_ > 0)
            if innocent is None:
                rig.drop(ends.pop(1 - index))  # so that the next request comes here too
                innocent = rig.loop.create_task(infer(rig, x(5)))
                assert rig.asked(ends[index], begins=False).extra & 1 == 0
            rig.counts.signs.end(index)
            rig.drop(ends.pop(index))
            if time_ == 0:
                ends[2] = rig.played(index=2)
        with pytest.raises(RequestError, match="hung 2 times while it computed this request"):
            rig.do(poison)
        rig.engine()
        assert rig.do(innocent).outputs["y"][0, 0] == 10
        assert rig.backend._slots.free_units == rig.free
        for end in ends.values():
            end.close()


@pytest.mark.slow
def test_a_request_that_hangs_every_process_is_an_error_and_all_others_are_answered():
    with (
        server_process([spec("double", "Hangs", run_seconds=1.0)], cpu=1, engines=2) as server,
        ThreadPoolExecutor(9) as threads,
    ):
        poison = threads.submit(ask, server.address, [-7, 0])
        others = [threads.submit(ask, server.address, [number, 1]) for number in range(200)]
        assert [each.result() for each in others] == [[2 * number, 2] for number in range(200)]
        with pytest.raises(urllib.error.HTTPError) as caught:
            poison.result()
        assert "hung 2 times while it computed this request" in json.loads(caught.value.read())["error"]
        counts = server.stop()["double"]["1"]
    assert (counts["succeeded"], counts["failed"]) == (200, 1)
