"""Dims of a node's operands, and what a rule requires of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....model.ir import array_of, operand
from ....utils.optional import ir

__all__ = [
    "Dims",
    "MisfitError",
    "Operands",
    "UnknownDimsError",
    "broadcast",
    "broadcast_onto",
    "require",
    "require_inside",
    "require_length",
    "require_steps",
]

Dims = tuple[int, ...]


class MisfitError(Exception):
    """Dims of a node's operands contradict each other; the text says which."""


class UnknownDimsError(Exception):
    """A rule needs dims or values that only the run knows."""


class Operands:
    """A node and the dims of its inputs and outputs.

    Args:
        node: The node.
        version: Version of ONNX's operators.
        inputs: Dims of its inputs as the run has them; None: as the model declares them, and those of the outputs too.

    Attributes:
        node: The node.
        version: Version of ONNX's operators.
        inputs: Dims of each input; None where it is left out or its dims are unknown.
        outputs: Dims of each output; None as for inputs.
    """

    def __init__(self, node: ir.Node, version: int, inputs: Sequence[Dims | None] | None = None) -> None:
        self.node, self.version = node, version
        self.inputs = [_known_dims(value) for value in node.inputs] if inputs is None else list(inputs)
        self.outputs = [_known_dims(value) if inputs is None else None for value in node.outputs]

    def __getitem__(self, index: int) -> Dims:
        """Dims of an input."""
        dims = self.inputs[index] if index < len(self.inputs) else None
        if dims is None:
            raise UnknownDimsError
        return dims

    def has(self, index: int) -> bool:
        """Whether the node has an input at this place."""
        return operand(self.node, index) is not None

    def array(self, index: int) -> Any:
        """Values of a constant input."""
        array = array_of(operand(self.node, index))
        if array is None:
            raise UnknownDimsError
        return array

    def number(self, name: str, default: int) -> int:
        """An attribute."""
        return self.node.attributes.get_int(name, default)

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """The attribute ``axis``, counted from the front."""
        axis = self.number(name, default)
        require(-rank <= axis < max(rank, 1), f"axis {axis} of a tensor of rank {rank}")
        return axis % max(rank, 1)


def require(fits: bool, text: str) -> None:
    """Raise `MisfitError` where dims do not fit."""
    if not fits:
        raise MisfitError(text)


def broadcast(*dims: Dims) -> Dims:
    """Dims that these broadcast to."""
    try:
        return np.broadcast_shapes(*dims)
    except ValueError:
        raise MisfitError(f"{' and '.join(map(str, dims))} do not broadcast") from None


def broadcast_onto(dims: Dims, target: Dims, what: str) -> None:
    """Require that a tensor broadcasts to dims and does not enlarge them."""
    require(broadcast(dims, target) == target, f"{what} of the dims {dims} does not broadcast to {target}")


def require_length(o: Operands, indices: Sequence[int], length: int, what: str) -> None:
    """Require that vectors have one element for each channel."""
    for index in indices:
        if o.has(index):
            size = math.prod(o[index])
            require(size == length, f"{size} elements of input {index}, expected {length}, one for each of {what}")


def require_inside(o: Operands, size: int, place: int | None = None) -> None:
    """Require that constant indices, or one column of them, are within an axis."""
    array = array_of(operand(o.node, 1))
    if array is not None and array.size:
        part = array if place is None else array[..., place]
        low, high = int(part.min()), int(part.max())
        require(-size <= low and high < size, f"an index is out of range, of {size} values: {low} to {high}")


def require_steps(o: Operands, steps: int) -> None:
    """Require that constant lengths of sequences are not above the number of steps."""
    lengths = array_of(operand(o.node, 1))
    if lengths is not None and lengths.size:
        low, high = int(lengths.min()), int(lengths.max())
        require(low >= 0 and high <= steps, f"a length is out of range, of {steps} steps: {low} to {high}")


def _known_dims(value: ir.Value | None) -> Dims | None:
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(value.shape.numpy())
