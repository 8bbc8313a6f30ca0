"""How long and how often cases are tried, and what a process that tries them leaves behind when it ends."""

from types import SimpleNamespace

import pytest

from pytrtplugins.check import steps
from pytrtplugins.check.cases import Case
from pytrtplugins.check.steps import Step, StepRunner, _Note, _Noting
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType

CASE = Case(Reorg(stride=2), ((1, 4, 2, 2),), (DType.FLOAT32,))


def test_the_note_of_a_case_has_room_for_long_fields():
    note, case = _Note(), [1, 2, "x" * 1_000_000]
    note.write(case)
    assert note.read() == case
    note.write(None)
    assert note.read() is None


@pytest.mark.parametrize(
    ("detail", "time_limit", "patience", "most", "limits"),
    [
        ("wrong", 30, 1, 80, (30, 80)),
        ("wrong", 30, 20, 7, (600, 7)),
        ("hang: still running", 30, 20, 80, (2, 10)),
        ("hang: still running", 1, 20, 3, (1, 3)),
        ("hang: silent", 30, 1, 80, (2, 1)),
        ("hang: silent", 30, 1, 0, (2, 0)),
    ],
)
def test_few_smaller_cases_are_tried_where_each_may_take_its_whole_time(detail, time_limit, patience, most, limits):
    step = Step("dims", lambda case: "", (), max_attempts=most, patience=patience)
    assert StepRunner(CASE.plugin, time_limit)._limits(step, detail) == limits


def test_a_search_gives_a_sign_of_life_each_quarter_of_its_time(monkeypatch):
    clock, signs = [100.0], list[str]()
    monkeypatch.setattr(steps.time, "monotonic", lambda: clock[0])
    runner = SimpleNamespace(base=CASE.plugin, time_limit=8)
    trial = _Noting(runner, _Note(), lambda message: signs.append("sent"), lambda: signs.append("extended"))
    counts = []
    for clock[0] in (100.0, 101.5, 102.0, 102.5, 104.5, 104.75):
        trial.note(CASE)
        counts.append(len(signs))
    assert counts == [2, 2, 2, 4, 4, 6]


def test_a_step_is_skipped_where_one_that_it_needs_failed_and_says_what_it_was_tried_on():
    runner = StepRunner(CASE.plugin, 30)
    runner._apart = False
    tried = Step("formats", lambda case: "", [CASE] * 3)
    failing = Step("dims", lambda case: "wrong dims", [CASE], max_attempts=0)
    runner.take([failing, tried, Step("dtypes", lambda case: "", [CASE], needs=("formats", "dims"))])
    entries = runner.entries
    assert [(entry.ok, entry.skipped) for entry in entries.values()] == [(False, False), (True, False), (True, True)]
    assert entries["dims"].detail == f"{CASE}: wrong dims"
    assert entries["dtypes"].detail == "needs 'dims', which failed"
