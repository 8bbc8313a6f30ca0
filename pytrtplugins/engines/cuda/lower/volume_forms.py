"""Tensors of volumes (N, C, D, H, W) as images of four axes, and operators between convolutions on these images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from ....model.ir import array_of, dims_of, is_op, operand, swap
from ....utils.optional import ir
from .new_nodes import NewNodes
from .operations import is_elementwise
from .rewrite import codes_scale, is_float

__all__ = ["Form", "VolumeForms", "row_major_pools", "volume_dims"]

Dims = tuple[Any, ...]
_QUANTIZING = ("DequantizeLinear", "QuantizeLinear")
_BY_CHANNEL = ("BatchNormalization", *_QUANTIZING)
"""Operators whose other operands are numbers, or vectors along the channels."""


class Form(Enum):
    """How a 4-D tensor holds a volume. In NHWC both forms have the same order in memory: N, D, H, W, C."""

    FRAMES = "frames"
    """(N * D, C, H, W): each frame is an image."""
    LINES = "lines"
    """(N, C, D, H * W): each frame is a line of one image."""

    def dims(self, volume: Dims) -> Dims:
        """The 4-D dims of a volume in this form."""
        n, c, d, h, w = volume
        return (n * d, c, h, w) if self is Form.FRAMES else (n, c, d, h * w)


def volume_dims(value: ir.Value | None) -> Dims | None:
    """(N, C, D, H, W) of a volume, of which N may be free and the others are numbers above 0; None for other tensors."""
    dims = dims_of(value)
    known = dims is not None and len(dims) == 5 and all(isinstance(dim, int) and dim for dim in dims[1:])
    return dims if dims is not None and known and dims[0] is not None else None


def row_major_pools(graph: ir.Graph) -> set[ir.Node]:
    """Pools of float volumes that are connected with no convolution, not even through elementwise operators, Concat or Q/DQ.

    Those of dequantized volumes are left out: a MaxPool works on the codes.
    """
    layers = [node for node in graph if not node.domain and node.inputs and volume_dims(node.inputs[0])]
    pools = {node for node in layers if node.op_type in ("AveragePool", "MaxPool") and is_float(node)}
    queue = [node for node in layers if pools and node.op_type in ("Conv", "ConvTranspose")]
    reached = set(queue)
    while queue:
        node = queue.pop()
        values = [value for value in (*node.inputs, *node.outputs) if value is not None and volume_dims(value)]
        inner = [value for value in values if not value.is_graph_input()]
        for other in [each for value in inner for each in (value.producer(), *value.consumers())]:
            if other is not None and other not in reached and _carries_volumes(other, pools):
                reached.add(other)
                queue.append(other)
    codes = {use.node for node in graph if is_op(node, "DequantizeLinear") for use in node.outputs[0].uses()}
    return pools - reached - codes


def _carries_volumes(node: ir.Node, pools: set[ir.Node]) -> bool:
    return node in pools or is_elementwise(node) or (not node.domain and node.op_type in ("Concat", *_BY_CHANNEL))


@dataclass
class VolumeForms:
    """The 4-D tensors of the volumes of a graph, by form.

    Attributes:
        graph: The graph.
        images: Volume → its images, by form.
        native: Volume → the form in which it was computed.
        codes: Volume that is dequantized by one scale around 0 → the volume of its codes, the scale, the zero point.
        gates: (N, C, 1, 1, 1) and a depth → the same for each frame.
    """

    graph: ir.Graph
    images: dict[ir.Value, dict[Form, ir.Value]] = field(default_factory=dict)
    native: dict[ir.Value, Form] = field(default_factory=dict)
    codes: dict[ir.Value, tuple[Any, ...]] = field(default_factory=dict)
    gates: dict[tuple[ir.Value, int], ir.Value] = field(default_factory=dict)

    def image(self, volume: ir.Value, form: Form, before: ir.Node) -> ir.Value:
        """Return the 4-D tensor of a volume in a form; nodes of data movement are inserted before its reader if needed."""
        known = self.images.setdefault(volume, {})
        if form in known:
            return known[form]
        n, c, d, h, w = dims = volume_dims(volume) or ()
        new = _Conversions(self.graph, before, volume)
        if form is Form.LINES and Form.FRAMES in known:
            known[form] = new.lines(known[Form.FRAMES], dims)
        elif form is Form.LINES:
            known[form] = new.add(
                "Reshape", [volume, np.array([-1, c, d, h * w])], form.value, form.dims(dims), like=volume
            )
        else:
            lines = self.image(volume, Form.LINES, before)
            x = new.add("Transpose", [lines], "turned", (n, d, c, h * w), like=lines, perm=[0, 2, 1, 3])
            known[form] = new.add("Reshape", [x, np.array([-1, c, h, w])], form.value, form.dims(dims), like=lines)
        return known[form]

    def replace(self, node: ir.Node, form: Form, image: ir.Value) -> ir.Value:
        """Replace a node whose output is a volume by the volume's 4-D tensor; return the new volume."""
        _, c, d, h, w = dims = volume_dims(node.outputs[0]) or ()
        new = _Conversions(self.graph, node, node.outputs[0])
        images = {form: image}
        if form is Form.FRAMES:
            images[Form.LINES] = new.lines(image, dims)
        volume = new.add("Reshape", [images[Form.LINES], np.array([-1, c, d, h, w])], "volume", dims)
        self.images[volume], self.native[volume] = images, form
        swap(self.graph, [node], volume)
        return volume

    def note_codes(self, volume: ir.Value, image: ir.Value, scale: Sequence[ir.Value | None]) -> None:
        """Note that a volume is dequantized from codes, of which there is only an image in its own form."""
        value = ir.Value
        codes = value(name=f"{volume.name}.codes", shape=volume.shape, type=image.type)
        self.images[codes] = {self.native[volume]: image}
        self.codes[volume] = (codes, *scale)

    def carry(self, node: ir.Node) -> bool:
        """Rewrite an elementwise operator or a Concat of channels to work on the 4-D tensors; return whether it was possible."""
        dims = volume_dims(node.outputs[0]) if len(node.outputs) == 1 else None
        if dims is None or node.domain or not node.inputs:
            return False
        x, known = node.inputs[0], [value for value in node.inputs if value in self.native]
        is_code = node.op_type in _QUANTIZING and volume_dims(x) == dims and array_of(x) is None
        if not known and not is_code:
            return False
        known.sort(key=self._is_convolution)  # which takes what is behind it as its epilogue
        form = self.native[known[-1]] if known else Form.LINES  # values of the network's input stay in their order
        if is_op(node, "Concat") and self._concat_codes(node, form, dims):
            return True
        operands = self._operands(node, form, dims)
        if operands is None:
            return False
        attributes: dict[str, Any] = {**node.attributes, **({"axis": 1} if is_op(node, "Concat") else {})}
        new = NewNodes(self.graph, node)
        image = new.add(node.op_type, operands, form.value, form.dims(dims), is_named=True, **attributes)
        values = [*node.inputs[1:]]
        is_dequantized = x is not None and is_op(node, "DequantizeLinear") and codes_scale(node) is not None
        volume = self.replace(node, form, image)
        if is_dequantized:
            self.codes[volume] = (x, *values)
        return True

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _concat_codes(self, node: ir.Node, form: Form, dims: Dims) -> bool:
        """Let a Concat of dequantized channels join the codes if they have one scale; return whether it was possible."""
        entries = [self.codes.get(value) for value in node.inputs if value is not None]
        codes = [each for each in entries if each is not None]
        if len(codes) < len(entries) or node.attributes.get_int("axis", 0) % 5 != 1:
            return False
        numbers = [tuple(array_of(value) for value in scale) for _, *scale in codes]
        alike = all(np.array_equal(one, first) and one.dtype == first.dtype
                    for each in numbers for one, first in zip(each, numbers[0], strict=False))  # fmt: skip
        if not alike or len({len(each) for each in numbers}) > 1:
            return False
        new, (_, *scale) = NewNodes(self.graph, node), codes[0]
        parts = [self.image(volume, form, node) for volume, *_ in codes]
        joined = new.add("Concat", parts, "joined", form.dims(dims), like=parts[0], is_named=True, axis=1)
        values = new.add("DequantizeLinear", [joined, *scale], form.value, form.dims(dims))
        self.note_codes(self.replace(node, form, values), joined, scale)
        return True

    def _is_convolution(self, volume: ir.Value) -> bool:
        """Whether a volume's 4-D tensor in its native form is the output of a convolution."""
        return is_op(self.images[volume][self.native[volume]].producer(), "Conv")

    def _operands(self, node: ir.Node, form: Form, dims: Dims) -> list[Any] | None:
        """The inputs of a node rewritten for a form; None if the node cannot work on the form."""
        if is_op(node, "Concat"):
            if node.attributes.get_int("axis", 0) % 5 != 1:
                return None
            return [self.image(value, form, node) for value in node.inputs if value is not None]
        if node.op_type in _BY_CHANNEL:
            x, scale = node.inputs[0], operand(node, 1)
            along = node.attributes.get_int("axis", 1) == 1 and not node.attributes.get_int("block_size", 0)
            if x is None or (math.prod(dims_of(scale) or (0,)) != 1 and not along):
                return None
            return [self.image(x, form, node), *node.inputs[1:]]
        if not is_elementwise(node):
            return None
        operands = [None if value is None else self._operand(value, form, dims, node) for value in node.inputs]
        return (
            None
            if any(new is None and old is not None for new, old in zip(operands, node.inputs, strict=True))
            else operands
        )

    def _operand(self, value: ir.Value, form: Form, dims: Dims, node: ir.Node) -> Any:
        """An input that broadcasts to a volume, rewritten for a form; None where that is impossible."""
        own, array = dims_of(value), array_of(value)
        if own is None or len(own) > 5:
            return None
        if own == dims:
            return self.image(value, form, node)
        if len(own) < 2 and all(dim == 1 for dim in own):
            return value
        n, c, d, h, w = (1,) * (5 - len(own)) + own
        if array is not None and n == d == 1 and (form is Form.FRAMES or h == w == 1):
            return array.reshape(c, h, w)
        if (
            array is None
            and (n, h, w) == (dims[0], 1, 1)
            and d in (1, dims[2])
            and len(own) == 5
            and isinstance(c, int)
        ):
            return self._gate(value, form, dims, node)
        return None

    def _gate(self, value: ir.Value, form: Form, dims: Dims, node: ir.Node) -> ir.Value:
        """A factor per channel, (N, C, 1, 1, 1) or (N, C, D, 1, 1), rewritten for a form."""
        n, c, d, _, _ = dims_of(value) or ()
        if form is Form.FRAMES and d != dims[2] and (value, dims[2]) not in self.gates:
            new, to = _Conversions(self.graph, node, value), (n, c, dims[2], 1, 1)
            expanded = new.add("Expand", [value, np.array([1, 1, *to[2:]])], f"depth{dims[2]}", to, like=value)
            self.gates[value, dims[2]] = expanded
        return self.image(self.gates.get((value, dims[2]), value), form, node)


class _Conversions(NewNodes):
    """Add nodes of data movement before a reader of a volume; their outputs are named after the volume."""

    def __init__(self, graph: ir.Graph, reader: ir.Node, volume: ir.Value) -> None:
        super().__init__(graph, reader)
        self.y = volume

    def lines(self, frames: ir.Value, dims: Dims) -> ir.Value:
        """Convert the frames of a volume to lines."""
        n, c, d, h, w = dims
        x = self.add("Reshape", [frames, np.array([-1, d, c, h * w])], "parted", (n, d, c, h * w), like=frames)
        return self.add("Transpose", [x], Form.LINES.value, (n, c, d, h * w), like=frames, perm=[0, 2, 1, 3])
