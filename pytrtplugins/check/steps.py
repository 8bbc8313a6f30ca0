"""Run rules on cases, in a separate process if the platform allows it; every outcome becomes an entry of the report."""

from __future__ import annotations

import itertools
import json
import mmap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from ..errors import MissingExtraError, UnavailableError
from ..plugin.base import Plugin
from ..tensor import DType
from ..utils.listing import count_text
from . import isolate
from .cases import Case, outputs_of, shrink
from .report import Entry, Remark
from .samples import Samples
from .search import Trial

__all__ = ["Rule", "Search", "Step", "StepRunner"]

Rule = Callable[[Case], str]
Search = Callable[[Trial], tuple[list[Case], str]]
"""Finds cases, with what tries one; gives them and a remark."""
_NOTE_BYTES = 1 << 20
_SHORT_S = 2.0
_PATIENCE_S = 3.0  # beyond the time limit, which the process itself keeps
_QUIET_S = 0.25  # between two messages of a process that tries cases
_HANGS, _SILENT_HANGS = 10, 1


@dataclass(frozen=True)
class Step:
    """One rule, and the cases to run it on.

    Attributes:
        name: Of the entry.
        rule: Gives what is wrong, a `Remark`, or an empty text.
        cases: What to try it on, smallest first.
        needs: Names of entries without which it says nothing new.
        max_attempts: How many smaller cases to try where it fails.
        apart: Whether it runs in a process of its own.
        skip: Why it is not tried.
        patience: How many times the time limit it may take.
        remark: What is to be said of it where nothing is wrong.
    """

    name: str
    rule: Rule
    cases: Sequence[Case]
    needs: tuple[str, ...] = ()
    max_attempts: int = 80
    apart: bool = True
    skip: str = ""
    patience: float = 1.0
    remark: str = ""


