"""Handle forks: a child process copies the state of its parent, but has only one of its threads."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import EngineError

__all__ = ["ForkLock", "call_after_fork", "fail_future_in_child", "fork_count", "forks_as_cause", "keep_until_exit"]

_count = 0


def fork_count() -> int:
    """The number of forks between the first process and this one; a stored value differs in a child that was forked since."""
    return _count


def call_after_fork(function: Callable[[], object]) -> None:
    """Register a function that each forked child calls at its start, while it has one thread."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=function)


def forks_as_cause() -> str:
    """A line for the error of a GPU that cannot be used: in a forked child its parent may be why."""
    if not _count:
        return ""
    return 'Causes: this process was forked from one that used the GPU; start it by multiprocessing\'s "spawn".\n'


def keep_until_exit(value: object) -> None:
    """Never free an object: its destructor would wait for threads that only the parent process has."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


class ForkLock:
    """A lock for ``with`` blocks that is free in a forked child, even if another thread of the parent held it."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *raised: object) -> None:
        self._owner = 0
        self._lock.release()

    def _leave_parent(self) -> None:
        if self._owner != threading.get_ident():  # else the child is inside of the block too
            self._lock, self._owner = threading.Lock(), 0


def fail_future_in_child(future: Future[Any]) -> None:
    """Make a future raise an error in forked children, which lack the thread that would complete it."""
    _FUTURES.add(future)


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_FUTURES: weakref.WeakSet[Future[Any]] = weakref.WeakSet()


def _leave_parent() -> None:
    """In a forked child: count the fork, free all `ForkLock`s, and fail pending futures."""
    global _count
    _count += 1
    for lock in list(_LOCKS):
        lock._leave_parent()
    for future in list(_FUTURES):
        _lose(future)
    _FUTURES.clear()


def _lose(future: Any) -> None:
    future._condition = threading.Condition()  # a thread of the parent may hold the one that is there
    if not future.done():
        future._done_callbacks.clear()  # they are the parent's
        future._waiters.clear()
        future.set_exception(
            EngineError(
                "this run was queued before the process was forked, and ends in the parent alone.\nDo: run it again in the child"
            )
        )


call_after_fork(_leave_parent)
