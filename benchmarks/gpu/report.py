"""Records of the GPU race → tables in Markdown and a bar chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import image_link, image_paths, put_section
from pytrtplugins.utils.figures import FAINT, INK, MUTED, drawing, save

from . import zoo_report
from .cost import floors
from .goals import GPU, goals_table
from .page_rows import EARLIER, page_record
from .rows import row_of
from .runners import DARKNET, NAME

PEERS = {"PyTorch": "C1", "onnxruntime": "C2"}
OURS = "C0"
_BY_TIME = ("the time was over", "the race ended", "the run ended", "the limit of")
"""How a reason begins that says no more than that time ran out: it takes the place of no other."""


def join(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Records of one machine as one; a later record's rows take the place of the same rows before."""
    benches = {
        bench["fullname"]: {"date": date(record), **bench} for record in records for bench in record["benchmarks"]
    }
    gpus = {record["gpu"]["gpu"] for record in records if record["gpu"]}
    if len(gpus) > 1:
        raise ValueError(f"records of different GPUs are not joined: {', '.join(sorted(gpus))}")
    done, left = {row_of(name) for name in benches}, dict[str, str]()
    for row, _, reason in (text.partition(": ") for record in records for text in record["left_out"]):
        if row not in left or not reason.startswith(_BY_TIME) or left[row].startswith(_BY_TIME):
            left[row] = reason
    gpu = next(record["gpu"] for record in reversed(records) if record["gpu"])
    return {
        **records[-1],
        "gpu": {**gpu, "ceilings": _best([record["gpu"].get("ceilings", {}) for record in records if record["gpu"]])},
        "benchmarks": list(benches.values()),
        "runs": sum(record.get("runs", 1) for record in records),
        "left_out": [f"{row}: {reason}" for row, reason in left.items() if row not in done],
    }