class StepRunner:
    """Runs the steps of one plugin in order, with a time limit per rule and case, and the caller's own inputs."""

    def __init__(self, base: Plugin, time_limit: float, given: tuple[Samples | None, ...] = ()) -> None:
        self.base, self.time_limit, self.given = base, time_limit, given
        self.entries: dict[str, Entry] = {}
        self._apart = not isolate.unavailable_reason(base)
        self._note = _Note()  # in a step: the numbers of the step and of its case, and the dims of the case

    def find(self, search: Search, steps: Callable[[list[Case]], Iterable[Step]]) -> tuple[list[Case], str]:
        """Let ``search`` find cases, then run the steps that ``steps`` makes of them.

        What it does not survive becomes the entry ``compute``. Cases are found, and steps taken,
        in one process: to fork one from a large process takes longer than most checks.
        """
        if not self._apart:
            cases, remark = search(Trial())
            self.take(steps(cases))
            return cases, remark
        answer: list[Any] = []

        def work(send: isolate.Send) -> None:
            try:
                with isolate.limited(self.time_limit) as extend:
                    cases, remark = search(_Noting(self, self._note, send, extend))
            except isolate.TimeUpError as error:
                send(["hang", str(error)])
                return
            encoded = [case.as_json(self.base) for case in cases]
            self._note.write(None)
            send(["found", encoded, remark])
            self._work(self._together(steps(self._decode_cases(encoded))), send)

        def receive(message: Any) -> None:
            if answer[:1] == ["found"]:
                self._receive(message)
            else:
                answer[:] = message

        end = isolate.run(work, receive, self.time_limit + _PATIENCE_S)
        if answer[:1] != ["found"]:
            count, tried = self.base.num_inputs or 1, self._note.read()
            first = Case(self.base, ((1,),) * count, (DType.FLOAT32,) * count)
            case = Case.from_json(tried, self.base, self.given) if tried else first
            step = Step("compute", _survives, [case])
            self.entries["compute"] = self._entry_after_crash(step, 0, step.cases[0], end or answer[1])
            return [], ""
        cases = self._decode_cases(answer[1])
        remaining = list(steps(cases))
        if end and self._note.read():
            self._blame(remaining, end)
        self.take(step for step in remaining if step.name not in self.entries)
        return cases, answer[2]

    def take(self, steps: Iterable[Step]) -> None:
        """Run the steps; each adds an entry."""
        remaining = list(steps)
        while remaining:
            if apart := self._together(remaining):
                self._note.write(None)
                silence = self.time_limit * max(step.patience for step in apart) + _PATIENCE_S
                if end := isolate.run(partial(self._work, apart), self._receive, silence):
                    self._blame(apart, end)
                remaining = [step for step in remaining if step.name not in self.entries]
            else:
                step = remaining.pop(0)
                self.entries[step.name] = self._entry(step, lambda number, case: None)

    def _together(self, steps: Iterable[Step]) -> list[Step]:
        """The first steps, as many as may run together in one process."""
        return [*itertools.takewhile(lambda step: step.apart and self._apart, steps)]

    def _work(self, steps: Sequence[Step], send: isolate.Send) -> None:
        """Run steps in a separate process, which reports to the caller's `_receive`."""
        next_message = 0.0
        for number, step in enumerate(steps):

            def trying(case_number: int, case: Case, number: int = number) -> None:
                nonlocal next_message
                self._note.write([number, case_number, case.dims])
                if time.monotonic() > next_message:
                    next_message = time.monotonic() + _QUIET_S
                    send([])

            self.entries[step.name] = self._entry(step, trying)
            send(["entry", asdict(self.entries[step.name])])

    def _receive(self, message: Any) -> None:
        """Handle a message of the process: an entry of the report, or an empty sign of life."""
        if message:
            entry = Entry(**message[1])
            self.entries[entry.name] = entry

    def _blame(self, steps: Sequence[Step], end: str) -> None:
        """Add the entry of the step that ended its process."""
        number, case_number, dims = self._note.read()
        step = steps[number]
        case = replace(step.cases[case_number], dims=tuple(map(tuple, dims)))
        self.entries[step.name] = self._entry_after_crash(step, case_number, case, end)

    def _entry(self, step: Step, trying: Callable[[int, Case], None]) -> Entry:
        if step.skip:
            return Entry(step.name, True, step.skip, skipped=True)
        broken = [need for need in step.needs if need in self.entries and not self.entries[need].ok]
        if broken:
            return Entry(step.name, True, f"needs {broken[0]!r}, which failed", skipped=True)
        remark = ""
        try:
            for number, case in enumerate(step.cases):
                trying(number, case)
                detail = self._attempt(step.rule, case, self.time_limit * step.patience)
                if isinstance(detail, Remark):
                    remark = remark or f"{case}: {detail}"
                if not detail or isinstance(detail, Remark):
                    continue
                limit, max_attempts = self._limits(step, detail)

                def first_failing(cases: list[Case], number: int = number, limit: float = limit) -> Any:
                    for candidate in cases:
                        trying(number, candidate)
                        if problem := self._problem_of(step.rule, candidate, limit):
                            return candidate, problem
                    return None

                smallest, detail = shrink(case, detail, first_failing, max_attempts)
                return _failure_entry(step, number, smallest, detail)
        except (MissingExtraError, UnavailableError) as error:
            return Entry(step.name, True, str(error), skipped=True)
        return Entry(step.name, True, remark or step.remark, _summary(step.cases), warning=bool(remark))

    def _entry_after_crash(self, step: Step, number: int, case: Case, detail: str) -> Entry:
        """The entry of a step whose process ended or hung: smaller cases run in new processes."""
        limit, max_attempts = self._limits(step, detail)

        def first_failing(cases: list[Case]) -> tuple[Case, str] | None:
            now: list[Any] = [0, ""]

            def work(send: isolate.Send) -> None:
                for index, candidate in enumerate(cases):
                    send([index, ""])
                    if problem := self._problem_of(step.rule, candidate, limit):
                        send([index, problem])
                        return

            def receive(message: Any) -> None:
                now[:] = message

            end = isolate.run(work, receive, limit + _PATIENCE_S)
            return (cases[now[0]], now[1] or end) if now[1] or end else None

        return _failure_entry(step, number, *shrink(case, detail, first_failing, max_attempts))

    def _limits(self, step: Step, detail: str) -> tuple[float, int]:
        """Seconds per smaller case, and the number of cases to try: few if each may take its whole time."""
        if not detail.startswith("hang"):
            return self.time_limit * step.patience, step.max_attempts
        hangs = _HANGS if "still running" in detail else _SILENT_HANGS
        return min(self.time_limit, _SHORT_S), min(step.max_attempts, hangs)

    def _attempt(self, rule: Rule, case: Case, limit: float) -> str:
        try:
            with isolate.limited(limit):
                return rule(case)
        except (MissingExtraError, UnavailableError):
            raise
        except isolate.TimeUpError as error:
            return str(error)
        except Exception as error:  # a user's code may raise anything; the report shows it
            return str(error) if "defect" in getattr(error, "facts", {}) else f"{type(error).__name__}: {error}"

    def _problem_of(self, rule: Rule, case: Case, limit: float) -> str:
        """The problem of a case that was made smaller; empty if there is none or the plugin refuses its dims."""
        try:
            with isolate.limited(limit):
                case.plugin.all_output_dims(case.dims)
                _check_compute(case)
        except isolate.TimeUpError as error:
            return str(error)
        except Exception:
            return ""
        detail = self._attempt(rule, case, limit)
        return "" if isinstance(detail, Remark) else detail

    def _decode_cases(self, cases: Iterable[Any]) -> list[Case]:
        plugins: dict[str | None, Plugin] = {}
        decoded = []
        for data in cases:
            case = Case.from_json(data, self.base, self.given)
            plugin = plugins.setdefault(data[0], case.plugin)
            decoded.append(replace(case, plugin=plugin))
        return decoded


