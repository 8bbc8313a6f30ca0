"""What the programs of this folder share: their common options, and their record, a result of docs/lab/training_benchmarks.md."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.utils.numbers import FloatRange

from ..pages import machine
from ..pages.program import add_options, collect, keep

ROOT = Path(__file__).parents[2]
PAGE = "training_benchmarks"
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


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that each of the programs has."""
    add = parser.add_argument
    add("--device", default="", help="such as cuda or cpu (default: cuda, where there is one)")
    add(
        "--seconds",
        type=FloatRange(0.01, 3600),
        default=10.0,
        help="that each figure is measured (default: %(default)s)",
    )
    add(
        "--until",
        type=FloatRange(0, 1_000_000),
        default=1_000_000,
        help="begin no row after so many seconds; the row that was begun then is finished, with its compiling",
    )
    add(
        "-k", metavar="PATTERN", action="append", type=_pattern, help="only rows whose name has this regular expression"
    )
    add_options(parser, "this-machine")
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

    command = f"python -m benchmarks.training {shlex.join([subject, *_told(arguments)])}"
    record = {"subject": subject, **machine.about(_PACKAGES, command, note), "rows": []}
    if device.type == "cuda":
        record["processor"] = f"{torch.cuda.get_device_name(device)}, {record['processor']}"
    return record


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
    **facts: Any,
) -> int:
    """Measure row after row and write the page, or write that of the records that were given; the exit status."""
    if given.record:
        record = joined([json.loads(path.read_text("utf-8")) for path in given.record])
        return keep(record, PAGE, f"{subject}-{given.name}", given.docs)
    import torch

    given.device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(given.device)
    record = about(subject, device, given.note, sys.argv[2:] if arguments is None else arguments) | facts
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit ends it as Ctrl-C does
    try:
        collect(record, rows(device, record), line, given.json)
    finally:
        signal.signal(signal.SIGTERM, before)
    return keep(record, PAGE, f"{subject}-{given.name}", given.docs)


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
        run = f"`{other['command']}`, the same day" if alike else machine.machine_text(other)
        notes += [f"Of another run ({run}) are: {names}."] * bool(new)
    return {**first, "rows": rows, "note": " ".join(notes)}


def _key(row: dict[str, Any]) -> tuple[Any, str]:
    return row.get("network"), row["name"]
