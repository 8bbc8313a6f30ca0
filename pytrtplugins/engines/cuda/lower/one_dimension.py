"""Rewrite 1-D convolutions and pools as 2-D ones of one row, for which the engine has kernels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ....model.ir import add_constant, array_of, dims_of, dtype_of, is_op, operand, set_attributes
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override
from .data_dependent import data_dependent_values
from .epilogue import comes_from_constants

__all__ = ["WriteAsImages"]

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_POOLS = ("AveragePool", "MaxPool")
_GLOBAL_POOLS = operators(Trait.GLOBAL_POOL)
_BROADCASTING = operators(Trait.BROADCASTS) | {"PRelu"}
_QUANTIZING = ("DequantizeLinear", "QuantizeLinear")
_REDUCING = operators(Trait.REDUCES) - {"ReduceLogSum", "ReduceLogSumExp", "ReduceProd"}
"""Reductions whose axes this pass rewrites; the other three stay as they are."""
_ALONG_AXIS = {"Concat": 1, "Split": 0, "LogSoftmax": -1, "Softmax": -1, **dict.fromkeys(_QUANTIZING, 1)}
"""Operator that this pass gives another axis → its axis where the node names none, in the opsets that the pass takes."""
_FOLLOWING = (
    operators(Trait.UNARY)
    | _BROADCASTING
    | _GLOBAL_POOLS
    | _REDUCING
    | _ALONG_AXIS.keys()
    | operators(Trait.RETYPES)
    | {"BatchNormalization", "Dropout", "InstanceNormalization"}
)
"""Operators that this pass can give another axis."""
_AXIS = 2
"""Where the row of an image stands: (N, C, 1, L), in NHWC the same memory as (N, L, C)."""
_FIRST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
"""What attributes of windows say about the new axis."""
_OPSET = 13
"""From which on axes are inputs."""


class WriteAsImages(Pass):
    """Conv, ConvTranspose and pools of (N, C, L) → of (N, C, 1, L), with all that works on the same tensors element by element.

    Tensors that connected operators exchange get the new axis, constants too; Unsqueeze and Squeeze stand where other operators
    give or read them, and at the network's inputs and outputs. What follows the convolutions and pools: operators that compute
    each element from those in its place, Q/DQ, BatchNormalization and InstanceNormalization, global pools and reductions that
    keep their axes, Softmax, Concat and Split. Borders by SAME are written as numbers where they follow from what is known.

    What stays: (1) a convolution whose weights are computed in the run; (2) a MaxPool that gives indices; (3) tensors of unknown
    rank or without values; (4) convolutions of other types than float32 and float16; (5) what hangs on values; (6) opsets before 13.
    """

    name: ClassVar[str] = "one-dimension"

    @override
    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        if graph.opset_imports.get("", 0) < _OPSET:  # case 6
            return PassResult(model, False)
        seeds = [node for node in graph if _is_seed(node)]
        if seeds:
            hanging = data_dependent_values(graph)
            seeds = [node for node in seeds if hanging.isdisjoint(node.outputs)]  # case 5
        if not seeds:
            return PassResult(model, False)
        _drop_needless_reshapes(graph)
        writer = _Writer(graph, _connected(graph, seeds, hanging))
        for node in list(graph):
            if node in writer.nodes:
                writer.write(node)
        return PassResult(model, True)


class _Writer:
    """Adds an axis of size 1 to the tensors of some nodes.

    Attributes:
        nodes: The nodes.
    """

    def __init__(self, graph: ir.Graph, nodes: set[ir.Node]) -> None:
        self.graph, self.nodes = graph, nodes
        self._images: dict[ir.Value, ir.Value] = {}

    def write(self, node: ir.Node) -> None:
        """Let a node read and write 4-D tensors; nodes before it in the graph do already."""
        attributes = _attributes(node)
        for index, value in enumerate(node.inputs):
            if value is None or not _gets_axis(node, index):
                continue
            is_lifted = value.producer() in self.nodes
            node.replace_input_with(index, value if is_lifted else self._image(value, node))
        axes = operand(node, 1)
        if node.op_type in _REDUCING and axes is not None:
            numbers = np.array(_image_axes(array_of(axes)), np.int64)
            node.replace_input_with(1, add_constant(self.graph, f"{node.outputs[0].name}.axes", numbers))
        set_attributes(node, attributes)
        after = node
        for value in node.outputs:
            if value.shape is not None and len(value.shape) == 3:
                after = self._squeeze_output(node, value, after)

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _image(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        """Return a tensor with the new axis; an Unsqueeze is inserted before the reader if needed."""
        if value not in self._images:
            self._images[value] = self._make_image(value, reader)
        return self._images[value]

    def _make_image(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        array, axis, name = array_of(value), len(dims_of(value) or ()) - 1, f"{value.name}.image"
        if array is not None:
            return add_constant(self.graph, name, np.expand_dims(array, axis))
        producer = value.producer()
        if producer is not None and comes_from_constants(value):  # weights that are quantized, or in another type
            inputs = [
                self._image(each, reader) if len(dims_of(each) or ()) > 1 else each
                for each in producer.inputs
                if each is not None
            ]
            node = ir.node(producer.op_type, inputs, name=f"{producer.name}.image")
            node.attributes.update(producer.attributes)
            set_attributes(node, _attributes(producer))
        else:
            axes = add_constant(self.graph, f"{name}.axes", np.array([axis], np.int64))
            node = ir.node("Unsqueeze", [value, axes], name=name)
        image: ir.Value = node.outputs[0]
        image.name, image.type, image.shape = name, value.type, _with_axis(value.shape)
        self.graph.insert_before(reader, node)
        return image

    def _squeeze_output(self, node: ir.Node, value: ir.Value, after: ir.Node) -> ir.Node:
        """Give an output the new axis, and add a Squeeze for readers without it; return the last added node, or ``after``."""
        uses = [use for use in value.uses() if use.node not in self.nodes or not _gets_axis(use.node, use.idx)]
        shape, name = value.shape, value.name
        value.shape = _with_axis(shape)
        if not uses and not value.is_graph_output():
            return after
        axes = add_constant(self.graph, f"{name}.axes", np.array([_AXIS], np.int64))
        squeeze: ir.Node = ir.node("Squeeze", [value, axes], name=f"{node.name}.row")
        row: ir.Value = squeeze.outputs[0]
        row.type, row.shape = value.type, shape
        others = [use for use in value.uses() if use.node is not squeeze and use not in uses]
        value.replace_all_uses_with(row, replace_graph_outputs=True)
        squeeze.replace_input_with(0, value)
        for use in others:
            use.node.replace_input_with(use.idx, value)
        value.name, row.name = f"{name}.image", name
        self.graph.insert_after(after, squeeze)
        return squeeze


# -- inside ----------------------------------------------------------------------------------------------------------------


def _is_seed(node: ir.Node) -> bool:
    """Whether a node is a 1-D convolution or pool that can be rewritten."""
    if node.domain or node.op_type not in (*_CONVOLUTIONS, *_POOLS):
        return False
    dims = dims_of(node.inputs[0]) or ()
    if (
        len(dims) != 3 or 0 in dims or not _has_one_read_output(node) or len(dims_of(node.outputs[0]) or ()) != 3
    ):  # cases 2 and 3
        return False
    if node.op_type in _POOLS:
        return True
    weights = node.inputs[1]
    floats = all(
        value is not None and dtype_of(value) in (DType.FLOAT32, DType.FLOAT16) for value in node.inputs[:2]
    )  # case 4
    return floats and len(dims_of(weights) or ()) == 3 and comes_from_constants(weights)  # case 1


def _can_follow(node: ir.Node) -> bool:
    """Whether a node between 1-D layers computes the same on tensors with the new axis."""
    if node.domain or node.op_type not in _FOLLOWING or not node.outputs:
        return False
    ranks = [None if (dims := dims_of(value)) is None else len(dims) for value in node.inputs if value is not None]
    results = [dims_of(value) for value in node.outputs if value.uses() or value.is_graph_output()]
    if None in ranks or not results or any(dims is None or len(dims) != 3 or 0 in dims for dims in results):
        return False
    if node.op_type == "Split":
        return True
    if node.op_type in _REDUCING:
        axes = array_of(operand(node, 1))
        has_axes = (axes is not None and axes.size > 0) or bool(node.attributes.get_ints("axes", ()))
        return _has_one_read_output(node) and has_axes and node.attributes.get_int("keepdims", 1) == 1
    if node.op_type in _QUANTIZING and any(rank is not None and rank > 1 for rank in ranks[1:]):
        return False
    first = max(rank or 0 for rank in ranks) if node.op_type in _BROADCASTING else ranks[0]
    return _has_one_read_output(node) and first == 3


def _has_one_read_output(node: ir.Node) -> bool:
    """Whether only the first output of a node is read."""
    return not any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


def _drop_needless_reshapes(graph: ir.Graph) -> None:
    """Remove Reshapes to the same dims, as in a GroupNorm of groups of one channel."""
    for node in list(graph):
        x, value = (node.inputs[0], node.outputs[0]) if is_op(node, "Reshape") else (None, None)
        dims = dims_of(value)
        if x is None or value is None or dims is None or None in dims or dims != dims_of(x) or value.is_graph_output():
            continue
        value.replace_all_uses_with(x)
        graph.remove(node, safe=True)


def _connected(graph: ir.Graph, seeds: list[ir.Node], dependent: set[ir.Value]) -> set[ir.Node]:
    """The seeds, and all nodes connected with them that can take the new axis too."""
    nodes, queue = set(seeds), list(seeds)
    while queue:
        node = queue.pop()
        images = [value for index, value in enumerate(node.inputs) if value is not None and _gets_axis(node, index)]
        near = [value.producer() for value in images]
        for output in node.outputs:
            near += [use.node for use in output.uses() if _gets_axis(use.node, use.idx)]
        for other in near:
            if other is None or other in nodes or other.graph is not graph or not dependent.isdisjoint(other.outputs):
                continue
            if _can_follow(other):
                nodes.add(other)
                queue.append(other)
    return nodes


def _gets_axis(node: ir.Node, index: int) -> bool:
    """Whether an input of a rewritten node gets the new axis."""
    rank = len(dims_of(node.inputs[index]) or ())
    if index == 0 or node.op_type == "Concat":
        return rank > 1
    if node.op_type in _CONVOLUTIONS:
        return index == 1
    return node.op_type in _BROADCASTING and rank > 1


def _with_axis(shape: Any) -> Any:
    dims = list(shape)
    return ir.Shape([*dims[:-1], 1, *dims[-1:]])


def _image_axes(axes: Any) -> list[int]:
    """Convert reduced axes of a 3-D tensor to those of the 4-D one; the last axis becomes both spatial axes."""
    return [each for axis in axes for each in ((2, 3) if int(axis) % 3 == 2 else (int(axis) % 3,))]


def _attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes that change with the new axis."""
    at, changed = node.attributes, dict[str, Any]()
    if node.op_type in _ALONG_AXIS:
        axis = at.get_int("axis", _ALONG_AXIS[node.op_type]) % 3
        return {"axis": 3 if axis == 2 else axis}
    if node.op_type in _REDUCING:
        return {"axes": _image_axes(at.get_ints("axes", []))} if "axes" in at else {}
    if node.op_type not in (*_CONVOLUTIONS, *_POOLS):
        return {}
    for name, first in _FIRST.items():
        if name in at:
            changed[name] = [first, *at.get_ints(name, [])]
    pads = _same_pads(node) or list(at.get_ints("pads", []))
    if pads:
        changed["pads"] = [0, pads[0], 0, pads[1]]
    return changed | ({"auto_pad": "NOTSET"} if _same_pads(node) else {})


def _same_pads(node: ir.Node) -> list[int] | None:
    """The pads of a SAME convolution or pool; None for other rules, and where they depend on an unknown length."""
    at = node.attributes
    rule, length = at.get_string("auto_pad", "NOTSET"), (dims_of(node.inputs[0]) or (None,))[-1]
    if rule not in ("SAME_UPPER", "SAME_LOWER") or is_op(node, "ConvTranspose"):
        return None
    weights = dims_of(operand(node, 1)) or (1,)
    (size,) = at.get_ints("kernel_shape") or weights[-1:]
    (stride,), (dilation,) = at.get_ints("strides", [1]), at.get_ints("dilations", [1])
    reach = (size - 1) * dilation + 1
    if stride > 1 and not isinstance(length, int):
        return None
    total = reach - 1 if stride == 1 else max((-(-length // stride) - 1) * stride + reach - length, 0)
    less = total // 2
    return [less, total - less] if rule == "SAME_UPPER" else [total - less, less]
