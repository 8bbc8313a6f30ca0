"""Tests that run in a process of their own, which has imported little.

`check_plugin` forks the process that calls it. That of the tests has imported everything: to fork it takes longer than most checks.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.randomness import restart

__all__ = ["in_small_process"]


def in_small_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of a module in the small process, which all these tests share; its arguments are pickled.

    Values that fixtures and other tests keep in modules are not there.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        pipe, _ = _small_process()
        pipe.send((test.__module__, test.__name__, arguments, named))
        if problem := pipe.recv():
            raise AssertionError(problem)

    return run


@functools.cache
def _small_process() -> tuple[Connection, subprocess.Popen[bytes]]:
    """The process, which ends with this one, and a pipe to it; it is none of multiprocessing's children, which tests count and end."""
    ours, theirs = multiprocessing.Pipe()
    command = [sys.executable, "-m", "tests.small_process", str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[1])
    theirs.close()
    return ours, process


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


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
