"""The report of a run: one HTML file without scripts."""

from __future__ import annotations

import html
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ...utils.atomic import write_atomic
from ...utils.files import open_regular
from ...utils.listing import count_text
from ...utils.web_page import html_table, web_page
from .comparison import Change, RunComparison, compare, earlier_runs
from .placeholders import value_text
from .record import RunRecord, Scalar, StepRecord
from .report_charts import figure_chart, seconds_text, step_times

__all__ = ["write_report"]

_LOG_BYTES, _LOG_LINES = 64 << 10, 200  # of the end of a log
_SHOWN = 10  # figures of a step, and charts, before the others are folded
_DIGEST = 12  # hex digits that are shown
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")
"""What a terminal takes for colours, titles and moves."""
_MEANS = {
    "running": "It runs, or it was killed.",
    "done": "All steps are done.",
    "failed": "It stopped at a step that failed.",
    "waiting for approval": "It stopped, and continues after an approval.",
}


def write_report(run: RunRecord, folder: str | Path, path: str | Path, *, against: RunRecord | None = None) -> None:
    """Write the report of a run.

    Args:
        run: What is reported.
        folder: The pipeline's, with the records of other runs and the logs.
        path: The page to write; whole or not at all.
        against: The run whose figures and parameters stand beside; None: the last one before it that came to its end.

    Raises:
        OSError: the page cannot be written.
    """
    folder = Path(folder)
    earlier = earlier_runs(run, folder)
    compared = compare(run, against or (earlier[-1] if earlier else None))
    parts = [
        *_summary(run, compared),
        "<h2>Steps</h2>",
        _steps(run.steps),
        *_gates(run.steps),
        "<h2>Times</h2>",
        step_times(run),
        *_failures(run, folder),
        *_figures(compared),
        *_charts(run, earlier),
        *_changes("Parameters", "parameter", compared.parameters, compared.before),
        *_changes("Versions and hardware", "", compared.machine, compared.before),
    ]
    style = Path(__file__).with_name("report.css").read_text("utf-8")
    write_atomic(path, web_page(f"{run.pipeline}: {run.state}", parts, style=style).encode("utf-8", "replace"))


def _summary(run: RunRecord, compared: RunComparison) -> Iterator[str]:
    """One or two sentences on what ran and what was reused, as HTML."""
    ran = [step for step in run.steps if step.begin is not None and not step.reused]
    reused = [step for step in run.steps if step.reused]
    took = "" if run.end is None else f", took {seconds_text(run.end - run.begin)}"
    yield f'<h1>{html.escape(run.pipeline)} <span class="badge {run.state.split()[0]}">{run.state}</span></h1>'
    saved = f" ({seconds_text(sum(step.seconds for step in reused))} saved)" if reused else ""
    yield (
        f'<p class="lead">{_MEANS[run.state]} {count_text(len(ran), "step")} ran, {len(reused)} '
        f"{'was' if len(reused) == 1 else 'were'} reused{saved}, of {len(run.steps)}.</p>"
    )
    against = f", beside run {html.escape(compared.before)}" if compared.before else ""
    yield f'<p class="muted">Run {html.escape(run.id)}, began {_date(run.begin)}{took}{against}.</p>'
    if run.command:
        yield f"<p><code>{html.escape(shlex.join(run.command))}</code></p>"


def _steps(steps: Sequence[StepRecord]) -> str:
    rows = [
        (
            step.name,
            "reused" if step.reused else step.state,
            seconds_text(step.seconds) if step.begin is not None or step.reused else "",
            step.attempts or "",
            ", ".join(step.after),
            step.digest[:_DIGEST],
            "" if step.state == "done" else step.message.partition("\n")[0],
        )
        for step in steps
    ]
    return html_table(("step", "state", "time", "attempts", "after", "digest of the outputs", "message"), rows, "steps")


def _gates(steps: Sequence[StepRecord]) -> Iterator[str]:
    """Results of the gates that passed; failed ones are among the failures."""
    if rows := [(step.name, step.message) for step in steps if step.state == "done" and step.message]:
        yield "<h2>Gates</h2>"
        yield html_table(("gate", "what it found"), rows, "texts")