class _Note:
    """The current case of a process, as JSON in shared memory, for when the process ends: one message per case would be slower."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE_BYTES)

    def write(self, value: Any) -> None:
        data = json.dumps(value).encode() + b"\0"
        self._memory[: len(data)] = data

    def read(self) -> Any:
        return json.loads(self._memory[: self._memory.find(b"\0")] or "null")


class _Noting(Trial):
    """Writes down each case that is tried, and sends the caller a sign of life from time to time."""

    def __init__(self, steps: StepRunner, note: _Note, send: isolate.Send, extend: Callable[[], None]) -> None:
        self._steps, self._note, self._send, self._extend = steps, note, send, extend
        self._heard = 0.0

    def note(self, case: Case) -> None:
        self._note.write(case.as_json(self._steps.base))
        if time.monotonic() > self._heard + self._steps.time_limit / 4:
            self._heard = time.monotonic()
            self._send([])
            self._extend()

    def accepts(self, case: Case) -> None:
        try:
            _check_compute(case)
        except MemoryError as error:  # no refusal: it would be asked for thousands of shapes
            raise isolate.MemoryUpError(f"memory: compute takes all that it may take, 4 GiB: {error}") from None


def _check_compute(case: Case) -> None:
    """Run compute on a case; an exception means that the plugin refuses it."""
    outputs_of(case.plugin, case.inputs())


def _survives(case: Case) -> str:
    """The rule that `find` breaks: what compute raises is a refusal, and what ends the process is not."""
    _check_compute(case)
    return ""


def _failure_entry(step: Step, number: int, case: Case, detail: str) -> Entry:
    return Entry(step.name, False, f"{case}: {detail}", f"{number + 1} of {count_text(len(step.cases), 'case')}")


def _summary(cases: Sequence[Case]) -> str:
    plugins = len({repr(case.plugin) for case in cases})
    shapes = list(dict.fromkeys(" ".join("x".join(map(str, shape)) for shape in case.dims) for case in cases))
    if cases[0].role:
        types, layouts = (list(dict.fromkeys(getattr(case, name) for case in cases)) for name in ("dtypes", "layouts"))
        counts = f"{count_text(len(types), 'set')} of types x {count_text(len(layouts), 'layout')} x {count_text(len(shapes), 'shape')}"
        return f"{counts}: {_first_three(list(dict.fromkeys(case.formats for case in cases)))}"
    return f"{count_text(len(cases), 'case')}, {count_text(plugins, 'set')} of field values: {_first_three(shapes)}"


def _first_three(texts: Sequence[str]) -> str:
    return ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")
