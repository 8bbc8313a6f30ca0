"""Convolutions that read the same tensor → one: fused nodes in, fused nodes and a Split out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....model.ir import add_constant, array_of, is_op, swap
from ....utils.optional import ir
from ..device.layout import VECTOR_BYTES
from .attention import MOVING
from .rewrite import DOMAIN, Rewrite, has_residual, has_rows, scale_of, weight_dims

__all__ = ["FuseHorizontally"]

_FORM = ("strides", "pads", "dilations", "activation", "bounds", "x_scale", "pool")
_HOMOGENEOUS = ("linear", "leaky", "prelu")
"""Activations with f(a * v) = a * f(v) for a > 0: each part may write codes of a scale of its own."""
_MULTIPLIED = (2, 4)
"""Inputs of a convolution: its biases, and its weights' scales."""


class FuseHorizontally(Rewrite["list[ir.Node]"]):
    """1x1 convolutions of one tensor, of one form → one convolution, split behind it: inception and CSP blocks have them.

    So do the products that give an attention's q, k and v: it reads their columns where they lie.

    Together they read the tensor once, and fill the GPU better. Where they write codes of different scales, their biases and their
    weights' scales are multiplied, so that one scale serves all. The parts are runs of channels of the fused result, so the
    Split costs nothing where its readers are convolutions or pools. Those that a concat begins or ends with come last or
    first, next to what the concat's other producers write: the concat lies over the fused result then. A convolution that
    a concat has elsewhere writes into the concat's memory by itself.

    What does not match: (1) a convolution with a residual; (2) one of a larger filter, of groups, with a reorg or blocks,
    or of rows for anything but an attention; (3) one whose
    channels do not fill 16 bytes; (4) one that a plugin or the network's output reads, which want memory without gaps;
    (5) convolutions of two forms, to which the scale of their codes belongs where an activation is not `_HOMOGENEOUS`, or
    weights have no scales of their own to multiply; (6) one in
    the middle of a concat, or at its end where that begins within 16 bytes.
    """

    name: ClassVar[str] = "horizontal-fusion"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def begin(self, graph: ir.Graph) -> None:
        """Find what is fused, by the first convolution of its form."""
        groups: dict[Any, list[ir.Node]] = {}
        for node in graph:
            key = _key(node)
            if key is not None:
                groups.setdefault(key, []).append(node)  # case 5: each form has its group
        fused = {nodes[0]: _choose_order(nodes) for nodes in groups.values()}
        self._fused = {first: nodes for first, nodes in fused.items() if len(nodes) > 1}

    def match(self, node: ir.Node) -> list[ir.Node] | None:
        """The convolutions, in the order of their channels."""
        return self._fused.get(node)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: list[ir.Node]) -> None:
        """Put one convolution and a Split in their place."""
        _fuse(graph, match)


def _key(node: ir.Node) -> Any:
    """What convolutions that are fused have in common; None for a node that is not fused."""
    if not is_op(node, "Conv", DOMAIN) or has_residual(node):  # case 1
        return None
    at, dims = node.attributes, weight_dims(node)
    if dims[2:] != (1, 1) or at["group"].as_int() != 1 or at["reorg"].as_int() or at["blocks"].as_int():
        return None  # case 2
    rows = has_rows(node)
    if rows and not _leads_to_attention(node.outputs[0]):
        return None
    if not rows and (dims[0] % _channel_alignment(node) or not _is_read_as_view(node)):  # cases 3 and 4
        return None
    form = tuple(str(at[name].value) for name in _FORM)
    y_scale = scale_of(node, "y_scale")
    one_scale_serves = at["activation"].as_string() in _HOMOGENEOUS and scale_of(node, "x_scale") > 0
    form += (str(y_scale > 0 if one_scale_serves else y_scale),)
    return node.inputs[0], node.inputs[1].dtype, node.outputs[0].dtype, len(node.inputs), form  # type: ignore[union-attr]


