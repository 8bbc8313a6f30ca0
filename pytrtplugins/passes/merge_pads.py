"""Merge a Pad with minus infinity into the pads of the MaxPool after it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..model.ir import array_of, dims_of, is_op, operand
from ..utils.optional import ir
from ..utils.override import override
from ._base import Pass, PassResult
from .constants import PropagateConstants

__all__ = ["MergePads"]


class MergePads(Pass):
    """Merge a Pad with minus infinity into the MaxPool that reads it, whose own border has the same value.

    Networks whose pools round as TensorFlow's do have such a Pad. No scale of int8 fits its values. The pool must not round up, nor say
    where its maxima were, and no side of its border may be as wide as a window, which libraries refuse.
    """

    name: ClassVar[str] = "merge-pads"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = _fold_widths(model)
        for pool, pad in _padded_pools(model.graph):
            border = _border(pad)
            if border is None or not _is_plain(pool):
                continue
            kernel = pool.attributes.get_ints("kernel_shape", ())
            pool_pads = pool.attributes.get_ints("pads", None) or [0] * (2 * len(kernel))
            joined = [a + b for a, b in zip(pool_pads, border, strict=False)]
            if len(border) != 2 * len(kernel) or any(a >= b for a, b in zip(joined, [*kernel, *kernel], strict=True)):
                continue
            pool.replace_input_with(0, pad.inputs[0])
            pool.attributes["pads"] = ir.AttrInt64s("pads", joined)
            modified = True
        return PassResult(model, modified)


def _padded_pools(graph: ir.Graph) -> list[tuple[ir.Node, ir.Node]]:
    """The pools after a Pad with minus infinity, each with its Pad."""
    pairs = [
        (node, read.producer()) for node in graph if is_op(node, "MaxPool") and (read := node.inputs[0]) is not None
    ]
    return [(pool, pad) for pool, pad in pairs if pad is not None and is_op(pad, "Pad") and _is_low(operand(pad, 2))]


def _fold_widths(model: ir.Model) -> bool:
    """Fold the widths of such Pads, which PyTorch's exporter writes as arithmetic with constants."""
    arithmetic = set[Any]()
    for _, pad in _padded_pools(model.graph):
        waiting = [pad.inputs[1]]
        while waiting:
            node = None if (read := waiting.pop()) is None else read.producer()
            if node is not None and node not in arithmetic:
                arithmetic.add(node)
                waiting += node.inputs
    if all(node.op_type == "Constant" for node in arithmetic):
        return False
    return bool(PropagateConstants(computes=lambda node: node in arithmetic)(model).modified)


def _border(pad: ir.Node) -> list[int] | None:
    """The pads of a Pad node along the spatial axes, in MaxPool's order; None if other axes are padded or they are unknown."""
    widths, axes = array_of(operand(pad, 1)), operand(pad, 3)
    rank = len(dims_of(pad.inputs[0]) or ())
    if pad.attributes.get_string("mode", "constant") != "constant" or widths is None or not rank:
        return None
    places = range(rank) if axes is None else array_of(axes)
    if places is None or np.ndim(places) != 1 or np.shape(widths) != (2 * len(places),):
        return None
    if not all(-rank <= place < rank for place in places):
        return None
    begins, ends = [0] * rank, [0] * rank
    for number, place in enumerate(places):
        begins[place], ends[place] = int(widths[number]), int(widths[number + len(places)])
    is_image_border = [*begins[:2], *ends[:2]] == [0] * 4 and min(*begins, *ends) >= 0
    return [*begins[2:], *ends[2:]] if is_image_border else None


def _is_low(value: ir.Value | None) -> bool:
    """Whether a tensor is the number minus infinity."""
    array = array_of(value)
    return array is not None and array.size == 1 and array.dtype.kind == "f" and bool(np.isneginf(array).all())


def _is_plain(pool: ir.Node) -> bool:
    """Whether a pool has explicit pads, rounds down, and has no index output."""
    indices = pool.outputs[1:]
    return (
        pool.attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
        and not pool.attributes.get_int("ceil_mode", 0)
        and not any(value.uses() or value.is_graph_output() for value in indices)
    )
