"""A flood of requests for one model leaves threads, memory and runs to the others: counted in steps, not in time."""

import asyncio
import os
import threading

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.shared.slots import UNIT, Block, Slots
from tests.serving.conftest import Client, spec
from tests.serving.rig import Rig, infer, x
from tests.serving.served import Gated, Noted, Slow


def taken(slots, model, units):
    """How many slots of so many units a model gets until there is none."""
    for count in range(1000):
        try:
            slots.take(units * UNIT, model)
        except RequestError:
            return count
    raise AssertionError


@pytest.fixture
def block():
    descriptor = Block.create(64)
    yield Block(descriptor)
    os.close(descriptor)


def test_each_model_has_a_part_of_the_memory_that_no_other_takes(block):
    slots = Slots(block, 4)
    assert taken(slots, 0, 1) == 8 + 32  # its own, and all that is shared
    assert [taken(slots, model, 1) for model in (1, 2, 3)] == [8, 8, 8]
    assert slots.free_units == 0


def test_what_is_given_back_is_there_for_all(block):
    slots = Slots(block, 2)
    held = [slots.take(UNIT, 0) for _ in range(48)]
    assert taken(slots, 1, 1) == 16
    for first, count, _ in held:
        slots.give_back(first, count, 0)
    assert taken(slots, 1, 1) == 32
    assert taken(slots, 0, 1) == 16


def test_one_model_alone_has_all_memory_and_more_than_a_model_may_have_is_413(block):
    assert taken(Slots(block), 0, 1) == 64
    with pytest.raises(RequestError, match="exceeds the maximum allowed value of 3145728 bytes") as caught:
        Slots(block, 2).take(49 * UNIT, 1)
    assert caught.value.status == 413


def test_a_model_is_answered_while_another_with_a_full_queue_is_still_in_its_first_run(held):
    with Rig([spec("slow", "Slow", max_batch=1, queue=6), spec("double", "Double")], engines=1) as rig:
        slow = rig.backend.services.every[0].statistics
        flood = [rig.loop.create_task(infer(rig, x(number), "slow")) for number in range(12)]
        rig.do(rig.until(lambda: slow.total()["refused"] and Slow.entered.is_set()))
        for number in range(50):
            assert rig.do(infer(rig, x(number), "double")).outputs["y"][0, 0] == 2 * number
        assert slow.total()["succeeded"] == 0
        Slow.go.set()
        found = rig.do(asyncio.gather(*flood, return_exceptions=True))
        assert {each.status for each in found if isinstance(each, RequestError)} == {503}
        assert slow.total()["succeeded"] >= 6


@pytest.fixture
def flooded(monkeypatch):
    monkeypatch.setattr("pytrtplugins.serving.backends.local.threads_for_files", lambda: 2)
    monkeypatch.setattr(Gated, "permits", threading.Semaphore(0))
    Noted.began.clear()
    for name in ("entered", "done"):
        monkeypatch.setattr(Gated, name, 0)
    with Client([spec("gated", "Gated", queue=30), spec("noted", "Noted")]) as client:
        ask = lambda name: client.loop.create_task(client.call("POST", f"/v1/models/{name}:predict", b"1 2"))  # noqa: E731
        flood = [ask("gated") for _ in range(32)]

        async def held():
            while Gated.entered < 2:
                await asyncio.sleep(0.001)

        client.loop.run_until_complete(asyncio.wait_for(held(), 20))
        yield client, ask, flood
        Gated.permits.release(1000)
        client.loop.run_until_complete(asyncio.gather(*flood))


def test_a_model_gets_the_next_free_thread_though_another_has_thirty_requests_that_wait_for_one(flooded):
    client, ask, _ = flooded
    other, began = ask("noted"), Noted.began
    client.loop.run_until_complete(asyncio.sleep(0.01))
    assert not began.is_set()  # both threads are held
    Gated.permits.release()
    client.loop.run_until_complete(asyncio.to_thread(began.wait, 20))
    assert (began.is_set(), Gated.done) == (True, 1)
    Gated.permits.release(1000)
    assert client.loop.run_until_complete(asyncio.wait_for(other, 20)).json["rows"] == [[2, 4]]


def test_more_requests_than_may_wait_for_preprocess_are_503(flooded):
    client, ask, _ = flooded
    answer = client.loop.run_until_complete(asyncio.wait_for(ask("gated"), 20))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "30 requests wait for preprocess already" in answer.json["error"]