def _best(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The best of several measurements of each ceiling: something else may have used the GPU during one of them."""
    names = dict.fromkeys(name for each in found for name in each)
    return {name: (min if name.endswith("µs") else max)(each[name] for each in found if name in each) for name in names}


def date(record: dict[str, Any]) -> str:
    """The day of a record."""
    return str(record["datetime"]).partition("T")[0]


def earlier(record: dict[str, Any], zoo: bool) -> str:
    """Which rows are of earlier days than the record, as Markdown; empty where none is."""
    days: dict[str, list[str]] = {}
    for bench in record["benchmarks"]:
        if bench.get("date", date(record)) != date(record) and (bench["extra_info"]["kind"] == "zoo") == zoo:
            days.setdefault(bench["date"], []).append(row_of(bench["fullname"]))
    lines = [f"- {day}: {'; '.join(names)}" for day, names in sorted(days.items())]
    return "\n".join([EARLIER, "", *lines]) if lines else ""


def machine(record: dict[str, Any]) -> str:
    """GPU, driver, clocks and versions, and the measured ceilings."""
    gpu = record["gpu"]
    versions = ", ".join(f"{name} {version}" for name, version in gpu["versions"].items())
    ceilings = ", ".join(
        f"{what} {value:,.{2 if value < 10 else 0}f} {unit}"
        for what, _, unit, value in ((*name.rpartition(" "), value) for name, value in gpu["ceilings"].items())
    )
    clocks = f"SM {gpu['clocks.sm']} of {gpu['clocks.max.sm']}, memory {gpu['clocks.mem']}, limit {gpu['power.limit']}"
    number = int(gpu["cudnn"])
    cudnn = f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    runs = record.get("runs", 1)
    joined = f" Joined from {runs} runs; clocks are those of the last, ceilings the best of all." if runs > 1 else ""
    return (
        f"{gpu['gpu']}, driver {gpu['driver_version']}, CUDA {gpu['cuda']}, cuDNN {cudnn}, cudnn-frontend "
        f"{gpu['cudnn-frontend']}, {versions}, Python {record['machine_info']['python_version']}, on {gpu['processor']}; "
        f"{date(record)}. Clocks under load: {clocks}. Measured in the same run: {ceilings}.{joined}"
    )


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per test, with what pytest-benchmark measured, and quotients of medians with those of other rows."""
    found = []
    for bench in record["benchmarks"]:
        stats = bench["stats"]
        found.append({**bench["extra_info"], "host_us": 1e6 * stats["median"], "host_least_us": 1e6 * stats["min"]})
    for row in found:
        if row["kind"] == "race":
            peer, ours = _row_of(found, row, DARKNET), _row_of(found, row, NAME, precision="FP16", pinned=False)
            row["over_darknet"] = peer and peer["host_us"] / row["host_us"]
            for time, ratio in (("gpu_us", "gpu_ratio"), ("host_us", "host_ratio")):
                row[ratio] = row[time] / ours[time] if ours and row[time] and ours[time] else None
        elif row["kind"] == "image":
            row["beyond_us"] = row["host_us"] - row["network_us"]
            if row.get("darknet_us"):
                row["over_darknet"] = row["darknet_us"] / row["host_us"]
        elif row["kind"] == "step":
            row["ratio"] = row["without_us"] / row["gpu_us"]
    return found


def _row_of(found: Sequence[dict[str, Any]], row: dict[str, Any], runner: str, **facts: Any) -> dict[str, Any] | None:
    """Another runner's row of the same batch and arrays, unless told otherwise."""
    wanted = {"kind": "race", "batch": row["batch"], "pinned": row["pinned"], "runner": runner, **facts}
    return next((each for each in found if all(each.get(name) == value for name, value in wanted.items())), None)


def race(record: dict[str, Any], pinned: bool = False) -> list[dict[str, Any]]:
    """The race's rows from ordinary or pinned arrays, by batch, the slowest first."""
    found = [row for row in rows(record) if row["kind"] == "race" and row["pinned"] == pinned]
    return sorted(found, key=lambda row: (row["batch"], -row["host_us"]))


def race_table(record: dict[str, Any]) -> str:
    """The race as Markdown, with what arithmetic, memory and launches alone would take."""
    ceilings = record["gpu"]["ceilings"]
    lines = [
        "| batch | runner | precision | GPU µs, median (min) | / ours FP16 | for a second | host to host µs, median (min) "
        "| / ours FP16 | times darknet's speed | floors µs: arithmetic, memory, launches | kernels | error of the head |",
        "|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in race(record):
        needs = floors(row["operations"], row["moved"], row["precision"], ceilings, row["kernels"])
        lines.append(
            f"| {row['batch']} | {row['runner']} | {row['precision']} | {_pair(row['gpu_us'], row['gpu_least_us'])} "
            f"| {_number(row['gpu_ratio'], '.2f')} | {_number(row['sustained_us'], ',.0f')} "
            f"| {_pair(row['host_us'], row['host_least_us'])} | {_number(row['host_ratio'], '.2f')} "
            f"| {_number(row['over_darknet'], '.1f')} | {', '.join(_number(each, ',.0f') for each in needs)} "
            f"| {_number(row['kernels'], 'd')} | {row['error']:.0e} |"
        )
    return "\n".join(lines)


def pinned_table(record: dict[str, Any]) -> str:
    """The race with the caller's arrays in pinned memory, as Markdown."""
    lines = [
        "| batch | arrays in pinned memory | precision | host to host µs, median (min) | / ours FP16, ordinary arrays "
        "| times darknet's speed |",
        "|---:|---|---|---:|---:|---:|",
    ]
    for row in race(record, pinned=True):
        lines.append(
            f"| {row['batch']} | {row['runner']} | {row['precision']} | {_pair(row['host_us'], row['host_least_us'])} "
            f"| {row['host_ratio']:.2f} | {_number(row['over_darknet'], '.1f')} |"
        )
    return "\n".join(lines)


def image_table(record: dict[str, Any]) -> str:
    """From one image's bytes to boxes, beside the network alone and darknet on the same bytes, as Markdown."""
    lines = [
        "| one image to boxes | network alone on the GPU µs | bytes to boxes, host to host µs, median (min) "
        "| of it the launch, until its end µs | median less the network µs | darknet, the same bytes to boxes µs "
        "| times its speed | times the speed of its network_predict |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows(record):
        if row["kind"] == "image":
            image = f"{row['size'][0]} x {row['size'][1]}{', pinned' * row['pinned']}, {row['boxes']} boxes"
            lines.append(
                f"| {row['precision']}, {image} | {row['network_us']:,.0f} | {_pair(row['host_us'], row['host_least_us'])} "
                f"| {row['launch_us']:,.0f} | {row['beyond_us']:,.0f} | {_number(row.get('darknet_us'), ',.0f')} "
                f"| {_number(row.get('over_darknet'), '.1f')} | {_number(row.get('over_predict'), '.1f')} |"
            )
    return "\n".join(lines)


def files_table(record: dict[str, Any]) -> str:
    """From JPEG files to boxes, in images a second, beside decoding alone, as Markdown."""
    lines = [
        "| JPEG files to boxes | decoded by | batch | images/s | decoding alone, images/s | share of that |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in sorted((row for row in rows(record) if row["kind"] == "files"), key=lambda row: row["decode"]):
        by = f"{row['threads']} threads" if row["decode"] == "cpu" else "the GPU"
        whole, alone = (1e6 * row["images"] / row[time] for time in ("host_us", "decoding_us"))
        files = f"{row['precision']}, {row['size'][0]} x {row['size'][1]}, {row['bytes'] / 1e3:,.0f} kB"
        lines.append(f"| {files} | {by} | {row['batch']} | {whole:,.0f} | {alone:,.0f} | {whole / alone:.0%} |")
    return "\n".join(lines)


def steps_table(record: dict[str, Any]) -> str:
    """What each optimization brings, as Markdown; the largest effect first."""
    steps = [row for row in rows(record) if row["kind"] == "step"]
    lines = [
        "| step | network (batch 1) | GPU µs with | without | without / with | kernels with | without | memory MB with | without |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(steps, key=lambda row: -row["ratio"]):
        lines.append(
            f"| `{row['step']}` | {row['network']}, {row['precision']} | {row['gpu_us']:,.1f} | {row['without_us']:,.1f} "
            f"| {row['ratio']:.2f} | {_number(row['kernels'], 'd')} | {_number(row['without_kernels'], 'd')} "
            f"| {row['bytes'] / 1e6:.1f} | {row['without_bytes'] / 1e6:.1f} |"
        )
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _pair(median: float | None, least: float | None) -> str:
    return "–" if median is None else f"{median:,.0f} ({least:,.0f})"


def chart(record: dict[str, Any], *paths: Path) -> None:
    """A panel for each batch: bars of the time on the GPU, and host to host behind them."""
    found = race(record)
    pinned = {_twin(row): row["host_us"] for row in race(record, pinned=True)}
    batches = sorted({row["batch"] for row in found})
    heights = [sum(row["batch"] == batch for row in found) for batch in batches]
    with drawing(9, 0.3 * sum(heights) + 0.8 * len(batches) + 0.8) as figure:
        panels = figure.subplots(len(batches), height_ratios=heights, squeeze=False)[:, 0]
        for batch, axes in zip(batches, panels, strict=True):
            _draw_batch(axes, [row for row in found if row["batch"] == batch], pinned)
            axes.set_ylabel(f"batch {batch}")
        panels[-1].set_xlabel(
            "µs: the network on the GPU (coloured), from the host to the host (grey), from pinned arrays (line)"
        )
        figure.suptitle(f"YOLOv2-VOC, 416 x 416, {record['gpu']['gpu']}", fontsize=10)
        save(figure, *paths)


def _draw_batch(axes: Any, shown: Sequence[dict[str, Any]], pinned: dict[tuple[str, str, int], float]) -> None:
    labels = [f"{row['runner']}, {row['precision']}" for row in shown]
    axes.barh(labels, [row["host_us"] for row in shown], color=MUTED, alpha=0.35, height=0.8)
    axes.barh(labels, [row["gpu_us"] or 0 for row in shown], color=[color(row) for row in shown], height=0.5)
    for place, row in enumerate(shown):
        axes.annotate(_label(row), (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        if _twin(row) in pinned:
            axes.plot(pinned[_twin(row)], place, "|", color=INK, markersize=12)
    axes.set_xlim(left=0)
    axes.grid(axis="x", color=FAINT)


def _twin(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["runner"], row["precision"], row["batch"]


def color(row: dict[str, Any]) -> str:
    """Of a row's bar: one for ours, one for each peer."""
    if row["runner"] == NAME:
        return OURS
    return next((color for name, color in PEERS.items() if row["runner"].startswith(name)), MUTED)


def _label(row: dict[str, Any]) -> str:
    whole = f" {row['host_us']:,.0f} host to host"
    return whole if row["gpu_us"] is None else f" {row['gpu_us']:,.0f} on the GPU, {row['host_us']:,.0f} host to host"


def write(records: Sequence[Path], name: str, docs: Path, keep: bool = False) -> list[Path]:
    """Put the tables between their markers in docs/benchmarks.md, and the chart into docs/images; the zoo has its own page.

    Args:
        records: Records of one machine; a later one's rows take the place of the same rows before.
        name: Of the section in docs/benchmarks.md; the zoo's is called likewise: zoo for gpu, zoo-h100 for gpu-h100.
        docs: Folder of the pages.
        keep: Keep what the pages have and the records lack.

    Returns:
        The pages that were written.
    """
    new = join([json.loads(path.read_text()) for path in records])
    pages = []
    for is_zoo in (True, False):
        part = _part(new, is_zoo)
        if part["benchmarks"]:
            section = _zoo_name(name) if is_zoo else name
            old = page_record(docs, section, is_zoo) if keep else None
            record = join([old, part]) if old else part
            pages.append((_write_zoo if is_zoo else _write_race)(record, section, docs))
    return pages


def _part(record: dict[str, Any], zoo: bool) -> dict[str, Any]:
    """The rows of the zoo, or those of the race."""
    return {
        **record,
        "benchmarks": [each for each in record["benchmarks"] if (each["extra_info"]["kind"] == "zoo") == zoo],
        "left_out": [text for text in record["left_out"] if text.startswith("zoo ") == zoo],
    }


def _zoo_name(name: str) -> str:
    return "zoo" if name == "gpu" else f"zoo-{name.removeprefix('gpu-')}"


def _write_zoo(record: dict[str, Any], name: str, docs: Path) -> Path:
    gpu, left_out = record["gpu"]["gpu"], record["left_out"]
    return zoo_report.write(rows(record), machine(record), gpu, left_out, docs, earlier(record, True), name)


def _write_race(record: dict[str, Any], name: str, docs: Path) -> Path:
    parts = [machine(record)]
    if record["gpu"]["gpu"] == GPU:
        parts.append(goals_table(rows(record)))
    if race(record):
        images = image_paths(docs, f"benchmark-{name}")
        chart(record, *images)
        parts += [race_table(record), image_link("latency", images[0])]
    if race(record, pinned=True):
        parts.append(pinned_table(record))
    kinds = {row["kind"] for row in rows(record)}
    parts += [
        table(record)
        for kind, table in (("image", image_table), ("files", files_table), ("step", steps_table))
        if kind in kinds
    ]
    if record["left_out"]:
        parts.append("\n".join(["Left out:", "", *(f"- {text}" for text in record["left_out"])]))
    if before := earlier(record, False):
        parts.append(before)
    page = docs / "benchmarks.md"
    put_section(page, name, "\n\n".join(parts))
    return page
