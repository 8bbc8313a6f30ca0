"""Forks: locks that are free in a child, futures that raise there, things that are never freed."""

import os
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from pytrtplugins.errors import EngineError
from pytrtplugins.utils.forks import ForkLock, fail_future_in_child, fork_count, keep_until_exit
from pytrtplugins.utils.prefetch import map_ahead
from tests.engines.base.forking import in_a_child
from tests.engines.base.world import LONG

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


class Elsewhere:
    """A ``with`` block during which another thread holds a lock."""

    def __init__(self, lock):
        self._lock, self._held, self._go = lock, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)

    def _hold(self):
        with self._lock:
            self._held.set()
            self._go.wait(LONG)

    def __enter__(self):
        self._thread.start()
        assert self._held.wait(LONG)

    def __exit__(self, *raised):
        self._go.set()
        self._thread.join(LONG)


def test_forks_are_counted_in_children():
    before = fork_count()

    def counted():
        assert fork_count() == before + 1

    in_a_child(counted)
    assert fork_count() == before


def test_a_lock_keeps_other_threads_away():
    lock, entered = ForkLock(), threading.Event()

    def enter():
        with lock:
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    with lock:
        thread.start()
        assert not entered.wait(0.1)
    assert entered.wait(LONG)
    thread.join(LONG)


def test_a_lock_of_another_thread_is_free_in_a_child():
    lock = ForkLock()

    def take():
        for _ in range(2):
            with lock:
                pass

    with Elsewhere(lock):
        in_a_child(take)
    take()


def test_a_lock_of_the_thread_that_forks_is_held_in_the_child_until_it_leaves_the_block():
    lock, order = ForkLock(), []
    with lock:
        child = os.fork()
        if child == 0:
            threading.Thread(target=lambda: (lock.__enter__(), order.append("other")), daemon=True).start()
            order.append("block")
    if child == 0:
        try:
            while len(order) < 2:
                threading.Event().wait(0.01)
        finally:
            os._exit(0 if order == ["block", "other"] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_future_of_the_parents_thread_raises_in_a_child():
    waiting, ended, called = Future[int](), Future[int](), list[Any]()
    ended.set_result(3)
    waiting.add_done_callback(called.append)
    for future in (waiting, ended):
        fail_future_in_child(future)

    def ask():
        with pytest.raises(EngineError, match=r"(?s)ends in the parent alone\.\nDo: run it again in the child"):
            waiting.result(LONG)
        assert ended.result(LONG) == 3
        assert called == []  # it is the parent's

    with Elsewhere(waiting._condition):
        in_a_child(ask)
    waiting.set_result(4)
    assert waiting.result() == 4
    assert called == [waiting]


def test_what_threads_of_the_parent_prepare_ends_with_an_error_in_a_child():
    go = threading.Event()
    results = map_ahead(lambda item: item if item == 0 else go.wait(LONG), range(3), threads=1, ahead=2)
    assert next(results) == 0

    def ask():
        with pytest.raises(EngineError, match="ends in the parent alone"):
            list(results)

    in_a_child(ask)
    go.set()
    assert list(results) == [True, True]


def test_what_is_never_freed_outlives_its_last_name():
    class Value:
        pass

    value = Value()
    seen = weakref.ref(value)
    keep_until_exit(value)
    del value
    assert seen() is not None
