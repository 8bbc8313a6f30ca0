"""ScatterElements and ScatterND: updates put into a copy of the data, which a step before has made.

Updates of one place are done one after the other in the order of the indices by one thread, whatever the reduction: each run gives
the same bits, and without a reduction the last update stays, as in onnxruntime, though ONNX leaves that open. float16 and bfloat16
are rounded once. Atomic sums would be quicker where many updates have one place, but their order, and so the sum's last bits, would
change from run to run.

Where all updates that may have one place fit, a block finds the first and the last of each place by a hash table in shared memory
(``scatter_table.cu``). Otherwise each update's index is compared with the others' (``scatter.cu``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..expression import computed_in
from ..index import Index
from ..layout import linear
from ..moves import unraveled
from ..pointwise import THREADS, element_text, pointwise_loops
from ..text import C_TYPES
from .rows import Rows, power_of_two, row_kernel_text
from .table import INDICES, Described, KernelSource, Node, indexed, library

__all__: list[str] = []

_REDUCTIONS = {"none": "REPLACE", "add": "ADD", "mul": "MULTIPLY", "max": "LARGEST", "min": "SMALLEST"}
_COMPARISONS = 1 << 30
"""Of indices with each other, at most: a millisecond; of constants none are needed where all places differ."""
_SHARED_BYTES = 48 << 10
"""Of a block's table."""
_BLOCKS = 128
"""With so many a GPU is busy: a block may have more lines then."""
_LINE_UPDATES = 256
"""Updates of a block that has several lines."""


def _axis(at: Any, rank: int) -> int:
    return int(at.get("axis", 0) % rank)


def _types_fit(inputs: Sequence[Described]) -> bool:
    (_, index), (_, dtype) = inputs
    return index in INDICES and dtype in C_TYPES


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    dims = inputs[0][0]
    if not dims or not _types_fit(inputs):
        return False
    return math.prod(dims) * dims[_axis(at, len(dims))] <= _COMPARISONS or _are_distinct(at, outputs[0])


def _are_distinct(at: Any, output: Described | None) -> bool:
    """Whether all places along the axis differ; False where they are computed."""
    index = at["known"].get(1)
    if index is None or output is None:
        return False
    axis = _axis(at, index.ndim)
    ordered = np.sort(index % output[0][axis], axis=axis)
    return bool((np.diff(ordered, axis=axis) != 0).all())


def _nd_fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    ((*outer, count), _), (dims, _) = inputs
    fits = math.prod(dims) * math.prod(outer) * count <= _COMPARISONS or _nd_are_distinct(at, outputs[0])
    return bool(count) and fits and _types_fit(inputs)


def _nd_are_distinct(at: Any, output: Described | None) -> bool:
    index = at["known"].get(1)
    if index is None or output is None:
        return False
    sizes = output[0][: index.shape[-1]]
    places = np.ravel_multi_index(tuple(np.moveaxis(index % np.array(sizes), -1, 0)), sizes)
    return bool(len(np.unique(places)) == places.size)


@indexed("Scatter", "ScatterElements", fits=_fits, reads=(1, 2), fills=True, checks=True)
def _scatter_elements(node: Node) -> KernelSource:
    index, form = node.inputs[0], node.output
    dims = index.move.dims
    axis = _axis(node.attributes, len(dims))
    kernel = _Scatter(node, dims, dims[axis] == 1 or _are_distinct(node.attributes, (form.dims, form.dtype)))
    other = kernel.replaced(axis, Index.counter("other", dims[axis]))
    place = kernel.replaced(axis, Index.counter("key", form.dims[axis]))
    key = f"position({index.scalar(other)}, {form.dims[axis]}, note)"
    if not kernel.distinct and _table_bytes(dims[axis]) <= _SHARED_BYTES:
        return _elements_by_table(node, axis)
    target = sum((at * stride for at, stride in zip(place, form.strides, strict=True)), Index())
    return kernel.source(dims[axis], kernel.at[axis], key, other, target.text)


@indexed("ScatterND", fits=_nd_fits, reads=(1, 2), fills=True, checks=True)
def _scatter_nd(node: Node) -> KernelSource:
    (index, updates), form = node.inputs, node.output
    *outer, count = index.move.dims
    total, rank = math.prod(outer), len(outer)
    kernel = _Scatter(node, updates.move.dims, total == 1 or _nd_are_distinct(node.attributes, (form.dims, form.dtype)))
    other = unraveled([Index.counter("other", total)], (total,), tuple(outer))
    parts = zip(form.dims[:count], form.strides[:count], range(count), strict=True)
    key = " + ".join(
        f"position({index.scalar([*other, Index((), number)])}, {size}, note) * {stride}u"
        for size, stride, number in parts
    )
    if not kernel.distinct and _table_bytes(total) <= _SHARED_BYTES:
        return _slices_by_table(node, key, other)
    inner = zip(kernel.at[rank:], form.strides[count:], strict=True)
    offset = sum((at * stride for at, stride in inner), Index())
    flat = sum((at * math.prod(outer[axis + 1 :]) for axis, at in enumerate(kernel.at[:rank])), Index())
    return kernel.source(total, flat, key, [*other, *kernel.at[rank:]], f"key + {offset.text}")


