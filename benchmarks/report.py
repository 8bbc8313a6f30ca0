"""A pytest-benchmark record → a table in Markdown and a bar chart."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.figures import MUTED, drawing, save

MARKERS = "<!-- {name}: written by a command -->", "<!-- end of {name} -->"
PACKAGES = ("pytrtplugins", "openvino", "onnxruntime", "opencv-python-headless", "numpy", "onnx")


def machine(record: dict[str, Any]) -> str:
    """One line: processor, what it can do for INT8, threads, system, versions."""
    flags = set(record["machine_info"].get("cpu", {}).get("flags", ()))
    wanted = {
        "avx2": "AVX2",
        "avx512f": "AVX512",
        "avx512_vnni": "VNNI",
        "avx512vnni": "VNNI",
        "avx_vnni": "VNNI",
        "amx_int8": "AMX",
    }
    can = ", ".join(dict.fromkeys(text for flag, text in wanted.items() if flag in flags)) or "flags unknown"
    brand = record["machine_info"].get("cpu", {}).get("brand_raw", platform.processor())
    threads = record["benchmarks"][0]["extra_info"]["threads"]
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name).partition('-')[0]}")
        except importlib.metadata.PackageNotFoundError:
            continue
    date = record["datetime"].partition("T")[0]
    python = record["machine_info"].get("python_version", platform.python_version())
    return f"{brand} ({can}), {threads} threads, Linux, Python {python}; {', '.join(versions)}; {date}"


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per runner, slowest first. Each ratio is the quotient of two medians of the table."""
    found = [
        {**bench["extra_info"], "median_ms": 1e3 * bench["stats"]["median"], "min_ms": 1e3 * bench["stats"]["min"]}
        for bench in record["benchmarks"]
    ]
    darknet = next((row["median_ms"] for row in found if row["runner"].startswith("darknet")), math.nan)
    for row in found:
        row["over_baseline"] = row["median_ms"] / row["baseline_ms"]
        row["over_darknet"] = darknet / row["median_ms"]
    return sorted(found, key=lambda row: -row["median_ms"])


def table(record: dict[str, Any]) -> str:
    """The rows as Markdown."""
    lines = [
        f"{machine(record)}. Baseline of the pairs: {record['benchmarks'][0]['extra_info']['baseline']}.",
        "",
        "| runner | precision | median ms | min ms | baseline beside it, median ms | time / baseline | times darknet's speed "
        "| error of the head |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows(record):
        error = "other output" if math.isnan(row["error"]) else f"{row['error']:.1e}"
        lines.append(
            f"| {row['runner']} | {row['precision']} | {row['median_ms']:.1f} | {row['min_ms']:.1f} | {row['baseline_ms']:.1f} "
            f"| {row['over_baseline']:.3f} | {row['over_darknet']:.1f} | {error} |"
        )
    return "\n".join(lines)


def name_rows(axes: Any, names: Sequence[str]) -> None:
    """Give the rows of a chart their names, and its figures a logarithmic axis with 1, 2 and 5 of each power of ten."""
    from matplotlib import ticker

    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xscale("log", subs=())
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="x")
    axes.grid(axis="y", linestyle=":")


def chart(record: dict[str, Any], *paths: Path) -> None:
    """The medians as dots on a logarithmic axis."""
    found = rows(record)
    with drawing(9, 0.32 * len(found) + 1.3) as figure:
        axes = figure.subplots()
        for place, row in enumerate(found):
            color = "C0" if row["runner"].startswith("pytrtplugins") else MUTED
            axes.plot(row["median_ms"], place, "o", color=color, markersize=8)
            axes.annotate(
                f"{row['median_ms']:.{1 if row['median_ms'] < 100 else 0}f} ms, {row['over_darknet']:.1f} x darknet's speed",
                (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8,
            )  # fmt: skip
        name_rows(axes, [f"{row['runner']}, {row['precision']}" for row in found])
        axes.set_xlabel("median latency of one 416 x 416 image, ms; logarithmic axis; blue: pytrtplugins")
        figure.suptitle(f"YOLOv2-VOC, {machine(record).partition(';')[0]}", fontsize=10)
        save(figure, *paths)


def image_paths(docs: Path, name: str) -> tuple[Path, Path]:
    """Of a chart: SVG, which pages show, and PNG, for readers without SVG."""
    folder = docs / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.svg", folder / f"{name}.png"


def image_link(text: str, image: Path) -> str:
    """A chart in a page, which opens as PNG."""
    return f"[![{text}](images/{image.name})](images/{image.stem}.png)"


def write(records: Sequence[Path], name: str, docs: Path) -> list[Path]:
    """Put the table of the first record between its markers in docs/benchmarks.md, and the chart into docs/images.

    Returns:
        The pages that were written.
    """
    record = json.loads(records[0].read_text())
    images = image_paths(docs, f"benchmark-{name}")
    chart(record, *images)
    page = docs / "benchmarks.md"
    put_section(page, name, f"{table(record)}\n\n{image_link('latency', images[0])}")
    return [page]


def put_section(page: Path, name: str, body: str) -> None:
    """Put text between a section's markers, at the end of the page where it has none yet."""
    text = page.read_text() if page.exists() else "# Benchmarks\n"
    begin, end = (marker.format(name=name) for marker in MARKERS)
    section = f"{begin}\n\n{body}\n\n{end}"
    if begin in text and end in text:
        text = text[: text.index(begin)] + section + text[text.index(end) + len(end) :]
    else:
        text = f"{text.rstrip()}\n\n## {name}\n\n{section}\n"
    write_atomic(page, text.encode())
