"""A pytest-benchmark record → a table in Markdown and a bar chart."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.utils.files import atomic_path, write_atomic

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
    return (
        f"{brand} ({can}), {threads} threads, Linux, Python {platform.python_version()}; {', '.join(versions)}; {date}"
    )


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per runner, slowest first, each with its speed in darknet's and the baseline's units."""
    found = [
        {**bench["extra_info"], "median_ms": 1e3 * bench["stats"]["median"], "min_ms": 1e3 * bench["stats"]["min"]}
        for bench in record["benchmarks"]
    ]
    darknet = next((row["ratio"] for row in found if row["runner"].startswith("darknet")), math.nan)
    for row in found:
        row["over_darknet"] = darknet / row["ratio"]
    return sorted(found, key=lambda row: -row["median_ms"])


def table(record: dict[str, Any]) -> str:
    """The rows as Markdown."""
    lines = [
        f"{machine(record)}. Baseline of the pairs: {record['benchmarks'][0]['extra_info']['baseline']}.",
        "",
        "| runner | precision | median ms | min ms | time / baseline, median of pairs | times darknet's speed | error of the head |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows(record):
        error = "other output" if math.isnan(row["error"]) else f"{row['error']:.1e}"
        lines.append(
            f"| {row['runner']} | {row['precision']} | {row['median_ms']:.1f} | {row['min_ms']:.1f} | {row['ratio']:.3f} "
            f"| {row['over_darknet']:.1f} | {error} |"
        )
    return "\n".join(lines)


def chart(record: dict[str, Any], path: Path) -> None:
    """The medians as horizontal bars, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = rows(record)
    labels = [f"{row['runner']}, {row['precision']}" for row in found]
    colors = ["tab:green" if row["runner"].startswith("pytrtplugins") else "tab:gray" for row in found]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(found) + 1.2), layout="constrained")
    bars = axes.barh(labels, [row["median_ms"] for row in found], color=colors)
    axes.bar_label(bars, [f" {row['median_ms']:.0f} ms, {row['over_darknet']:.1f}x darknet" for row in found])
    axes.set_xscale("log")
    axes.set_xlim(right=axes.get_xlim()[1] * 30)
    axes.set_xlabel("median latency of one 416 x 416 image, ms (logarithmic)")
    axes.set_title(f"YOLOv2-VOC\n{machine(record).partition(';')[0]}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)


def write(records: Sequence[Path], name: str, docs: Path) -> list[Path]:
    """Put the table of the first record between its markers in docs/benchmarks.md, and the chart into docs/images.

    Returns:
        The pages that were written.
    """
    record = json.loads(records[0].read_text())
    image = docs / "images" / f"benchmark-{name}.png"
    image.parent.mkdir(parents=True, exist_ok=True)
    chart(record, image)
    page = docs / "benchmarks.md"
    put_section(page, name, f"{table(record)}\n\n![latency](images/{image.name})")
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
