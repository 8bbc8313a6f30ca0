"""YOLOv2 on a GPU: the race, images and files to boxes, and what each optimization brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytrtplugins.utils.figures import FAINT, INK, MUTED

from .chart import Chart
from .goals import GPU, goals_table
from .machine import version_text
from .runners import DARKNET, NAME
from .table import Column, figure, left, right, table

__all__ = ["earlier_rows", "floors", "gpu_text", "left_out", "race", "race_rows", "race_tables", "rows"]

_COLORS = {"PyTorch": "C1", "onnxruntime": "C2", NAME: "C0"}
_AS_INT8 = {"FP8": "INT8"}  # tensor cores have one speed for both
Record = dict[str, Any]
Rows = Sequence[dict[str, Any]]


def race(name: str, record: Record) -> Iterator[str | Chart]:
    """All tables of a run, with the goals where it ran on the GPU that these were set for."""
    found = rows(record)
    yield gpu_text(record)
    if record["gpu"]["gpu"] == GPU:
        yield goals_table(found)
    if ordinary := race_rows(found):
        yield table(_race_columns(record["gpu"]["ceilings"]), ordinary)
        yield _chart(name, record, found)
    yield from _other_tables(found)
    yield left_out(record)
    yield earlier_rows(record)


def race_tables(name: str, record: Record) -> Iterator[str]:
    """Tables of a run without goals and chart: of one that another run has taken the place of."""
    found = rows(record)
    yield gpu_text(record)
    yield table(_race_columns(record["gpu"]["ceilings"]), race_rows(found))
    yield from _other_tables(found)
    for row in found:
        if row["kind"] == "build":
            yield (
                f"A build in {row['precision']} that times all kernels took {row['search_s']:.1f} s, one that finds its choices "
                f"in the cache {row['cached_s']:.2f} s."
            )


def rows(record: Record) -> list[dict[str, Any]]:
    """The rows with quotients of their medians and those of other rows."""
    found = [dict(row) for row in record["rows"]]
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


def _row_of(found: Rows, row: Mapping[str, Any], runner: str, **facts: Any) -> dict[str, Any] | None:
    """Another runner's row of the same batch and arrays, unless told otherwise."""
    wanted = {"kind": "race", "batch": row["batch"], "pinned": row["pinned"], "runner": runner, **facts}
    return next((each for each in found if all(each.get(name) == value for name, value in wanted.items())), None)


def race_rows(found: Rows, pinned: bool = False) -> list[dict[str, Any]]:
    """The race's rows from ordinary or pinned arrays, by batch, the slowest first."""
    raced = [row for row in found if row["kind"] == "race" and row["pinned"] == pinned]
    return sorted(raced, key=lambda row: (row["batch"], -row["host_us"]))


def _pair(name: str) -> Any:
    """A cell with a median and, in brackets, the minimum."""

    def cell(row: Mapping[str, Any]) -> str | None:
        return None if row[f"{name}_us"] is None else f"{row[f'{name}_us']:,.0f} ({row[f'{name}_least_us']:,.0f})"

    return cell


def floors(
    operations: float, moved: float, precision: str, ceilings: Mapping[str, float], launches: int | None
) -> tuple[float, float, float | None]:
    """Microseconds that arithmetic, memory and launches alone would take at the measured ceilings; FP8 has INT8's."""
    return (
        operations / ceilings[f"{_AS_INT8.get(precision, precision)} TOP/s"] / 1e6,
        moved / ceilings["copy GB/s"] / 1e3,
        None if launches is None else launches * ceilings["launch µs"],
    )