def _leads_to_attention(value: ir.Value) -> bool:
    """Whether only Attention nodes read a tensor, as q, k or v, possibly through data movement."""

    def leads(node: ir.Node, index: int) -> bool:
        if is_op(node, "Attention", DOMAIN):
            return index < 3
        return not node.domain and node.op_type in MOVING and index == 0 and all(map(_leads_to_attention, node.outputs))

    uses = value.uses()
    return bool(uses) and not value.is_graph_output() and all(leads(use.node, use.idx) for use in uses)


def _is_read_as_view(node: ir.Node) -> bool:
    """Whether all readers accept a strided view of channels; plugins and network outputs need dense memory."""
    output = node.outputs[0]
    return not output.is_graph_output() and all(use.node.domain in ("", DOMAIN) for use in output.uses())


def _channel_alignment(node: ir.Node) -> int:
    """Channel alignment that a part needs to be a view."""
    return VECTOR_BYTES if scale_of(node, "y_scale") else VECTOR_BYTES // 2


def _choose_order(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Choose which convolutions of one key are fused, in the order of their channels, so that concats can share memory (case 6)."""
    joins = {node: _concats(node) for node in nodes}
    others = [node for node in nodes if not joins[node]]
    best: list[ir.Node] = []
    order = others
    for concat in dict.fromkeys(concat for found in joins.values() for concat in found):
        parts = [value.producer() if value is not None else None for value in concat.inputs]
        first = _leading_convolutions(parts, nodes)
        last = _leading_convolutions(parts[::-1], nodes)[::-1]
        if len(first) > len(best):
            best, order = first, [*others, *first]
        if len(last) > len(best) and _is_tail_aligned(concat, last):
            best, order = last, [*last, *others]
    return order


def _concats(node: ir.Node) -> list[ir.Node]:
    """Concat nodes along the channels that read a convolution."""
    readers = [use.node for use in node.outputs[0].uses()]
    return [reader for reader in readers if is_op(reader, "Concat") and reader.attributes.get_int("axis") in (1, -3)]


def _leading_convolutions(parts: Sequence[ir.Node | None], nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """The longest prefix of a concat's parts that are distinct convolutions of the list."""
    prefix: list[ir.Node] = []
    for part in parts:
        if part is None or part not in nodes or part in prefix:
            break
        prefix.append(part)
    return prefix


def _is_tail_aligned(concat: ir.Node, last: Sequence[ir.Node]) -> bool:
    """Whether the last parts of a concat begin at an aligned channel, so that they can be a view."""
    before = [value.shape for value in concat.inputs[: len(concat.inputs) - len(last)] if value is not None]
    sizes = [shape[1] for shape in before if shape is not None and isinstance(shape[1], int)]
    return len(sizes) == len(before) and sum(sizes) % _channel_alignment(last[0]) == 0


def _fuse(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    first = nodes[0]
    axis = -1 if has_rows(first) else 1
    operands: list[Any] = [first.inputs[0]]
    for place in range(1, len(first.inputs)):
        parts = [array_of(node.inputs[place]) for node in nodes]
        if place in _MULTIPLIED and scale_of(first, "y_scale"):
            steps = [scale_of(node, "y_scale") for node in nodes]
            parts = [part * np.float32(steps[0] / step) for part, step in zip(parts, steps, strict=True)]
        name = f"{first.outputs[0].name}.fused{place}"
        operands.append(None if parts[0] is None else add_constant(graph, name, np.concatenate(parts)))
    sizes = [weight_dims(node)[0] for node in nodes]
    values = {name: attribute.value for name, attribute in first.attributes.items()}
    fused = ir.node("Conv", operands, values, domain=DOMAIN, name=f"{first.name}.fused")
    split_sizes = add_constant(graph, f"{first.outputs[0].name}.sizes", np.array(sizes, np.int64))
    split = ir.node("Split", [fused.outputs[0], split_sizes], {"axis": axis}, num_outputs=len(nodes))
    shape = first.outputs[0].shape
    whole = fused.outputs[0]
    whole.name, whole.type = f"{first.outputs[0].name}.fused", first.outputs[0].type
    if shape is not None:
        dims = list(shape)
        dims[axis] = sum(sizes)
        whole.shape = ir.Shape(dims)
    graph.insert_before(min(nodes, key=list(graph).index), [fused, split])
    for node, part in zip(nodes, split.outputs, strict=True):
        swap(graph, [node], part)
