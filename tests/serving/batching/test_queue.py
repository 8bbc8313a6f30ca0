"""Which requests make a batch, and when."""

from __future__ import annotations

import threading
import time

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.batching.queue import BatchQueue, Item


def queue_of(*items, **options):
    queue = BatchQueue(**{"max_batch": 4, "max_delay_s": 0.0, **options})
    for item in items:
        queue.put(item)
    return queue


def item(name, rows=1, **options):
    return Item({}, rows, token=name, **options)


def names(taken):
    return [[each.token for each in part] for part in taken]


def test_what_waits_makes_one_batch_up_to_its_largest():
    queue = queue_of(*map(item, "abcde"))
    assert names(queue.take()) == [["a", "b", "c", "d"], []]
    assert names(queue.take()) == [["e"], []]
    assert len(queue) == 0


def test_rows_are_counted_and_not_requests():
    queue = queue_of(item("a", 3), item("b", 2), item("c"))
    assert names(queue.take()) == [["a"], []]
    assert names(queue.take()) == [["b", "c"], []]


def test_requests_of_other_shapes_make_batches_of_their_own():
    queue = queue_of(item("a", key=1), item("b", key=2), item("c", key=1))
    assert names(queue.take()) == [["a", "c"], []]
    assert names(queue.take()) == [["b"], []]


def test_lower_priorities_go_first_and_equal_ones_in_their_order():
    queue = queue_of(item("a", priority=5), item("b", priority=1), item("c", priority=5), max_batch=2)
    assert names(queue.take()) == [["b", "a"], []]


def test_of_two_shapes_the_more_urgent_goes_first():
    queue = queue_of(item("a", key=1, priority=5), item("b", key=2, priority=1))
    assert names(queue.take()) == [["b"], []]


def test_a_batch_has_a_size_of_the_engine_and_the_rest_waits():
    queue = queue_of(*map(item, "abcdef"), max_batch=8, sizes=(1, 4, 8))
    assert names(queue.take()) == [["a", "b", "c", "d"], []]
    assert names(queue.take()) == [["e"], []]


def test_a_request_past_its_deadline_is_given_back_and_not_in_a_batch():
    past = time.monotonic() - 1
    queue = queue_of(item("a", deadline=past), item("b", deadline=past + 100))
    assert names(queue.take()) == [["b"], ["a"]]


def test_a_full_queue_refuses_and_says_when_to_come_back():
    queue = queue_of(item("a"), item("b"), capacity=2)
    with pytest.raises(RequestError, match="2 requests wait") as caught:
        queue.put(item("c"))
    assert (caught.value.status, caught.value.retry_after) == (503, 1)


def test_a_request_larger_than_a_batch_is_refused():
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
