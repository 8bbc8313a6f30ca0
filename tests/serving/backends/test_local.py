"""Models in the process of the network code."""

from __future__ import annotations

import asyncio

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
