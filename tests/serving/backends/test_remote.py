"""A CPU process and engine processes, joined by shared memory and streams, in one process."""

from __future__ import annotations

import asyncio
import socket

import numpy as np
import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.batching.queue import QueuedRequest
from pytrtplugins.serving.model.signature import Signature
from pytrtplugins.serving.processes import engine_process
from pytrtplugins.serving.processes.engine_process import EngineProcess
from pytrtplugins.serving.shared.control import Control
from pytrtplugins.serving.shared.packing import pack
from pytrtplugins.serving.shared.records import Kind, Reader, Record, write_record
from pytrtplugins.serving.shared.slots import UNIT, Block
from pytrtplugins.serving.shared.statistics import Counts
from tests.serving.conftest import spec
from tests.serving.rig import SPECS, UNITS, Rig, infer, x
from tests.serving.served import Double


@pytest.fixture
def rig():
    with Rig() as made:
        yield made


@pytest.fixture(scope="module")
def shared():
    """One with a real engine, for tests that leave it as it is."""
    with Rig(engines=1) as made:
        yield made


def test_requests_are_computed_in_another_process_and_each_gets_its_rows(shared):
    async def run():
        return await asyncio.gather(*(infer(shared, x(number)) for number in range(9)))

    items = shared.do(run())
    assert [item.outputs["y"][0, 0] for item in items] == [2 * number for number in range(9)]
    total = shared.backend.services["double"].statistics.total()
    assert (total["succeeded"], total["rows"]) == (9, 9)
    assert 1 <= total["batches"] <= 9
    assert shared.backend._slots.free_units == shared.free


def test_facts_reach_the_process_that_answers(shared):
    assert shared.backend.services["double"]._front.facts["names"] == ["left", "right"]


def test_an_exception_of_the_model_is_the_answer_and_the_slot_is_free_again(shared):
    with pytest.raises(RequestError, match=r"Double\.predict: ValueError: poison") as caught:
        shared.do(infer(shared, x(-1)))
    assert caught.value.status == 500
    assert shared.backend._slots.free_units == shared.free


def test_an_answer_larger_than_its_room_gets_more_room(shared):
    arrays = {"x": np.ones((32, 2), np.float32)}
    shared.backend._room.update({(0, bits): 64 for bits in range(32)})
    assert shared.do(infer(shared, arrays)).outputs["y"].tolist() == [[2, 2]] * 32
    assert [room >= 256 for room in shared.backend._room.values()].count(
        True
    ) == 1  # small requests take no more than before
    assert shared.backend._slots.free_units == shared.free


def test_a_request_larger_than_all_memory_is_refused(shared):
    arrays = {"x": np.zeros(UNITS << 16, np.int64)}
    with pytest.raises(RequestError, match="exceeds the maximum allowed value of 786432 bytes") as caught:
        shared.do(infer(shared, arrays, "lists"))
    assert caught.value.status == 413


def test_a_deadline_that_has_passed_is_kept_in_the_other_process(shared):
    with pytest.raises(RequestError) as caught:
        shared.do(infer(shared, x(1), timeout_s=-1.0))
    assert caught.value.status == 504


def test_a_model_is_released_and_loaded_anew_in_every_engine_process(rig):
    rig.engine()
    rig.do(rig.backend.unload("double"))
    assert not rig.backend.services["double"].ready
    with pytest.raises(RequestError, match="not ready: unloaded"):
        rig.do(infer(rig, x(1)))
    rig.do(rig.backend.load("double"))
    assert rig.do(infer(rig, x(1))).outputs["y"][0, 0] == 2


def test_without_an_engine_process_nothing_can_be_loaded(rig):
    with pytest.raises(RequestError, match="no engine process") as caught:
        rig.do(rig.backend.load("double"))
    assert caught.value.status == 503


def test_what_a_dead_engine_process_had_is_computed_by_another_alone(rig):
    first = rig.played()
    task = rig.loop.create_task(infer(rig, x(4)))
    request = rig.asked(first)
    rig.engine()
    first.close()
    assert rig.do(task).outputs["y"][0, 0] == 8
    assert request.extra & 1 == 0
    assert rig.backend._slots.free_units == rig.free


