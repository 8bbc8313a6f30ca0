"""The future of queued work keeps the contract of `concurrent.futures.Future`, and starts a thread only where nobody may ask."""

import asyncio
import threading
import time
from concurrent.futures import FIRST_COMPLETED, TimeoutError, as_completed, wait

import pytest

from pytrtplugins.engines.base.run_future import RunFuture
from tests.engines.base.world import in_threads

SOON = 20


def test_the_first_who_asks_waits_and_all_get_the_same():
    calls = []

    def work():
        calls.append(threading.current_thread())
        return object()

    future = RunFuture(work)
    assert not future.done()
    assert future.running()
    assert future.result() is future.result() is future.result(SOON)
    assert future.exception() is None
    assert future.done()
    assert calls == [threading.current_thread()]


def test_threads_that_ask_at_once_get_the_same():
    calls = []

    def work():
        calls.append(1)
        time.sleep(0.02)
        return object()

    future = RunFuture(work)
    found = in_threads(lambda _: future.result())
    assert len(found) == 4
    assert len(set(found)) == len(calls) == 1


@pytest.mark.parametrize("error", [ValueError("no memory"), KeyboardInterrupt()])
def test_what_the_work_raises_is_raised_to_each_who_asks(error):
    def work():
        raise error

    future = RunFuture(work)
    for _ in range(2):
        with pytest.raises(type(error)):
            future.result()
    assert future.exception() is error


def test_a_timeout_ends_the_asking_and_not_the_work():
    go = threading.Event()
    future = RunFuture(lambda: go.wait(SOON))
    with pytest.raises(TimeoutError):
        future.result(0.01)
    with pytest.raises(TimeoutError):
        future.exception(0.01)
    go.set()
    assert future.result(SOON) is True


def test_callbacks_are_called_though_nobody_asks():
    called = threading.Event()
    RunFuture(lambda: 7).add_done_callback(lambda future: future.result() == 7 and called.set())
    assert called.wait(SOON)


def test_a_callback_of_a_future_that_is_done_is_called_at_once():
    future, found = RunFuture(lambda: 7), []
    future.result()
    future.add_done_callback(lambda done: found.append((done.result(), threading.current_thread())))
    assert found == [(7, threading.current_thread())]


def test_those_that_wait_for_several_are_told():
    futures = [RunFuture(lambda number=number: number) for number in range(3)]
    assert wait(futures[:2], SOON).not_done == set()
    assert {future.result() for future in as_completed(futures, SOON)} == {0, 1, 2}
    assert wait([RunFuture(lambda: 1), RunFuture(lambda: 2)], SOON, FIRST_COMPLETED).done


def test_asyncio_awaits_it():
    async def main():
        return await asyncio.wait_for(asyncio.wrap_future(RunFuture(lambda: 7)), SOON)

    assert asyncio.run(main()) == 7


def test_what_is_queued_cannot_be_cancelled():
    future = RunFuture(lambda: 7)
    assert not future.cancel()
    assert future.result() == 7
