"""Elementwise operators that are connected, and reductions among them → one node, which one generated kernel runs."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from ....model.ir import constant, dims_of, dtype_of, is_op, set_attributes
from ....model.proto import node_name
from ....passes import Pass, PassResult
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override
from ..device.expression import Expression
from ..naming import naming
from .operations import Writer, is_elementwise
from .reductions import row_axes, write_reduction
from .rewrite import DOMAIN

__all__ = ["GroupPointwise"]

_FLOATS = (DType.FLOAT32, DType.FLOAT16)
_MAX_NODES = 48
_MAX_TENSORS = 14
"""Inputs and outputs of a group: what a thread has of each stays in registers."""
_MAX_REPEATED = 8
"""Nodes of a group that is computed again for each place that it is broadcast to: cheaper than a kernel of its own."""


class GroupPointwise(Pass):
    """Groups of elementwise nodes → ``Pointwise`` of this engine's domain, with reductions ``Rows``; sizes are known.

    Inputs: tensors, broadcast to the dims of the outputs, and constants of more than one value. Attributes: ``operations``,
    the texts of `Expression`; ``results``, which of its values each output is; of ``Rows`` the ``dims`` of the elements and the
    ``axes`` of a row, and its outputs may have one value for each row.

    A node joins the group of one that it reads (1) where all that they give has the same dims, and nothing outside of the
    group lies between them; (2) where that one's group gives smaller tensors, which are broadcast, and nothing else reads them.
    (3) where the one reduces the tensors of the other, or works on the sums: as a softmax behind a scale and a mask. Means of
    images stay apart from what comes before and behind them, which wants more blocks than there are channels.
    So every value is computed by one kernel; what something outside of a group reads is an output of it.

    What stays: (1) a conversion between float types alone: whatever reads it does that; and one to or from int8; (2) what
    constants lead to; (3) nodes that run one by one.

    Args:
        late: Those nodes.
    """

    name: ClassVar[str] = "pointwise"

    def __init__(self, late: Collection[ir.Node] = ()) -> None:
        self._late = frozenset(late)

    @override
    def call(self, model: ir.Model) -> PassResult:
        groups = _Groups(model.graph, self._late).found()
        for group in groups:
            _replace(model.graph, group)
        if groups:
            model.graph.sort()
        return PassResult(model, bool(groups))


@dataclass(eq=False)
class _Group:
    """Nodes that become one; ``mask``, ``before`` and ``behind`` are sets of nodes, as bits."""

    nodes: list[ir.Node]
    dims: tuple[int, ...]
    mask: int
    before: int
    behind: int
    takes_part: bool
    axes: tuple[int, ...] = ()
    """Of a row, where the group has reductions; the dims are those of the elements."""

    @property
    def row_dims(self) -> tuple[int, ...]:
        """Dims of one value for each row."""
        return tuple(1 if axis in self.axes else dim for axis, dim in enumerate(self.dims))

    @property
    def is_of_images(self) -> bool:
        """Whether it reduces whole images."""
        return len(self.dims) == 4 and self.axes == (2, 3)

    def outputs(self) -> list[ir.Value]:
        """Tensors that something else reads."""
        inside = set(self.nodes)
        return [
            value
            for node in self.nodes
            for value in node.outputs
            if value.is_graph_output() or any(use.node not in inside for use in value.uses())
        ]

    def inputs(self) -> list[ir.Value]:
        """Tensors that the nodes read, and constants of more than one value."""
        made = {value for node in self.nodes for value in node.outputs}
        read = dict.fromkeys(value for node in self.nodes for value in node.inputs if value is not None)
        return [value for value in read if value not in made]


class _Groups:
    """Merges nodes of a graph, as long as no group comes before and behind another at a time."""

    def __init__(self, graph: ir.Graph, late: Collection[ir.Node]) -> None:
        self._graph = graph
        nodes = list(graph)
        places = {node: index for index, node in enumerate(nodes)}
        before: list[int] = []
        for node in nodes:
            reached = 0
            for value in node.inputs:
                producer = None if value is None else value.producer()
                if producer in places:
                    reached |= before[places[producer]] | 1 << places[producer]
            before.append(reached)
        behind = [0] * len(nodes)
        for index in reversed(range(len(nodes))):
            for use in itertools.chain.from_iterable(value.uses() for value in nodes[index].outputs):
                if (reader := places.get(use.node)) is not None:
                    behind[index] |= behind[reader] | 1 << reader
        self._of = {
            node: _group(node, 1 << index, before[index], behind[index], node in late) for node, index in places.items()
        }

    def found(self) -> list[_Group]:
        """The groups, those of one node too."""
        pairs = [
            (producer, node)
            for node in self._graph
            for value in node.inputs
            if value is not None and (producer := value.producer()) in self._of and producer is not None
        ]
        for producer, node in pairs:
            self._merge(self._of[producer], self._of[node], equal=True)
        for producer, node in reversed(pairs):
            self._merge(self._of[producer], self._of[node], equal=False)
        return [group for group in dict.fromkeys(self._of.values()) if group.takes_part and not _only_converts(group)]

    def _merge(self, first: _Group, second: _Group, equal: bool) -> None:
        if first is second or not (first.takes_part and second.takes_part):
            return
        if first.behind & second.before & ~(first.mask | second.mask):
            return
        together = _merged_rows(first, second)
        if (together is not None) is not equal:
            return
        if not equal and (first.axes or not _only_feeds(first, second) or len(first.nodes) > _MAX_REPEATED):
            return
        dims, axes = together or (second.dims, second.axes)
        mask = first.mask | second.mask
        merged = _Group(
            [*first.nodes, *second.nodes],
            dims,
            mask,
            (first.before | second.before) & ~mask,
            (first.behind | second.behind) & ~mask,
            True,
            axes,
        )
        if len(merged.nodes) > _MAX_NODES or len(merged.inputs()) + len(merged.outputs()) > _MAX_TENSORS:
            return
        for node in merged.nodes:
            self._of[node] = merged
        for other in dict.fromkeys(self._of.values()):
            if other is not merged:
                if other.before & mask:
                    other.before |= merged.before | mask
                if other.behind & mask:
                    other.behind |= merged.behind | mask


def _group(node: ir.Node, mask: int, before: int, behind: int, late: bool) -> _Group:
    """A node alone."""
    if not late and (row := row_axes(node)) is not None:
        return _Group([node], row[0], mask, before, behind, True, row[1])
    dims = dims_of(node.outputs[0]) if node.outputs else None
    return _Group([node], tuple(dims or ()), mask, before, behind, not late and _can_be_grouped(node))


def _merged_rows(first: _Group, second: _Group) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Dims and row axes of two groups merged; None if their dims or rows differ."""
    if first.axes and second.axes:
        return (first.dims, first.axes) if (first.dims, first.axes) == (second.dims, second.axes) else None
    rows, plain = (first, second) if first.axes else (second, first)
    if first.dims == second.dims and not rows.is_of_images:
        return rows.dims, rows.axes
    return (rows.dims, rows.axes) if rows.axes and plain.dims == rows.row_dims else None