def _race_columns(ceilings: Mapping[str, float]) -> Sequence[Column]:
    def needs(row: Mapping[str, Any]) -> str:
        found = floors(row["operations"], row["moved"], row["precision"], ceilings, row["kernels"])
        return ", ".join(figure(each, ",.0f") for each in found)

    return (
        right("batch", "batch"), left("runner", "runner"), left("precision", "precision"),
        right("GPU µs, median (min)", _pair("gpu")), right("/ ours FP16", "gpu_ratio", ".2f"),
        right("for a second", "sustained_us", ",.0f"), right("host to host µs, median (min)", _pair("host")),
        right("/ ours FP16", "host_ratio", ".2f"), right("times darknet's speed", "over_darknet", ".1f"),
        right("floors µs: arithmetic, memory, launches", needs), right("kernels", "kernels", "d"),
        right("error of the head", "error", ".0e"),
    )  # fmt: skip


_PINNED = (
    right("batch", "batch"), left("arrays in pinned memory", "runner"), left("precision", "precision"),
    right("host to host µs, median (min)", _pair("host")), right("/ ours FP16, ordinary arrays", "host_ratio", ".2f"),
    right("times darknet's speed", "over_darknet", ".1f"),
)  # fmt: skip
_IMAGES = (
    left("one image to boxes", lambda row: f"{row['precision']}, {row['size'][0]} x {row['size'][1]}"
         f"{', pinned' * row['pinned']}, {row['boxes']} boxes"),
    right("network alone on the GPU µs", "network_us", ",.0f"),
    right("bytes to boxes, host to host µs, median (min)", _pair("host")),
    right("of it the launch, until its end µs", "launch_us", ",.0f"),
    right("median less the network µs", "beyond_us", ",.0f"),
    right("darknet, the same bytes to boxes µs", lambda row: row.get("darknet_us"), ",.0f"),
    right("times its speed", lambda row: row.get("over_darknet"), ".1f"),
    right("times the speed of its network_predict", lambda row: row.get("over_predict"), ".1f"),
)  # fmt: skip
_FILES = (
    left("JPEG files to boxes", lambda row: f"{row['precision']}, {row['size'][0]} x {row['size'][1]}, {row['bytes'] / 1e3:,.0f} kB"),
    left("decoded by", lambda row: f"{row['threads']} threads" if row["decode"] == "cpu" else "the GPU"),
    right("batch", "batch"), right("images/s", lambda row: 1e6 * row["images"] / row["host_us"], ",.0f"),
    right("decoding alone, images/s", lambda row: 1e6 * row["images"] / row["decoding_us"], ",.0f"),
    right("share of that", lambda row: row["decoding_us"] / row["host_us"], ".0%"),
)  # fmt: skip
_STEPS = (
    left("step", lambda row: f"`{row['step']}`"), left("network (batch 1)", lambda row: f"{row['network']}, {row['precision']}"),
    right("GPU µs with", "gpu_us", ",.1f"), right("without", "without_us", ",.1f"), right("without / with", "ratio", ".2f"),
    right("kernels with", "kernels", "d"), right("without", "without_kernels", "d"),
    right("memory MB with", lambda row: row["bytes"] / 1e6, ".1f"), right("without", lambda row: row["without_bytes"] / 1e6, ".1f"),
)  # fmt: skip


def _other_tables(found: Rows) -> Iterator[str]:
    """Pinned arrays, images, files and steps, of which only those are shown that there are."""
    kinds = {kind: [row for row in found if row["kind"] == kind] for kind in ("image", "files", "step")}
    for columns, some in (
        (_PINNED, race_rows(found, pinned=True)),
        (_IMAGES, kinds["image"]),
        (_FILES, sorted(kinds["files"], key=lambda row: row["decode"])),
        (_STEPS, sorted(kinds["step"], key=lambda row: -row["ratio"])),
    ):
        if some:
            yield table(columns, some)


