"""Records of the GPU race → tables in Markdown and a bar chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import put_section

from .cost import floors

OURS = "pytrtplugins"
PEERS = {"darknet": "tab:gray", "PyTorch": "tab:orange", "onnxruntime": "tab:blue"}
SHADES = {"FP32": "#b7e3b7", "TF32": "#7cc77c", "FP16": "tab:green", "INT8": "#156315"}


def join(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Records of one machine as one; a later record's rows take the place of the same rows before."""
    rows = {bench["fullname"]: bench for record in records for bench in record["benchmarks"]}
    gpus = {record["gpu"]["gpu"] for record in records if record["gpu"]}
    if len(gpus) > 1:
        raise ValueError(f"records of different GPUs are not joined: {', '.join(sorted(gpus))}")
    done = {_row(name) for name in rows}
    left = dict.fromkeys(text for record in records for text in record["left_out"])
    return {
        **records[-1],
        "gpu": next(record["gpu"] for record in reversed(records) if record["gpu"]),
        "benchmarks": list(rows.values()),
        "left_out": [text for text in left if text.partition(": ")[0] not in done],
    }


def _row(fullname: str) -> str:
    return fullname.partition("[")[2].removesuffix("]")


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
    return (
        f"{gpu['gpu']}, driver {gpu['driver_version']}, CUDA {gpu['cuda']}, cuDNN {cudnn}, cudnn-frontend "
        f"{gpu['cudnn-frontend']}, {versions}, Python {record['machine_info']['python_version']}, on {gpu['processor']}; "
        f"{record['datetime'].partition('T')[0]}. Clocks under load: {clocks}. Measured in the same run: {ceilings}."
    )


def race(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per runner and batch, by batch, the slowest first."""
    rows = []
    for bench in record["benchmarks"]:
        info = bench["extra_info"]
        if info["kind"] == "race":
            stats = bench["stats"]
            rows.append({**info, "host_us": 1e6 * stats["median"], "host_least_us": 1e6 * stats["min"]})
    for row in rows:
        peers = [each for each in rows if each["runner"] == "darknet" and each["batch"] == row["batch"]]
        row["over_darknet"] = peers[0]["host_ratio"] / row["host_ratio"] if peers else None
    return sorted(rows, key=lambda row: (row["batch"], -row["host_us"]))


def race_table(record: dict[str, Any]) -> str:
    """The race as Markdown, with what arithmetic, memory and launches alone would take."""
    ceilings = record["gpu"]["ceilings"]
    lines = [
        "| batch | runner | precision | GPU µs, median (min) | / ours FP16 | host to host µs, median (min) | / ours FP16 "
        "| times darknet's speed | floors µs: arithmetic, memory, launches | kernels | error of the head |",
        "|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in race(record):
        needs = floors(row["operations"], row["moved"], row["precision"], ceilings, row["kernels"])
        lines.append(
            f"| {row['batch']} | {row['runner']} | {row['precision']} | {_pair(row['gpu_us'], row['gpu_least_us'])} "
            f"| {_number(row['gpu_ratio'], '.2f')} | {_pair(row['host_us'], row['host_least_us'])} | {row['host_ratio']:.2f} "
            f"| {_number(row['over_darknet'], '.1f')} | {', '.join(_number(each, ',.0f') for each in needs)} "
            f"| {_number(row['kernels'], 'd')} | {row['error']:.0e} |"
        )
    return "\n".join(lines)


def photo_table(record: dict[str, Any]) -> str:
    """From one photo's bytes to boxes, beside the network alone, as Markdown."""
    lines = [
        "| one photo to boxes | network alone on the GPU µs | bytes to boxes, host to host µs, median (min) "
        "| of it the launch, until its end µs | median less the network µs | times darknet's speed |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for bench in record["benchmarks"]:
        info, stats = bench["extra_info"], bench["stats"]
        if info["kind"] == "photo":
            host, least = 1e6 * stats["median"], 1e6 * stats["min"]
            lines.append(
                f"| {info['precision']}, {info['size'][0]} x {info['size'][1]}, {info['boxes']} boxes | {info['network_us']:,.0f} "
                f"| {_pair(host, least)} | {info['launch_us']:,.0f} | {host - info['network_us']:,.0f} "
                f"| {_number(info['over_darknet'], '.1f')} |"
            )
    return "\n".join(lines)


def steps_table(record: dict[str, Any]) -> str:
    """What each optimization brings, as Markdown; the largest effect first."""
    rows = [bench["extra_info"] for bench in record["benchmarks"] if bench["extra_info"]["kind"] == "step"]
    lines = [
        "| step | network, batch 1 | GPU µs with | without | without / with | kernels with | without | memory MB with | without |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: -row["ratio"]):
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


def chart(record: dict[str, Any], path: Path) -> None:
    """A panel for each batch: bars of the time on the GPU, and host to host behind them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = race(record)
    batches = sorted({row["batch"] for row in rows})
    heights = [sum(row["batch"] == batch for row in rows) for batch in batches]
    figure, panels = pyplot.subplots(
        len(batches),
        figsize=(9, 0.36 * sum(heights) + 0.9 * len(batches) + 0.6),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for batch, axes in zip(batches, panels[:, 0], strict=True):
        shown = [row for row in rows if row["batch"] == batch]
        labels = [f"{row['runner']}, {row['precision']}" for row in shown]
        whole = axes.barh(labels, [row["host_us"] for row in shown], color="lightgray", height=0.8)
        axes.bar_label(whole, [_label(row) for row in shown], fontsize=8)
        axes.barh(labels, [row["gpu_us"] or 0 for row in shown], color=[color(row) for row in shown], height=0.5)
        axes.set_xlim(right=axes.get_xlim()[1] * 1.45)
        axes.set_ylabel(f"batch {batch}")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("µs: the network on the GPU (coloured), from the host to the host (gray)")
    figure.suptitle(f"YOLOv2-VOC, 416 x 416, {record['gpu']['gpu']}", fontsize=10)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def color(row: dict[str, Any]) -> str:
    """Of a row's bar: ours green, the darker the fewer bits; each peer one colour."""
    if row["runner"] == OURS:
        return SHADES[row["precision"]]
    return next((color for name, color in PEERS.items() if row["runner"].startswith(name)), "tab:gray")


def _label(row: dict[str, Any]) -> str:
    whole = f" {row['host_us']:,.0f} host to host"
    return whole if row["gpu_us"] is None else f" {row['gpu_us']:,.0f} on the GPU, {row['host_us']:,.0f} host to host"


def write(records: Sequence[Path], name: str, docs: Path) -> None:
    """Put the tables between their markers in docs/benchmarks.md, and the chart into docs/images."""
    record = join([json.loads(path.read_text()) for path in records])
    parts = [machine(record)]
    if race(record):
        image = docs / "images" / f"benchmark-{name}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        chart(record, image)
        parts += [race_table(record), f"![latency](images/{image.name})"]
    kinds = {bench["extra_info"]["kind"] for bench in record["benchmarks"]}
    parts += [table(record) for kind, table in (("photo", photo_table), ("step", steps_table)) if kind in kinds]
    if record["left_out"]:
        parts.append("\n".join(["Left out:", "", *(f"- {text}" for text in record["left_out"])]))
    put_section(docs / "benchmarks.md", name, "\n\n".join(parts))
