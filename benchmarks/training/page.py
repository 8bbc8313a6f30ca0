"""What the programs of this folder share: their common options, their record, and its section of docs/training_benchmarks.md."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.figures import MUTED, drawing, save
from pytrtplugins.utils.numbers import Real

from .. import report
from ..serving import page as serving

ROOT = Path(__file__).parents[2]
PAGE = "training_benchmarks.md"
_PACKAGES = (
    "pytrtplugins",
    "torch",
    "torchvision",
    "pytorch-lightning",
    "accelerate",
    "spdl-core",
    "nvidia-nvimgcodec-cu13",
    "simplejpeg",
    "numpy",
)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Bar:
    """A row of a chart: its name, its figure, what stands beside it, and whether it is this project's own."""

    name: str
    value: float
    text: str
    own: bool


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that each of the programs has."""
    add = parser.add_argument
    add("--device", default="", help="such as cuda or cpu (default: cuda, where there is one)")
    add("--seconds", type=Real(0.01, 3600), default=10.0, help="that each figure is measured (default: %(default)s)")
    add(
        "--until",
        type=Real(0, 1_000_000),
        default=1_000_000,
        help="begin no row after so many seconds; the row that was begun then is finished, with its compiling",
    )
    add(
        "-k", metavar="PATTERN", action="append", type=_pattern, help="only rows whose name has this regular expression"
    )
    add("--name", default="this-machine", help="heading on the page (default: %(default)s)")
    add("--note", default="", metavar="TEXT", help="a sentence for the page, such as what else ran on the machine")
    add("--docs", type=Path, default=ROOT / "docs", help=f"folder of {PAGE} (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="keep the record in this file, after each row")
    add(
        "--record",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing: write the page of such files; of a row in several, the first counts",
    )


def is_chosen(given: argparse.Namespace, name: str) -> bool:
    """Whether ``-k`` chooses a row of this name; without it, all are."""
    return not given.k or any(pattern.search(name) for pattern in given.k)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def about(subject: str, device: Any, note: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What a record says beside its rows."""
    import torch

    record = serving.about(f"python -m benchmarks.training {shlex.join([subject, *_told(arguments)])}", note, _PACKAGES)
    if device.type == "cuda":
        record["processor"] = f"{torch.cuda.get_device_name(device)}, {record['processor']}"
    return {**record, "subject": subject, "rows": []}


def _told(arguments: Sequence[str]) -> list[str]:
    """A command line without the places of its files, which change no figure."""
    places = [i for i, each in enumerate(arguments) if each in ("--json", "--docs")]
    return [each for i, each in enumerate(arguments) if i not in places and i - 1 not in places]


def measure(
    subject: str,
    given: argparse.Namespace,
    arguments: Sequence[str] | None,
    rows: Callable[[Any, dict[str, Any]], Iterator[Any]],
    line: Callable[[Any], str],
    write: Callable[[argparse.Namespace, dict[str, Any]], int],
    **facts: Any,
) -> int:
    """Measure row after row and write the page, or write that of the record that was given; the exit status.

    Args:
        subject: The program.
        given: Its options.
        arguments: Its command line; None: the process's.
        rows: From the device and the record, dataclasses one by one.
        line: What is printed of a row.
        write: Writes the page of a record.
        **facts: Also in the record.
    """
    if given.record:
        return write(given, joined([json.loads(path.read_text()) for path in given.record]))
    import torch

    given.device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(given.device)
    record = about(subject, device, given.note, sys.argv[2:] if arguments is None else arguments) | facts
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit ends it as Ctrl-C does
    try:
        for row in rows(device, record):
            keep(given, record, asdict(row))
            print(line(row), flush=True)
    except KeyboardInterrupt:
        print("ended early", file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, before)
    return write(given, record)


def joined(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first record with the rows that only others have; its note says which these are, and where they were measured."""
    first, *others = records
    rows, notes = list(first["rows"]), [first["note"]] * bool(first["note"])
    for other in others:
        known = {_key(row) for row in rows if not row["reason"]}
        new = [row for row in other["rows"] if _key(row) not in known]
        rows = [row for row in rows if _key(row) not in {_key(each) for each in new}] + new
        names = "; ".join(dict.fromkeys(", ".join(filter(None, _key(row))) for row in new))
        alike = all(first[fact] == other[fact] for fact in ("processor", "python", "versions", "date"))
        run = f"`{other['command']}`, the same day" if alike else serving.machine(other)
        notes += [f"Of another run ({run}) are: {names}."] * bool(new)
    return {**first, "rows": rows, "note": " ".join(notes)}


def _key(row: dict[str, Any]) -> tuple[Any, str]:
    return row.get("network"), row["name"]


def keep(given: argparse.Namespace, record: dict[str, Any], row: dict[str, Any]) -> None:
    """Add a row to the record, and to its file."""
    record["rows"].append(row)
    if given.json:
        write_atomic(given.json, json.dumps(record, indent=1).encode())


def write(
    given: argparse.Namespace, record: dict[str, Any], table: Callable[[Rows], str], bars: list[Bar], unit: str
) -> int:
    """Put the table and the chart of a record between the markers of its section; the exit status."""
    if not record["rows"]:
        print("no row was finished, so nothing is written", file=sys.stderr)
        return 1
    name = f"{record['subject']}-{given.name}"
    parts = [serving.machine(record), table(record["rows"])]
    if len(bars) > 1:
        images = report.image_paths(given.docs, f"training-{name}")
        chart(f"{record['subject']}; {record['processor']}", bars, unit, *images)
        parts.append(report.image_link(f"{record['subject']}, {unit}", images[0]))
    page = given.docs / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    report.put_section(page, name, "\n\n".join(parts))
    print(f"written: {page}")
    return 0


def listed(lines: list[str], rows: Rows) -> str:
    """The lines of a table, and below it which rows have no figures, and why."""
    left_out = [f"- {row['network']}, {row['name']}: {row['reason']}" for row in rows if row["reason"]]
    return "\n".join(lines + (["", "Left out:", "", *left_out] if left_out else []))


def chart(title: str, bars: Sequence[Bar], unit: str, *paths: Path) -> None:
    """The figures as dots on a logarithmic axis."""
    found = sorted(bars, key=lambda bar: bar.value)
    with drawing(9, 0.32 * len(found) + 1.3) as figure:
        axes = figure.subplots()
        for place, bar in enumerate(found):
            axes.plot(bar.value, place, "o", color="C0" if bar.own else MUTED, markersize=8)
            axes.annotate(bar.text, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        report.name_rows(axes, [bar.name for bar in found])
        axes.set_xlabel(f"{unit}; logarithmic axis; blue: this project's")
        figure.suptitle(title, fontsize=10)
        save(figure, *paths)