class _Scatter:
    """A kernel whose threads have an update each.

    Args:
        node: What is computed, of indices and updates.
        dims: Of the updates that are put.
        distinct: Whether no two of them have the same place.

    Attributes:
        at: Where a thread's update is.
        distinct: As given.
    """

    def __init__(self, node: Node, dims: Sequence[int], distinct: bool) -> None:
        self._node, self.distinct = node, distinct
        self._loops = pointwise_loops((), [linear(tuple(dims), node.inputs[1].dtype)], 1)
        self.at = self._loops.at(len(dims), 1, Index())

    def replaced(self, axis: int, index: Index) -> list[Index]:
        """Where the update is, with another index along an axis."""
        return [*self.at[:axis], index, *self.at[axis + 1 :]]

    def source(self, count: int, self_text: Index, key: str, other: Sequence[Index], target: str) -> KernelSource:
        """The kernel.

        Args:
            count: Updates that may have the place of this one.
            self_text: Which of them it is.
            key: C: what tells the place of update ``other`` from others, which notes an index out of range in ``note``.
            other: Where that update is.
            target: C: how many values lie before the place of ``key``.
        """
        form = self._node.output
        kind, how = C_TYPES[form.dtype], _REDUCTIONS[self._node.attributes.get("reduction", "none")]
        types = f"{how}, {'true' if self.distinct else 'false'}, {C_TYPES[computed_in(form.dtype)]}"
        body = [
            *self._loops.place(),
            f"auto const noted_key = [&](unsigned other, bool* note) -> unsigned {{ return {key}; }};",
            "auto const key_at = [&](unsigned other) { return noted_key(other, nullptr); };",
            f"auto const update_at = [&](unsigned other) {{ return static_cast<{kind}>({self._node.inputs[1].scalar(other)}); }};",
            f"unsigned const self = {self_text.text}, key = noted_key(self, flag);",
            f"put<{types}>(static_cast<{kind}*>(y0) + ({target}), key, self, {count}u, key_at, update_at);",
        ]
        items = self._loops.items
        text = element_text("indexed", self._node.parameters, items, body, library("scatter.cu"))
        return KernelSource(text, -(-items // THREADS), THREADS)


def _slots(count: int) -> int:
    """Slots of a table of so many updates."""
    return power_of_two(count + count // 2 + 1)


def _table_bytes(count: int) -> int:
    """Shared memory of a line of so many updates: place, first and last of each slot, and the slot of each update."""
    return 12 * _slots(count) + 2 * count


def _elements_by_table(node: Node, axis: int) -> KernelSource:
    index, updates = node.inputs
    rows, form = Rows(index.move.dims, axis), node.output
    count, lines, here = rows.length, rows.count, Index.counter("self", rows.length)
    most = min(_LINE_UPDATES // count, lines // _BLOCKS, _SHARED_BYTES // _table_bytes(count))
    together = power_of_two(max(most, 1) + 1) // 2
    kind = C_TYPES[form.dtype]
    place = [f"unsigned const row = line; {' '.join(rows.lines())}"]
    functions = {
        "key_at": (
            "unsigned self",
            [*place, f"return position({index.scalar(rows.at(here))}, {form.dims[axis]}, flag);"],
        ),
        "update_at": (
            "unsigned self, unsigned",
            [*place, f"return static_cast<{kind}>({updates.scalar(rows.at(here))});"],
        ),
        "target_at": (
            "unsigned key, unsigned",
            [
                *place,
                f"return {rows.address(form, f'static_cast<{kind}*>(y0)', Index.counter('key', form.dims[axis]))};",
            ],
        ),
    }
    across = form.strides[axis] != 1
    return _by_table(node, functions, {"COUNT": count, "LINES": together, "ACROSS": int(across)}, lines)


def _slices_by_table(node: Node, key: str, other: Sequence[Index]) -> KernelSource:
    (index, updates), form = node.inputs, node.output
    count = index.move.dims[-1]
    dims = updates.move.dims[len(other) :]
    inner = unraveled([Index.counter("inner", math.prod(dims))], (math.prod(dims),), dims)
    parts = zip(inner, form.strides[count:], strict=True)
    offset, kind = sum((at * stride for at, stride in parts), Index()), C_TYPES[form.dtype]
    functions = {
        "key_at": ("unsigned other", ["bool* const note = flag;", f"return {key};"]),
        "update_at": (
            "unsigned other, unsigned inner",
            [f"return static_cast<{kind}>({updates.scalar([*other, *inner])});"],
        ),
        "target_at": ("unsigned key, unsigned inner", [f"return static_cast<{kind}*>(y0) + (key + {offset.text});"]),
    }
    count = math.prod(index.move.dims[:-1])
    return _by_table(node, functions, {"COUNT": count, "INNER": math.prod(dims)}, 1)


def _by_table(node: Node, functions: Any, constants: dict[str, int], lines: int) -> KernelSource:
    """The kernel.

    Args:
        node: What is computed.
        functions: Of `put_lines` → its parameters behind ``line``, and its body.
        constants: Those of scatter_table.cu that are not 1 or 0, and do not follow from others.
        lines: How many there are.
    """
    at = {"INNER": 1, "LINES": 1, "ACROSS": 0, **constants}
    slots, updates = _slots(at["COUNT"]), at["COUNT"] * at["LINES"]
    threads = min(256, max(32, power_of_two(updates)))
    splits = min(2 * _BLOCKS, -(-updates * at["INNER"] // (4 * threads))) if lines == 1 else 1
    shift = 32 - (slots.bit_length() - 1)
    numbers = {**at, "SLOTS": slots, "SHIFT": shift, "THREADS": threads, "SPLITS": splits}
    how, real = _REDUCTIONS[node.attributes.get("reduction", "none")], C_TYPES[computed_in(node.output.dtype)]
    body = []
    for name, (parameters, lines_of_body) in functions.items():
        body += [f"auto const {name} = [&](unsigned line, {parameters}) {{", *lines_of_body, "};"]
    body.append(f"put_lines<{how}, {real}>({lines}u, {', '.join(functions)});")
    text = row_kernel_text(node, threads, ("scatter.cu", "scatter_table.cu"), numbers, body)
    return KernelSource(text, -(-lines // at["LINES"]) * splits, threads, False)
