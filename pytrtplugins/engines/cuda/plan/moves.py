"""Data movement without copies: nodes that only move values become index expressions of the generated kernels around them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ....model.ir import dtype_of, names_of
from ....utils.optional import ir
from ..device.layout import FP8, Format
from ..device.moves import Expanded, Move, Reshaped, Sliced, Source, Transposed
from ..device.strided import Strided
from ..device.text import C_TYPES
from ..lower.moves import is_mover, moved
from .plan import Step
from .tensors import Tensors

__all__ = ["is_only_moved", "node_moves", "strided", "write_moved"]

_MOVABLE = frozenset((*C_TYPES, FP8))
"""Types of what generated kernels copy; codes of FP8, which they do not compute with, as bytes."""
_MAX_PIECES = 4
"""Tensors, or parts of one, that a kernel chooses from for each value, where it can read a copy instead."""
_MAX_PARTS = 16
"""Where it cannot."""


def node_moves(node: ir.Node, tensors: Tensors) -> dict[str, Move] | None:
    """The moves of a node's outputs by name; None for a node that is not only data movement."""
    if not is_mover(node):
        return None
    given = [str(value.name) for value in node.inputs if value is not None]
    data = given if node.op_type == "Concat" else given[:1]
    outputs = [value for value in node.outputs if value.name]
    described = [tensors.described(name) for name in (*data, *names_of(outputs))]
    if any(0 in dims or not dims or dtype not in _MOVABLE for dims, dtype in described):
        return None
    kinds = {tensors.dtype(name) for name in (*data, *names_of(outputs)) if name not in tensors.constants}
    if len(kinds) > 1 or all(name in tensors.constants for name in data):
        return None
    moves = _output_moves(node, outputs, tensors)
    if moves is not None and FP8 in kinds and any(any(move.numbers) for move in moves.values()):
        return None
    if moves is not None and any(_has_more_sources(move, _MAX_PIECES) for move in moves.values()):
        for name in data:
            if tensors.is_moved(name) and (len(tensors.moves[name].sources) > 1 or tensors.moves[name].numbers):
                tensors.materialized(name)
        moves = _output_moves(node, outputs, tensors)
    return None if moves is None or any(_has_more_sources(move, _MAX_PARTS) for move in moves.values()) else moves


def is_only_moved(node: ir.Node) -> bool:
    """Whether only data movement reads a node's output, and generated kernels have its type."""
    value = node.outputs[0]
    if dtype_of(value) not in _MOVABLE:
        return False
    readers = [use.node for use in value.uses()]
    return not value.is_graph_output() and all(map(is_mover, readers))


def strided(move: Move, form: Format) -> Strided | None:
    """A move as a strided view of its only source; None where strides cannot describe it.

    Args:
        move: Where in the tensor they are.
        form: How the tensor lies.
    """
    if isinstance(move, Source):
        parts = zip(form.dims, form.strides, strict=True)
        return Strided(tuple(((size, stride),) if size != 1 else () for size, stride in parts))
    view = strided(move.x, form) if isinstance(move, (Expanded, Reshaped, Sliced, Transposed)) else None
    if view is None:
        return None
    if isinstance(move, Transposed):
        return view.transposed(move.perm)
    if isinstance(move, Sliced):
        for axis, (first, size, step) in enumerate(zip(move.first, move.dims, move.steps, strict=True)):
            if view is not None and (first, size, step) != (0, view.dims[axis], 1):
                view = view.sliced(axis, first, size, step)
        return view
    return view.expanded(move.dims) if isinstance(move, Expanded) else view.reshaped(move.dims)


def write_moved(steps: list[Step], formats: dict[str, Format], shared: Collection[str]) -> None:
    """Let generated kernels write directly to the target of a copy that alone reads their output; the copy is removed.

    Args:
        steps: The plan's.
        formats: How tensors lie.
        shared: Tensors that others lie in, or that lie in others, and the network's outputs.
    """
    writers: dict[str, list[Step]] = {}
    readers: dict[str, list[Step]] = {}
    for step in steps:
        for names, users in ((step.outputs, writers), (step.inputs, readers)):
            for name in names:
                users.setdefault(name, []).append(step)
    for copy in [step for step in steps if step.op == "Move" and len(step.inputs) == 1]:
        name, target = copy.inputs[0], copy.outputs[0]
        wrote = writers.get(name, [])
        if name in shared or readers[name] != [copy] or [step.kind for step in wrote] != ["pointwise"]:
            continue
        (writer,), form = wrote, formats[target]
        place = writer.outputs.index(name)
        move = copy.attributes["reads"][0].inverse(Source(form.dims, place))
        wide = tuple(writer.attributes.get("dims", formats[name].dims)) == formats[name].dims
        padded = form.nhwc and form.dims[1] % form.vector
        if move is None or not wide or padded or formats[name].dtype is not form.dtype or writer.op == "Move":
            continue
        writes = {**writer.attributes.get("writes", {}), place: move}
        outputs = tuple(target if each == name else each for each in writer.outputs)
        made = replace(writer, attributes={**writer.attributes, "writes": writes}, outputs=outputs)
        steps[steps.index(writer)] = made
        steps.remove(copy)
        del formats[name]
        for each in made.outputs:
            writers[each] = [made]
        for reading in readers.values():
            reading[:] = [made if step is writer else step for step in reading]


def _output_moves(node: ir.Node, outputs: list[ir.Value], tensors: Tensors) -> dict[str, Move] | None:
    dtype = tensors.dtype(str(outputs[0].name))
    moves = {
        str(value.name): moved(
            node, value, lambda each: tensors.move(str(each.name), dtype), lambda each: tensors.dims(str(each.name))
        )
        for value in outputs
    }
    return {name: move for name, move in moves.items() if move} if all(moves.values()) else None


def _has_more_sources(move: Move, pieces: int) -> bool:
    return len(move.sources) > pieces or len(move.numbers) > 1
