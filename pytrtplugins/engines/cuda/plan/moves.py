"""Nodes that only move values, as moves: nothing is copied before something reads it that is no generated kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....model.ir import dtype_of, names_of
from ..device.moves import Move, Reshaped, Source
from ..device.text import C_TYPES
from ..lower.moves import MOVERS, moved
from .tensors import Tensors

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["is_only_moved", "node_moves", "plain_source"]

_MAX_PIECES = 4
"""Tensors, or parts of one, that a kernel chooses from for each value, where it can read a copy instead."""
_MAX_PARTS = 16
"""Where it cannot."""


def node_moves(node: ir.Node, tensors: Tensors) -> dict[str, Move] | None:
    """Where the values of a node's outputs lie; None for a node that does more than to move values."""
    if node.domain or node.op_type not in MOVERS:
        return None
    given = [str(value.name) for value in node.inputs if value is not None]
    data = given if node.op_type == "Concat" else given[:1]
    outputs = [value for value in node.outputs if value.name]
    described = [tensors.described(name) for name in (*data, *names_of(outputs))]
    if any(0 in dims or not dims or dtype not in C_TYPES for dims, dtype in described):
        return None
    if len({dtype for _, dtype in described}) > 1 or all(name in tensors.constants for name in data):
        return None
    found = _found(node, outputs, tensors)
    if found is not None and any(_is_long(move, _MAX_PIECES) for move in found.values()):
        for name in data:
            if tensors.is_moved(name) and (len(tensors.moves[name].sources) > 1 or tensors.moves[name].numbers):
                tensors.materialized(name)
        found = _found(node, outputs, tensors)
    return None if found is None or any(_is_long(move, _MAX_PARTS) for move in found.values()) else found


def is_only_moved(node: ir.Node) -> bool:
    """Whether nothing but nodes that move values read what a node gives, and kernels are generated for its type."""
    value = node.outputs[0]
    if dtype_of(value) not in C_TYPES:
        return False
    readers = [use.node for use in value.uses()]
    return not value.is_graph_output() and all(not each.domain and each.op_type in MOVERS for each in readers)


def plain_source(move: Move) -> str | None:
    """The tensor that a move only gives other dims; None for other moves."""
    source = move.x if isinstance(move, Reshaped) else move
    return str(source.tensor) if isinstance(source, Source) else None


def _found(node: ir.Node, outputs: list[ir.Value], tensors: Tensors) -> dict[str, Move] | None:
    found = {
        str(value.name): moved(
            node, value, lambda each: tensors.move(str(each.name)), lambda each: tensors.dims(str(each.name))
        )
        for value in outputs
    }
    return {name: move for name, move in found.items() if move} if all(found.values()) else None


def _is_long(move: Move, pieces: int) -> bool:
    return len(move.sources) > pieces or len(move.numbers) > 1
