"""Find tensors with data-dependent dims, and tensors that only some branches compute."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ....model.ir import constant, operand
from ....model.operator_traits import Trait, operators
from ....utils.optional import ir
from ..operators import HOST_INPUTS

__all__ = ["CONTROL_FLOW", "SIZED", "data_dependent_values", "values_read_by"]

CONTROL_FLOW = operators(Trait.SUBGRAPHS)
_CHOOSE, _READ_DIMS = operators(Trait.DATA_DEPENDENT), operators(Trait.READS_SHAPE)
_NONE = "pytrtplugins.cuda.no_data_dependent_values"
"""Key in a graph's notes for passes, which no file keeps."""
_SOURCES = frozenset((*CONTROL_FLOW, *_CHOOSE))
SIZED = (
    *(
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "ConstantOfShape",
        "Split",
        "Resize",
        "Upsample",
        "Tile",
        "Col2Im",
        "MaxUnpool",
    ),
)
"""Operators whose functions give what they are told to give: where values say the sizes, dims that a file declares do not tell them."""


def values_read_by(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads: its inputs, and outer-scope values that its subgraphs read."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        graphs = [attribute.value] if attribute.type.name == "GRAPH" else ()
        for graph in attribute.value if attribute.type.name == "GRAPHS" else graphs:
            yield from _outer_values(graph)


def _outer_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the outer-scope values that a subgraph reads."""
    nodes, graphs = list(graph.all_nodes()), [graph, *graph.subgraphs()]
    own = {value for node in nodes for value in node.outputs}
    own |= {value for each in graphs for value in (*each.inputs, *each.initializers.values())}
    used = (*(node.inputs for node in nodes), *(each.outputs for each in graphs))
    yield from (value for value in itertools.chain(*used) if value is not None and value not in own)


def data_dependent_values(graph: ir.Graph) -> set[ir.Value]:
    """Find the tensors of a graph whose dims or existence depend on the values of other tensors, not only on their dims.

    They are (1) what NonZero and its like give; (2) results of an If with a computed condition, and of a Loop or Scan;
    (3) results of operators whose axes, sizes or counts are computed, where the dims are unknown, or declared and not checked in the
    run (`SIZED`); (4) whatever is made of them.

    A graph without any is marked, since rewrites bring none into it.
    """
    if graph.meta.get(_NONE):
        return set()
    free = {str(dim.value) for value in graph.inputs for dim in value.shape or () if not isinstance(dim, int)}
    plain: dict[ir.Value, bool] = {}
    if not any(_is_data_dependent_source(node, plain, free) for node in graph if _may_be_data_dependent_source(node)):
        graph.meta[_NONE] = True
        return set()
    plain.clear()  # what reads dims of dependent tensors counts as dependent below
    dependent: set[ir.Value] = set()
    for node in graph:
        if not dependent.isdisjoint(values_read_by(node)) or (
            _may_be_data_dependent_source(node) and _is_data_dependent_source(node, plain, free)
        ):
            dependent.update(node.outputs)
            plain.update(dict.fromkeys(node.outputs, False))
    return dependent


def _may_be_data_dependent_source(node: ir.Node) -> bool:
    """Whether `_is_data_dependent_source` can be true of a node; a quick test, since few nodes of a network can."""
    if node.op_type in _SOURCES:
        return not node.domain
    places = HOST_INPUTS.get(node.op_type)
    if places is None or node.domain:
        return False
    values = (operand(node, place) for place in places)
    return any(value is not None and constant(value) is None for value in values)


def _is_plain(value: ir.Value, plain: dict[ir.Value, bool]) -> bool:
    """Whether a value follows from constants and dims alone, without control flow; ``plain``: what is known, which grows."""
    waiting = [value]
    while waiting:
        value = waiting[-1]
        if value not in plain:
            node = value.producer()
            if constant(value) is not None or (node is not None and node.op_type in _READ_DIMS):
                plain[value] = True
            elif node is None or node.op_type in CONTROL_FLOW:
                plain[value] = False
            else:
                read = list(values_read_by(node))
                unknown = [] if any(plain.get(each) is False for each in read) else [v for v in read if v not in plain]
                if unknown:
                    waiting.append(unknown[0])
                    continue
                plain[value] = all(plain[each] for each in read)
        waiting.pop()
    return plain[value]


def _is_data_dependent_source(node: ir.Node, plain: dict[ir.Value, bool], free: set[str]) -> bool:
    """Whether the dims or the existence of a node's outputs depend on the values of its inputs."""

    def computed(places: range | tuple[int, ...]) -> bool:
        values = (operand(node, place) for place in places)
        return any(value is not None and not _is_plain(value, plain) for value in values)

    if node.op_type in ("Loop", "Scan"):
        return True
    if node.op_type == "If" or node.op_type in _CHOOSE:
        return computed(range(len(node.inputs)))
    has_known_dims = all(
        value.shape is not None and all(isinstance(dim, int) or dim.value in free for dim in value.shape)
        for value in node.outputs
        if value.name
    )
    return (not has_known_dims or node.op_type in SIZED) and computed(HOST_INPUTS.get(node.op_type, ()))