def test_a_request_that_kills_every_process_is_an_error_after_the_third(rig):
    ends = [rig.played() for _ in range(4)]
    task = rig.loop.create_task(infer(rig, x(4)))
    alone = []
    for _ in range(3):

        async def sent():
            while not any(link.calls for link in rig.backend._links):
                await asyncio.sleep(0)
            return next(number for number, link in enumerate(rig.backend._links) if link.calls)

        end = ends.pop(rig.do(sent()))
        alone.append(rig.asked(end).extra & 1)
        end.close()
    with pytest.raises(RequestError, match="died 3 times while it computed this request"):
        rig.do(task)
    assert alone == [0, 1, 1]
    assert rig.backend._slots.free_units == rig.free
    ends[0].close()


def test_requests_of_processes_that_died_are_tried_one_at_a_time_in_each(rig):
    """So that none dies again with another that is to blame."""
    first = rig.played()
    tasks = [rig.loop.create_task(infer(rig, x(number))) for number in range(3)]
    rig.asked(first)
    for call in rig.backend._links[0].calls.values():
        rig.backend._slots.block.begin(call.first, call.generation)  # they were one batch
    second = rig.played()
    first.close()
    rig.do(rig.until(lambda: len(rig.backend._links) == 1))
    (link,) = rig.backend._links
    fresh = rig.loop.create_task(infer(rig, x(9)))
    rig.do(asyncio.sleep(0.01))
    assert sorted(call.again for call in link.calls.values()) == [0, 1]
    second.close()
    rig.engine()  # computes what two processes have left, again one after the other
    assert [rig.do(task).outputs["y"][0, 0] for task in (*tasks, fresh)] == [0, 2, 4, 18]
    assert rig.backend._slots.free_units == rig.free


def test_who_asked_for_a_load_and_is_gone_does_not_keep_requests_from_being_computed_again(rig):
    end = rig.played()
    load = rig.loop.create_task(rig.backend.load("double"))
    task = rig.loop.create_task(infer(rig, x(4)))
    rig.do(rig.until(lambda: rig.backend._told and any(link.calls for link in rig.backend._links)))
    load.cancel()
    rig.do(asyncio.sleep(0))
    rig.drop(end)
    rig.engine()
    assert rig.do(task).outputs["y"][0, 0] == 8


def test_while_no_engine_process_lives_requests_wait_for_the_next(rig):
    rig.played().close()
    rig.do(rig.until(lambda: not rig.backend._links))
    task = rig.loop.create_task(infer(rig, x(3)))
    rig.do(rig.until(lambda: rig.backend._parked))
    rig.engine()
    assert rig.do(task).outputs["y"][0, 0] == 6


