"""What was to be reached on an H200, set before anything was measured, held against a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .runners import NAME, TORCH_GRAPH, TORCH_TUNED

Rows = Iterable[Mapping[str, Any]]
GPU = "NVIDIA H200"


@dataclass(frozen=True)
class Goal:
    """A limit.

    Attributes:
        what: Of what.
        unit: Of the limit.
        limit: The most; of times (``"x"``) the least.
        find: Rows of a record → the figure; None where it was not measured.
    """

    what: str
    unit: str
    limit: float
    find: Callable[[Rows], float | None]

    @property
    def least(self) -> bool:
        """Whether the figure has to be at least the limit."""
        return self.unit == "x"

    def met(self, figure: float) -> bool:
        """Whether a figure keeps to it."""
        return figure >= self.limit if self.least else figure <= self.limit


def goals_table(rows: Rows) -> str:
    """All goals beside what was measured, as Markdown."""
    rows = list(rows)
    lines = ["| goal set beforehand | at | measured | |", "|---|---:|---:|---|"]
    for goal in GOALS:
        figure = goal.find(rows)
        limit = f"{goal.limit:,g} {goal.unit}"
        if figure is None:
            lines.append(f"| {goal.what} | {limit} | – | not measured |")
        else:
            verdict, digits = "met" if goal.met(figure) else "missed", 2 if figure < 10 else 1
            lines.append(f"| {goal.what} | {limit} | {figure:,.{digits}f} | {verdict} |")
    return "\n".join(lines)


def _race(
    field: str, precision: str, batch: int = 1, runner: str = NAME, pinned: bool = False
) -> Callable[[Rows], Any]:
    wanted = {"kind": "race", "runner": runner, "precision": precision, "batch": batch, "pinned": pinned}
    return lambda rows: _field(field, wanted, rows)


def _image(field: str, precision: str) -> Callable[[Rows], Any]:
    wanted = {"kind": "image", "precision": precision, "size": [768, 576], "pinned": False}
    return lambda rows: _field(field, wanted, rows)


def _field(field: str, wanted: Mapping[str, Any], rows: Rows) -> Any:
    found = (row for row in rows if all(row.get(name) == value for name, value in wanted.items()))
    return next((row.get(field) for row in found), None)


def _over_int8(rows: Rows) -> float | None:
    """FP8's time over INT8's."""
    fp8, int8 = (_race("gpu_us", precision)(rows) for precision in ("FP8", "INT8"))
    return fp8 / int8 if fp8 and int8 else None


def _inverse(find: Callable[[Rows], float | None]) -> Callable[[Rows], float | None]:
    return lambda rows: None if (figure := find(rows)) is None else 1 / figure


def _darknet(precision: str, times: float) -> list[Goal]:
    """Goals for the speed host to host, darknet called in the same way."""
    what, image = f"{precision}, batch 1, times darknet's speed:", "bytes of an image of 768 x 576 to boxes"
    return [
        Goal(f"{what} NumPy to NumPy", "x", times, _race("over_darknet", precision)),
        Goal(f"{what} arrays in pinned memory", "x", times, _race("over_darknet", precision, pinned=True)),
        Goal(f"{what} {image}", "x", times, _image("over_darknet", precision)),
        Goal(f"{what} {image}, darknet its network alone", "x", times, _image("over_predict", precision)),
    ]


GOALS = (
    Goal("FP16, batch 1, on the GPU", "µs", 150, _race("gpu_us", "FP16")),
    Goal("the same, times the speed of PyTorch's CUDA graph", "x", 2.5, _race("gpu_ratio", "FP16", 1, TORCH_GRAPH)),
    Goal("the same, times the speed of torch.compile", "x", 2, _race("gpu_ratio", "FP16", 1, TORCH_TUNED)),
    *_darknet("FP16", 7),
    Goal("INT8, batch 1, on the GPU", "µs", 95, _race("gpu_us", "INT8")),
    Goal("the same, times the speed of FP16", "x", 1, _inverse(_race("gpu_ratio", "INT8"))),
    *_darknet("INT8", 10),
    Goal("FP16, batch 8, on the GPU", "µs", 480, _race("gpu_us", "FP16", 8)),
    Goal("FP16, batch 32, on the GPU", "µs", 1550, _race("gpu_us", "FP16", 32)),
    Goal("INT8, batch 8, on the GPU", "µs", 300, _race("gpu_us", "INT8", 8)),
    Goal("INT8, batch 32, on the GPU", "µs", 900, _race("gpu_us", "INT8", 32)),
    Goal("FP8, batch 1, on the GPU, times the time of INT8", "of it", 1.05, _over_int8),
    Goal("TF32, batch 1, on the GPU", "µs", 450, _race("gpu_us", "TF32")),
    Goal("FP32, batch 1, on the GPU", "µs", 1000, _race("gpu_us", "FP32")),
    Goal("FP16, image of 768 x 576 to boxes, more than the network", "µs", 100, _image("beyond_us", "FP16")),
    Goal("FP16, build that times all kernels", "s", 60, lambda rows: _field("search_s", {"kind": "build"}, rows)),
    Goal("FP16, build that finds them in the cache", "s", 3, lambda rows: _field("cached_s", {"kind": "build"}, rows)),
)
