"""The command ``pytrt pipeline report``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ...cli.shared.option import argument, option
from ...cli.shared.results import Result
from ...errors import UsageError
from ...utils.atomic import check_target
from ...utils.inside import list_inside
from ...utils.text_formats import shorten
from ..pipeline.record import RunRecord, run_ids, run_path
from ..pipeline.report import write_report
from .pipeline import command

__all__ = ["WrittenReport"]

_PIPELINES = Path(".pytrt/pipelines")


@dataclass(frozen=True)
class WrittenReport:
    """The report that was written.

    Attributes:
        file: Its path.
        pipeline: Name of the pipeline.
        run: Id of the run.
        state: How far the run came.
    """

    file: str
    pipeline: str
    run: str
    state: str


@command.command("report")  # type: ignore[untyped-decorator]
def report(
    run: Annotated[str | None, argument("[RUN]", "Id of a run, or a prefix of it; default: the last run.")] = None,
    output: Annotated[Path, option("FILE.html", "Write to this file.", "--output", "-o")] = Path("report.html"),
    pipeline: Annotated[str | None, option("NAME", "Name of the pipeline; default: the one that ran last.")] = None,
    against: Annotated[
        str | None, option("RUN", "Run to compare with; default: the last finished one before it.")
    ] = None,
    folder: Annotated[Path, option("DIR", "The folder that contains .pytrt.")] = Path(),
) -> Result[WrittenReport]:
    """Write what a run of a pipeline did, as one HTML file.

    It has the steps with their times, what was reused, figures beside those of the last run and over the last runs, parameters that have
    changed, the end of the logs of steps that failed, versions and hardware.

    Examples: pytrt pipeline report

    pytrt pipeline report 20261123T1536 -o report.html --against 20261122T0300
    """
    check_target(output, "output", (".html",))
    place, name = _find(folder / _PIPELINES, pipeline, run)
    record = RunRecord.load(run_path(place, name), within=place)
    beside = None
    if against is not None:
        other = _find(folder / _PIPELINES, place.name, against)[1]
        beside = RunRecord.load(run_path(place, other), within=place)
    write_report(record, place, output, against=beside)
    return Result(WrittenReport(str(output), record.pipeline, record.id, record.state), _print)


def _find(root: Path, pipeline: str | None, run: str | None) -> tuple[Path, str]:
    """The folder of a pipeline, and the id of a run: the last one whose id begins so."""
    names: dict[str, bool] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = list_inside(root, within=root.parent)
    folders = [
        root / pipeline_name
        for pipeline_name, is_folder in names.items()
        if is_folder and pipeline in (None, pipeline_name)
    ]
    runs = [(name, pipeline_name) for pipeline_name in folders for name in run_ids(pipeline_name)]
    matches = [pipeline_name for pipeline_name in runs if pipeline_name[0].startswith(run or "")]
    if not matches:
        what = f"run {shorten(run)}" if run else "run"
        of = f" of pipeline {shorten(pipeline)}" if pipeline else ""
        last = f" The last ones: {', '.join(name for name, _ in sorted(runs)[-3:])}." if runs else ""
        raise UsageError(f"{root} has no {what}{of}.{last}\nDo: pytrt pipeline run pipeline.yaml")
    name, place = max(matches)
    return place, name


def _print(report: WrittenReport) -> None:
    print(f"{report.file}: run {report.run} of {report.pipeline}, {report.state}")