def test_an_answer_of_another_generation_is_not_taken(rig):
    end = rig.played()
    task = rig.loop.create_task(infer(rig, x(3)))
    request = rig.asked(end)
    for generation, text in ((request.generation + 1, b"wrong"), (request.generation, b"right")):
        begin = -(-request.length // 64) * 64
        rig.backend._slots.block.part(request.slot, begin, 5)[:] = text
        end.sendall(write_record(Record(Kind.ANSWER, 0, 400, request.slot, generation, 5)))
    with pytest.raises(RequestError, match="right"):
        rig.do(task)
    end.close()


def test_an_engine_process_that_says_nonsense_is_left(rig):
    end = rig.played()
    end.sendall(b"\xff" * 100)
    rig.do(rig.until(lambda: not rig.backend._links))
    end.close()


@pytest.mark.parametrize(
    "damage",
    [{"slot": UNITS + 9}, {"length": UNITS << 17}, {"generation": 77}, {"model": 5}, {"length": 3}],
    ids=lambda damage: next(iter(damage)),
)
def test_a_request_that_points_elsewhere_is_refused_by_the_engine_process(shared, damage):
    ours, theirs = Control.pair()
    process = EngineProcess(SPECS, [Block(shared.descriptor)], theirs, Counts(len(SPECS)))
    setattr(process, "_replicas", [object(), None])  # noqa: B010  the first must not be asked
    one, two = socket.socketpair()
    peer_type = type("P", (), {"block": process._blocks[0], "send": lambda self, data: one.sendall(data)})
    record = Record(Kind.REQUEST, 0, 0, 0, shared.backend._slots.block.generation(0), 64, 4096)
    process._take(peer_type(), record._replace(**damage))
    ((answer, _),) = Reader().feed(two.recv(4096))
    assert answer.kind == Kind.ANSWER
    assert answer.status in (500, 503)
    for each in (one, two, ours, theirs):
        each.close()


def test_an_error_that_is_longer_than_its_room_is_cut_there(shared):
    slots = shared.backend._slots
    first, count, generation = slots.take(4096)
    peer = engine_process._CpuPeer(socket.socket(), slots.block)
    room = slots.block.part(first, 64, 8)
    room[:] = b"\x55" * 8
    record = Record(Kind.REQUEST, 0, 0, first, generation, 64, 5)
    ((answer, _),) = Reader().feed(engine_process._error_record(peer, record, 500, "overflow"))
    assert (answer.length, bytes(room)) == (5, b"overf\x55\x55\x55")
    slots.give_back(first, count)
    peer.sock.close()


@pytest.mark.parametrize("gone", [True, False], ids=["its stream has ended", "its slot has another request"])
def test_an_answer_for_a_cpu_process_that_died_leaves_its_slots_alone(shared, gone):
    """The process that replaces it has the same memory, and other requests in it."""
    ours, theirs = Control.pair()
    process = EngineProcess(SPECS, [Block(shared.descriptor)], theirs, Counts(len(SPECS)))
    slots = shared.backend._slots
    first, count, generation = slots.take(4096)
    one, two = socket.socketpair()
    peer = engine_process._CpuPeer(one, process._blocks[0])
    peer.told.add(0)
    process._peers[0] = peer
    process._selector.register(one, 1, (0, peer))
    record = Record(Kind.REQUEST, 0, 0, first, generation, 64, 2048)
    item = QueuedRequest(x(1), 1, token=(peer, record))
    item.outputs = {"y": np.ones((1, 2), np.float32)}
    other = slots.block.part(first, 0, 4096)
    if gone:
        process._drop(0)
    else:
        slots.block.advance(first)
    other[:] = b"\x55" * 4096
    process._deliver(0, 0, [item])
    assert bytes(other) == b"\x55" * 4096
    slots.give_back(first, count)
    for each in (one, two, ours, theirs):
        each.close()


def test_a_request_that_meets_a_queue_closed_by_a_reload_goes_to_the_new_one(shared):
    ours, theirs = Control.pair()
    process = EngineProcess(SPECS, [Block(shared.descriptor)], theirs, Counts(len(SPECS)))
    slots = shared.backend._slots
    taken: list = []
    first, count, generation = slots.take(4096)
    length = pack(x(1), slots.block.part(first, 0, 1024))

    class Stub:
        signature = Signature.of(Double(), None)

        def __init__(self, put):
            self.queue = type("Queue", (), {"put": staticmethod(put)})

    def replaced(item):
        setattr(process, "_replicas", [Stub(taken.append), None])  # noqa: B010
        raise RequestError("the model is being unloaded", status=503)

    setattr(process, "_replicas", [Stub(replaced), None])  # noqa: B010
    peer_type = type("P", (), {"block": process._blocks[0]})
    process._take(peer_type(), Record(Kind.REQUEST, 0, 0, first, generation, length, 1024))
    assert [item.arrays["x"].tolist() for item in taken] == [[[1, 0]]]
    slots.give_back(first, count)
    for each in (ours, theirs):
        each.close()


def test_copies_get_memory_while_half_of_it_is_free():
    with Rig([spec("double", "Double"), spec("double", "Triple", version="2", shadow=True)]) as rig:
        end = rig.played(1)
        rig.backend._slots.take((UNITS // 2 - 1) * UNIT)
        for free in (9, 8):
            assert rig.backend._slots.free_units == free
            rig.backend._submit(1, QueuedRequest(x(1), 1, token=id))
        with pytest.raises(RequestError, match="half of the memory") as caught:
            rig.backend._submit(1, QueuedRequest(x(1), 1, token=id))
        assert caught.value.status == 503
        rig.drop(end)
