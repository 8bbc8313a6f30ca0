"""Reshape vectors of one number per channel that ONNX broadcasts along another axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ...model.ir import add_constant, dims_of, is_op, names_in, operand, set_constant
from ...model.operator_traits import Trait, operators
from ...model.shapes import dims_text
from ...utils.optional import ir
from ...utils.override import override
from ._base import Finding, Repair, held_constant, is_by_mxnet

__all__ = ["ChannelVectors"]

_SUMS = operators(Trait.ARITHMETIC)
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_ALONG = _SUMS | operators(Trait.ACTIVATION) | {"BatchNormalization", "Dropout", "Identity"}
"""Operators that exporters of convolutional networks write between a convolution and a vector of its channels."""


class ChannelVectors(Repair):
    """Reshape a constant vector to (C, 1, 1), so that it broadcasts along the channels, axis 1, of the other operand.

    1. The slope of a PRelu, (C,) or with ones around it, that does not broadcast to its input.
    2. A vector (C,) in Add, Sub, Mul or Div that does not broadcast to the other operand.
    3. A slope (C,) that fits by accident, since the last axis has C places too, or may have them: in models of MXNet's exporter.
    4. The same of a vector in Add, Sub, Mul or Div, behind a convolution.

    What stays: (1) whatever broadcasts, in models of other exporters; (2) vectors that are computed, or that callers may replace;
    (3) vectors whose length is not the number of channels; (4) operands whose dims are not known.
    """

    name: ClassVar[str] = "channel-vectors"
    fault: ClassVar[bool] = True
    why: ClassVar[str] = (
        "ONNX holds the last axis against the last one; the framework had the vector along the channels, axis 1."
    )

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        by_mxnet = is_by_mxnet(model)
        self._made: dict[tuple[Any, ...], ir.Value] = {}
        for node in model.graph:
            if is_op(node, "PRelu"):
                yield from self._mend(model.graph, node, 0, 1, by_mxnet)
            elif node.op_type in _SUMS and not node.domain:
                for data, vector in ((0, 1), (1, 0)):
                    yield from self._mend(
                        model.graph, node, data, vector, by_mxnet and _is_behind_convolution(node, data)
                    )

    def _mend(self, graph: ir.Graph, node: ir.Node, data: int, place: int, is_certain: bool) -> Iterator[Finding]:
        """Check one operand, the vector, against the other."""
        x, value = operand(node, data), operand(node, place)
        dims, array = dims_of(x), held_constant(value)
        if value is None or array is None or dims is None or len(dims) < 2 or array.size < 2 or dims[1] != array.size:
            return
        is_slope = node.op_type == "PRelu"
        if max(array.shape) != array.size or (array.ndim > 1 and not is_slope):
            return
        if _fits(array.shape, dims, is_slope) and not (is_certain and array.ndim == 1 and len(dims) > 2):
            return
        shape = (array.size, *(1,) * (len(dims) - 2))
        node.replace_input_with(place, self._reshape_vector(graph, value, array, shape))
        if not is_slope and node.outputs[0].shape is None:
            node.outputs[0].shape, node.outputs[0].type = x.shape, x.type  # type: ignore[union-attr]
        what = f"{'the slope' if is_slope else 'the vector'} {value.name!r} {dims_text(array.shape)} beside dims {dims_text(_named(dims))}"
        yield self.finding(node, what, f"it is reshaped to {dims_text(shape)}, along the channels")

    def _reshape_vector(self, graph: ir.Graph, value: ir.Value, array: Any, shape: tuple[int, ...]) -> ir.Value:
        key = (value, shape)
        if key not in self._made:
            if value.name in graph.initializers and len(value.uses()) == 1:
                set_constant(value, array.reshape(shape))
                value.shape = ir.Shape(shape)
                self._made[key] = value
            else:
                name = f"{value.name}_{len(shape)}d"
                self._made[key] = add_constant(graph, name, np.ascontiguousarray(array.reshape(shape)), names_in(graph))
        return self._made[key]


def _fits(shape: tuple[int, ...], dims: tuple[Any, ...], is_slope: bool) -> bool:
    """Whether a vector broadcasts as it is; a free dim may have any size."""
    if is_slope and len(shape) > len(dims):
        return False
    pairs = zip(reversed(shape), reversed(dims), strict=False)
    return all(
        size == 1 or not isinstance(dim, int) or dim == size or (dim == 1 and not is_slope) for size, dim in pairs
    )


def _named(dims: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("?" if dim is None else dim for dim in dims)


def _is_behind_convolution(node: ir.Node, place: int) -> bool:
    """Whether an operand comes from a convolution, through nodes that keep the channels."""
    for _ in range(64):
        value = operand(node, place)
        before = None if value is None else value.producer()
        if before is None or before.domain:
            return False
        if before.op_type in _CONVOLUTIONS:
            return True
        if before.op_type not in _ALONG:
            return False
        node, place = before, 0 if held_constant(operand(before, 0)) is None else 1
    return False
