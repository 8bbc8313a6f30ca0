"""ScatterElements and ScatterND: updates put into a copy of the data, which a step before has made.

Updates of one place are done one after the other in the order of the indices by one thread, whatever the reduction: each run gives
the same bits, and without a reduction the last update stays. float16 and bfloat16 are rounded once.
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
from .table import INDICES, Described, KernelSource, Node, indexed, library

__all__: list[str] = []

_REDUCTIONS = {"none": "REPLACE", "add": "ADD", "mul": "MULTIPLY", "max": "LARGEST", "min": "SMALLEST"}
_COMPARISONS = 1 << 30
"""Of indices with each other, at most: a millisecond; of constants none are needed where all places differ."""


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


@indexed("Scatter", "ScatterElements", fits=_fits, reads=(1, 2), fills=True)
def _scatter_elements(node: Node) -> KernelSource:
    index, form = node.inputs[0], node.output
    dims = index.move.dims
    axis = _axis(node.attributes, len(dims))
    kernel = _Scatter(node, dims, _are_distinct(node.attributes, (form.dims, form.dtype)))
    other = kernel.replaced(axis, Index.counter("other", dims[axis]))
    place = kernel.replaced(axis, Index.counter("key", form.dims[axis]))
    key = f"position({index.scalar(other)}, {form.dims[axis]}, note)"
    target = sum((at * stride for at, stride in zip(place, form.strides, strict=True)), Index())
    return kernel.source(dims[axis], kernel.at[axis], key, other, target.text)


@indexed("ScatterND", fits=_nd_fits, reads=(1, 2), fills=True)
def _scatter_nd(node: Node) -> KernelSource:
    (index, updates), form = node.inputs, node.output
    *outer, count = index.move.dims
    total, rank = math.prod(outer), len(outer)
    kernel = _Scatter(node, updates.move.dims, _nd_are_distinct(node.attributes, (form.dims, form.dtype)))
    other = unraveled([Index.counter("other", total)], (total,), tuple(outer))
    parts = zip(form.dims[:count], form.strides[:count], range(count), strict=True)
    key = " + ".join(
        f"position({index.scalar([*other, Index((), number)])}, {size}, note) * {stride}u"
        for size, stride, number in parts
    )
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
    """

    def __init__(self, node: Node, dims: Sequence[int], distinct: bool) -> None:
        self._node, self._distinct = node, distinct
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
        types = f"{how}, {'true' if self._distinct else 'false'}, {C_TYPES[computed_in(form.dtype)]}"
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
