"""TopK, ArgMax and ArgMin: the best of each row by its key; of equal values the first, and NaN above all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....tensor import DType
from ..index import Index
from ..text import C_TYPES
from .rows import Rows, entry_bytes, power_of_two, row_kernel_text
from .table import Described, KernelSource, Node, indexed

__all__: list[str] = []

_SHARED_BYTES = 32 << 10
"""Of entries that a block sorts in shared memory."""
_SCRATCH_BYTES = 1 << 30
"""Of those that blocks sort in memory, at most."""
_LONG, _MAX_SPLITS, _BLOCKS = 1 << 14, 16, 256
"""Values of a row that blocks share; how many blocks do, at most; and how many blocks are enough."""
_MANY_ROWS, _SHORT = 1 << 15, 32
"""With so many rows, or so few values, an ArgMax has a thread for each row."""
_PART, _MAX_PARTS = 1 << 10, 32
"""Values of an ArgMax that a block has of a row that several share, at least; how many do, at most."""


def _top_k_fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    dims, dtype = inputs[0]
    if not dims or dtype not in C_TYPES or dtype is DType.BOOL:
        return False
    rows = Rows(dims, at.get("axis", -1) % len(dims))
    return 2 * rows.count * power_of_two(rows.length) * entry_bytes(dtype) <= _SCRATCH_BYTES


@indexed("TopK", fits=_top_k_fits, reads=(0,))
def _top_k(node: Node) -> KernelSource:
    x, at = node.inputs[0], node.attributes
    rows = Rows(x.move.dims, at.get("axis", -1) % len(x.move.dims))
    length, count = rows.length, node.output.dims[rows.axis]
    size = power_of_two(count)
    select = size < power_of_two(length)
    splits = _splits(rows, count) if select else 1
    threads = min(1024, max(32, power_of_two(length // splits) // 8))
    entry = entry_bytes(x.dtype)
    near = min(size, _SHARED_BYTES // entry)
    shared = near == size
    sorted_bytes = 0 if shared else rows.count * size * entry  # in memory, before what the blocks of a row find
    found_bytes = rows.count * splits * count * entry if splits > 1 else 0
    place = Index.counter("place", length)
    body = [
        f"unsigned const row = blockIdx.x / {splits}u;", *rows.lines(),
        f"auto const value_at = [&](unsigned place) {{ return {x.scalar(rows.at(place))}; }};",
        "__shared__ Entry near[NEAR];", "char* const memory = static_cast<char*>(scratch);",
        "Entry* const entries = near;" if shared else f"Entry* const entries = reinterpret_cast<Entry*>(memory) + row * {size}ull;",
        f"Entry* const found = reinterpret_cast<Entry*>(memory + {sorted_bytes}ull) + row * {splits * count}ull;",
        f"unsigned* const done = reinterpret_cast<unsigned*>(memory + {sorted_bytes + found_bytes}ull) + row;",
        "if (!best_of_row(entries, near, found, done, value_at)) return;",
        f"for (unsigned k = threadIdx.x; k < {count}u; k += THREADS) {{",
        "    unsigned const place = entries[k].place;",
        *_stores(node, rows, count), "}",
    ]  # fmt: skip
    constants: dict[str, int | str] = {
        "N": length, "K": count, "SIZE": size, "NEAR": near, "SELECT": int(select), "SPLITS": splits, "THREADS": threads,
        "RANK_BITS": -(-length.bit_length() // 8) * 8, "LARGEST": int(at.get("largest", 1)), "X": C_TYPES[x.dtype],
    }  # fmt: skip
    text = row_kernel_text(node, threads, ("order_keys.cu", "sort.cu", "top_k.cu"), constants, body, last=2)
    scratch = sorted_bytes + found_bytes + (4 * rows.count if splits > 1 else 0)
    return KernelSource(text, rows.count * splits, threads, False, scratch)


def _splits(rows: Rows, count: int) -> int:
    """Blocks that share a row: of few long ones, of which each block finds few."""
    if rows.length < _LONG:
        return 1
    return max(1, min(_MAX_SPLITS, rows.length // max(_LONG // 4, 2 * count), _BLOCKS // rows.count))


def _stores(node: Node, rows: Rows, count: int) -> list[str]:
    """C: write the value and the place of a row's entry number ``k``."""
    lines, number = [], Index.counter("k", count)
    for index, (form, value) in enumerate(zip(node.outputs, ("value_at(place)", "place"), strict=False)):
        if form is not None:
            kind = C_TYPES[form.dtype]
            target = rows.address(form, f"static_cast<{kind}*>(y{index})", number)
            lines.append(f"    *({target}) = static_cast<{kind}>({value});")
    return lines


def _arg_fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return bool(inputs[0][0]) and inputs[0][1] in C_TYPES


@indexed("ArgMax", "ArgMin", fits=_arg_fits, reads=(0,))
def _arg(node: Node) -> KernelSource:
    x, at = node.inputs[0], node.attributes
    rows, output = Rows(x.move.dims, at.get("axis", 0) % len(x.move.dims)), node.output
    alone = rows.count >= _MANY_ROWS or rows.length <= _SHORT
    share = 1 if alone else min(256, power_of_two(rows.length + 1) // 2)
    splits = max(1, min(_MAX_PARTS, rows.length // _PART, _BLOCKS // rows.count))
    threads = share if splits > 1 else max(128, share)
    place = Index.counter("place", rows.length)
    strides = list(output.strides)
    if len(strides) < len(rows.dims):  # keepdims=0
        strides.insert(rows.axis, 0)
    offset = Index()
    for index, stride in zip(rows.at(Index()), strides, strict=True):
        offset = offset + index * stride
    body = [
        f"unsigned const number = blockIdx.x / SPLITS * {threads // share}u + threadIdx.x / THREADS;",
        f"unsigned const row = number < {rows.count}u ? number : {rows.count - 1}u;", *rows.lines(),
        f"auto const value_at = [&](unsigned place) {{ return {x.scalar(rows.at(place))}; }};",
        f"unsigned const best = best_place(value_at, row, {rows.count}u, scratch);",
        f"if (number < {rows.count}u && best < N) {{",
        f"    static_cast<{C_TYPES[output.dtype]}*>(y0)[{offset.text}] = best;", "}",
    ]  # fmt: skip
    constants = {
        "N": rows.length, "THREADS": share, "BLOCK": threads, "SPLITS": splits, "LARGEST": int(node.op == "ArgMax"),
        "LAST": int(bool(at.get("select_last_index"))),
    }  # fmt: skip
    text = row_kernel_text(node, threads, ("order_keys.cu", "arg.cu"), constants, body)
    scratch = rows.count * (splits * entry_bytes(x.dtype) + 4) if splits > 1 else 0
    return KernelSource(text, -(-rows.count // (threads // share)) * splits, threads, False, scratch)
