"""How many requests of a model are preprocessed and wait for it, exactly."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.backends.service import Service, _record_stage
from pytrtplugins.serving.model.model import Request
from pytrtplugins.serving.model.signature import Signature
from pytrtplugins.serving.shared.statistics import Statistics
from tests.serving.conftest import spec
from tests.serving.served import Double


class Held(Double):
    """Stands still in `preprocess`."""

    go = threading.Event()

    def preprocess(self, request):
        Held.go.wait(20)
        return super().preprocess(request)


@pytest.mark.parametrize(("workers", "queue"), [(1, 1), (2, 3)])
def test_as_many_requests_wait_for_preprocess_as_the_queue_has_places_beside_those_in_threads(workers, queue):
    Held.go.clear()

    async def run(threads):
        service = Service(spec("held", "Double", queue=queue), None, threads, workers, Limits(), Statistics())
        service.set_ready(Signature.of(Held(), None))
        service._front = Held()
        tasks = [asyncio.create_task(service._preprocess(Request(b"1 2"))) for _ in range(workers + queue)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match=f"{queue} requests wait for preprocess already") as caught:
            await service._preprocess(Request(b"1 2"))
        Held.go.set()
        arrays = await asyncio.gather(*tasks)
        again = await service._preprocess(Request(b"3 4"))
        return caught.value, arrays, again, service.statistics.total()["refused"]

    with ThreadPoolExecutor(workers) as threads:
        error, arrays, again, refused = asyncio.run(run(threads))
    assert (error.status, error.retry_after, refused) == (503, 1, 1)
    assert [each["x"].tolist() for each in (*arrays, again)] == [[[1, 2]]] * (workers + queue) + [[[3, 4]]]


def test_a_stage_has_the_seconds_since_it_began():
    assert _record_stage("preprocess", time.monotonic() - 50) == pytest.approx(50, abs=10)
