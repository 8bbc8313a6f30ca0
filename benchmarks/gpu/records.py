"""Records of the GPU's rows: joined where they are of one machine, and kept as results of the race, the zoo and the operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..pages.results import publish, read_result

__all__ = ["join", "keep"]

Record = dict[str, Any]
_BY_TIME = ("the time was over", "the race ended", "the run ended", "the limit of")
"""How a reason begins that says no more than that time ran out: it takes the place of no other."""
_PAGES = {
    "zoo": ("benchmarks-zoo", "zoo"),
    "operators": ("benchmarks-operators", "operators"),
    "race": ("benchmarks", ""),
}
"""Subject → its page, and the section on it; the race's section has the name of the run."""


def _subject(kind: str) -> str:
    """The subject of a kind of row, which is also the first word of the row's name."""
    return {"zoo": "zoo", "operator": "operators"}.get(kind, "race")


def join(records: Sequence[Record]) -> Record:
    """Records of one machine as one; a later record's rows take the place of the same rows before."""
    rows = {row["row"]: {"date": record["date"], **row} for record in records for row in record["rows"]}
    gpus = {record["gpu"]["gpu"] for record in records if record["gpu"]}
    if len(gpus) > 1:
        raise ValueError(f"records of different GPUs are not joined: {', '.join(sorted(gpus))}")
    left = dict[str, str]()
    for row, _, reason in (text.partition(": ") for record in records for text in record["left_out"]):
        if row not in left or not reason.startswith(_BY_TIME) or left[row].startswith(_BY_TIME):
            left[row] = reason
    gpu = next(record["gpu"] for record in reversed(records) if record["gpu"])
    runs = sum(record.get("runs", 1) for record in records)
    note = f"Joined from {runs} runs; clocks are those of the last, ceilings the best of all." if runs > 1 else ""
    return {
        **records[-1],
        "gpu": {**gpu, "ceilings": _best([record["gpu"].get("ceilings", {}) for record in records if record["gpu"]])},
        "runs": runs,
        "note": note,
        "left_out": [f"{row}: {reason}" for row, reason in left.items() if row not in rows],
        "rows": list(rows.values()),
    }


def _best(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The best of several measurements of each ceiling: something else may have used the GPU during one of them."""
    names = dict.fromkeys(name for each in found for name in each)
    return {name: (min if name.endswith("µs") else max)(each[name] for each in found if name in each) for name in names}


def keep(records: Sequence[Path], name: str, docs: Path, with_old: bool = False) -> list[Path]:
    """Make the results of records, and their sections of the benchmarks' pages: of the race, the zoo and the operators.

    Args:
        records: Of one machine; a later one's rows take the place of the same rows before.
        name: Of the race's section; the others are called likewise: zoo for gpu, zoo-h100 for gpu-h100.
        docs: Folder of the pages.
        with_old: Keep the rows of the results that the records lack.

    Returns:
        The pages that were written.
    """
    new = join([json.loads(path.read_text("utf-8")) for path in records])
    more = "" if name == "gpu" else f"-{name.removeprefix('gpu-')}"
    pages = []
    for subject, (page, section) in _PAGES.items():
        section = f"{section}{more}" if section else name
        part = {
            **new,
            "subject": subject,
            "left_out": [text for text in new["left_out"] if _subject(text.partition(" ")[0]) == subject],
            "rows": [row for row in new["rows"] if _subject(row["kind"]) == subject],
        }
        if part["rows"]:
            old = read_result(page, section, docs) if with_old else None
            pages.append(publish(join([old, part]) if old else part, page, section, docs))
    return pages
