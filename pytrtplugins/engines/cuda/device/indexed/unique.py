"""PaddedUnique, Unique with room for all values: one block sorts them, and numbers the runs of equal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..index import Index
from ..loops import Axis, index_lines
from ..text import C_TYPES
from .rows import entry_bytes, power_of_two, row_kernel_text
from .table import Described, KernelSource, Node, indexed

__all__: list[str] = []

_MAX_THREADS, _SHARED_BYTES = 1024, 32 << 10
"""Of the block, and of entries that it sorts in shared memory."""


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return all(dtype in C_TYPES and math.prod(dims) < 1 << 30 for dims, dtype in inputs)


@indexed("PaddedUnique", fits=_fits, reads=(0,))
def _unique(node: Node) -> KernelSource:
    (x,) = node.inputs
    dims, count = x.move.dims, math.prod(x.move.dims)
    size, entry = power_of_two(count), entry_bytes(x.dtype)
    near = min(size, _SHARED_BYTES // entry)
    threads = min(_MAX_THREADS, max(32, size // 8))
    sorted_bytes = 0 if near == size else size * entry  # in memory
    places = [Index.counter(f"i{axis}", length) for axis, length in enumerate(dims)]
    where = " ".join(["unsigned left = place;", *index_lines([Axis(length, ()) for length in dims], "i", "left")])
    values = ("value_at(place)", "place", "run", "number")
    stores = [
        ""
        if form is None
        else f"static_cast<{C_TYPES[form.dtype]}*>(y{index})[{'place' if index == 2 else 'run'}] = {value};"
        for index, (form, value) in enumerate(zip(node.outputs[:-1], values, strict=False))
    ]
    runs = stores.pop(2) if len(stores) > 2 else ""
    body = [
        "__shared__ Entry near[NEAR];", "char* const memory = static_cast<char*>(scratch);",
        f"auto const value_at = [&](unsigned place) {{ {where} return {x.scalar(places)}; }};",
        f"unsigned* const heads = reinterpret_cast<unsigned*>(memory + {sorted_bytes}ull);",
        "find_unique(", "    value_at,",
        f"    [&](unsigned run, unsigned place, unsigned number) {{ {' '.join(stores)} }},",
        f"    [&](unsigned place, unsigned run) {{ {runs} }},",
        f"    {'near' if near == size else 'reinterpret_cast<Entry*>(memory)'}, near, heads, heads + N,",
        f"    static_cast<long long*>(y{len(node.outputs) - 1}));",
    ]  # fmt: skip
    constants: dict[str, int | str] = {
        "N": count, "SIZE": size, "NEAR": near, "THREADS": threads, "CHUNK": -(-count // threads),
        "SORTED": int(node.attributes.get("sorted", 1)), "X": C_TYPES[x.dtype],
    }  # fmt: skip
    files = ("order_keys.cu", "block_sums.cu", "sort.cu", "unique.cu")
    text = row_kernel_text(node, threads, files, constants, body, last=2)
    return KernelSource(text, 1, threads, False, sorted_bytes + 8 * count)