def gpu_text(record: Record) -> str:
    """GPU, driver, clocks and versions, and the measured ceilings."""
    gpu = record["gpu"]
    ceilings = ", ".join(
        f"{what} {value:,.{2 if value < 10 else 0}f} {unit}"
        for what, _, unit, value in ((*name.rpartition(" "), value) for name, value in gpu["ceilings"].items())
    )
    clocks = f"SM {gpu['clocks.sm']} of {gpu['clocks.max.sm']}, memory {gpu['clocks.mem']}, limit {gpu['power.limit']}"
    number = int(gpu["cudnn"])
    cudnn = f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    note = f" {record['note']}" if record["note"] else ""
    return (
        f"{gpu['gpu']}, driver {gpu['driver_version']}, CUDA {gpu['cuda']}, cuDNN {cudnn}, cudnn-frontend "
        f"{gpu['cudnn-frontend']}, {version_text(gpu)}, Python {record['python']}, on {gpu['processor']}; "
        f"{record['date']}. Clocks under load: {clocks}. Measured in the same run: {ceilings}.{note}"
    )


def left_out(record: Record) -> str:
    """The rows without figures, with the reason; empty where there is none."""
    return "\n".join(["Left out:", "", *(f"- {text}" for text in record["left_out"])]) if record["left_out"] else ""


def earlier_rows(record: Record) -> str:
    """Which rows are of earlier days than the record; empty where none is."""
    days: dict[str, list[str]] = {}
    for row in record["rows"]:
        if row["date"] != record["date"]:
            days.setdefault(row["date"], []).append(row["row"])
    lines = [f"- {day}: {'; '.join(names)}" for day, names in sorted(days.items())]
    return "\n".join(["Rows of earlier days:", "", *lines]) if lines else ""


def _chart(name: str, record: Record, found: Rows) -> Chart:
    """A panel for each batch: bars of the time on the GPU, and host to host behind them."""
    raced = race_rows(found)
    pinned = {_twin(row): row["host_us"] for row in race_rows(found, pinned=True)}
    batches = sorted({row["batch"] for row in raced})
    heights = [sum(row["batch"] == batch for row in raced) for batch in batches]
    title = f"YOLOv2-VOC, 416 x 416, {record['gpu']['gpu']}"

    def draw(canvas: Any) -> None:
        panels = canvas.subplots(len(batches), height_ratios=heights, squeeze=False)[:, 0]
        for batch, axes in zip(batches, panels, strict=True):
            _draw_batch(axes, [row for row in raced if row["batch"] == batch], pinned)
            axes.set_ylabel(f"batch {batch}")
        panels[-1].set_xlabel(
            "µs: the network on the GPU (coloured), from the host to the host (grey), from pinned arrays (line)"
        )
        canvas.suptitle(title, fontsize=10)

    labels = [title, *(text for row in raced for text in (f"{row['runner']}, {row['precision']}", _label(row)))]
    return Chart(f"benchmark-{name}", "latency", 0.3 * sum(heights) + 0.8 * len(batches) + 0.8, draw, labels)


def _draw_batch(axes: Any, shown: Rows, pinned: Mapping[Any, float]) -> None:
    labels = [f"{row['runner']}, {row['precision']}" for row in shown]
    colors = [
        next((color for name, color in _COLORS.items() if row["runner"].startswith(name)), MUTED) for row in shown
    ]
    axes.barh(labels, [row["host_us"] for row in shown], color=MUTED, alpha=0.35, height=0.8)
    axes.barh(labels, [row["gpu_us"] or 0 for row in shown], color=colors, height=0.5)
    for place, row in enumerate(shown):
        axes.annotate(_label(row), (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        if _twin(row) in pinned:
            axes.plot(pinned[_twin(row)], place, "|", color=INK, markersize=12)
    axes.set_xlim(left=0)
    axes.grid(axis="x", color=FAINT)


def _twin(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["runner"], row["precision"], row["batch"]


def _label(row: Mapping[str, Any]) -> str:
    whole = f" {row['host_us']:,.0f} host to host"
    return whole if row["gpu_us"] is None else f" {row['gpu_us']:,.0f} on the GPU,{whole}"
