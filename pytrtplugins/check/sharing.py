"""Rules about state that a plugin keeps between runs, shares between threads, or finds in inputs that are one array."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from ..plugin.base import Plugin
from ..plugin.policy import has_enqueue
from ..plugin.runner import PluginRunner, host_workspace
from .cases import Case, outputs_of
from .compare import differences
from .enqueue import Setting, defects_only, poisoned_array, run_enqueue
from .formats import accepted_cases
from .shared_dims import inputs_that_share, with_axis

__all__ = ["changing_dims", "empty_batch", "kept_inputs", "one_array_twice", "repeated_runs", "two_threads"]

_SHARED = "state shared between contexts"
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
    """One context gives the same results in its first, second and third run, with other inputs between them."""
    expected = [run_enqueue(case, other=other).outputs for other in (0, 1)]
    with case.runner() as runner:
        for number, (other, pattern) in enumerate(((0, 0xFF), (1, 0x4B), (0, 0xC3))):
            outputs = run_enqueue(case, Setting(pattern=pattern), other, runner).outputs
            wrong = differences(outputs, expected[other])
            if wrong:
                return f"state kept between runs: run {number + 1} of a context gives something else than a new one: {wrong}"
    return ""


@defects_only
def kept_inputs(case: Case) -> str:
    """A run reads its own inputs, not the arrays of an earlier run or their values."""
    for name, prepared in (("compute", _compute_function), ("enqueue", _enqueue_function)):
        if name == "enqueue" and not has_enqueue(type(case.plugin)):
            continue
        with prepared(case) as run:
            expected = [run(case.inputs(other)) for other in (0, 1)]
        with prepared(case) as run:
            arrays = case.inputs()
            run(arrays)
            for array, value in zip(arrays, case.inputs(1), strict=True):
                array[...] = value
            if wrong := differences(run(arrays), expected[1]):
                return f"keeps an input: {name} on the same arrays with other values does not see these: {wrong}"
            for array in arrays:
                array[...] = poisoned_array((), array.dtype, 0)
            if wrong := differences(run(case.inputs()), expected[0]):
                return (
                    f"keeps an input: {name} reads arrays of an earlier run, which hold something else by then: {wrong}"
                )
    return ""


@contextlib.contextmanager
def _compute_function(case: Case) -> Iterator[Callable[[list[Any]], list[Any]]]:
    plugin = case.plugin.clone()
    yield lambda arrays: [np.array(array) for array in outputs_of(plugin, arrays)]


@contextlib.contextmanager
def _enqueue_function(case: Case) -> Iterator[Callable[[list[Any]], list[Any]]]:
    with case.runner(allocate=host_workspace) as runner:

        def run(arrays: list[Any]) -> list[Any]:
            outputs = [poisoned_array(desc.dims, desc.dtype.numpy, 0) for desc in case.descs()[1]]
            runner.enqueue(arrays, outputs)
            return outputs

        yield run


@defects_only
def changing_dims(case: Case) -> str:
    """One context gives correct results for a batch, a larger batch, and the first again; another context does not change them.

    The same holds for other scales of a plugin that requantizes.
    """
    return _other_batch(case) or _other_scales(case)


def _other_batch(case: Case) -> str:
    larger = _with_batch(case, int(case.dims[0][0]) + 1) if case.dims[0] else None
    if larger is None:
        return ""
    try:
        expected = {tested.dims: run_enqueue(tested).outputs for tested in (case, larger)}
    except Exception:  # other rules report it
        return ""
    with case.runner() as runner:
        for tested in (case, larger, case):
            wrong = _difference(tested, runner, expected[tested.dims], tested.descs())
            if wrong:
                others = _input_text(larger if tested == case else case)
                return f"state kept from other dims: a context that also ran {others} gives something else: {wrong}"
    with case.runner() as runner, larger.runner():
        wrong = _difference(case, runner, expected[case.dims])
    return (
        wrong
        and f"{_SHARED}: a context gives something else after another one was configured for {_input_text(larger)}: {wrong}"
    )


def _other_scales(case: Case) -> str:
    """The same rule for int8 codes: with the scales of the case, and with scales twice as large."""
    codes = (
        next((accepted for accepted in accepted_cases(case) if accepted.requantizes), None)
        if case.plugin.int8 == "requantize"
        else None
    )
    if codes is None:
        return ""
    descs = codes.descs()
    doubled = tuple([replace(desc, scale=desc.scale and 2 * desc.scale) for desc in some] for some in descs)
    expected = []
    try:
        for accepted in (descs, doubled):
            with codes.runner(accepted) as runner:
                expected.append(run_enqueue(codes, runner=runner).outputs)
    except Exception:  # other rules report it
        return ""
    with codes.runner(descs) as runner, codes.runner(doubled):
        if wrong := _difference(codes, runner, expected[0]):
            return (
                f"{_SHARED}: a context gives something else after another one was configured for other scales: {wrong}"
            )
        wrong = _difference(codes, runner, expected[1], doubled)
    return wrong and f"state kept from other scales: a context that had others before gives something else: {wrong}"


def _difference(case: Case, runner: PluginRunner, expected: list[Any], descs: Any = None) -> str:
    """How a run of a context differs from that of a new one, or the error in which it ends; ``descs``: what it is configured for before."""
    try:
        if descs:
            runner.prepare(*descs)
        return differences(run_enqueue(case, runner=runner).outputs, expected)
    except Exception as error:  # a new context raises none
        return str(error) if "defect" in getattr(error, "facts", {}) else f"{type(error).__name__}: {error}"


@defects_only
def empty_batch(case: Case) -> str:
    """A batch of no images ends in empty results or an exception, never in an access outside of arrays or a crash."""
    empty = _with_batch(case, 0) if case.dims[0] and len(case.dims[0]) >= 2 else None
    if empty is not None:
        with contextlib.suppress(Exception):
            outputs_of(empty.plugin, empty.inputs())
        run_enqueue(empty)
    return ""


def one_array_twice(case: Case) -> str:
    """Inputs of the same dims and type may be one array: results are those of two arrays with the same values."""
    groups = {(dims, dtype): index for index, (dims, dtype) in enumerate(zip(case.dims, case.dtypes, strict=True))}
    if len(groups) == len(case.dims):
        return ""
    arrays = case.inputs()
    places = [groups[pair] for pair in zip(case.dims, case.dtypes, strict=True)]
    expected = [np.array(array) for array in outputs_of(case.plugin, [arrays[place].copy() for place in places])]
    for name, run in (("compute", outputs_of), ("enqueue", _run_enqueue)):
        if name == "enqueue" and not has_enqueue(type(case.plugin)):
            continue
        wrong = differences(run(case.plugin, [arrays[place] for place in places]), expected)
        if wrong:
            return f"alias of two inputs: {name} on one array given twice differs from two arrays of the same values: {wrong}"
    return ""


def _run_enqueue(plugin: Plugin, arrays: list[Any]) -> list[Any]:
    """Outputs of enqueue on plain arrays."""
    with contextlib.closing(PluginRunner(plugin.clone())) as runner:
        return [np.array(array) for array in runner.run(arrays)]


def _with_batch(case: Case, count: int) -> Case | None:
    """The case with ``count`` images; None if the first axis is no batch, or the plugin refuses the dims."""
    group = inputs_that_share(case.in_float(), 0)
    if not group:
        return None
    try:
        other = replace(case, dims=with_axis(case.dims, 0, count, group))  # type: ignore[arg-type]
        return other if all(dims and dims[0] == count for dims in case.plugin.all_output_dims(other.dims)) else None
    except Exception:
        return None


def _input_text(case: Case) -> str:
    return ", ".join(f"{dtype}{list(dims)}" for dims, dtype in zip(case.dims, case.dtypes, strict=True))


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
            results = _Turns(rhythm).run(work)
            for other in (0, 1):
                if isinstance(results[other], Exception):
                    return (
                        f"not thread-safe: two threads at once end in {type(results[other]).__name__}: {results[other]}"
                    )
                wrong = differences(results[other], expected[other])
                if wrong:
                    return f"not thread-safe: {name} of two clones in two threads at once gives something else: {wrong}"
    return ""


def _interruptions(work: Callable[[int], Any]) -> list[tuple[int, int]]:
    """Schedules in which the first thread runs some lines, then the second all of its lines, then the first the rest."""
    turns = _Turns((_ALL_LINES, _ALL_LINES))
    turns.run(work)
    count = turns.lines[0]
    return [(line, _ALL_LINES) for line in range(1, count, max(1, count // _INTERRUPTIONS))]


def _is_plugin_file(file: str) -> bool:
    """Whether threads switch in a file: lines of other files are not the plugin's, and hold locks that the other thread needs."""
    if file.startswith("<frozen "):  # an import holds a lock for its module
        return False
    if file.startswith(_LIBRARIES):
        return file.startswith(_LAYERS)
    return not file.startswith(_STANDARD_LIBRARY) or file.removeprefix(_STANDARD_LIBRARY).startswith(_INSTALLED)


class _Turns:
    """Two threads that run alternately, a number of Python lines each; a thread that waits for a lock is skipped.

    Attributes:
        lines: How many lines each thread has run.
    """

    def __init__(self, rhythm: tuple[int, int]) -> None:
        self._rhythm, self._turn, self._left = rhythm, 0, rhythm[0]
        self._changed = threading.Condition()
        self._done = [False, False]
        self.lines = [0, 0]

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        results: list[Any] = [None, None]

        def body(me: int) -> None:
            sys.settrace(lambda frame, event, argument: self._trace(me, frame, event))
            try:
                results[me] = work(me)
            except Exception as error:  # the rule reports it
                results[me] = error
            finally:
                sys.settrace(None)
                self._done[me] = True
                self._pass(1 - me)

        threads = [threading.Thread(target=body, args=(me,), daemon=True) for me in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def _trace(self, me: int, frame: FrameType, event: str) -> Any:
        if not _is_plugin_file(frame.f_code.co_filename):
            return None
        if event == "line":
            self._wait(me)
        return lambda frame, event, argument: self._trace(me, frame, event)

    def _wait(self, me: int) -> None:
        """Wait for this thread's turn; take the turn if the other thread does not move."""
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
