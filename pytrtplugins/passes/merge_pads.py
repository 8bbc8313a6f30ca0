"""A border of minus infinity around an image becomes that of the MaxPool behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..model.ir import array_of, dims_of, is_op, operand
from ..utils.optional import require
from ..utils.override import override
from ._base import Pass, PassResult
from .constants import PropagateConstants

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["MergePads"]


class MergePads(Pass):
    """Let each MaxPool read the image itself where a Pad puts minus infinity around it, which is what MaxPool has at its own border.

    Networks whose pools round as TensorFlow's do have such a Pad. No scale of int8 fits its values. The pool must not round up, nor say
    where its maxima were, and no side of its border may be as wide as a window, which libraries refuse.
    """

    name: ClassVar[str] = "merge-pads"

    @override
    def call(self, model: ir.Model) -> PassResult:
        attributes = require("onnx_ir", extra="onnx")
        modified = _with_known_widths(model)
        for pool, pad in _padded(model.graph):
            border = _border(pad)
            if border is None or not _is_plain(pool):
                continue
            kernel = pool.attributes.get_ints("kernel_shape", ())
            own = pool.attributes.get_ints("pads", None) or [0] * (2 * len(kernel))
            joined = [a + b for a, b in zip(own, border, strict=False)]
            if len(border) != 2 * len(kernel) or any(a >= b for a, b in zip(joined, [*kernel, *kernel], strict=True)):
                continue
            pool.replace_input_with(0, pad.inputs[0])
            pool.attributes["pads"] = attributes.AttrInt64s("pads", joined)
            modified = True
        return PassResult(model, modified)


def _padded(graph: ir.Graph) -> list[tuple[ir.Node, ir.Node]]:
    """The pools behind a border of minus infinity, each with the Pad that makes it."""
    pairs = [
        (node, read.producer()) for node in graph if is_op(node, "MaxPool") and (read := node.inputs[0]) is not None
    ]
    return [(pool, pad) for pool, pad in pairs if pad is not None and is_op(pad, "Pad") and _is_low(operand(pad, 2))]


def _with_known_widths(model: ir.Model) -> bool:
    """Compute the widths of such borders, which PyTorch's exporter writes as arithmetic with constants."""
    arithmetic = set[Any]()
    for _, pad in _padded(model.graph):
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
    """Widths of a border along the axes behind the channels, as MaxPool writes them; None where there are others or they are not known."""
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
    whole = [*begins[:2], *ends[:2]] == [0] * 4 and min(*begins, *ends) >= 0
    return [*begins[2:], *ends[2:]] if whole else None


def _is_low(value: ir.Value | None) -> bool:
    """Whether a tensor is the number minus infinity."""
    array = array_of(value)
    return array is not None and array.size == 1 and array.dtype.kind == "f" and bool(np.isneginf(array).all())


def _is_plain(pool: ir.Node) -> bool:
    """Whether a pool has a border of its own as it says, rounds down, and gives maxima alone."""
    indices = pool.outputs[1:]
    return (
        pool.attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
        and not pool.attributes.get_int("ceil_mode", 0)
        and not any(value.uses() or value.is_graph_output() for value in indices)
    )
