"""Records of runs survive writing and reading; damaged ones are refused with the name of what is wrong."""

import json
import math
from datetime import datetime

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.mlops.pipeline import record
from pytrtplugins.mlops.pipeline.record import RunRecord, StepRecord, new_run_id, run_ids

BUILD = StepRecord(
    "build-int8", "failed", False, 1.5, 2.5, 1.0, 3, "ab" * 32, {"val.mAP50": 0.5}, "logs/build.txt", "why", ("shards",)
)
RUN = RunRecord(
    "20261123T153605.007Z-0012ab",
    "animals",
    "failed",
    1.25,
    3.5,
    (StepRecord("shards", "done", reused=True, seconds=4), BUILD),
    {"size": "smoke", "images": 20, "letterbox": True, "threshold": 0.5},
    {"processor": "one"},
    ("pytrt", "pipeline", "run"),
)


def damaged(tmp_path, change):
    """The path of a record whose JSON a function has changed."""
    path = RUN.save(tmp_path)
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    return path


def test_a_record_survives_writing_and_reading(tmp_path):
    path = RUN.save(tmp_path)
    assert path == tmp_path / "runs" / f"{RUN.id}.json"
    assert RunRecord.load(path) == RUN


def test_a_figure_that_is_not_finite_survives(tmp_path):
    run = RunRecord(RUN.id, "p", "done", 0.0, steps=(StepRecord("a", figures={"loss": math.nan, "x": math.inf}),))
    found = RunRecord.load(run.save(tmp_path)).figures
    assert math.isnan(found["a.loss"])
    assert found["a.x"] == math.inf


def test_figures_of_all_steps_have_their_steps_names():
    assert RUN.figures == {"build-int8.val.mAP50": 0.5}


def test_runs_are_listed_from_the_first_to_the_last(tmp_path):
    ids = [f"2026112{day}T153605.007Z-0012ab" for day in (3, 1, 2)]
    for each in (*ids, new_run_id()):
        RunRecord(each, "p", "done", 0.0).save(tmp_path)
    (tmp_path / "runs" / "notes.json").write_text("{}")
    assert run_ids(tmp_path)[:3] == sorted(ids)
    assert len(run_ids(tmp_path)) == 4
    assert run_ids(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found.update(format=2), r"found format 2(?s:.*)Do: "),
        (lambda found: found.pop("begin"), "'begin' is missing"),
        (lambda found: found.update(colour="red"), "'colour' is not known"),
        (lambda found: found.update(state="gone"), "state: expected 'running' or .* found 'gone'"),
        (lambda found: found.update(id="../x"), "id: expected the id of a run, found '../x'"),
        (lambda found: found.update(parameters={"size": [1]}), "parameters: expected .* found"),
        (lambda found: found.update(machine=[]), r"machine: expected an object, found \[\]"),
        (lambda found: found.update(steps={}), "steps: expected a list"),
        (lambda found: found["steps"].append(3), r"steps\[2\].*expected an object, found 3"),
        (
            lambda found: found["steps"][1].update(attempts="3"),
            r"steps\[1\].attempts: expected a whole number, found '3'",
        ),
        (
            lambda found: found["steps"][1].update(figures={"mAP": "x"}),
            r"steps\[1\].figures: expected an object of a number",
        ),
    ],
)
def test_a_damaged_record_is_refused_by_what_is_wrong(tmp_path, change, said):
    path = damaged(tmp_path, change)
    with pytest.raises(FormatError, match=said) as caught:
        RunRecord.load(path)
    assert caught.value.path == path


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[1]"])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(FormatError):
        RunRecord.load(path)


def test_the_id_of_a_run_has_the_time_to_the_millisecond(monkeypatch):
    class Now(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime(2026, 11, 23, 15, 36, 5, 7_999, zone)

    monkeypatch.setattr(record, "datetime", Now)
    monkeypatch.setattr(record.secrets, "token_hex", lambda count: "0" * 2 * count)
    assert new_run_id() == "20261123T153605.007Z-000000"
