"""A model that is loaded anew under load: no request is lost, and what served is released once it has answered."""

from __future__ import annotations

import asyncio
import weakref

import numpy as np
import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.backends import local
from pytrtplugins.utils.heap import collect_and_freeze, refreeze
from tests.serving.conftest import Client, spec
from tests.serving.rig import Rig, infer, x
from tests.serving.served import Loads

SPECS = [spec("double", "Loads")]
TIMES = 3


@pytest.fixture
def loads(monkeypatch):
    for name in ("loading", "most", "loads", "closed"):
        monkeypatch.setattr(Loads, name, 0)
    return Loads


async def under_load(backend, room):
    """Load a model again and again while requests come; gives what was asked."""
    service = backend.services["double"]
    asked: list[asyncio.Future] = []
    for _ in range(TIMES):
        loading = asyncio.ensure_future(backend.load("double"))
        while not loading.done():
            if room():
                asked.append(asyncio.ensure_future(service.infer(x(len(asked)))))
            await asyncio.sleep(0)
        await loading
    return [item.outputs["y"][0, 0] for item in await asyncio.gather(*asked)]


def test_no_request_is_lost_in_one_process(loads):
    with Client(SPECS) as client:
        replica = lambda: client.backend._replicas[0].queue  # noqa: E731  another one after each load
        found = client.loop.run_until_complete(under_load(client.backend, lambda: len(replica()) < 200))
    assert found == [2 * number for number in range(len(found))]
    assert (loads.loads, loads.closed) == (1 + TIMES, 1 + TIMES)


def test_no_request_is_lost_in_engine_processes_which_load_one_after_the_other(loads):
    with Rig(SPECS, engines=2) as rig:
        loads.most = 0
        found = rig.do(under_load(rig.backend, lambda: rig.backend._slots.free_units))
        assert rig.backend._slots.free_units == rig.free
    assert found == [2 * number for number in range(len(found))]
    assert (loads.loads, loads.most, loads.closed) == (2 + 2 * TIMES, 1, 2 + 2 * TIMES)


def test_two_who_load_at_the_same_time_both_get_an_answer_and_nothing_is_left_loaded(loads):
    with Rig(SPECS, engines=1) as rig:

        async def both():
            await asyncio.gather(rig.backend.load("double"), rig.backend.load("double"))

        rig.do(both())
    assert (loads.loads, loads.closed) == (3, 3)


def test_where_the_first_engine_process_cannot_load_all_keep_what_served(loads, monkeypatch):
    with Rig(SPECS, engines=2) as rig:
        monkeypatch.setattr(loads, "broken", True)
        with pytest.raises(RequestError, match=r"model 'double': .*load raised OSError: no weights"):
            rig.do(rig.backend.load("double"))
        np.testing.assert_array_equal(rig.do(infer(rig, x(4))).outputs["y"], 2 * x(4)["x"])
    assert (loads.loads, loads.closed) == (2, 2)


@pytest.mark.slow  # the collector looks through everything that the tests keep
def test_a_model_that_was_replaced_is_garbage_though_the_heap_had_settled(loads, monkeypatch):
    monkeypatch.setattr(local, "refreeze", refreeze)
    with Client([spec("double", "Loads")]) as client:
        model = client.backend._replicas[0].model
        model.own = model
        replaced = weakref.ref(model)
        del model
        collect_and_freeze()
        client.loop.run_until_complete(client.backend.load("double"))
        assert replaced() is None
