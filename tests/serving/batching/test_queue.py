"""Which requests make a batch, and when."""

import threading
import time

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.batching import queue as module
from pytrtplugins.serving.batching.queue import BatchQueue, QueuedRequest
from tests.clock import Clock


def queue_of(*items, **options):
    queue = BatchQueue(**{"max_batch": 4, "max_delay_s": 0.0, **options})
    for item in items:
        queue.put(item)
    return queue


def item(name, rows=1, **options):
    return QueuedRequest({}, rows, token=name, **options)


def names(taken):
    return [[each.token for each in part] for part in taken]


@pytest.mark.parametrize(
    ("items", "options", "batches"),
    [
        pytest.param([item(name) for name in "abcde"], {}, ["abcd", "e"], id="up to the largest"),
        pytest.param([item("a", 3), item("b", 2), item("c")], {}, ["a", "bc"], id="rows are counted and not requests"),
        pytest.param([item("a", key=1), item("b", key=2), item("c", key=1)], {}, ["ac", "b"], id="each shape by itself"),
        pytest.param(
            [item(name, priority=number) for name, number in (("a", 5), ("b", 1), ("c", 5))], {"max_batch": 2}, ["ba", "c"],
            id="lower priorities first and equal ones in their order",
        ),
        pytest.param(
            [item("a", key=1, priority=5), item("b", key=2, priority=1)], {}, ["b", "a"], id="the more urgent shape first"
        ),
        pytest.param(
            [item(name) for name in "abcdef"], {"max_batch": 8, "sizes": (1, 4, 8)}, ["abcd", "e", "f"], id="sizes of the engine"
        ),
    ],
)  # fmt: skip
def test_which_requests_make_a_batch(items, options, batches):
    queue = queue_of(*items, **options)
    assert [names(queue.take(block=False)) for _ in batches] == [[[*batch], []] for batch in batches]
    assert len(queue) == 0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_request_past_its_deadline_is_given_back_and_not_in_a_batch(clock):
    names_at = {
        0.0: [["a", "b"], []],
        1.0: [["a", "b"], []],
        1.5: [["b"], ["a"]],
        2.0: [["b"], ["a"]],
        2.5: [[], ["a", "b"]],
    }
    for passed, expected in names_at.items():
        queue = queue_of(item("a", deadline=clock.now + 1), item("b", deadline=clock.now + 2))
        clock.now += passed
        assert names(queue.take()) == expected


def test_a_full_queue_refuses_and_says_when_to_come_back():
    queue = queue_of(item("a"), item("b"), capacity=2)
    with pytest.raises(RequestError, match="2 requests wait") as caught:
        queue.put(item("c"))
    assert (caught.value.status, caught.value.retry_after) == (503, 1)


def test_a_request_larger_than_a_batch_is_refused():
    assert names(queue_of(item("a", 4)).take()) == [["a"], []]
    with pytest.raises(RequestError, match="must be <= 4 for '': the request has 5 rows") as caught:
        queue_of(item("a", 5))
    assert caught.value.status == 400


def test_a_closed_queue_gives_what_waits_then_none_and_takes_nothing():
    queue = queue_of(item("a"))
    queue.close()
    assert names(queue.take()) == [["a"], []]
    assert queue.take() is None
    with pytest.raises(RequestError) as caught:
        queue.put(item("b"))
    assert caught.value.status == 503


def test_nothing_waits_while_nothing_is_computed():
    assert names(queue_of(item("a"), max_delay_s=3600.0).take()) == [["a"], []]


def test_beside_a_batch_that_is_computed_a_partial_one_waits_until_that_is_done():
    queue = queue_of(item("a"), max_delay_s=3600.0)
    queue.take()
    queue.put(item("b"))
    taken = []
    waiting = threading.Thread(target=lambda: taken.append(queue.take()))
    waiting.start()
    queue.put(item("c"))
    assert not taken
    queue.done()
    waiting.join(20)
    assert names(taken[0]) == [["b", "c"], []]


def test_beside_a_batch_that_is_computed_a_full_one_goes_at_once():
    queue = queue_of(item("a"), max_delay_s=3600.0, max_batch=2)
    queue.take()
    for name in "bc":
        queue.put(item(name))
    assert names(queue.take()) == [["b", "c"], []]


def test_who_does_not_wait_gets_nothing_from_an_empty_queue():
    assert queue_of().take(block=False) == ([], [])


def test_threads_may_be_woken_once_for_several_requests():
    queue, taken = queue_of(max_batch=1), []
    threads = [threading.Thread(target=lambda: taken.append(queue.take()), daemon=True) for _ in range(2)]
    for each in threads:
        each.start()
    while queue._takers < len(threads):
        time.sleep(0.001)
    for name in "abc":
        queue.put(item(name), wake=False)
    assert queue._takers == len(threads)  # all sleep on
    queue.wake()
    for each in threads:
        each.join(20)
    assert sorted(token for each in taken for token in names(each)[0]) == ["a", "b"]
    assert len(queue) == 1


