"""A record of rows → docs/serving_benchmarks.md, with a chart for each kind of request."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from pathlib import Path
from typing import Any

from pytrtplugins.utils.figures import MUTED, drawing, save

from ..report import image_link, image_paths, name_rows, put_section

PAGE = "serving_benchmarks.md"
_PACKAGES = ("pytrtplugins", "uvicorn", "uvloop", "httptools", "openvino", "numpy")


def about(command: str, note: str, packages: Sequence[str] = _PACKAGES) -> dict[str, Any]:
    """What a record says beside its rows."""
    versions = {}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": f"{len(names)} cores of {names[0] if names else platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
        "date": date.today().isoformat(),
        "command": command,
        "note": note,
    }


def machine(record: dict[str, Any]) -> str:
    """Where and how it was measured."""
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    note = f" {record['note']}" if record["note"] else ""
    return f"{record['processor']}, Python {record['python']}; {versions}; {record['date']}. Command: `{record['command']}`.{note}"


def table(rows: list[dict[str, Any]]) -> str:
    """The rows of one kind of request, fastest first."""
    lines = [
        "| server | version | requests/s | p50 / p99 ms | p99 ms at 50 / 80 / 95 % | CPU µs | client's CPU µs | memory MiB | processes "
        "| cold start s |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted((each for each in rows if not each["reason"]), key=lambda each: -each["rate"]):
        parts = " / ".join(_open_text(each) for each in row["open"]) or "–"
        latency = "–" if isnan(row["p50_ms"]) else f"{row['p50_ms']:.2f} / {row['p99_ms']:.1f}"
        memory = f"{row['pss_mib']:.0f}" if row["pss_mib"] else "–"
        engine = f" ({row['engine_us']:,.0f} in engine processes)" if row.get("engine_us") else ""
        lines.append(
            f"| {row['server']} | {row['version']} | {row['rate']:,.0f} | {latency} | {parts} "
            f"| {row['cpu_us']:,.0f}{engine} | {row['client_us']:,.0f} | {memory} | {row['processes'] or '–'} | {row['cold_s']:.1f} |"
        )
    lines += [""] + [f"- Not measured: {row['server']}: {row['reason']}" for row in rows if row["reason"]]
    return "\n".join(lines).rstrip()


def _open_text(part: dict[str, Any]) -> str:
    failed = part["wrong"] + part["lost"]
    short = part["rate"] < 0.95 * part["planned"]
    text = f"{part['p99_ms']:.1f}" if part["p99_ms"] < 1e4 else "over 10,000"
    return text + (f" ({failed} failed)" if failed else "") + (" (fell behind)" if short else "")


def chart(title: str, rows: list[dict[str, Any]], *paths: Path) -> None:
    """The largest rates as dots on a logarithmic axis."""
    found = sorted((row for row in rows if not row["reason"]), key=lambda row: row["rate"])
    with drawing(9, 0.32 * len(found) + 1.3) as figure:
        axes = figure.subplots()
        for place, row in enumerate(found):
            axes.plot(row["rate"], place, "o", color="C0" if row["server"].startswith("pytrt") else MUTED, markersize=8)
            axes.annotate(
                f"{row['rate']:,.0f} requests/s, {row['cpu_us']:,.0f} µs CPU", (1.02, place),
                xycoords=("axes fraction", "data"), va="center", fontsize=8,
            )  # fmt: skip
        name_rows(axes, [row["server"] for row in found])
        axes.set_xlabel("largest rate, requests/s; logarithmic axis; blue: pytrtplugins")
        figure.suptitle(title, fontsize=10)
        save(figure, *paths)


def write(record: dict[str, Any], name: str, docs: Path) -> Path:
    """Put tables and charts between the markers of a section."""
    kinds = list(dict.fromkeys(row["kind"] for row in record["rows"]))
    parts = [machine(record)]
    for number, kind in enumerate(kinds):
        rows = [row for row in record["rows"] if row["kind"] == kind]
        parts += [f"### {kind}", table(rows)]
        if sum(not row["reason"] for row in rows) > 1:
            images = image_paths(docs, f"serving-{name}-{number}")
            chart(f"{kind}; {record['processor']}", rows, *images)
            parts.append(image_link(f"largest rates, {kind}", images[0]))
    page = docs / PAGE
    put_section(page, name, "\n\n".join(parts))
    return page


def write_text(text: str, command: str, name: str, docs: Path) -> Path:
    """Put what a trial said between the markers of a section."""
    page = docs / PAGE
    put_section(page, name, f"{machine(about(command, ''))}\n\n{text}")
    return page