def _failures(run: RunRecord, folder: Path) -> Iterator[str]:
    failed = [step for step in run.steps if step.state == "failed"]
    if failed:
        yield "<h2>Failures</h2>"
    for step in failed:
        yield f"<h3>{html.escape(step.name)}</h3><p class=message>{html.escape(step.message or 'It says no reason.')}</p>"
        yield f"<pre>{html.escape(_log(folder, step.log))}</pre>"


def _log(folder: Path, name: str) -> str:
    """The end of a log without terminal control characters; a log outside the folder is not read."""
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        return "There is no log."
    try:
        with open_regular(folder / name, within=folder) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_BYTES))
            data = file.read(_LOG_BYTES)
    except (OSError, ValueError) as error:
        return f"The log cannot be read: {error}"
    lines = _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").split("\n")
    text = "\n".join(line.rsplit("\r", 1)[-1] for line in lines[-_LOG_LINES:])  # a progress bar's last state
    text = "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )
    cut = size > len(data) or len(lines) > _LOG_LINES
    if not text.strip():
        return "The step has printed nothing."
    return f"... (the end of {size:,} bytes in {name})\n{text}" if cut else text


def _figures(compared: RunComparison) -> Iterator[str]:
    """A table for each step; of many figures those that are nested least, and the others where a reader opens them."""
    yield "<h2>Figures</h2>"
    if not compared.figures:
        yield "<p>No step has figures.</p>"
    steps: dict[str, list[Change[float]]] = {}
    for change in compared.figures:
        step, _, name = change.name.partition(".")
        steps.setdefault(step, []).append(replace(change, name=name))
    for step, figures in steps.items():
        ordered = sorted(figures, key=lambda change: change.name.count("."))
        yield f"<h3>{html.escape(step)}</h3>{_figure_table(ordered[:_SHOWN], compared.before)}"
        if folded := ordered[_SHOWN:]:
            changed = sum(map(_has_changed, folded)) if compared.before else 0
            title = f"{len(folded)} more" + (f", of which {changed} changed" if changed else "")
            yield f"<details><summary>{title}</summary>{_figure_table(folded, compared.before)}</details>"


def _figure_table(figures: Sequence[Change[float]], before: str | None) -> str:
    if before is None:
        return html_table(("figure", "this run"), [(change.name, _number(change.now)) for change in figures])
    rows = [(change.name, _number(change.before), _number(change.now), *_difference(change)) for change in figures]
    return html_table(
        ("figure", "before", "this run", "difference", "in %"), rows, marked=list(map(_has_changed, figures))
    )


def _difference(change: Change[float]) -> tuple[str, str]:
    if change.before is None or change.now is None:
        return ("new" if change.before is None else "gone", "")
    difference = change.now - change.before
    if not math.isfinite(difference) or not difference:
        return ("" if difference else "0", "")
    part = f"{100 * difference / abs(change.before):+.2f}%" if change.before else ""
    return f"{difference:+.6g}", part


def _charts(run: RunRecord, earlier: Sequence[RunRecord]) -> Iterator[str]:
    runs = [*(record.figures for record in earlier), run.figures]
    names = sorted(run.figures, key=lambda name: name.count("."))
    drawn = [chart for name in names if (chart := figure_chart(name, [record.get(name, math.nan) for record in runs]))]
    if drawn:
        yield f'<h2>Figures over the last {len(runs)} runs</h2><div class="charts">{"".join(drawn[:_SHOWN])}</div>'
    if folded := drawn[_SHOWN:]:
        yield f'<details><summary>{len(folded)} more</summary><div class="charts">{"".join(folded)}</div></details>'


def _changes(
    title: str, what: str, changes: Sequence[Change[Scalar]] | Sequence[Change[str]], before: str | None
) -> Iterator[str]:
    if not changes:
        return
    yield f"<h2>{title}</h2>"
    if before is None:
        yield html_table((what, "this run"), [(change.name, _text(change.now)) for change in changes], "texts")
        return
    rows = [(change.name, _text(change.now), _text(change.before) if change.changed else "") for change in changes]
    yield html_table(
        (what, "this run", "before, where it has changed"), rows, "texts", marked=[change.changed for change in changes]
    )


def _has_changed(change: Change[float]) -> bool:
    nan = all(value is not None and math.isnan(value) for value in (change.before, change.now))
    return change.changed and not nan


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def _text(value: Scalar | None) -> str:
    return "–" if value is None else value_text(value)


def _date(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"
