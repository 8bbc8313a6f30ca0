"""Tests that run in a process of their own, which has imported little.

`check_plugin` forks the process that calls it. That of the tests has imported everything: to fork it takes longer than most checks.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.randomness import restart

__all__ = ["in_small_process"]


def in_small_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of a module in the small process, which all these tests share; its arguments are pickled.

    Values that fixtures and other tests keep in modules are not there.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        pipe = _small_process()
        pipe.send((test.__module__, test.__name__, arguments, named))
        if problem := pipe.recv():
            raise AssertionError(problem)

    return run


@functools.cache
def _small_process() -> Connection:
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True).start()
    theirs.close()
    return ours


def _serve(pipe: Connection) -> None:
    """Run tests until the process of the tests has ended; answer each with the traceback of what it raises, or an empty text."""
    while True:
        try:
            module, name, arguments, named = pipe.recv()
        except EOFError:
            return
        restart()
        try:
            test = getattr(importlib.import_module(module), name).__wrapped__
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                test(*arguments, **named)
            pipe.send("")
        except BaseException:
            pipe.send(traceback.format_exc())