def _can_be_grouped(node: ir.Node) -> bool:
    dims = dims_of(node.outputs[0]) if len(node.outputs) == 1 else None
    return (
        dims is not None
        and all(isinstance(dim, int) for dim in dims)
        and is_elementwise(node)
        and any(value is not None and constant(value) is None for value in node.inputs)
    )


def _only_converts(group: _Group) -> bool:
    """Whether a group only converts types: Casts between floats, and at most one Q or DQ; it stays as it is."""
    others = [
        node
        for node in group.nodes
        if not is_op(node, "Cast")
        or any(dtype_of(value) not in _FLOATS for value in (*node.inputs, *node.outputs) if value)
    ]
    return not others or (len(others) == 1 and others[0].op_type in ("QuantizeLinear", "DequantizeLinear"))


def _only_feeds(first: _Group, second: _Group) -> bool:
    """Whether only the second group reads the outputs of the first one."""
    readers = set(second.nodes)
    return all(
        not value.is_graph_output() and all(use.node in readers for use in value.uses()) for value in first.outputs()
    )


def _replace(graph: ir.Graph, group: _Group) -> None:
    """Replace the nodes of a group by one node."""
    order = {node: index for index, node in enumerate(graph)}
    group.nodes.sort(key=order.__getitem__)
    outputs, writer = group.outputs(), Writer(graph)
    for node in group.nodes:
        with naming(node_name(node), node.op_type):
            if row_axes(node) is not None:
                write_reduction(writer, node)
            else:
                writer.node(node)
    inputs = list(dict.fromkeys(read for _, _, reads in writer.written for read in reads if _is_tensor(read)))
    operations = writer.finished(inputs)
    results = [len(inputs) + writer.made[value] for value in outputs]
    last = group.nodes[-1]
    made = ir.node(
        "Rows" if group.axes else "Pointwise", inputs, domain=DOMAIN, name=last.name, num_outputs=len(outputs)
    )
    if group.axes:
        set_attributes(made, {"dims": list(group.dims), "axes": list(group.axes)})
    set_attributes(made, {"operations": Expression(len(inputs), operations, ()).lines(), "results": results})
    graph.insert_after(last, made)
    for old, new in zip(outputs, made.outputs, strict=True):
        name, shape, kind = old.name, old.shape, old.type
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name, new.name, new.shape, new.type = None, name, shape, kind
    for node in reversed(group.nodes):
        graph.remove(node, safe=True)


def _is_tensor(read: object) -> bool:
    return isinstance(read, ir.Value)
