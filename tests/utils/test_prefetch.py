"""Work done ahead in threads: order, laziness, errors, contexts."""

import contextlib
import itertools
import threading
import time
from typing import Any

import pytest

from pytrtplugins.engines.base.run_future import RunFuture
from pytrtplugins.utils.prefetch import BackgroundCalls, map_ahead, map_async, map_in_contexts, prefetch


def slow_first(number):
    time.sleep(0.02 if number % 4 == 0 else 0)
    return number * number


def failing_behind(count):
    yield from range(count)
    raise OSError("the camera is gone")


@pytest.mark.parametrize(("threads", "ahead"), [(1, None), (3, None), (2, 7)])
def test_results_come_in_the_order_of_the_items(threads, ahead):
    assert list(map_ahead(slow_first, range(20), threads=threads, ahead=ahead)) == [n * n for n in range(20)]


def test_endless_items_are_taken_a_few_ahead():
    taken = []

    def items():
        for number in itertools.count():
            taken.append(number)
            yield number

    results = map_ahead(slow_first, items(), threads=2, ahead=5)
    assert next(results) == 0
    assert taken == [0, 1, 2, 3, 4]
    results.close()


def test_what_the_function_raises_comes_at_its_items_turn():
    results = map_ahead(lambda number: 1 // (number - 3), range(9), threads=4)
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_what_the_items_raise_comes_behind_the_results_before_it():
    results = map_ahead(slow_first, failing_behind(3), threads=4)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(OSError, match="camera"):
        next(results)


def test_no_two_calls_have_one_context_at_a_time_and_all_are_closed():
    busy, closed, used = set(), [], set()

    @contextlib.contextmanager
    def context(name):
        yield name
        closed.append(name)

    def work(name, number):
        assert name not in busy
        busy.add(name)
        used.add((name, threading.get_ident()))
        time.sleep(0.002)
        busy.remove(name)
        return number

    assert list(map_in_contexts(work, range(30), contexts=map(context, "ab"), ahead=4)) == list(range(30))
    assert {name for name, _ in used} == {"a", "b"}
    assert sorted(closed) == ["a", "b"]


def test_contexts_are_closed_when_nobody_wants_more():
    closed = []

    @contextlib.contextmanager
    def context():
        try:
            yield
        finally:
            closed.append(True)

    results = map_in_contexts(lambda _, number: number, itertools.count(), contexts=[context()])
    assert next(results) == 0
    results.close()
    assert closed == [True]


def given(context, item, result):
    assert not context.busy
    return result


class Turn:
    """A context that takes one item at a time."""

    def __init__(self, log):
        self.log, self.busy, self.closed = log, False, False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert not self.busy
        self.closed = True

    def begin(self, number):
        assert not self.busy
        self.log.append(f"begin {number}")
        self.busy = True

        return RunFuture(lambda: self.end(number))

    def end(self, number):
        self.busy = False
        self.log.append(f"end {number}")
        return 12 // (number - 3)


def test_the_next_work_is_begun_before_a_result_is_given():
    log = list[Any]()
    contexts = [Turn(log), Turn(log)]
    results = map_async(Turn.begin, itertools.count(4), contexts=contexts, finish=given)
    assert [next(results) for _ in range(2)] == [12, 6]
    assert log == ["begin 4", "begin 5", "end 4", "begin 6", "end 5", "begin 7"]
    results.close()
    assert log[-2:] == ["end 6", "end 7"]
    assert all(context.closed for context in contexts)


@pytest.mark.parametrize("contexts", [1, 2, 5])
def test_what_waiting_raises_comes_behind_the_results_before_it(contexts):
    made = [Turn([]) for _ in range(contexts)]
    results = map_async(Turn.begin, range(9), contexts=made, finish=given)
    assert [next(results) for _ in range(3)] == [-4, -6, -12]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert all(context.closed for context in made)


def test_what_begun_items_raise_comes_behind_the_results_before_it():
    results = map_async(Turn.begin, failing_behind(3), contexts=[Turn([]), Turn([])], finish=given)
    assert [next(results) for _ in range(3)] == [-4, -6, -12]
    with pytest.raises(OSError, match="camera"):
        next(results)


def test_quick_items_stay_in_the_callers_thread():
    def where(number):
        return threading.current_thread() is threading.main_thread(), 12 // (number - 3)

    results = map_ahead(where, range(9), threads=2, inline=lambda number: number % 2 == 1)
    assert [next(results) for _ in range(3)] == [(False, -4), (True, -6), (False, -12)]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_items_taken_in_a_thread_keep_their_order_and_their_error():
    results = prefetch(failing_behind(3), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="camera"):
        next(results)
    assert list(prefetch(iter(range(5)), 9)) == [0, 1, 2, 3, 4]


def test_items_are_taken_a_few_ahead_and_no_more_once_nobody_asks():
    taken, items = [], itertools.count()
    results = prefetch((taken.append(number) or number for number in items), 3)
    assert next(results) == 0
    results.close()
    assert 1 <= len(taken) <= 3


def test_calls_behind_the_caller_are_done_when_it_is_closed():
    done, behind = list[int](), BackgroundCalls(1)
    for number in range(9):
        behind.call(done.append, number)
    behind.close()
    assert done == list(range(9))


def test_what_a_call_behind_the_caller_raised_is_raised_later():
    behind, done = BackgroundCalls(2), list[int]()
    behind.call(int, "no number")
    behind.call(done.append, 1)
    with pytest.raises(ValueError, match="no number"):
        behind.close()
    assert done == [1]


def test_what_an_earlier_call_raised_keeps_further_ones_from_piling_up():
    behind = BackgroundCalls(1)
    for _ in range(2):
        behind.call(int, "no number")
    with pytest.raises(ValueError, match="no number"):
        behind.call(int, "no number")
