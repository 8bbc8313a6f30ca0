"""Canaries and shadows: which version answers, and what a copy may cost."""

from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from pytrtplugins.serving.backends.versions import VersionPicker
from tests.serving.conftest import JSON, Client, spec, until
from tests.serving.rig import Rig, infer, x
from tests.serving.served import Slow

INFER = "/v2/models/m/infer"


def version(share=0.0, ready=True):
    return SimpleNamespace(spec=SimpleNamespace(share=share), ready=ready)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.25, 1.0])
def test_a_canary_gets_its_share_of_every_window_of_requests(share):
    default, canary = version(), version(share)
    choice = VersionPicker(default, [canary])
    chosen = [choice() is canary for _ in range(400)]
    window = round(1 / share)
    assert {sum(chosen[at : at + window]) for at in range(400 - window)} == {1}


def test_several_canaries_get_their_shares_and_the_default_the_rest():
    default, canaries = version(), [version(0.25), version(0.003), version(1 / 3)]
    choice = VersionPicker(default, canaries)
    found = Counter(id(choice()) for _ in range(1000))
    assert [found[id(each)] for each in (default, *canaries)] == [414, 250, 3, 333]


def test_the_share_of_a_canary_that_is_not_ready_goes_to_the_default():
    default, canary = version(), version(0.5, ready=False)
    choice = VersionPicker(default, [canary])
    assert all(choice() is default for _ in range(9))
    canary.ready = True
    assert sum(choice() is canary for _ in range(10)) == 5


@pytest.fixture
def served(held):
    with ExitStack() as stack:
        yield lambda *specs: stack.enter_context(Client([spec("m", "Double"), *specs]))
        Slow.go.set()


def totals(client):
    return [each.statistics.total() for each in client.backend.services.every]


def test_over_http_a_canary_answers_its_share_and_a_version_that_is_named_is_reached_always(served):
    client = served(spec("m", "Triple", version="2", share=0.5))
    answers = [client.post(INFER, JSON).json["outputs"][0]["data"] for _ in range(6)]
    answers += [client.post("/v1/models/m:predict", b"1 2").json["rows"][0] for _ in range(4)]
    assert Counter(map(tuple, answers)) == {(2, 4): 5, (3, 6): 5}
    for number, factor in (("1", 2), ("2", 3)):
        asked = [client.post(f"/v2/models/m/versions/{number}/infer", JSON).json for _ in range(3)]
        assert all(each["outputs"][0]["data"] == [factor, 2 * factor] for each in asked)
    assert [each["succeeded"] for each in totals(client)] == [8, 8]
    assert client.get("/v2/models/m").json["versions"] == ["1", "2"]


def test_answers_do_not_wait_for_a_shadow_and_copies_beyond_its_queue_are_dropped(served):
    client = served(spec("m", "Slow", version="2", shadow=True, queue=3))
    assert client.post(INFER, JSON).json["outputs"][0]["data"] == [2, 4]
    assert Slow.entered.wait(20)
    for _ in range(5):
        assert client.post(INFER, JSON).json["outputs"][0]["data"] == [2, 4]
    default, shadow = totals(client)
    assert (default["succeeded"], default["in_flight"]) == (6, 0)
    assert (shadow["succeeded"], shadow["refused"], shadow["in_flight"]) == (0, 3, 3)
    Slow.go.set()
    client.do(until(lambda: not totals(client)[1]["in_flight"]))
    assert totals(client)[1]["succeeded"] == 3


@pytest.mark.parametrize(("cls", "body"), [("Wrong", b"0 0"), ("Lists", b"1 2")], ids=["an exception", "other inputs"])
def test_a_shadow_that_fails_fails_no_request(served, cls, body):
    client = served(spec("m", cls, version="2", shadow=True))
    assert client.post("/v1/models/m:predict", body).status == 200
    client.do(until(lambda: totals(client)[1]["failed"]))
    assert [each["failed"] for each in totals(client)] == [0, 1]


SHADOWED = [spec("double", "Double"), spec("double", "Double", version="2", shadow=True)]


def test_copies_take_no_more_than_half_of_the_memory_for_requests():
    with Rig(SHADOWED, engines=1) as rig:
        shadow = rig.backend.services.every[1].statistics
        first, count, _ = rig.backend._slots.take(rig.backend._slots.block.units // 2 * (64 << 10))
        assert rig.do(infer(rig, x(3))).outputs["y"][0, 0] == 6
        assert shadow.total()["refused"] == 1
        rig.backend._slots.give_back(first, count)
        assert rig.do(infer(rig, x(3))).outputs["y"][0, 0] == 6
        rig.do(rig.until(lambda: shadow.total()["succeeded"]))
        assert rig.backend._slots.free_units == rig.free


def test_a_copy_that_a_dead_engine_process_had_is_not_computed_again():
    with Rig(SHADOWED) as rig:
        end, shadow = rig.played(1), rig.backend.services.every[1]

        async def copied():
            shadow.run_shadow(x(1), shadow.signature)

        rig.do(copied())
        rig.asked(end)
        end.close()
        rig.do(rig.until(lambda: shadow.statistics.total()["failed"]))
        assert rig.backend._slots.free_units == rig.free
        assert rig.backend._parked == []
