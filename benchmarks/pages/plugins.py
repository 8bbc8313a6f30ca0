"""Plugins on a GPU: the bandwidth of Reorg, and what `enqueue` takes in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .table import left, table

__all__ = ["enqueue", "reorg"]

_LAYOUTS = {"linear": "linear", "nhwc": "NHWC"}
_TYPES = {"float32": "FP32", "float16": "FP16", "int8": "INT8"}
_ENQUEUE = (
    left("plugin", "plugin"), left("first µs", lambda row: f"{row['first_us']:.0f}"),
    left("median µs", lambda row: f"{row['median_us']:.1f}"), left("99 % µs", lambda row: f"{row['p99_us']:.1f}"),
)  # fmt: skip


def reorg(name: str, record: dict[str, Any]) -> Iterator[str]:
    """Reorg's part of the bandwidth of a copy, in each type, layout and direction."""
    shares = {(row["image"], row["layout"], row["dtype"], row["reverse"]): row["share"] for row in record["rows"]}
    cases = list(dict.fromkeys((image, layout) for image, layout, _, _ in shares))
    kinds = list(dict.fromkeys((dtype, reverse) for _, _, dtype, reverse in shares))
    columns = [
        left(f"{_TYPES[dtype]} {'reverse' if reverse else 'forward'}", f"{dtype} {reverse}") for dtype, reverse in kinds
    ]
    rows = [
        {"image": image, "layout": _LAYOUTS[layout]}
        | {f"{dtype} {reverse}": f"{100 * shares[image, layout, dtype, reverse]:.0f} %" for dtype, reverse in kinds}
        for image, layout in sorted(cases, key=lambda case: -int(case[0].partition(" ")[0]))
    ]
    yield table([left("image", "image"), left("layout", "layout"), *columns], rows)


def enqueue(name: str, record: dict[str, Any]) -> Iterator[str]:
    """Microseconds of the first, the median and nearly the slowest call of each plugin."""
    yield table(_ENQUEUE, record["rows"])