def wait_by_the_clock(queue, clock, *arrivals):
    """Let the clock of a test go on where the queue waits, up to the next arrival; gives the waits that the queue asked for."""
    waits, coming = [], list(arrivals)

    def wait(seconds=None):
        waits.append(seconds)
        at, arrival = coming.pop(0) if coming else (float("inf"), None)
        clock.now = min(at, clock.now + seconds)
        if arrival is not None:
            queue._changed.release()
            queue.put(arrival())
            queue._changed.acquire()

    queue._wait = wait
    return waits


@pytest.mark.parametrize("priorities", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_the_delay_counts_from_the_oldest_request(clock, priorities):
    """Three requests, 4 s and 3 s apart, of which the oldest is first, last, or in the middle by its priority."""
    queue = queue_of(item("a"), max_delay_s=10.0, max_batch=8)
    queue.take()
    for name, priority, passed in zip("bcd", priorities, (4, 3, 0), strict=True):
        queue.put(item(name, priority=priority))
        clock.now += passed
    waits = wait_by_the_clock(queue, clock)
    batch, late = queue.take()
    assert waits == [3.0]
    assert {each.token: each.queued_s for each in batch} == {"b": 10.0, "c": 6.0, "d": 3.0}
    assert late == []


def test_an_arrival_does_not_begin_the_delay_anew_and_one_that_fills_the_batch_ends_it(clock):
    begin = clock.now
    for rows, waits, passed in ((1, [10.0, 6.0], 10.0), (2, [10.0], 4.0)):
        queue = queue_of(item("a"), max_delay_s=10.0, max_batch=3)
        queue.take()
        clock.now = begin
        queue.put(item("b"))
        asked = wait_by_the_clock(queue, clock, (begin + 4, lambda rows=rows: item("c", rows)))
        assert names(queue.take()) == [["b", "c"], []]
        assert asked == waits
        assert clock.now == begin + passed


@pytest.mark.parametrize(("waiting", "taken"), [(1, 1), (3, 1), (4, 4), (7, 4), (8, 8), (9, 8)])
def test_a_batch_has_the_largest_size_that_is_filled_also_exactly(waiting, taken):
    queue = queue_of(*map(item, "abcdefghi"[:waiting]), max_batch=8, sizes=(1, 4, 8))
    assert len(queue.take()[0]) == taken


def test_late_requests_do_not_count_as_rows_that_fill_a_batch(clock):
    queue = queue_of(item("a", 3, deadline=clock.now), item("b", 3), item("c", 2), max_delay_s=10.0)
    clock.now += 1
    assert names(queue.take()) == [["b"], ["a"]]
    waits = wait_by_the_clock(queue, clock)
    assert names(queue.take()) == [["c"], []]
    assert waits == [9.0]  # its two rows are half a batch


def waiting_thread(queue, target, condition):
    """A thread that waits on a condition of a queue: whoever has the condition's lock next comes after it waits."""
    waits = threading.Event()
    name = "wait_for" if condition is queue._idle else "wait"
    real = getattr(condition, name)
    setattr(condition, name, lambda *given: (waits.set(), real(*given))[1])
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    assert waits.wait(20)
    return thread


def test_a_request_that_waits_for_others_is_woken_when_the_batch_before_it_is_done():
    queue, taken = queue_of(item("a"), max_delay_s=3600.0), []
    queue.take()
    queue.put(item("b"))
    taker = waiting_thread(queue, lambda: taken.append(queue.take()), queue._changed)
    queue.done()
    taker.join(5)
    assert [names(each) for each in taken] == [[["b"], []]]


@pytest.mark.parametrize("late", [False, True])
def test_who_waits_until_the_queue_is_idle_is_woken_by_the_last_batch_and_by_late_requests(late):
    queue = queue_of(item("a", deadline=-1.0 if late else None))
    idle = waiting_thread(queue, queue.wait_until_idle, queue._idle)
    assert names(queue.take()) == ([[], ["a"]] if late else [["a"], []])
    if not late:
        assert idle.is_alive()
        queue.done()
    idle.join(5)
    assert not idle.is_alive()


def test_who_waits_for_requests_and_who_waits_until_the_queue_is_idle_do_not_take_each_others_wake_ups():
    queue, taken = queue_of(item("a")), []
    queue.take()
    idle = waiting_thread(queue, queue.wait_until_idle, queue._idle)
    taker = waiting_thread(queue, lambda: taken.append(queue.take()), queue._changed)
    queue.put(item("b"))
    taker.join(5)
    assert [names(each) for each in taken] == [[["b"], []]]
    second = waiting_thread(queue, lambda: taken.append(queue.take()), queue._changed)
    queue.done()
    queue.done()
    idle.join(5)
    assert not idle.is_alive()
    queue.close()
    second.join(5)
    assert taken[1:] == [None]
