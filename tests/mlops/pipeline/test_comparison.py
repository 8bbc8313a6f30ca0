"""What differs between runs, and which earlier run stands beside."""

import pytest

from pytrtplugins.mlops.pipeline.comparison import Change, compare, earlier_runs
from pytrtplugins.mlops.pipeline.record import RunRecord, StepRecord


def run(number, state="done", **figures):
    """A run of second ``number``, whose one step has these figures."""
    return RunRecord(
        f"20261123T1000{number:02}.000Z-0000aa", "p", state, float(number), steps=(StepRecord("a", figures=figures),)
    )


def test_figures_of_both_runs_are_compared():
    found = compare(run(2, mAP=0.5, new=1.0), run(1, mAP=0.25, old=2.0))
    assert found.before == run(1).id
    assert found.figures == (Change("a.mAP", 0.25, 0.5), Change("a.new", None, 1.0), Change("a.old", 2.0, None))
    assert all(each.changed for each in found.figures)


def test_without_an_earlier_run_there_is_nothing_before():
    found = compare(run(1, mAP=0.5), None)
    assert (found.before, found.figures) == (None, (Change("a.mAP", None, 0.5),))


@pytest.mark.parametrize(
    ("before", "now", "changed"), [(1, 1, False), (1, True, True), ("1", 1, True), (None, None, False)]
)
def test_a_value_of_another_type_is_another(before, now, changed):
    assert Change("x", before, now).changed is changed


def test_earlier_runs_are_those_that_came_to_their_end_in_their_order(tmp_path):
    for number, state in enumerate(("done", "failed", "done", "running", "done", "waiting for approval", "done")):
        run(number, state).save(tmp_path)
    run(2).path(tmp_path).write_text("damaged")
    assert [each.begin for each in earlier_runs(run(6), tmp_path)] == [0, 4]
    assert [each.begin for each in earlier_runs(run(6), tmp_path, most=1)] == [4]
    assert earlier_runs(run(0), tmp_path) == []
