"""The rules about state that plugins keep between two runs, or share between two threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from ..plugin.policy import has_enqueue
from .cases import Case, outputs_of
from .compare import differences
from .enqueue import Setting, defects_only, run_enqueue

__all__ = ["repeated_runs", "two_threads"]

_ROUNDS = ((1, 1), (1, 2), (3, 1), (2, 3))
_INTERRUPTIONS = 16
_ALL_LINES = sys.maxsize
_WAIT_S = 0.5
_PACKAGE = Path(__file__).parent.parent
_LAYERS = f"{_PACKAGE / 'layers'}{os.sep}"
_LIBRARIES = (f"{_PACKAGE}{os.sep}", f"{Path(np.__file__).parent}{os.sep}")
_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = ("site-packages", "dist-packages")


@defects_only
def repeated_runs(case: Case) -> str:
    """One context gives the same results in its first, second and third run, with other inputs between."""
    expected = [run_enqueue(case, other=other).outputs for other in (0, 1)]
    with case.runner() as runner:
        for number, (other, pattern) in enumerate(((0, 0xFF), (1, 0x4B), (0, 0xC3))):
            found = run_enqueue(case, Setting(pattern=pattern), other, runner).outputs
            wrong = differences(found, expected[other])
            if wrong:
                return f"state kept between runs: run {number + 1} of a context gives something else than a new one: {wrong}"
    return ""


def two_threads(case: Case) -> str:
    """Two clones that run at once, in two threads, give what each gives alone.

    The threads take turns line by line, in several rhythms. Then the first is interrupted once by the whole run of the second,
    after each of its lines, or after every n-th of many. So what the clones share shows.
    """
    works: list[tuple[str, Callable[[int], list[Any]]]] = [
        ("compute", lambda other: [np.array(array) for array in outputs_of(case.plugin.clone(), case.inputs(other))])
    ]
    if has_enqueue(type(case.plugin)):
        works.append(("enqueue", lambda other: run_enqueue(case, other=other).outputs))
    for name, work in works:
        expected = [work(other) for other in (0, 1)]
        for rhythm in (*_ROUNDS, *_interruptions(work)):
            found = _Turns(rhythm).run(work)
            for other in (0, 1):
                if isinstance(found[other], Exception):
                    return f"not thread-safe: two threads at once end in {type(found[other]).__name__}: {found[other]}"
                wrong = differences(found[other], expected[other])
                if wrong:
                    return f"not thread-safe: {name} of two clones in two threads at once gives something else: {wrong}"
    return ""


def _interruptions(work: Callable[[int], Any]) -> list[tuple[int, int]]:
    """Rhythms in which the first thread runs some lines, the second all of its own, and the first the rest."""
    turns = _Turns((_ALL_LINES, _ALL_LINES))
    turns.run(work)
    count = turns.lines[0]
    return [(line, _ALL_LINES) for line in range(1, count, max(1, count // _INTERRUPTIONS))]


def _may_be_the_plugins(file: str) -> bool:
    """Whether threads take turns in a file: elsewhere the lines say nothing about the plugin, and hold locks for which the other waits."""
    if file.startswith("<frozen "):  # an import holds a lock for its module
        return False
    if file.startswith(_LIBRARIES):
        return file.startswith(_LAYERS)
    return not file.startswith(_STANDARD_LIBRARY) or file.removeprefix(_STANDARD_LIBRARY).startswith(_INSTALLED)


class _Turns:
    """Two threads of which one runs at a time, for so many lines of Python each; a thread that waits for a lock is passed over.

    Attributes:
        lines: How many lines each thread has run.
    """

    def __init__(self, rhythm: tuple[int, int]) -> None:
        self._rhythm, self._turn, self._left = rhythm, 0, rhythm[0]
        self._changed = threading.Condition()
        self._done = [False, False]
        self.lines = [0, 0]

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = [None, None]

        def body(me: int) -> None:
            sys.settrace(lambda frame, event, argument: self._trace(me, frame, event))
            try:
                found[me] = work(me)
            except Exception as error:  # the rule reports it
                found[me] = error
            finally:
                sys.settrace(None)
                self._done[me] = True
                self._pass(1 - me)

        threads = [threading.Thread(target=body, args=(me,), daemon=True) for me in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def _trace(self, me: int, frame: FrameType, event: str) -> Any:
        if not _may_be_the_plugins(frame.f_code.co_filename):
            return None
        if event == "line":
            self._wait(me)
        return lambda frame, event, argument: self._trace(me, frame, event)

    def _wait(self, me: int) -> None:
        """Go on only where it is this thread's turn; take the turn where the other does not move."""
        other = 1 - me
        with self._changed:
            while self._turn != me and not self._done[other]:
                before = self.lines[other]
                if not self._changed.wait_for(lambda: self._turn == me, _WAIT_S) and self.lines[other] == before:
                    self._turn, self._left = me, self._rhythm[me]
            self.lines[me] += 1
            self._left -= 1
            if self._left <= 0 and not self._done[other]:
                self._pass(other)

    def _pass(self, other: int) -> None:
        with self._changed:
            self._turn, self._left = other, self._rhythm[other]
            self._changed.notify_all()
