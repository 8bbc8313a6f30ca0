"""Targets for pipelines: their files, gates, the figures that gates read, and the records of runs."""

from __future__ import annotations

import json

from pytrtplugins.errors import PipelineError
from pytrtplugins.mlops.pipeline import Gate, Pipeline, RunRecord, write_report
from pytrtplugins.mlops.pipeline.figures import read_figures
from pytrtplugins.mlops.pipeline.folder import step_key
from pytrtplugins.mlops.pipeline.selection import Selection
from tests.fuzz.files import file, folder
from tests.fuzz.registry import TARGETS, target

__all__ = ["GATE_FIGURES"]

GATE_FIGURES = {"int8": {"map50": 0.65, "val.p99_ms": 12.5, "size_mib": 3.0, "x": float("nan")}, "served": {"map50": 0}}
_MOST_PROBLEMS = 101  # one in a line


@target
def pipeline(data: bytes) -> object:
    """A pipeline in YAML: its steps, their order, and what each depends on. Of its errors each is read for itself."""
    try:
        found = Pipeline.load(file(data, "pipeline.yaml"))
    except PipelineError as error:
        raise _longest(error) from error
    place = {step.name: number for number, step in enumerate(found.steps)}
    assert all(place[needed] < place[name] for name, each in found.graph().items() for needed in each)
    assert Selection(until=found.steps[-1].name).of(found)[-1] == found.steps[-1]
    return [json.dumps(step_key(step)) for step in found.steps]


@target
def run_record(data: bytes) -> object:
    """The record of a run, and the report on it."""
    found = RunRecord.load(file(data, "record.json"))
    write_report(found, folder(), folder() / "report.html")
    return found


def _longest(error: PipelineError) -> PipelineError:
    """The longest of the errors that were found in a file."""
    lines = str(error).splitlines()
    assert error.problems
    assert len(lines) <= _MOST_PROBLEMS + 1
    return PipelineError(max(lines, key=len))


TARGETS["gate"] = lambda data: Gate.parse(data.decode("utf-8", "replace")).check(GATE_FIGURES)
TARGETS["figures"] = lambda data: read_figures(file(data, "figures.json"), "figures.json")
