"""Suppress, NonMaxSuppression with room for as many rows as can stay: a block for each class of each image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .....tensor import DType
from ..expression import Number
from ..index import Index
from ..text import operand_text
from .rows import power_of_two, row_kernel_text
from .table import Described, KernelSource, Node, indexed

__all__: list[str] = []

_MAX_THREADS = 256


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return all(dtype is DType.FLOAT32 for _, dtype in inputs) and None not in outputs


@indexed("Suppress", fits=_fits)
def _suppress(node: Node) -> KernelSource:
    (boxes, scores), at = node.inputs, node.attributes
    images, classes, count = scores.move.dims
    pairs = images * classes
    limit = math.prod(node.output.dims) // 3 // pairs
    threads = max(32, min(_MAX_THREADS, power_of_two(count)))
    image, kind, place, side = (
        Index.counter(name, size)
        for name, size in (("image", images), ("kind", classes), ("place", count), ("side", 4))
    )
    candidate_bytes, box_bytes = 8 * pairs * count, 4 * pairs * limit
    overlap, lowest = (
        operand_text(Number(DType.FLOAT32, repr(float(at[name])))) for name in ("iou_threshold", "score_threshold")
    )
    body = [
        "unsigned const pair = blockIdx.x, image = pair / CLASSES, kind = pair % CLASSES;",
        "char* const memory = static_cast<char*>(scratch);",
        f"unsigned* const kept_boxes = reinterpret_cast<unsigned*>(memory + {candidate_bytes}ull);",
        f"unsigned* const counts = reinterpret_cast<unsigned*>(memory + {candidate_bytes + box_bytes}ull);",
        "suppress(",
        f"    [&](unsigned place, unsigned side) {{ return {boxes.scalar([image, place, side])}; }},",
        f"    [&](unsigned place) {{ return {scores.scalar([image, kind, place])}; }}, {overlap}, {lowest},",
        f"    reinterpret_cast<Candidate*>(memory) + pair * {count}ull, kept_boxes + pair * {limit}ull, counts + pair);",
        "write_rows(kept_boxes, counts, counts + PAIRS, static_cast<long long*>(y0), static_cast<long long*>(y1));",
    ]
    constants: dict[str, int | str] = {
        "N": count, "CLASSES": classes, "PAIRS": pairs, "LIMIT": limit, "THREADS": threads,
        "CENTERED": int(bool(at.get("center_point_box"))),
    }  # fmt: skip
    text = row_kernel_text(node, threads, ("suppress.cu",), constants, body)
    return KernelSource(text, pairs, threads, False, candidate_bytes + box_bytes + 4 * pairs + 4)
