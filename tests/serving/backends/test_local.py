"""Models in the process of the network code."""

import asyncio
import threading

import numpy as np

from pytrtplugins.serving import Limits
from pytrtplugins.serving.backends.local import LocalBackend
from pytrtplugins.serving.batching.queue import BatchQueue
from tests.serving.conftest import spec


def test_requests_of_a_turn_of_the_loop_make_one_batch_of_each_model_and_wake_its_thread_once(monkeypatch):
    woken, own = [], BatchQueue.wake
    monkeypatch.setattr(BatchQueue, "wake", lambda queue: woken.append(len(queue)) or own(queue))

    async def run():
        backend = LocalBackend([spec("double", "Double"), spec("triple", "Triple")], Limits())
        await backend.start()
        asked = [backend.services[name] for name in 8 * ["double"] + 3 * ["triple"]]
        found = []
        for _ in range(2):
            items = await asyncio.gather(*(each.infer({"x": np.ones((1, 2), np.float32)}) for each in asked))
            found.append([(float(item.outputs["y"][0, 0]), item.batch_rows) for item in items])
        await backend.stop()
        return found

    assert asyncio.run(run()) == 2 * [8 * [(2.0, 8)] + 3 * [(3.0, 3)]]
    assert woken == 2 * [8, 3]


def test_an_immediate_model_is_computed_in_the_thread_of_the_loop_once_for_all_requests_of_a_turn():
    async def run():
        backend = LocalBackend([spec("immediate", "Immediate"), spec("double", "Double")], Limits())
        await backend.start()
        service, other = backend.services["immediate"], backend.services["double"]
        rows = [np.full((1, 2), value, np.float32) for value in (1, -1, 1)]
        asked = [service.infer({"x": x}) for x in rows] + [other.infer({"x": rows[0]})]
        items = await asyncio.gather(*asked, return_exceptions=True)
        await backend.load("immediate")
        again = await service.infer({"x": rows[0]})
        stopped = backend.stopped()
        closing = asyncio.ensure_future(service.infer({"x": rows[0]}))
        await asyncio.sleep(0)
        await backend.stop()
        return items, again, stopped, await closing

    (one, poison, three, double), again, stopped, last = asyncio.run(run())
    here = np.float32(threading.get_ident())
    for item in (one, three, again, last):
        assert item.outputs["y"][0, 0] == here
    assert "poison" in str(poison)
    assert (one.batch_rows, double.batch_rows) == (3, 1)
    assert double.outputs["y"][0, 0] == 2
    assert stopped == []
