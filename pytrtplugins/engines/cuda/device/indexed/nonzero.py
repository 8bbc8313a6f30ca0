"""PaddedNonZero, NonZero with room for the places of all values: blocks count theirs, and write them behind those of the blocks before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .....tensor import DType
from ..index import Index
from ..loops import Axis, index_lines
from ..operands import Operand
from ..text import C_TYPES
from .rows import row_kernel_text
from .table import Described, KernelSource, Node, indexed

__all__: list[str] = []

_THREADS, _VALUES = 256, 16
"""Of a block, and values of a thread."""


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return all(dtype in C_TYPES and math.prod(dims) < 1 << 31 for dims, dtype in inputs) and None not in outputs


@indexed("PaddedNonZero", fits=_fits, reads=(0,))
def _nonzero(node: Node) -> KernelSource:
    (x,) = node.inputs
    dims, count = x.move.dims, math.prod(x.move.dims)
    blocks = -(-count // (_THREADS * _VALUES))
    lines = index_lines([Axis(size, ()) for size in dims], "i", "left")
    places = [Index.counter(f"i{axis}", size) for axis, size in enumerate(dims)]
    where = " ".join(["unsigned left = place;", *lines])
    writes = (f"rows[{axis * count}ull + to] = i{axis};" for axis in range(len(dims)))
    body = [
        "long long* const rows = static_cast<long long*>(y0);",
        "find_nonzero(",
        f"    [&](unsigned place) {{ {where} return {_number(x)}({x.scalar(places)}) != 0; }},",
        f"    [&](unsigned place, unsigned to) {{ {where} {' '.join(writes)} }},",
        "    static_cast<volatile unsigned*>(scratch), static_cast<long long*>(y1));",
    ]
    constants: dict[str, int | str] = {
        "N": count, "THREADS": _THREADS, "VALUES": _VALUES, "CHUNK": _THREADS * _VALUES, "BLOCKS": blocks,
    }  # fmt: skip
    text = row_kernel_text(node, _THREADS, ("block_sums.cu", "nonzero.cu"), constants, body)
    return KernelSource(text, blocks, _THREADS, False, 4 * (blocks + 2))


def _number(x: Operand) -> str:
    """C: the type in which a value is compared with zero."""
    return "static_cast<float>" if x.dtype in (DType.FLOAT16, DType.BFLOAT16) else ""
